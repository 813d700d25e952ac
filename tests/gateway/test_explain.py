"""What `headrace explain` says of a request."""

from __future__ import annotations

import io
import json
import sys
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import orjson
import pytest

from gateway.__main__ import main

CONFIG = """
pools:
  - {{name: big, role: high-batch, prompt_tokens: {{max: 1000}}, window: {{max: 4}}, backends: [{{url: "http://127.0.0.1:1", name: b}}]}}
  - {{name: quick, role: low-latency, window: {{max: 1}}, backends: [{{url: "http://127.0.0.1:2", name: q}}]}}
business_types:
  - {{name: cards, latency_target_ms: 500, lane: interactive, pools: [quick, big], match: {{keywords: ["credit card"]}}}}
tenants:
  - {{name: bank, max_lane: emergency, key_sha256: ["{}"]}}
aliases: {{short: engine-model}}
""".format(sha256(b"secret").hexdigest())


def said(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, *arguments: str) -> dict[str, object]:
    (tmp_path / "c.yaml").write_text(CONFIG)
    (tmp_path / "r.json").write_text(
        json.dumps({"model": "short", "max_tokens": 5, "messages": [{"role": "user", "content": text}]})
    )
    config = str(tmp_path / "c.yaml")
    assert main(["explain", str(tmp_path / "r.json"), "--config", config, *arguments]) == 0
    found = orjson.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def test_tag_and_backend_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = said(tmp_path, capsys, "My credit card is gone")
    assert (found["business"], found["lane"], found["target_ms"]) == ("cards", "interactive", 500.0)
    assert (found["pools"], found["backend"], found["model"]) == (["quick", "big"], "q", "engine-model")
    assert (found["tenant"], found["length"], found["decision"]) == ("anonymous", "short", "sent at once")


def test_headers_count_as_they_would(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key, lane = "Authorization: Bearer secret", "x-headrace-lane: emergency"
    found = said(tmp_path, capsys, "Hello", "--header", key, "--header", lane)
    assert (found["tenant"], found["lane"]) == ("bank", "emergency")


def test_a_refusal_is_told_with_its_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = said(tmp_path, capsys, "Hello", "--header", "Authorization: Bearer wrong")
    assert (found["decision"], found["status"], found["reason"]) == ("refused", 401, "unauthorized")
    assert said(tmp_path, capsys, "Hello", "--path", "/sleep")["reason"] == "unknown_path"


def test_a_prompt_that_fits_no_pool_is_a_refusal_with_its_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = '{name: small, prompt_tokens: {max: 5}, backends: [{url: "http://127.0.0.1:1"}]}'
    (tmp_path / "c.yaml").write_text(f"pools: [{pool}]\naliases: {{short: engine-model}}\n")
    (tmp_path / "r.json").write_text(json.dumps({"model": "short", "prompt": "many words " * 100}))
    config = str(tmp_path / "c.yaml")
    assert main(["explain", str(tmp_path / "r.json"), "--config", config, "--path", "/v1/completions"]) == 0
    found = orjson.loads(capsys.readouterr().out)
    assert (found["decision"], found["reason"]) == ("refused", "no_pool")
    assert found["model"] == "engine-model"


def test_the_body_may_come_from_standard_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "c.yaml").write_text(CONFIG)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b'{"model":"short"}')))
    assert main(["explain", "-", "--config", str(tmp_path / "c.yaml")]) == 0
    assert orjson.loads(capsys.readouterr().out)["model"] == "engine-model"


def test_a_body_that_the_gateway_would_refuse_is_a_refusal_and_no_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.yaml").write_text(CONFIG)
    (tmp_path / "r.json").write_text("{")
    assert main(["explain", str(tmp_path / "r.json"), "--config", str(tmp_path / "c.yaml")]) == 0
    found = orjson.loads(capsys.readouterr().out)
    assert (found["decision"], found["status"], found["reason"]) == ("refused", 400, "bad_request")


@pytest.mark.parametrize("header", ["no colon", ": no name"])
def test_a_header_that_is_none_is_said_with_exit_code_2(
    header: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.yaml").write_text(CONFIG)
    (tmp_path / "r.json").write_text("{}")
    asked = ["explain", str(tmp_path / "r.json"), "--config", str(tmp_path / "c.yaml"), "--header", header]
    assert main(asked) == 2
    assert capsys.readouterr().err == f"{header!r} is not a header; write it as NAME: VALUE\n"


def test_what_cannot_be_read_is_said_with_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.yaml").write_text(CONFIG)
    assert main(["explain", str(tmp_path / "none.json"), "--config", str(tmp_path / "c.yaml")]) == 2
    assert "none.json" in capsys.readouterr().err
