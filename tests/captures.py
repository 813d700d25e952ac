"""The captured exchanges of real engines under `tests/fixtures`, as requests to send and scripts to replay.

`index.tsv` has the request of each capture. Where it only describes one (`(900-word prompt)`, `(32 MiB body)`, ...), a request of
that shape is made here: the answer does not depend on the words. A request names its capture in the header `x-capture`, which a
gateway passes on as it does any unknown header, so the backend needs no state to know which answer is wanted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import client
from tests.framing import HEAD_END, BodyReader, Head, Headers, Layout, parse_head
from tests.script import Framing, Gate, Request, Script, read_apart

FIXTURES = Path(__file__).parent / "fixtures"
ENGINES = ("vllm-0.32.0", "sglang-0.5.23")
RAW_CAPTURE = "stream-raw-chunks"
"""The one capture that still has its chunked coding."""

DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Capture:
    engine: str
    name: str
    method: str
    target: str
    request_headers: tuple[tuple[bytes, bytes], ...]
    request_body: bytes
    chunk_bytes: int
    answer: Head
    answer_body: bytes
    """Without chunked coding."""
    raw_answer: bytes
    is_variant: bool
    """Of an engine with keys, ids in its answers' headers and a bounded queue."""

    @property
    def id(self) -> str:
        return f"{self.engine}/{self.name}"

    @property
    def status(self) -> int:
        return int(self.answer.start_line.split(b" ")[1])

    @property
    def is_stream(self) -> bool:
        return (self.answer.value(b"content-type") or b"").startswith(b"text/event-stream")

    def request(self, *extra: tuple[bytes, bytes]) -> bytes:
        """The bytes to send. What was recorded over HTTP/1.0 is sent so again."""
        has_body = self.method == "POST"
        return client.request(
            self.method,
            self.target,
            [*self.request_headers, (b"x-capture", self.name.encode()), *extra],
            self.request_body if has_body else None,
            chunk_bytes=self.chunk_bytes,
            version=b"HTTP/1.0" if self.name == "stream-http10" else b"HTTP/1.1",
        )

    def script(self, request: Request) -> Script:
        """The captured answer, one event a chunk; header `x-piece-bytes: N` asks for pieces of N bytes instead.

        A stream that is asked for usage now but was not when it was recorded gets the event that the engine would have added.
        """
        if self.name == RAW_CAPTURE:
            return Script(chunks=[self.raw_answer], framing=Framing.RAW)
        body = self.answer_body
        if self.is_stream and asks_for_usage(request.body) and not asks_for_usage(self.request_body):
            body = body.replace(DONE, usage_event(self.engine, self.target) + DONE)
        chunks: Iterable[bytes | Gate]
        if size := int(request.value(b"x-piece-bytes") or b"0"):
            pieces = [body[at : at + size] for at in range(0, len(body), size)]
            chunks = (part for piece in pieces for part in (piece, read_apart()))
        else:
            chunks = re.findall(rb".+?\n\n|.+\Z", body, re.DOTALL) if self.is_stream else [body]
        layout = BodyReader.of_answer(self.answer, self.status, b"GET").layout
        return Script(
            status=self.status,
            reason=self.answer.start_line.split(b" ", 2)[2],
            headers=self.answer.headers,
            chunks=chunks,
            framing=FRAMING[layout],
        )


FRAMING = {
    Layout.LENGTH: Framing.LENGTH,
    Layout.CHUNKED: Framing.CHUNKED,
    Layout.UNTIL_CLOSE: Framing.UNTIL_CLOSE,
}


def asks_for_usage(body: bytes) -> bool:
    content = json.loads(body)
    return bool((content.get("stream_options") or {}).get("include_usage"))


def usage_event(engine: str, target: str) -> bytes:
    """The usage-only event of the engine's own capture of such a stream."""
    name = "text-stream-usage" if target == "/v1/completions" else "stream-usage"
    _, body = split_answer((FIXTURES / engine / f"{name}.http").read_bytes())
    found = re.search(rb'data: [^\n]*"choices":\[\][^\n]*\n\n', body)
    assert found, (engine, name)
    return found.group()


def split_answer(raw: bytes) -> tuple[Head, bytes]:
    """Head and body; 1xx heads that came first are skipped."""
    head, _, rest = raw.partition(HEAD_END)
    while head.split(b" ", 2)[1].startswith(b"1"):
        head, _, rest = rest.partition(HEAD_END)
    return parse_head(head), rest


def load(engine: str) -> list[Capture]:
    """Every capture of `engine` that has a request in an index."""
    folder = FIXTURES / engine
    return [*_load_folder(engine, folder), *_load_folder(engine, folder / "variants")]


def _load_folder(engine: str, folder: Path) -> list[Capture]:
    captures = []
    for line in (folder / "index.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        # One captured header has a tab in its value.
        name, _, method, target, *headers, body = line.split("\t")
        request_headers, chunked = _request_headers("\t".join(headers))
        raw = (folder / f"{name}.http").read_bytes()
        answer, answer_body = split_answer(raw)
        if name == RAW_CAPTURE:
            answer_body = BodyReader(Layout.CHUNKED).feed(answer_body)
        captures.append(
            Capture(
                engine,
                name,
                method,
                target,
                tuple(request_headers),
                _request_body(name, body),
                65536 if chunked else 0,
                answer,
                answer_body,
                raw,
                folder.name == "variants",
            )
        )
    return captures


def _request_headers(text: str) -> tuple[Headers, bool]:
    """The headers to send, and whether the body went out chunked."""
    if text == "(300 headers)":
        return [(b"x-h%d" % i, b"1") for i in range(300)], False
    headers: Headers = []
    chunked = False
    for item in re.split(r"; (?=[A-Za-z-]+:)", text) if text else []:
        name, _, value = item.partition(":")
        value = value.strip()
        if made := re.fullmatch(r"\(([\d,]+) times (.)\)", value):
            value = made[2] * int(made[1].replace(",", ""))
        if name == "transfer-encoding":
            chunked = True
        elif value:
            headers.append((name.encode(), value.encode()))
    return headers, chunked


def _request_body(name: str, text: str) -> bytes:
    if name == "err-not-utf8":
        return text.encode().replace("�".encode(), b"\xff")
    if not text.startswith("("):
        return text.encode()
    content: dict[str, Any] = {"model": "tiny", "temperature": 0, "max_tokens": 8}
    words = re.match(r"\(([\d,]+)-word", text)
    if "32 MiB" in text:
        prompt = "x" * (32 << 20)
    else:
        prompt = "one and another word " * (int(words[1].replace(",", "")) // 4 if words else 225)
    content["messages"] = [{"role": "user", "content": prompt}]
    if "stream" in text:
        content["stream"] = True
    return json.dumps(content).encode()
