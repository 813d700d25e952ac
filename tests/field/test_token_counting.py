"""Field cases of counting tokens: bounded work, no network, media by their size, and no prompt that breaks it."""

from __future__ import annotations

import asyncio
import base64
import os
from pathlib import Path
from typing import Any

import pytest

from gateway.classifier_file import written
from gateway.settings import (
    BackendSettings,
    BusinessTypeSettings,
    ClassifierSettings,
    PoolSettings,
    PromptTokensSettings,
    ServerSettings,
    Settings,
    WindowSettings,
)
from policies.text_classifier import TextClassifier
from tests import client
from tests.backend import Backend, json_script
from tests.gateway_process import GatewayProcess
from tests.running import CHAT, post_request, running_with
from tests.system.crowd import route

RESPONSES = "/v1/responses"


def said(text: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}]}


def cpu_seconds(pid: int) -> float:
    """Of the process's first thread, which runs the loop: without the time in which the machine ran something else."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


LARGE = {
    "1 MB": "some words of a prompt " * 43_000,
    "10 MB": "some words of a prompt " * 430_000,
    "a word of 5 MB": "x" * 5_000_000,
    "2 MB of blanks": " " * 2_000_000,
    "2 MB of emoji": "\U0001f600" * 500_000,
    "2 MB of digits": "7" * 2_000_000,
    "many parts": [{"type": "text", "text": "part "}] * 20_000,
}


async def test_b149_a_large_prompt_keeps_the_loop_no_longer_than_a_stream_may_wait(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_bytes(written(CLASSIFIER))
    async with Backend() as backend:
        one = {"name": "p", "window": {"max": 8}, "backends": [{"url": backend.url}]}
        file = tmp_path / "headrace.yaml"
        file.write_text(
            f"pools: [{one}]\nclassifier: {{file: {path}}}\nbusiness_types: [{{name: cards}}, {{name: loans}}]\n"
        )
        uncounted = {"COVERAGE_PROCESS_CONFIG": ""}  # counting its lines would be most of its CPU
        async with GatewayProcess("--config", str(file), environment=uncounted) as gateway:
            took = {}
            for name, text in LARGE.items():
                raw = post_request(said(text))
                tries = []
                for _ in range(3):
                    before = cpu_seconds(gateway.pid)
                    assert (await client.send(gateway.port, raw)).status == 200, name
                    tries.append(cpu_seconds(gateway.pid) - before)
                took[name] = min(tries)
            # All the work for one request, reading and sending it included, is more than the longest gap that it can make.
            assert max(took.values()) < 0.1, took
            assert took["10 MB"] < 30 * took["1 MB"], "it grows with the size and no faster"


def tokenizers_of(pid: int) -> list[str]:
    loaded = Path(f"/proc/{pid}/maps").read_text()
    return [name for name in ("tokenizers", "tiktoken", "sentencepiece") if name in loaded]


WATCH = """
import os, sys
def watch(event, arguments, log=open(os.environ["SEEN"], "a", buffering=1)):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "subprocess.Popen", "urllib.Request"):
        print(event, arguments[-1] if event == "socket.connect" else arguments, file=log)
sys.addaudithook(watch)
"""


async def test_b150_nothing_but_the_backend_is_asked_at_the_start_and_at_the_first_request(
    tmp_path: Path,
) -> None:
    (tmp_path / "sitecustomize.py").write_text(WATCH)
    seen = tmp_path / "seen"
    environment = {
        "SEEN": str(seen),
        "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", ""), os.getcwd()]),
    }
    async with (
        Backend() as backend,
        GatewayProcess("--backend", backend.url, environment=environment) as gateway,
    ):
        assert (await client.send(gateway.port, post_request(said("words " * 5000)))).status == 200
        assert not tokenizers_of(gateway.pid)
    elsewhere = [line for line in seen.read_text().splitlines() if "127.0.0.1" not in line]
    assert elsewhere == []


MEGABYTE = base64.b64encode(bytes(750_000)).decode()
PICTURE = f"data:image/png;base64,{MEGABYTE}"
SOUND = {"data": MEGABYTE, "format": "wav"}
MEDIA: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "image_url": (CHAT, [{"type": "image_url", "image_url": {"url": PICTURE}}]),
    "image_url low": (CHAT, [{"type": "image_url", "image_url": {"url": PICTURE, "detail": "low"}}]),
    "image_url as text": (CHAT, [{"type": "image_url", "image_url": PICTURE}]),
    "input_audio": (CHAT, [{"type": "input_audio", "input_audio": SOUND}]),
    "audio_url": (CHAT, [{"type": "audio_url", "audio_url": {"url": f"data:audio/wav;base64,{MEGABYTE}"}}]),
    "file": (CHAT, [{"type": "file", "file": {"filename": "a.pdf", "file_data": MEGABYTE}}]),
    "anthropic image": ("/v1/messages", [{"type": "image", "source": {"type": "base64", "data": MEGABYTE}}]),
    "input_image": (RESPONSES, [{"type": "input_image", "image_url": PICTURE}]),
    "input_file": (RESPONSES, [{"type": "input_file", "filename": "a.pdf", "file_data": MEGABYTE}]),
    "responses audio": (RESPONSES, [{"type": "input_audio", "input_audio": SOUND}]),
}


@pytest.mark.parametrize("media", MEDIA)
async def test_b152_media_are_counted_by_their_size_and_not_as_text(media: str) -> None:
    target, parts = MEDIA[media]
    message = {"role": "user", "content": [{"type": "text", "text": "what is this?"}, *parts]}
    body = {"model": "m", "input" if target == RESPONSES else "messages": [message]}
    async with Backend() as backend:
        pool = PoolSettings(
            name="p",
            window=WindowSettings(max=4, max_tokens=50_000),
            prompt_tokens=PromptTokensSettings(max=5000),
            backends=(BackendSettings(url=backend.url),),
        )
        async with running_with(Settings(pools=(pool,), server=ServerSettings(port=0))) as gateway:
            answer = await gateway.post(body, target)
            assert route(answer)["length"] in ("short", "medium")
            too_long = said("one word after another " * 2000)
            assert (await gateway.post(too_long)).status == 400, "the bound does hold text back"


CONTENTS: dict[str, Any] = {
    "image": [{"type": "image"}],
    "video_url": [{"type": "video_url", "video_url": {"url": "http://v"}}],
    "input_file": [{"type": "input_file", "file_id": "f"}],
    "refusal": [{"type": "refusal", "refusal": "no"}],
    "unknown": [{"type": "zz", "zz": [1, {"a": None}]}],
    "no type": [{}],
    "type is a number": [{"type": 7, "text": 7}],
    "type is a list": [{"type": ["text"], "text": ["x"]}],
    "null part": [None],
    "number part": [1.5, True, 2],
    "null": None,
    "number": 7,
    "true": True,
    "nested": [[[[[[[["deep"]]]]]]]],
    "object": {"type": "text", "text": "x"},
    "image without a url": [{"type": "image_url"}],
    "image url null": [{"type": "image_url", "image_url": None}],
    "audio null": [{"type": "input_audio", "input_audio": None}],
    "audio data number": [{"type": "input_audio", "input_audio": {"data": 7}}],
    "lone surrogate": "\ud800",
    "empty": [],
}


PROMPTS: list[Any] = [[1, 2, 3], [[1, 2], [3]], [1, "x"], ["x", 1], [[]], [[None]], [-1], {"a": 1}]


@pytest.mark.parametrize("stage", ["plain", "classified"])
async def test_b153_a_content_of_any_shape_is_counted_as_far_as_it_is_known(
    stage: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.json"
    path.write_bytes(written(CLASSIFIER))
    async with Backend() as backend:
        settings = _settings(backend, str(path) if stage == "classified" else "")
        async with running_with(settings) as gateway:
            for name, content in CONTENTS.items():
                for target, body in {
                    CHAT: said(content),
                    RESPONSES: {"model": "m", "input": [{"role": "user", "content": content}]},
                    "/v1/messages": {**said("x"), "system": content},
                    "/v1/completions": {"model": "m", "prompt": content},
                    "/v1/embeddings": {"model": "m", "input": content},
                    "/v1/rerank": {"model": "m", "query": content, "documents": content},
                }.items():
                    answer = await gateway.post(body, target)
                    assert answer.status == 200, (name, target)
                    assert route(answer)["length"] in ("short", "medium", "long", "unknown"), (name, target)
            for prompt in PROMPTS:
                answer = await gateway.post({"model": "m", "prompt": prompt}, "/v1/completions")
                assert answer.status == 200, prompt


CLASSIFIER = TextClassifier(("cards", "loans"), 10.0, {"borrow": (-400, 400), "plastic": (400, -400)})


def _settings(backend: Backend, file: str) -> Settings:
    pool = PoolSettings(name="p", window=WindowSettings(max=64), backends=(BackendSettings(url=backend.url),))
    return Settings(
        pools=(pool,),
        server=ServerSettings(port=0),
        business_types=(BusinessTypeSettings(name="cards"), BusinessTypeSettings(name="loans")),
        classifier=ClassifierSettings(file=file),
    )


async def test_b155_a_prompt_of_any_length_is_classified_or_a_default_one(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_bytes(written(CLASSIFIER))
    async with (
        Backend(lambda _: json_script({})) as backend,
        running_with(_settings(backend, str(path))) as gateway,
    ):
        for words in (1, 511, 512, 513, 4000, 32_000, 200_000):
            for word, expected in (("borrow ", "loans"), ("word ", "default")):
                answer = await gateway.post(said(word * words))
                assert route(answer)["business"] == expected, words
        answers = await asyncio.gather(*[gateway.post(said("borrow " * 32_000)) for _ in range(20)])
        assert {route(answer)["business"] for answer in answers} == {"loans"}
