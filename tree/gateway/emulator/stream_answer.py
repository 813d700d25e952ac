"""Streamed answers as vLLM 0.32.0 sends them: one event per token, each in an HTTP chunk of its own.

All that a step brings to a stream leaves in one write: for a chat's first token that is the role event and
the token's, for the last one also the usage event when it was asked for, `[DONE]`, and the final chunk.
Faults are looked up at each token.
"""

from __future__ import annotations

from gateway.emulator.answer import FINGERPRINT, Answer, Sink, is_hit
from gateway.emulator.errors import ENGINE_DIED, error_body
from gateway.emulator.faults import Faults
from gateway.emulator.generation import Generation
from gateway.emulator.outputs import Output
from gateway.emulator.plain_answer import cached_tokens, tool_call_id
from gateway.emulator.sequence import Sequence

_DONE = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
_CHAT_REST = b'},"logprobs":null,"finish_reason":%b,"token_ids":null}]%b}\n\n'
_TEXT_REST = b'","logprobs":null,"finish_reason":%b,"prompt_token_ids":null,"token_ids":null}]%b}\n\n'
_GOING_ON = b"null"
_FINGERPRINT_FIELD = b',"system_fingerprint":' + FINGERPRINT


def _chunk(event: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(event), event)


class _ChoiceEvents:
    """The constant bytes around one choice's tokens."""

    __slots__ = ("after", "around", "before", "first", "last_after", "last_before", "output")

    def __init__(
        self, head: bytes, index: int, output: Output, chat: bool, identity: bytes, fingerprint: bytes
    ) -> None:
        self.output = output
        start = b'%b"choices":[{"index":%d,' % (head, index)
        final = b'"%b","stop_reason":%b' % (output.finish_reason, output.stop_reason)
        self.first = b""
        if not chat:
            self.before = start + b'"text":"'
            self.after = _TEXT_REST % (b'null,"stop_reason":null', b"")
            self.last_before, self.last_after = self.before, _TEXT_REST % (final, fingerprint)
        else:
            role = (
                start + b'"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],'
            )
            self.first = _chunk(role + b'"prompt_token_ids":null,"prompt_text":null}\n\n')
            if output.tool_name:
                begin = (
                    b'"delta":{"content":null,"tool_calls":[{"id":"chatcmpl-tool-%b","type":"function","index":0,'
                    % (tool_call_id(identity, index))
                )
                name = b'"function":{"name":"%b"}}]' % output.tool_name
                self.first += _chunk(start + begin + name + _CHAT_REST % (_GOING_ON, b""))
                self.before = (
                    start + b'"delta":{"content":null,"tool_calls":[{"index":0,"function":{"arguments":"'
                )
                self.after = b'"}}]' + _CHAT_REST % (_GOING_ON, b"")
            else:
                self.before = start + b'"delta":{"content":"'
                self.after = b'"' + _CHAT_REST % (_GOING_ON, b"")
            self.last_before = start + b'"delta":{'
            self.last_after = _CHAT_REST % (final, fingerprint)
        self.around = len(self.before) + len(self.after)

    def token(self, position: int) -> bytes:
        piece = self.output.pieces[position]
        return b"%x\r\n%b%b%b\r\n" % (self.around + len(piece), self.before, piece, self.after)

    def last(self, chat: bool) -> bytes:
        """The last token and the reason for the end: one event, but for a tool call two."""
        piece = self.output.pieces[-1]
        if not chat:
            return _chunk(self.last_before + piece + self.last_after)
        if self.output.tool_name:
            return self.token(len(self.output.pieces) - 1) + _chunk(self.last_before + self.last_after)
        if not piece:
            return _chunk(self.last_before + self.last_after)
        return _chunk(b'%b"content":"%b"%b' % (self.last_before, piece, self.last_after))


class StreamAnswer:
    """Writes events as its sequences get their tokens."""

    __slots__ = (
        *("_choices", "_draw", "_faults", "_generation", "_head", "_id", "_left", "_over", "_sent", "_sink"),
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
        self._faults = faults
        self._draw = draw
        kind = b"chat.completion.chunk" if generation.chat else b"text_completion"
        self._head = b'data: {"id":%b,"object":"%b","created":%d,"model":%b,' % (
            identity,
            kind,
            created,
            model,
        )
        # The fingerprint stands in the last event: of each choice, or of the usage.
        fingerprint = b"" if generation.include_usage else _FINGERPRINT_FIELD
        self._choices = [
            _ChoiceEvents(self._head, index, output, generation.chat, identity, fingerprint)
            for index, (_, output) in enumerate(generation.choices)
        ]
        self._left = len(self._choices)
        self._sent = 0
        self._over = False
        self.sequences: list[Sequence[Answer]] = []

    def progressed(self, sequence: Sequence[Answer]) -> None:
        if self._over or self._fails():
            return
        events = self._choices[sequence.index]
        data = events.token(sequence.generated - 1)
        self._sent += 1
        self._sink.write(events.first + data if sequence.generated == 1 else data)

    def finished(self, sequence: Sequence[Answer]) -> None:
        self._left -= 1
        if self._over or self._fails():
            return
        events = self._choices[sequence.index]
        data = events.last(self._generation.chat)
        if sequence.generated == 1:
            data = events.first + data
        self._sent += 1
        if self._left:
            self._sink.write(data)
            return
        self._over = True
        usage = self._usage() if self._generation.include_usage else b""
        self._sink.write(b"%b%b%b" % (data, usage, _DONE))
        self._sink.end()

    def _fails(self) -> bool:
        """Apply the fault that is due before the next piece, if one is."""
        faults = self._faults
        if faults.stall is faults.cut is faults.error_event is faults.reset is None or not is_hit(
            faults, self._draw
        ):
            return False
        if faults.stall is not None and self._sent >= faults.stall:
            self._over = True
        elif faults.cut is not None and self._sent >= faults.cut:
            self._over = True
            self._sink.cut()
        elif faults.reset is not None and self._sent >= faults.reset:
            self._over = True
            self._sink.reset()
        elif faults.error_event is not None and self._sent >= faults.error_event:
            self._over = True
            event = b"data: %b\n\n" % error_body(500, "InternalServerError", ENGINE_DIED)
            self._sink.write(_chunk(event) + _DONE)
            self._sink.end()
        return self._over

    def _usage(self) -> bytes:
        generation = self._generation
        prompt_tokens = sum(prompt.tokens for prompt in generation.prompts)
        completion_tokens = sum(len(output.pieces) for _, output in generation.choices)
        created = b',"created_cache_tokens":0' if generation.chat else b""
        event = (
            b'%b"choices":[],"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d,'
            b'"prompt_tokens_details":{"cached_tokens":%d%b}}%b}\n\n'
        )
        return _chunk(
            event
            % (
                self._head,
                prompt_tokens,
                prompt_tokens + completion_tokens,
                completion_tokens,
                cached_tokens(self.sequences),
                created,
                _FINGERPRINT_FIELD,
            )
        )
