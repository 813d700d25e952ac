"""One suite over every store: in memory, in a server, behind a password and TLS, sealed, in a cluster, behind Sentinels."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.sessions.encryption import Sealing
from gateway.sessions.memory import MemoryStore
from gateway.sessions.redis_store import RedisStore
from gateway.sessions.redis_url import RedisAddress, client
from gateway.sessions.store import (
    NO_WINDOW,
    REMEMBERED_IDS,
    Append,
    Home,
    ResponseOwner,
    Result,
    SessionStore,
    StoreFault,
    StoreUnavailable,
    Turn,
    session_key,
)
from policies.session_window import WindowRules
from tests.redis_server import (
    SENTINEL_PASSWORD,
    redis_server,
    tls_in_front,
)

KINDS = ("memory", "redis", "sealed", "tls and password", "cluster", "sentinel")
RULES = WindowRules(max_turns=4, max_tokens=100, max_entry_bytes=200, max_bytes=500)
KEYS = [base64.b64encode(bytes([n]) * 32).decode() for n in (1, 2)]


def redis_store(
    url: str, rules: WindowRules = RULES, keys: list[str] | None = None, ca_file: str = ""
) -> RedisStore:
    return RedisStore(client(RedisAddress(url), 5.0, ca_file, SENTINEL_PASSWORD), rules, Sealing(keys or []))


@asynccontextmanager
async def opened(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SessionStore]:
    if kind == "memory":
        yield MemoryStore(RULES, 1000, 1_000_000, asyncio.get_running_loop().time)
        return
    if kind == "tls and password":
        authority = trustme.CA()
        authority.cert_pem.write_to_path(tmp_path / "ca.pem")
        async with tls_in_front(request.getfixturevalue("locked_port"), authority) as port:
            url = f"rediss://:open%20sesame@127.0.0.1:{port}"
            store = redis_store(url, ca_file=str(tmp_path / "ca.pem"))
            yield store
            await store.close()
        return
    name = {"redis": "server", "sealed": "server", "cluster": "cluster"}.get(kind)
    store = redis_store(
        request.getfixturevalue(name) if name else request.getfixturevalue("trio").url,
        keys=KEYS if kind == "sealed" else None,
    )
    yield store
    await store.close()


@pytest.fixture(params=KINDS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SessionStore]:
    async with opened(request.param, request, tmp_path) as found:
        yield found


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    """Of a session that no other test has."""
    return session_key("tenant", request.node.name)


def turn(id: str, tokens: int = 10, text: str = "", follows: bool = False, is_cut: bool = False) -> Turn:
    return Turn(id, f'{{"role":"user","content":"{text or id}"}}'.encode(), tokens, follows, is_cut)


async def put(store: SessionStore, key: str, one: Turn, **options: Any) -> Result:
    [result] = await store.append([Append(key, one, 60.0, **options)])
    return result.result


async def ids(store: SessionStore, key: str) -> list[str]:
    return [one.id for one in (await store.window(key)).turns]


async def test_turns_come_back_as_they_were_put(store: SessionStore, key: str) -> None:
    assert await store.window(key) == NO_WINDOW
    first = turn("a", text='Grüße, 世界 \\" \\n')
    second = turn("b", 7, follows=True, is_cut=True)
    [one, two] = await store.append(
        [Append(key, first, 60.0, b'{"role":"system"}'), Append(key, second, 60.0)]
    )
    assert (one.result, one.seq, one.turns, one.tokens) == (Result.APPENDED, 1, 1, 10)
    assert (two.result, two.seq, two.turns, two.tokens) == (Result.APPENDED, 2, 2, 17)
    window = await store.window(key)
    assert window.seq == 2
    assert window.turns == (first, second)
    assert window.system == b'{"role":"system"}'


async def test_the_oldest_leave_by_number_tokens_and_bytes(store: SessionStore, key: str) -> None:
    for n in range(6):
        await put(store, key, turn(f"n{n}"))
    assert await ids(store, key) == ["n2", "n3", "n4", "n5"]
    [result] = await store.append([Append(key, turn("many", 85), 60.0)])
    assert (result.turns, result.tokens, result.dropped_turns, result.dropped_tokens) == (2, 95, 3, 30)
    window = await store.window(key)
    assert (window.dropped_turns, window.dropped_tokens, window.seq) == (5, 50, 7)
    other = session_key("bytes", key)
    for n in range(4):
        await put(store, other, turn(f"b{n}", 1, "x" * 120))
    assert await ids(store, other) == ["b1", "b2", "b3"]


async def test_what_follows_a_call_leaves_with_it_and_the_newest_stays(store: SessionStore, key: str) -> None:
    for one in (turn("ask"), turn("result", follows=True), turn("more", follows=True), turn("b"), turn("c")):
        await put(store, key, one)
    assert await ids(store, key) == ["b", "c"]
    await put(store, key, turn("huge", 1000, follows=True))
    assert await ids(store, key) == ["huge"]


async def test_a_retry_is_known_by_its_id_even_after_the_turn_left(store: SessionStore, key: str) -> None:
    for n in range(REMEMBERED_IDS):
        await put(store, key, turn(f"t{n}"))
    assert await put(store, key, turn("t0")) is Result.DUPLICATE
    assert (await store.window(key)).seq == REMEMBERED_IDS
    await put(store, key, turn("one more"[:3]))
    assert await put(store, key, turn("t0")) is Result.APPENDED, "only so many are remembered"


async def test_who_expects_another_seq_changes_nothing(store: SessionStore, key: str) -> None:
    assert await put(store, key, turn("a"), expected_seq=0) is Result.APPENDED
    assert await put(store, key, turn("b"), expected_seq=0, system=b"{}") is Result.CONFLICT
    assert await store.window(key) == (await store.window(key))._replace(system=b"", seq=1)
    assert await put(store, key, turn("a"), expected_seq=0) is Result.DUPLICATE, (
        "its own retry is no conflict"
    )
    assert await put(store, key, turn("b"), expected_seq=1) is Result.APPENDED


async def test_what_is_too_large_is_not_taken(store: SessionStore, key: str) -> None:
    assert await put(store, key, turn("a", text="x" * 300)) is Result.TOO_LARGE
    assert await put(store, key, turn("b"), system=b"x" * 201) is Result.TOO_LARGE
    assert await store.window(key) == NO_WINDOW


async def test_the_system_message_stays_until_another_comes(store: SessionStore, key: str) -> None:
    await put(store, key, turn("a"), system=b'{"s":1}')
    for n in range(8):
        await put(store, key, turn(f"n{n}"))
    assert (await store.window(key)).system == b'{"s":1}'
    await put(store, key, turn("z"), system=b'{"s":2}')
    assert (await store.window(key)).system == b'{"s":2}'


async def test_sessions_homes_and_responses_are_apart_and_can_be_deleted(
    store: SessionStore, key: str
) -> None:
    other = session_key("another tenant", key)
    await put(store, key, turn("a"))
    await store.set_homes([(key, Home("b1", 2**63 + 5), 60.0), (other, Home("b2"), 60.0)])
    assert await store.home(key) == Home("b1", 2**63 + 5)
    assert await store.window(other) == NO_WINDOW
    assert await store.delete(key)
    assert not await store.delete(key)
    assert await store.home(key) is None
    assert await store.home(other) == Home("b2")
    assert await store.response(key) is None
    await store.set_responses([(key, ResponseOwner("tenant", "b3"), 60.0)])
    assert await store.response(key) == ResponseOwner("tenant", "b3")
    await store.ping()


async def test_times_to_live_end(store: SessionStore, key: str) -> None:
    await store.append([Append(key, turn("a"), 0.001)])
    await store.set_homes([(key, Home("b1"), 0.001)])
    await store.set_responses([(key, ResponseOwner("t", "b"), 0.001)])

    async with asyncio.timeout(10):
        # Nothing tells when a server's clock has passed a time.
        while await store.window(key) != NO_WINDOW or await store.home(key) or await store.response(key):  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_many_at_once_are_all_there_in_one_order(store: SessionStore, key: str) -> None:
    sessions = [session_key(f"{n}", key) for n in range(30)]
    await store.append([Append(one, turn("a"), 60.0) for one in sessions])
    for one in sessions:
        assert await ids(store, one) == ["a"]
    results = await asyncio.gather(*[store.append([Append(key, turn(f"p{n}"), 60.0)]) for n in range(50)])
    order = sorted((one.seq, n) for n, [one] in enumerate(results))
    assert [seq for seq, _ in order] == list(range(1, 51))
    assert await ids(store, key) == [f"p{n}" for _, n in order[-4:]]


Step = tuple[str, int, int, bool]
STEPS = st.lists(
    st.tuples(st.sampled_from(["new", "again", "lost", "conflict", "delete"]), st.integers(1, 60), st.integers(1, 150), st.booleans()),
    max_size=40,
)  # fmt: skip


def expected(turns: list[Turn]) -> list[Turn]:
    """The last ones within all bounds, said another way than the store does."""
    for start in range(len(turns)):
        kept = turns[start:]
        if start and kept[0].follows and len(kept) > 1:
            continue
        if len(kept) == 1 or (
            len(kept) <= RULES.max_turns
            and sum(one.tokens for one in kept) <= RULES.max_tokens
            and sum(len(one.messages) for one in kept) <= RULES.max_bytes
        ):
            return kept
    return []


@pytest.mark.parametrize("kind", ["memory", "sealed"])
async def test_after_any_history_the_window_is_the_last_turns_in_order_and_none_twice(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    runs = 0
    loop = asyncio.get_running_loop()

    async with opened(kind, request, tmp_path) as store:

        async def run(steps: list[Step]) -> None:
            nonlocal runs
            runs += 1
            key = session_key(kind, f"run {runs}")
            kept: list[Turn] = []
            last: Append | None = None
            seq = 0
            for n, (what, tokens, size, follows) in enumerate(steps):
                if what == "delete":
                    await store.delete(key)
                    kept, last, seq = [], None, 0
                    continue
                if what == "again" and last is not None:
                    await store.append([last])  # its reply was lost
                    continue
                one = turn(f"r{n}", tokens, "x" * size, follows)
                append = Append(key, one, 60.0, expected_seq=seq + 1 if what == "conflict" else None)
                result, *_ = await store.append([append, append] if what == "lost" else [append])
                if result.result is Result.APPENDED:
                    seq, last = seq + 1, append
                    kept = expected([*kept, one])
                assert (result.result is Result.CONFLICT) == (what == "conflict")
            window = await store.window(key)
            assert list(window.turns) == kept
            assert window.seq == seq

        def example(steps: list[Step]) -> None:
            asyncio.run_coroutine_threadsafe(run(steps), loop).result()

        checked = settings(
            max_examples=150 if kind == "memory" else 40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )(given(STEPS)(example))
        await asyncio.to_thread(checked)
    assert runs


# --- what only a server can do --------------------------------------------------------------------------------------------


async def fault(store: SessionStore) -> StoreFault:
    with pytest.raises(StoreUnavailable) as raised:
        await store.append([Append(session_key("t", "s"), turn("a"), 60.0)])
    assert "open sesame" not in str(raised.value)
    return raised.value.reason


async def test_what_a_server_refuses_has_its_name(locked_port: int, trio: Any) -> None:
    stores = {
        StoreFault.REFUSED: redis_store(f"redis://:wrong@127.0.0.1:{locked_port}"),
        StoreFault.READ_ONLY: redis_store(trio.replica.url),
        StoreFault.CONNECTION: redis_store("unix:///nowhere/redis.sock"),
    }
    for reason, store in stores.items():
        assert await fault(store) is reason
        await store.close()
    without = redis_store(f"redis://127.0.0.1:{locked_port}")
    assert await fault(without) is StoreFault.REFUSED
    await without.close()
    with redis_server("--maxmemory", "1", "--maxmemory-policy", "noeviction") as url:
        full = redis_store(url)
        assert await fault(full) is StoreFault.FULL
        with pytest.raises(StoreUnavailable):
            await full.ping()
        await full.close()


async def test_a_cluster_with_nobody_there_is_away_and_an_error_of_one_key_is_an_answer(server: str) -> None:
    nobody = redis_store("redis+cluster://127.0.0.1:9,127.0.0.1:9")
    assert await fault(nobody) is StoreFault.CONNECTION
    await nobody.close()
    store = redis_store(server)
    raw = client(RedisAddress(server), 5.0, "", "")
    key = session_key("t", "of another type")
    await raw.set(f"headrace:s:{{{key}}}:m", "no hash")
    with pytest.raises(StoreUnavailable) as raised:
        await store.window(key)
    assert raised.value.reason is StoreFault.ANSWERED
    await store.ping()
    await raw.aclose()
    await store.close()


async def test_another_schema_and_another_key_count_as_absent(server: str) -> None:
    key = session_key("t", "schema")
    first, second = redis_store(server, keys=KEYS[:1]), redis_store(server, keys=KEYS[1:])
    both = redis_store(server, keys=[KEYS[1], KEYS[0]])
    raw = client(RedisAddress(server), 5.0, "", "")
    await put(first, key, turn("secret"))
    [stored] = await raw.lrange(f"headrace:s:{{{key}}}:t", 0, -1)
    assert b"content" not in stored
    assert await second.window(key) == NO_WINDOW
    assert await ids(both, key) == ["secret"], "a key that is no longer the first is still read"
    await raw.hset(f"headrace:s:{{{key}}}:m", "v", "0")
    assert await both.window(key) == NO_WINDOW
    assert await put(both, key, turn("anew")) is Result.APPENDED
    assert await ids(both, key) == ["anew"]
    await raw.set(f"headrace:s:{{{key}}}:h", b"[0,1,2,3]")
    assert await both.home(key) is None
    for store in (first, second, both):
        await store.close()
    await raw.aclose()


async def test_a_call_that_is_cancelled_leaves_no_answer_for_the_next(server: str) -> None:
    store = redis_store(server, WindowRules())
    keys = {name: session_key("cancelled", name) for name in "ab"}
    for name, key in keys.items():
        await put(store, key, turn(name * 8, text=name * 1000))
    for yields in range(40):
        reading = asyncio.create_task(store.window(keys["a"]))
        for _ in range(yields % 8):
            await asyncio.sleep(0)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        assert await ids(store, keys["b"]) == ["b" * 8]
    await store.close()


@pytest.mark.parametrize("kind", ["server", "locked_port", "cluster", "trio"])
async def test_connections_that_the_server_ended_meanwhile_fail_no_call(
    kind: str, request: pytest.FixtureRequest
) -> None:
    """An idle timeout or a restart leaves such; a crowd comes upon all of them at once."""
    found = request.getfixturevalue(kind)
    urls = {"locked_port": f"redis://:open%20sesame@127.0.0.1:{found}", "trio": getattr(found, "url", "")}
    connection = client(RedisAddress(urls.get(kind, found)), 5.0, "", SENTINEL_PASSWORD)
    store = RedisStore(connection, RULES, Sealing([]))
    key = session_key("ended", kind)
    everywhere = {"target_nodes": "primaries"} if kind == "cluster" else {}
    await asyncio.gather(*[store.window(key) for _ in range(8)])
    await connection.execute_command("CLIENT KILL", "TYPE", "normal", **everywhere)
    found_windows = await asyncio.gather(*[store.window(key) for _ in range(8)], return_exceptions=True)
    await store.close()
    assert found_windows == [NO_WINDOW] * 8


async def test_sessions_live_on_through_a_failover(trio: Any) -> None:
    store = redis_store(trio.url)
    key = session_key("t", "failover")
    await put(store, key, turn("before"))
    await asyncio.to_thread(trio.fail_over)
    result = None
    async with asyncio.timeout(30):
        while result is None:
            try:
                result = await put(store, key, turn("after"))
            except StoreUnavailable:
                await asyncio.sleep(0)
    assert (await ids(store, key))[-1] == "after"
    await store.close()
