"""Sessions in Redis or Valkey, shared by every gateway that has the same `redis_url`.

Keys, with a session's key as the hash tag, so that a cluster keeps them together: `headrace:s:{KEY}:m` (a hash: schema version, seq, sums, the last turns' ids, the
system message), `headrace:s:{KEY}:t` (a list of turns), `headrace:s:{KEY}:h` (its home); `headrace:r:{HASH}` is a response's owner. Every one has a time to live.
One script call is one turn (`gateway.sessions.redis_script`); the appends of one call leave in one pipeline, each for itself.

How many calls go at once and how long one may take is the caller's to say (`gateway.sessions.guarded_store`): one that is cancelled costs its connection. `ping` writes as well: a store that can only be read is not well.
Limits: a cluster counts as away while one of its masters is. A `delete` whose answer was lost with its connection is done twice, and then says that nothing was there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import orjson
from redis.exceptions import RedisClusterException, RedisError

from gateway.sessions.encryption import Sealing
from gateway.sessions.redis_faults import fault_of
from gateway.sessions.redis_script import APPEND, WINDOW
from gateway.sessions.store import (
    NO_WINDOW,
    REMEMBERED_IDS,
    SCHEMA_VERSION,
    Append,
    Appended,
    Home,
    ResponseOwner,
    Result,
    SessionKey,
    StoreUnavailable,
    Turn,
    Window,
)
from policies.session_window import WindowRules, fits


class RedisStore:
    def __init__(self, client: Any, rules: WindowRules, sealing: Sealing) -> None:
        """`client` is a `redis.asyncio` one that answers in bytes; it is closed with the store."""
        self._client = client
        self._rules = rules
        self._sealing = sealing

    async def window(self, key: SessionKey) -> Window:
        with _faults_named():
            found = await self._client.eval(WINDOW, 2, _meta(key), _turns(key), SCHEMA_VERSION)
        if not found:
            return NO_WINDOW
        seq, sealed_system, dropped_turns, dropped_tokens, entries = found
        system = self._sealing.opened(sealed_system, key) if sealed_system else b""
        turns = [self._turn(entry, key) for entry in entries]
        if system is None or not all(turns):
            return NO_WINDOW
        return Window(
            int(seq), system, tuple([turn for turn in turns if turn]), int(dropped_turns), int(dropped_tokens)
        )

    async def append(self, appends: Sequence[Append]) -> list[Appended]:
        with _faults_named():
            pipeline = self._client.pipeline(transaction=False)
            for append in appends:
                pipeline.eval(APPEND, 2, _meta(append.key), _turns(append.key), *self._arguments(append))
            answers = await pipeline.execute()
        return [Appended(Result(result.decode()), *map(int, counts)) for result, *counts in answers]

    async def delete(self, key: SessionKey) -> bool:
        with _faults_named():
            pipeline = self._client.pipeline(transaction=False)
            pipeline.delete(_meta(key))
            pipeline.delete(_turns(key))
            pipeline.delete(_home(key))
            there, *_ = await pipeline.execute()
        return bool(there)

    async def home(self, key: SessionKey) -> Home | None:
        with _faults_named():
            found = await self._client.get(_home(key))
        return None if found is None else _read(Home, found)

    async def set_homes(self, homes: Sequence[tuple[SessionKey, Home, float]]) -> None:
        await self._set([(_home(key), home, ttl_seconds) for key, home, ttl_seconds in homes])

    async def response(self, response_id: str) -> ResponseOwner | None:
        with _faults_named():
            found = await self._client.get(_response(response_id))
        return None if found is None else _read(ResponseOwner, found)

    async def set_responses(self, responses: Sequence[tuple[str, ResponseOwner, float]]) -> None:
        await self._set([(_response(id), owner, ttl_seconds) for id, owner, ttl_seconds in responses])

    async def ping(self) -> None:
        with _faults_named():
            if hasattr(self._client, "get_primaries"):
                await self._client.ping(target_nodes=self._client.PRIMARIES)
            await self._client.set("headrace:ping", SCHEMA_VERSION, px=1000)

    async def close(self) -> None:
        await self._client.aclose()
        # The clients of the Sentinels are nobody's else.
        manager = getattr(getattr(self._client, "connection_pool", None), "sentinel_manager", None)
        for sentinel in getattr(manager, "sentinels", ()):
            await sentinel.aclose()

    async def _set(self, values: Sequence[tuple[str, tuple[Any, ...], float]]) -> None:
        with _faults_named():
            pipeline = self._client.pipeline(transaction=False)
            for key, value, ttl_seconds in values:
                pipeline.set(key, orjson.dumps([SCHEMA_VERSION, *value]), px=_milliseconds(ttl_seconds))
            await pipeline.execute()

    def _arguments(self, append: Append) -> list[bytes | str | int]:
        key, turn, ttl_seconds, system, expected_seq = append
        rules = self._rules
        size_bytes = len(turn.messages)
        entry = b""
        if fits(size_bytes, rules) and (system is None or fits(len(system), rules)):
            header = f"{turn.tokens} {size_bytes} {turn.follows:d} {turn.is_cut:d} {turn.id} "
            entry = header.encode() + self._sealing.sealed(turn.messages, key)
        has_system = system is not None and bool(entry)
        return [
            SCHEMA_VERSION,
            turn.id,
            entry,
            turn.tokens,
            size_bytes,
            int(has_system),
            self._sealing.sealed(system, key) if system is not None and has_system else b"",
            "" if expected_seq is None else expected_seq,
            rules.max_turns,
            rules.max_tokens,
            rules.max_bytes,
            REMEMBERED_IDS,
            _milliseconds(ttl_seconds),
        ]

    def _turn(self, entry: bytes, key: SessionKey) -> Turn | None:
        tokens, _, follows, cut, id, sealed = entry.split(b" ", 5)
        messages = self._sealing.opened(sealed, key)
        if messages is None:
            return None
        return Turn(id.decode(), messages, int(tokens), follows == b"1", cut == b"1")


@contextmanager
def _faults_named() -> Iterator[None]:
    try:
        yield
    except (RedisError, RedisClusterException, OSError) as error:
        # Not the message of the package: it may show an address with its password.
        fault = fault_of(error)
        raise StoreUnavailable(fault, f"Redis: {fault} ({type(error).__name__})") from error


def _read(kind: Any, found: bytes) -> Any:
    """A value of another schema counts as absent."""
    try:
        version, *values = orjson.loads(found)
        return kind(*values) if version == SCHEMA_VERSION else None
    except (ValueError, TypeError):
        return None


def _meta(key: SessionKey) -> str:
    return f"headrace:s:{{{key}}}:m"


def _turns(key: SessionKey) -> str:
    return f"headrace:s:{{{key}}}:t"


def _home(key: SessionKey) -> str:
    return f"headrace:s:{{{key}}}:h"


def _response(response_id: str) -> str:
    return f"headrace:r:{{{hashlib.blake2b(response_id.encode(), digest_size=16).hexdigest()}}}"


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))
