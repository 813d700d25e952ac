"""The list of what the official client asks, directly and through the gateway.

Greedy throughout, so that an answer is always the same: temperature 0, or a single candidate for each
token where an engine refuses several answers at temperature 0.
"""

from typing import Any

from tests.engine.cases import Case, chat, embedding, model, models, outside, response, text, unknown_model
from tests.engine.engines import MODEL

SCHEMA = {
    "type": "object",
    "properties": {
        "room": {"type": "string", "enum": ["kitchen", "hall"]},
        "on": {"type": "boolean"},
    },
    "required": ["room", "on"],
    "additionalProperties": False,
}
LIGHT: dict[str, Any] = {
    "type": "function",
    "function": {"name": "set_light", "description": "Switch a light", "strict": True, "parameters": SCHEMA},
}
NAMED = {"type": "function", "function": {"name": "set_light"}}
TALK = [
    {"role": "system", "content": "You are terse."},
    {"role": "user", "content": "信用卡账单怎么还? 🙂"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "set_light", "arguments": '{"on": true}'},
            },
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "done"},
    {"role": "user", "content": [{"type": "text", "text": "And now?"}]},
]
JSON = {"type": "json_schema", "json_schema": {"name": "light", "schema": SCHEMA, "strict": True}}
WITH_USAGE: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
USAGE_IN_EACH: dict[str, Any] = {
    "stream": True,
    "stream_options": {"include_usage": True, "continuous_usage_stats": True},
}
ONE_CANDIDATE: dict[str, Any] = {"temperature": 1, "extra_body": {"top_k": 1}}
TOO_LONG = [{"role": "user", "content": "The quick brown fox jumps over the lazy dog. " * 1_200}]

CASES: tuple[Case, ...] = (
    chat("chat"),
    chat("chat-to-its-end", logit_bias={"2": 100}, max_tokens=64),
    chat("chat-stop-string", stop=["e"], max_tokens=64),
    chat("chat-max-completion-tokens", max_tokens=None, max_completion_tokens=4),
    chat("chat-many-turns", messages=TALK, tools=[LIGHT]),
    chat("chat-logprobs", logprobs=True, top_logprobs=3, max_tokens=4),
    chat("chat-two-answers", n=2, **ONE_CANDIDATE),
    chat("chat-json-schema", response_format=JSON, max_tokens=64),
    chat("chat-tools-auto", tools=[LIGHT], tool_choice="auto"),
    chat("chat-tools-required", tools=[LIGHT], tool_choice="required", max_tokens=400),
    chat("chat-tools-named", tools=[LIGHT], tool_choice=NAMED, max_tokens=400),
    chat("chat-tools-cut-short", tools=[LIGHT], tool_choice="required", max_tokens=20),
    chat("chat-unknown-field", extra_body={"flux_capacitor": 88}),
    chat("stream", stream=True),
    chat("stream-to-its-end", stream=True, logit_bias={"2": 100}, max_tokens=64),
    chat("stream-usage", **WITH_USAGE),
    chat("stream-usage-in-each", **USAGE_IN_EACH),
    chat("stream-no-usage", stream=True, stream_options={"include_usage": False}),
    chat("stream-stop-string", stream=True, stop=["e"], max_tokens=64),
    chat("stream-many-turns", messages=TALK, tools=[LIGHT], stream=True),
    chat("stream-logprobs", stream=True, logprobs=True, top_logprobs=2, max_tokens=4),
    chat("stream-two-answers", n=2, **WITH_USAGE, **ONE_CANDIDATE),
    chat("stream-json-schema", stream=True, response_format=JSON, max_tokens=64),
    chat("stream-tools-auto", tools=[LIGHT], tool_choice="auto", **WITH_USAGE),
    chat("stream-tools-required", tools=[LIGHT], tool_choice="required", max_tokens=400, **WITH_USAGE),
    chat("stream-tools-named", tools=[LIGHT], tool_choice=NAMED, max_tokens=400, stream=True),
    chat("stream-tools-cut-short", tools=[LIGHT], tool_choice="required", max_tokens=20, stream=True),
    text("text"),
    text("text-of-two-prompts", prompt=["One", "Two"]),
    text("text-of-tokens", prompt=[10, 20, 30]),
    text("text-two-answers", n=2, **ONE_CANDIDATE),
    text("text-echo-logprobs", echo=True, logprobs=2, max_tokens=3),
    text("text-stream", stream=True),
    text("text-stream-usage", **WITH_USAGE),
    text("text-stream-logprobs", stream=True, logprobs=2, max_tokens=3),
    text("text-stream-of-two-prompts", prompt=["One", "Two"], stream=True),
    response("responses"),
    response("responses-stream", stream=True),
    models("models"),
    outside("tokenize", "/tokenize", model=MODEL, prompt="Hello gateway"),
    outside("detokenize", "/detokenize", model=MODEL, tokens=[10, 20, 30]),
    outside("unknown-path", "/v1/nothing", status=404),
    chat("temperature-negative", status=400, temperature=-1),
    chat("temperature-negative-stream", status=400, temperature=-1, stream=True),
    chat("top-p-too-large", status=400, top_p=2),
    chat("messages-empty", status=400, messages=[]),
    chat("message-no-object", status=400, messages=["hello"]),
    chat("prompt-too-long", status=400, messages=TOO_LONG),
    chat("prompt-too-long-stream", status=400, messages=TOO_LONG, stream=True),
    chat("max-tokens-too-large", status=400, max_tokens=100_000),
    chat("max-tokens-negative", status=400, max_tokens=-1),
    chat("max-tokens-a-word", status=400, max_tokens="many"),
    chat("n-zero", status=400, n=0),
    chat("stop-a-number", status=400, stop=5),
    chat("tool-choice-without-tools", status=400, tool_choice="required"),
    chat(
        "tool-choice-unknown",
        status=400,
        tools=[LIGHT],
        tool_choice={
            "type": "function",
            "function": {"name": "nope"},
        },
    ),
    chat(
        "schema-of-no-type",
        status=400,
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "x", "schema": {"type": "no-such-type"}},
        },
    ),
    chat(
        "image-for-a-text-model",
        status=400,
        messages=[
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                ],
            }
        ],
    ),
    text("text-prompt-empty", status=400, prompt=""),
    outside("body-without-messages", "/v1/chat/completions", status=400, model=MODEL),
    outside("model-missing", "/v1/chat/completions", messages=TALK[:1], max_tokens=4, temperature=0),
)

# What vLLM alone serves or refuses, or answers in a way of its own.
VLLM_CASES: tuple[Case, ...] = (
    outside("tokenize-chat", "/tokenize", model=MODEL, messages=TALK[:1]),
    outside("rerank", "/v1/rerank", status=404, model=MODEL, query="a", documents=["b"]),
    embedding("embeddings", status=404),
    chat("model-empty", model=""),
    # SGLang takes any name for its own; the gateway does not.
    unknown_model(chat("model-unknown", model="nope")),
    unknown_model(chat("model-unknown-stream", model="nope", stream=True)),
    unknown_model(text("text-model-unknown", model="nope")),
    chat("n-greedy", status=400, n=2),
)

SGLANG_CASES: tuple[Case, ...] = (
    # vLLM does not serve one model's card (404); the gateway does, for any engine.
    model("one-model"),
    embedding("embeddings", status=400),
)
