"""Answers in one piece: chat completions and text completions, with the keys of vLLM 0.32.0, and
embeddings."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from random import Random

import orjson

from gateway.emulator.answer import FINGERPRINT, Answer, Sink, is_hit
from gateway.emulator.errors import engine_died
from gateway.emulator.faults import Faults
from gateway.emulator.generation import Generation
from gateway.emulator.outputs import Output
from gateway.emulator.sequence import Sequence
from gateway.emulator.settings import EngineSettings

_CHAT = (
    b'{"id":%b,"object":"chat.completion","created":%d,"model":%b,"choices":[%b],"service_tier":null,"system_fingerprint":'
    + FINGERPRINT
    + b',"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d,'
    b'"created_cache_tokens":0,"multimodal_tokens":null},"completion_tokens_details":null},"prompt_logprobs":null,'
    b'"prompt_token_ids":null,"prompt_text":null,"kv_transfer_params":null,"ec_transfer_params":null,"metrics":null}'
)
_CHAT_CHOICE = (
    b'{"index":%d,"message":{"role":"assistant","content":"%b","refusal":null,"annotations":null,"audio":null,'
    b'"function_call":null,%b"reasoning":null},"logprobs":null,"finish_reason":"%b","stop_reason":%b,"token_ids":null,'
    b'"routed_experts":null}'
)
_TOOL_CALL = (
    b'"tool_calls":[{"id":"chatcmpl-tool-%b","type":"function","function":{"name":"%b","arguments":"%b"}}],'
)
_TEXT = (
    b'{"id":%b,"object":"text_completion","created":%d,"model":%b,"choices":[%b],"service_tier":null,"system_fingerprint":'
    + FINGERPRINT
    + b',"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d,'
    b'"created_cache_tokens":null,"multimodal_tokens":null},"completion_tokens_details":null},"kv_transfer_params":null,'
    b'"ec_transfer_params":null,"metrics":null}'
)
_TEXT_CHOICE = (
    b'{"index":%d,"text":"%b","logprobs":null,"finish_reason":"%b","stop_reason":%b,"token_ids":null,'
    b'"prompt_logprobs":null,"prompt_token_ids":null,"routed_experts":null}'
)


class PlainAnswer:
    """Waits for the last of its sequences, then answers."""

    __slots__ = (
        "_created",
        "_draw",
        "_faults",
        "_generation",
        "_id",
        "_left",
        "_model",
        "_sink",
        "lines",
        "sequences",
    )

    def __init__(
        self,
        sink: Sink,
        generation: Generation,
        identity: bytes,
        created: int,
        model: bytes,
        faults: Faults,
        draw: float,
    ) -> None:
        self._sink = sink
        self._generation = generation
        self._id = identity
        self._created = created
        self._model = model
        self._faults = faults
        self._draw = draw
        self._left = len(generation.choices)
        self.lines: Callable[[], bytes] = bytes
        """Further headers of a good answer, made when it is ready."""
        self.sequences: list[Sequence[Answer]] = []

    def progressed(self, sequence: Sequence[Answer]) -> None:
        """Never called: its sequences are not streamed."""

    def finished(self, sequence: Sequence[Answer]) -> None:
        self._left -= 1
        if self._left:
            return
        faults, sink = self._faults, self._sink
        hit = is_hit(faults, self._draw)
        if hit and faults.stall is not None:
            return
        if hit and faults.error_event is not None:
            death = engine_died()
            sink.respond(death.status, death.body)
            return
        body = self._render()
        if hit and faults.reset is not None:
            sink.truncate(body, self.lines())
            sink.reset()
        elif hit and faults.cut is not None:
            sink.truncate(body, self.lines())
            sink.cut()
        else:
            sink.respond(200, body, lines=self.lines())

    def _render(self) -> bytes:
        generation = self._generation
        outputs = [output for _, output in generation.choices]
        prompt_tokens = sum(prompt.tokens for prompt in generation.prompts)
        completion_tokens = sum(len(output.pieces) for output in outputs)
        render, template = (_chat_choice, _CHAT) if generation.chat else (_text_choice, _TEXT)
        choices = b",".join([render(index, output, self._id) for index, output in enumerate(outputs)])
        return template % (
            self._id,
            self._created,
            self._model,
            choices,
            prompt_tokens,
            prompt_tokens + completion_tokens,
            completion_tokens,
            cached_tokens(self.sequences),
        )


class EmbeddingAnswer:
    """One vector of unit-interval numbers per input, a function of the input and the seed; it says nothing
    about meaning."""

    __slots__ = ("_base64", "_created", "_dimensions", "_left", "_settings", "_sink", "sequences")

    def __init__(
        self, sink: Sink, settings: EngineSettings, created: int, dimensions: int, as_base64: bool
    ) -> None:
        self._sink = sink
        self._settings = settings
        self._created = created
        self._dimensions = dimensions
        self._base64 = as_base64
        self._left = 0
        self.sequences: list[Sequence[Answer]] = []

    def expect(self, inputs: int) -> None:
        self._left = inputs

    def progressed(self, sequence: Sequence[Answer]) -> None:
        """Never called: its sequences are not streamed."""

    def finished(self, sequence: Sequence[Answer]) -> None:
        self._left -= 1
        if self._left:
            return
        tokens = sum(one.prompt.tokens for one in self.sequences)
        data = [
            {"index": one.index, "object": "embedding", "embedding": self._vector(one.prompt.fingerprint)}
            for one in self.sequences
        ]
        usage = {
            "prompt_tokens": tokens,
            "total_tokens": tokens,
            "completion_tokens": 0,
            "prompt_tokens_details": None,
        }
        body = {
            "id": "embd-emulated",
            "object": "list",
            "created": self._created,
            "model": self._settings.model,
            "data": data,
            "usage": usage,
        }
        self._sink.respond(200, orjson.dumps(body))

    def _vector(self, fingerprint: int) -> list[float] | str:
        source = Random(fingerprint ^ self._settings.seed)
        vector = [source.random() for _ in range(self._dimensions)]
        if self._base64:
            return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
        return vector


def cached_tokens(sequences: list[Sequence[Answer]]) -> int:
    """Once per prompt: the further choices of one prompt would count the same tokens again."""
    seen = {id(sequence.prompt): sequence.cached_tokens for sequence in reversed(sequences)}
    return sum(seen.values())


def tool_call_id(identity: bytes, index: int) -> bytes:
    """Sixteen hexadecimal digits from the answer's id; choices differ in the last."""
    return b"%016x" % (int.from_bytes(identity[-9:-1], "big") ^ (index << 4))


def _chat_choice(index: int, output: Output, identity: bytes) -> bytes:
    text = b"".join(output.pieces)
    call = b""
    if output.tool_name:
        call, text = _TOOL_CALL % (tool_call_id(identity, index), output.tool_name, text), b""
    return _CHAT_CHOICE % (index, text, call, output.finish_reason, output.stop_reason)


def _text_choice(index: int, output: Output, identity: bytes) -> bytes:
    return _TEXT_CHOICE % (index, b"".join(output.pieces), output.finish_reason, output.stop_reason)
