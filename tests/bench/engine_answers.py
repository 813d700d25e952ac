"""The mock engine's answers as ready bytes, shaped as vLLM 0.32 sends them: one plain completion, the parts of a stream, small pages.

A content chunk is `FRAME_HEAD`, `STAMP_DIGITS` digits of the monotonic nanosecond of its sending, `FRAME_TAIL`: about 220 bytes of JSON.
"""

from __future__ import annotations

from tests.bench.chat_bodies import MODEL

STAMP = b'"delta":{"content":" '
STAMP_DIGITS = 20
FLOOD_BYTES = 8 << 20
"""More than the kernel takes for a reader that stands still."""

ID = b'"id":"chatcmpl-8cba2e07502935de"'
CHUNK_HEAD = (
    b"data: {" + ID + b',"object":"chat.completion.chunk","created":1796166232,"model":"%s",' % MODEL.encode()
)
ROLE = (
    CHUNK_HEAD
    + b'"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}\n\n'
)
CONTENT_HEAD = CHUNK_HEAD + b'"choices":[{"index":0,' + STAMP
CONTENT_TAIL = b'"},"logprobs":null,"finish_reason":null,"token_ids":null}]}\n\n'
LAST = (
    CHUNK_HEAD
    + b'"choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"length","stop_reason":null}]}\n\n'
)
USAGE = b'"usage":{"prompt_tokens":380,"total_tokens":400,"completion_tokens":20,"prompt_tokens_details":{"cached_tokens":0}}'
USAGE_CHUNK = CHUNK_HEAD + b'"choices":[],' + USAGE + b"}\n\n"
DONE = b"data: [DONE]\n\n"


def framed(payload: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(payload), payload)


STREAM_OPENING = (
    b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
) + framed(ROLE)
FRAME_HEAD = b"%x\r\n" % (len(CONTENT_HEAD) + STAMP_DIGITS + len(CONTENT_TAIL)) + CONTENT_HEAD
FRAME_TAIL = CONTENT_TAIL + b"\r\n"
ENDING = framed(LAST) + framed(DONE) + b"0\r\n\r\n"
ENDING_WITH_USAGE = framed(LAST) + framed(USAGE_CHUNK) + framed(DONE) + b"0\r\n\r\n"
FLOOD_FRAME = framed(b"".join(CONTENT_HEAD + b"0" * STAMP_DIGITS + CONTENT_TAIL for _ in range(64)))


def json_answer(body: bytes, status: bytes = b"200 OK") -> bytes:
    head = b"HTTP/1.1 %s\r\nserver: uvicorn\r\ncontent-length: %d\r\ncontent-type: application/json\r\n\r\n"
    return head % (status, len(body)) + body


PLAIN = json_answer(
    b"{" + ID + b',"object":"chat.completion","created":1796166228,"model":"%s","choices":[{"index":0,"message":' % MODEL.encode()
    + b'{"role":"assistant","content":"The fee is charged once per card and year; the second card counts towards the same twelve'
    + b' payments, so it is waived for both.","refusal":null,"annotations":null,"audio":null,"function_call":null,"reasoning":null},'
    + b'"logprobs":null,"finish_reason":"stop","stop_reason":null,"token_ids":null}],"service_tier":null,'
    + USAGE
    + b',"prompt_logprobs":null,"kv_transfer_params":null}'
)  # fmt: skip
INFO = json_answer(
    b'{"model_path":"%s","served_model_name":"%s","tokenizer_path":"","is_generation":true,"version":"0.5.23","dp_size":1}'
    % (MODEL.encode(), MODEL.encode())
)
PAGES = {
    b"/health": json_answer(b""),
    b"/v1/models": json_answer(
        b'{"object":"list","data":[{"id":"%s","object":"model","created":1796166228,"owned_by":"vllm","root":"%s","parent":null,'
        b'"max_model_len":131072}]}' % (MODEL.encode(), MODEL.encode())
    ),
    b"/version": json_answer(b'{"version":"0.32.0"}'),
    b"/metrics": json_answer(b""),
    b"/get_model_info": INFO,
    b"/model_info": INFO,
    b"/get_server_info": INFO,
    b"/server_info": INFO,
}  # fmt: skip
NOT_FOUND = json_answer(b'{"detail":"Not Found"}', b"404 Not Found")
BAD_REQUEST = json_answer(b'{"detail":"Bad Request"}', b"400 Bad Request")
