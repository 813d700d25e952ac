"""Where mutations begin: the captured exchanges of `tests.captures`, small ones, and fragments that framings are made of."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests import captures
from tests.captures import Capture

MAX_SEED_BYTES = 4096
EXAMPLE = Path(__file__).parents[2] / "deploy" / "headrace.example.yaml"
PIPELINE = (
    b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"
    b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\n{}\r\n0\r\nX: y\r\n\r\n"
    b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
)
ANSWERS = (
    b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
    b"HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    b"HTTP/1.0 200 OK\r\n\r\nuntil the end",
)
PAGE = b'# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name="m\\"x"} 1.0\nvllm:kv_cache_usage_perc{a="b"} 0.5 1700000000000\nsglang:num_running_reqs 3 # {a="b"} 1\n'
WORDS = (b"session-1", b"u=1", b"120.5", b"interactive", b"x" * 256)

FRAGMENTS: dict[str, Sequence[bytes]] = {
    "front": (
        b"GET / HTTP/1.1\r\n", b"POST /v1/x?y HTTP/1.1\r\n", b"POST / HTTP/1.0\r\n", b"GET /\r\n", b"CONNECT a:1 HTTP/1.1\r\n", b"PRI * HTTP/2.0\r\n",
        b"Host: a\r\n", b"Host: a b\r\n", b"3;" + b"e" * 9000 + b"\r\nabc\r\n", b"0\r\nt: " + b"v" * 9000 + b"\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n", b"Content-Length: 3\r\n", b"Content-Length: 0\r\n", b"Content-Length: +3\r\n", b"Content-Length: 3, 3\r\n", b"Content-Length : 3\r\n",
        b"Content-Length:\r\n", b"Content-Length: 0x3\r\n", b"Content-Length: 18446744073709551619\r\n", b"Transfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: gzip, chunked\r\n", b"Transfer-Encoding: chunked, identity\r\n", b"Transfer-Encoding: identity\r\n", b"Transfer-Encoding:\r\n chunked\r\n",
        b"Transfer-Encoding: \x0bchunked\r\n", b"Transfer-Encoding : chunked\r\n", b"transfer-encoding: CHUNKED\r\n", b"Connection: close\r\n",
        b"Connection: upgrade, content-length\r\n", b"Upgrade: h2c\r\n", b"Upgrade: websocket\r\n", b"Expect: 100-continue\r\n", b"X: a\r\n b\r\n", b"X: a\0b\r\n", b"X: a\rb\r\n",
        b"X: a\n", b"\n", b"\r", b"\r\n", b"\r\n\r\n", b"\n\n", b"abc", b"3\r\nabc\r\n", b"3;x=\"\r\n\r\nabc\r\n", b"3\nabc\n", b"0\r\n\r\n", b"0\r\n", b"-1\r\n", b"0x3\r\nabc\r\n",
        b"ffffffffffffffff\r\n", b" 3\r\nabc\r\n", b"3 \r\nabc\r\n", b"000\r\n\r\n", b"\0", b" ", b"\t", b"\xff", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.0 200\r\n", b"HTTP/1.1 204 X\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 101 S\r\n", b"HTTP/1.1 304 N\r\n", b"HTTP/2.0 200 OK\r\n", b"HTTP/1.1 999 X\r\n",
    ),
    "events": (
        b"data: ", b"data:", b"\n\n", b"\r\n\r\n", b"\r\r", b"\n", b"\r", b":", b": keep-alive\n\n", b"[DONE]", b'{"choices":[],"usage":{"prompt_tokens":1}}', b'{"error":{}}',
        b'"finish_reason":"stop"', b'"system_fingerprint":"f"', b"\xe2\x80\xa8", b"event: x\n", b"}", b"x" * 17_000,
    ),
    "body": (
        b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b'"model"', b'"m"', b'"\\ud800"', b'"stream":true', b'"stream_options":{}', b'"stream_options":null', b'"session_id"', b"NaN", b"1e400",
        b"null", b"\xef\xbb\xbf", b"\xed\xa0\x80", b'"messages":[{"role":"user","content":"a"}]', b"--x\r\n", b'content-disposition: form-data; name="model"\r\n\r\n', b"[" * 2000, b'{"a":' * 2000,
    ),
    "configuration": (
        b"pools:", b"\n", b"  ", b"- ", b"{", b"}", b"[", b"]", b": ", b"&a ", b"*a", b"!x ", b"|\n", b"${SECRET}", b"${", b"'", b'"', b"\t", b"#", b"---\n", b"\\UFFFFFFFF", b"%YAML 9" + b"9" * 50, b"admin: {port: 1}\n",
        b"\x85", b"<<: ", b"0x", b"1_0", b"1e999", b"key_sha256: [a]", b"api_key: ",
    ),
    "metrics": (
        b"\n", b"{", b"}", b'"', b"\\", b" ", b"\t", b"#", b"vllm:num_requests_running", b"sglang:num_running_reqs", b"NaN", b"+Inf", b"1e999", b"1_0", b"0x1p3", b'{a="', b'\\"', b"=", b",", b"\r", b"9" * 70,
    ),
    "sessions": (b"\r\n", b"\n", b"\0", b" ", b"\xff", b"u=", b"9" * 20, b"-", b".", b"\x7f", b";", b"\xc2\x85"),
    "capture": (
        b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n', b'data: {"choices":[{"index":1,"delta":{"content":"a"}}]}\n\n', b'{"choices":[{"message":', b'{"role":"assistant","content":null,"tool_calls":[]}', b"}]}",
        b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}}]}\n\n', b'"finish_reason":"abort"', b'"reasoning_content":"b"', b"data:", b"data: [DONE]", b"\n", b"\r", b"\r\n", b"\n\n", b":", b"x" * 5000,
        b'"\\ud800"', b"[" * 2000,
    ),
    "response": (
        b'{"id":"resp_1"}', b'"id"', b'"resp_1"', b'"response"', b"data: ", b"\ndata:", b'{"type":"response.created","response":{"id":"resp_1"}}', b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\n\n", b"\r", b"x" * 5000, b'"\xff"', b" ",
    ),
}  # fmt: skip
FRAGMENTS["engine"] = FRAGMENTS["front"]


@cache
def seeds(target: str) -> list[bytes]:
    if target == "configuration":
        example = EXAMPLE.read_bytes()
        return [
            b"pools: [{name: p, backends: [{url: 'http://a:1'}]}]\n",
            example[:MAX_SEED_BYTES],
            example[-MAX_SEED_BYTES:],
        ]
    if target == "metrics":
        return [PAGE]
    if target == "sessions":
        return list(WORDS)
    found = [_seed(target, one) for one in _small()]
    small = sorted({one for one in found if 0 < len(one) <= MAX_SEED_BYTES}, key=len)
    return [*small, PIPELINE] if target == "front" else [*small, *ANSWERS] if target == "engine" else small


@cache
def _small() -> list[Capture]:
    return [
        one
        for engine in captures.ENGINES
        for one in captures.load(engine)
        if len(one.request_body) <= MAX_SEED_BYTES
    ]


def _seed(target: str, one: Capture) -> bytes:
    if target == "front":
        return one.request()
    if target == "engine":
        return one.raw_answer
    if target == "events":
        return one.answer_body if one.is_stream else b""
    if target in ("capture", "response"):
        return one.answer_body
    return one.request_body
