"""A session's history, for one request that asks for it with `x-headrace-history: server`.

    open: read the window, put it in front of what the client sent  ->  engine  ->  keep the answer: append it as the next turn

Only `/v1/chat/completions`, with a session id of `ID`'s alphabet. The client sends what is new; a turn is that and the answer. Appended is what
ended well, before its last bytes leave, so that a client's next request finds it; and of a stream that broke off, or whose client left, what came, marked
as cut. Nothing is appended for refusals and engine errors, for a plain answer that broke off, nor where the body says `"store": false`.

Answers say in `x-headrace-session` which window the prompt was made from (`seq`, `turns`, `tokens`, `dropped`), or `unavailable` where the store was away
and `history_required` is false: then the prompt has no history and the turn is not kept.

Two turns at once. `x-headrace-session-seq: N` refuses with 409, before an engine is asked, where the window's `seq` is another. With `conflicts: strict`
a turn is taken only if no other came in between: a plain answer waits for that and is a 409 instead; a stream's end, from its reason to finish on, is held
until then and is an error event instead. Both wait twice `timeout_ms` at most; a turn of which it is not known by then whether it was taken counts as not.

A plain answer is read whole before it leaves, a stream passes as it comes. With several choices (`n`) the first is the turn's. `max_entry_kb` bounds
request and answer of a turn together; a larger one is answered and not kept.
Tokens of a turn: what the engine counted, less what earlier turns and the system message are taken for; an estimate by size where it did not count.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from gateway.errors import Refused
from gateway.paths import Kind
from gateway.request import Request
from gateway.session_settings import ConflictRule, HistoryUse, SessionSettings
from gateway.sessions.capture import StreamCapture, plain_message
from gateway.sessions.messages import Prompt, estimated_tokens, with_window
from gateway.sessions.patience import is_done_within
from gateway.sessions.store import (
    Append,
    Appended,
    Result,
    SessionKey,
    SessionStore,
    StoreFault,
    StoreUnavailable,
    Turn,
    Window,
    session_key,
)
from gateway.sessions.turn_metrics import TurnMetrics, TurnResult
from gateway.sessions.writer import TurnWriter
from gateway.usage import Usage
from policies.terms import Refusal

ID = re.compile(r"[A-Za-z0-9_.:@~-]{1,128}")
HEADER = b"x-headrace-session"
_SEQ = re.compile(r"[0-9]{1,15}")
_id_prefix = os.urandom(8).hex()
_id_count = itertools.count()


class Sessions(NamedTuple):
    """Where they are kept and by whom they are written, for as long as the process runs."""

    store: SessionStore
    writer: TurnWriter
    metrics: TurnMetrics
    ttl_seconds: Callable[[SessionKey], float]
    """How long a session is kept after a turn."""

    async def window(self, key: SessionKey, timeout_seconds: float) -> Window:
        """With every turn in it that this process was given to write. Raises `StoreUnavailable`."""
        await self._settled(key, timeout_seconds)
        return await self.store.window(key)

    async def delete(self, key: SessionKey, timeout_seconds: float) -> bool:
        """Turns that are still to be written would come back: they go first. Raises `StoreUnavailable`."""
        await self._settled(key, timeout_seconds)
        return await self.store.delete(key)

    async def _settled(self, key: SessionKey, timeout_seconds: float) -> None:
        pending = self.writer.pending(key)
        if pending is not None:
            waiting = asyncio.ensure_future(pending)
            try:
                if not await is_done_within(timeout_seconds, waiting):
                    raise StoreUnavailable(
                        StoreFault.TIMEOUT, "a turn of this session is still to be written"
                    )
            finally:
                if waiting is not pending:  # made here, for a coroutine
                    waiting.cancel()
            error = waiting.exception()
            if isinstance(error, StoreUnavailable):
                raise error


def session_id(value: str) -> str:
    """`Refused` where it is none."""
    if ID.fullmatch(value) is None:
        raise Refused(
            Refusal.INVALID_SESSION,
            "A session id has 1 to 128 letters, digits and characters of '_.:@~-'",
        )
    return value


def unavailable(error: StoreUnavailable) -> Refused:
    return Refused(Refusal.SESSION_STORE_UNAVAILABLE, f"The session store is away ({error.reason})")


class Histories:
    """As one configuration has them."""

    def __init__(self, settings: SessionSettings, sessions: Sessions) -> None:
        self.sessions = sessions
        self.is_off = settings.history is HistoryUse.OFF
        self.is_required = settings.history_required
        self.is_strict = settings.conflicts is ConflictRule.STRICT
        self.replays_cut = settings.replay_cut
        self.max_entry_bytes = int(settings.max_entry_kb * 1024)
        self.timeout_seconds = settings.timeout_ms / 1000

    async def open(self, request: Request) -> History:
        """`request` gets the whole prompt. Raises `Refused`."""
        if self.is_off:
            raise Refused(Refusal.INVALID_SESSION, "The history of sessions is switched off here")
        if request.kind is not Kind.CHAT or request.method != "POST":
            raise Refused(Refusal.INVALID_SESSION, "The history of sessions is for /v1/chat/completions only")
        hints, fields = request.client.hints, request.view.fields
        name = hints.session or fields.get("session_id")
        if not isinstance(name, str) or not name:
            raise Refused(
                Refusal.INVALID_SESSION, "x-headrace-history needs a session id, in x-headrace-session"
            )
        key = session_key(request.client.tenant.name, session_id(name))
        said_seq = hints.session_seq
        if said_seq and _SEQ.fullmatch(said_seq) is None:
            raise Refused(Refusal.INVALID_SESSION, "x-headrace-session-seq is a number of turns")
        try:
            window = await self.sessions.window(key, self.timeout_seconds)
        except StoreUnavailable as error:
            self.sessions.metrics.lost(TurnResult.UNAVAILABLE)
            if self.is_required or said_seq:
                raise unavailable(error) from error
            return History(self, None, fields, [(HEADER, b"unavailable")])
        if said_seq and int(said_seq) != window.seq:
            raise _conflict(window.seq)
        prompt = with_window(request.body, fields, window, self.replays_cut)
        request.body = prompt.body
        request.view = request.view._replace(fields=prompt.fields)
        return History(self, _Session(key, window, prompt), fields, [(HEADER, state(window))])


_PLAIN_PER_ENTRY = 4
_HELD_BYTES = 256 * 1024


class _Session(NamedTuple):
    key: SessionKey
    window: Window
    prompt: Prompt


def state(window: Window) -> bytes:
    """As a header."""
    tokens = sum(turn.tokens for turn in window.turns)
    text = f"seq={window.seq};turns={len(window.turns)};tokens={tokens};dropped={window.dropped_turns}"
    return text.encode()


class History:
    """What the relay tells of the answer: `begin` and `take` of a stream, then `stream_ended`; or `plain_ended`. `close` comes in every case."""

    __slots__ = (
        "_choices",
        "_held",
        "_held_bytes",
        "_histories",
        "_keeps",
        "_session",
        "_stream",
        "_turn_id",
        "headers",
    )

    def __init__(
        self,
        histories: Histories,
        session: _Session | None,
        fields: Mapping[str, Any],
        headers: list[tuple[bytes, bytes]],
    ) -> None:
        """`session` None: there is nothing to keep a turn in."""
        self.headers = headers
        """Of the answer."""
        self._histories = histories
        self._session = session
        self._keeps = session is not None and fields.get("store") is not False
        choices = fields.get("n")
        self._choices = choices if isinstance(choices, int) and choices > 1 else 1
        self._stream: StreamCapture | None = None
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._turn_id = f"{_id_prefix}{next(_id_count):012x}"
        """Not the request's id, which a client may choose, and choose twice."""

    def begin(self) -> None:
        """A stream's, and again where the first one failed before anything of it had left."""
        if self._keeps:
            assert self._session is not None
            room = self._histories.max_entry_bytes - len(self._session.prompt.messages)
            self._stream = StreamCapture(room, self._choices)
            self._held.clear()
            self._held_bytes = 0

    def take(self, data: bytes, passed: bytes) -> bytes:
        """`data` came and `passed` of it would leave; returns what may."""
        stream = self._stream
        if stream is None:
            return passed
        stream.feed(data)
        if self._histories.is_strict and stream.has_finish:
            self._held.append(passed)
            self._held_bytes += len(passed)
            if self._held_bytes <= _HELD_BYTES:
                return b""
            # What goes on so long behind its end is not held for a turn's sake.
            self._stream = None
            self._lost(TurnResult.TOO_LARGE)
            passed = b"".join(self._held)
            self._held.clear()
        return passed

    async def stream_ended(self, rest: bytes, usage: Usage | None) -> bytes:
        """Well, as far as the engine says. Returns what is left to send. `Refused` where the turn is not taken."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.end()
            message = stream.message(stream.is_broken)
            if stream.too_large:
                self._lost(TurnResult.TOO_LARGE)
            elif message is not None:
                await self._keep(message, usage, stream.is_broken)
        self._held.append(rest)
        return b"".join(self._held)

    @property
    def most_plain_bytes(self) -> int:
        """Of an answer that is held to be kept: a message that may be kept is no longer, whatever stands beside it."""
        return _PLAIN_PER_ENTRY * self._histories.max_entry_bytes if self._keeps else 0

    def plain_is_too_large(self) -> None:
        if self._keeps:
            self._lost(TurnResult.TOO_LARGE)

    async def plain_ended(self, body: bytes, is_readable: bool, usage: Usage | None) -> None:
        """An answer with status 200. `Refused` where the turn is not taken."""
        if not self._keeps:
            return
        message = plain_message(body) if is_readable else None
        if message is None:
            self._lost(TurnResult.UNREADABLE)
        else:
            await self._keep(message, usage, is_cut=False)

    def close(self, usage: Usage | None) -> None:
        """The request has ended, in whatever way."""
        stream, self._stream = self._stream, None
        if stream is not None:
            message = stream.message(is_cut=True)
            if stream.too_large:
                self._lost(TurnResult.TOO_LARGE)
            elif message is not None:
                self._append(message, usage, is_cut=True)

    async def _keep(self, message: bytes, usage: Usage | None, is_cut: bool) -> None:
        """Where turns are taken as they arrive it is only handed over."""
        writing = self._append(message, usage, is_cut)
        histories = self._histories
        if writing is None or not histories.is_strict:
            return
        is_known = await is_done_within(2 * histories.timeout_seconds, writing)
        try:
            if not is_known:
                raise StoreUnavailable(StoreFault.TIMEOUT, "it is not known whether the turn was taken")
            appended = writing.result()
        except StoreUnavailable as error:
            if histories.is_required:
                raise unavailable(error) from error
            return
        if appended.result is Result.CONFLICT:
            raise _conflict(appended.seq)

    def _append(self, message: bytes, usage: Usage | None, is_cut: bool) -> asyncio.Future[Appended] | None:
        session = self._session
        assert session is not None
        histories = self._histories
        sessions = histories.sessions
        prompt = session.prompt
        messages = b"%b,%b" % (prompt.messages, message)
        if len(messages) > histories.max_entry_bytes:
            self._lost(TurnResult.TOO_LARGE)
            return None
        if usage is None or self._choices > 1:
            tokens = max(1, estimated_tokens(len(messages)))
        else:
            tokens = max(1, usage.prompt - prompt.earlier_tokens) + usage.completion
        append = Append(
            session.key,
            Turn(self._turn_id, messages, tokens, prompt.follows, is_cut),
            sessions.ttl_seconds(session.key),
            prompt.system,
            session.window.seq if histories.is_strict else None,
        )
        writing = sessions.writer.append(append)
        writing.add_done_callback(lambda done: _written(sessions.metrics, append, done))
        return writing

    def _lost(self, result: TurnResult) -> None:
        self._histories.sessions.metrics.lost(result)


def _written(metrics: TurnMetrics, append: Append, done: asyncio.Future[Appended]) -> None:
    if done.cancelled():
        metrics.lost(TurnResult.UNAVAILABLE)
        return
    error = done.exception()  # taken here, so that no one is told that it never was
    if error is None:
        metrics.appended(append, done.result())
    else:
        metrics.lost(TurnResult.UNAVAILABLE)


def _conflict(seq: int) -> Refused:
    return Refused(
        Refusal.SESSION_CONFLICT, f"Another turn of this session came in between: its seq is {seq} now"
    )
