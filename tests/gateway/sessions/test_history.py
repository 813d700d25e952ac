"""One request's history without a gateway around it: what is read, refused, kept and waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import orjson
import pytest
from prometheus_client import CollectorRegistry

from gateway.client_head import ClientHead
from gateway.errors import Refused
from gateway.paths import route_of
from gateway.request import Request
from gateway.session_settings import ConflictRule, HistoryUse, SessionSettings
from gateway.sessions.history import Histories, History, Sessions
from gateway.sessions.memory import MemoryStore
from gateway.sessions.store import (
    Append,
    Appended,
    SessionKey,
    StoreFault,
    StoreUnavailable,
    Turn,
    Window,
    session_key,
)
from gateway.sessions.turn_metrics import TurnMetrics
from gateway.sessions.writer import DirectWriter
from gateway.settings import BackendSettings, PoolSettings, Settings
from gateway.tagging import Tagging
from gateway.usage import Usage
from policies.session_window import WindowRules
from policies.terms import Refusal

TAGGING = Tagging(Settings(pools=(PoolSettings(name="p", backends=(BackendSettings(url="http://b:1"),)),)))
KEY = session_key("anonymous", "s")
HELLO = {"messages": [{"role": "user", "content": "hello"}]}
ASKED = (b"x-headrace-history", b"server")
NAMED = (b"x-headrace-session", b"s")
ANSWER = b'{"choices":[{"index":0,"message":{"role":"assistant","content":"hi"}}]}'
STRICT = SessionSettings(conflicts=ConflictRule.STRICT, timeout_ms=1)
LENIENT = SessionSettings(history_required=False)


def request(
    content: dict[str, Any] = HELLO,
    headers: Sequence[tuple[bytes, bytes]] = (ASKED, NAMED),
    path: str = "/v1/chat/completions",
    method: str = "POST",
) -> Request:
    scope = {"method": method, "path": path, "query_string": b"", "headers": list(headers)}
    route = route_of(path, path.encode(), method)
    assert route is not None
    made = Request(scope, route, ClientHead(headers), TAGGING.client(headers))
    made.take(orjson.dumps(content), {})
    return made


class Stage:
    """Histories over a store in memory whose time stands still."""

    def __init__(self, settings: SessionSettings = SessionSettings(), writer: Any = None) -> None:  # noqa: B008  # it cannot change
        self.now = 0.0
        self.registry = CollectorRegistry()
        self.store = MemoryStore(WindowRules(max_turns=2), 10, 1_000_000, lambda: self.now)
        self.writer = writer or DirectWriter(self.store)
        metrics = TurnMetrics(self.registry, lambda: self.now)
        self.sessions = Sessions(self.store, self.writer, metrics, lambda key: 7.0 if key == KEY else 1.0)
        self.histories = Histories(settings, self.sessions)

    async def open(self, made: Request | None = None) -> History:
        await asyncio.sleep(0)  # who counts a turn is told in the loop's next one
        return await self.histories.open(made or request())

    async def said(self, text: str = "hello", answer: bytes = ANSWER, usage: Usage | None = None) -> None:
        history = await self.open(request({"messages": [{"role": "user", "content": text}]}))
        await history.plain_ended(answer, True, usage)
        history.close(usage)

    async def window(self, key: SessionKey = KEY) -> Window:
        await asyncio.sleep(0)
        return await self.sessions.window(key, 20)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"headrace_{name}", labels)


class Away:
    """A store that is not there, and a writer to it."""

    async def window(self, key: SessionKey) -> Window:
        raise StoreUnavailable(StoreFault.OPEN)

    def append(self, append: Append) -> asyncio.Future[Appended]:
        future: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        future.set_exception(StoreUnavailable(StoreFault.FULL))
        return future

    def pending(self, key: SessionKey) -> None:
        return None


class Slow(Away):
    """A writer that never comes to an end."""

    def append(self, append: Append) -> asyncio.Future[Appended]:
        return asyncio.get_running_loop().create_future()

    def pending(self, key: SessionKey) -> asyncio.Future[Appended]:  # type: ignore[override]
        return asyncio.get_running_loop().create_future()


async def refusal(stage: Stage, made: Request) -> tuple[Refusal, str]:
    with pytest.raises(Refused) as refused:
        await stage.open(made)
    return refused.value.reason, refused.value.message


async def test_what_was_said_is_in_front_of_the_next_prompt_and_older_turns_leave() -> None:
    stage = Stage()
    for text in ("one", "two", "three"):
        await stage.said(text)
    last = request()
    history = await stage.open(last)
    sent = [message["content"] for message in orjson.loads(last.body)["messages"]]
    assert sent == ["two", "hi", "three", "hi", "hello"]
    assert [one["content"] for one in last.view.fields["messages"]] == sent
    [(name, value)] = history.headers
    assert (
        name == b"x-headrace-session"
        and value.startswith(b"seq=3;turns=2;")
        and value.endswith(b";dropped=1")
    )
    assert stage.value("session_turns_total", result="appended") == 3
    assert stage.value("session_window_turns_sum") == 5 and stage.value("session_window_turns_count") == 3
    dropped = stage.value("session_tokens_total", what="dropped")
    kept = stage.value("session_tokens_total", what="kept")
    window = await stage.window()
    assert dropped and kept and dropped == window.dropped_tokens
    assert kept - dropped == sum(turn.tokens for turn in window.turns)


@pytest.mark.parametrize("name", ["", "a b", "é", "x" * 129, "a/b", "a{"])
async def test_an_id_that_is_none_is_refused_when_it_names_a_history(name: str) -> None:
    made = request({**HELLO, "session_id": name}, [ASKED])
    reason, message = await refusal(Stage(), made)
    assert reason is Refusal.INVALID_SESSION and "session id" in message


async def test_the_body_may_name_the_session_too_and_a_shared_cache_key_does_not() -> None:
    stage = Stage()
    history = await stage.open(request({**HELLO, "session_id": "s"}, [ASKED]))
    await history.plain_ended(ANSWER, True, None)
    assert (await stage.window()).seq == 1
    reason, _ = await refusal(stage, request({**HELLO, "prompt_cache_key": "s"}, [ASKED]))
    assert reason is Refusal.INVALID_SESSION


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/responses", "/v1/embeddings", "/v1/other"])
async def test_only_chats_have_a_history(path: str) -> None:
    reason, message = await refusal(Stage(), request(path=path))
    assert reason is Refusal.INVALID_SESSION and "/v1/chat/completions" in message


async def test_history_that_is_off_is_refused_as_such() -> None:
    reason, message = await refusal(Stage(SessionSettings(history=HistoryUse.OFF)), request())
    assert reason is Refusal.INVALID_SESSION and "switched off" in message


async def test_a_store_that_is_away_is_a_503_or_an_answer_without_history_as_configured() -> None:
    for settings, expected in ((SessionSettings(), Refusal.SESSION_STORE_UNAVAILABLE), (LENIENT, None)):
        stage = Stage(settings)
        stage.histories.sessions = stage.sessions._replace(store=Away(), writer=Away())  # type: ignore[arg-type]
        made = request()
        body = made.body
        if expected is not None:
            reason, message = await refusal(stage, made)
            assert reason is expected and "open" in message
        else:
            history = await stage.open(made)
            assert history.headers == [(b"x-headrace-session", b"unavailable")] and made.body == body
            history.begin()
            assert history.take(b"x", b"y") == b"y" and await history.stream_ended(b"z", None) == b"z"
            await history.plain_ended(ANSWER, True, None)
            history.close(None)
            # A condition that cannot be looked at is not met:
            reason, _ = await refusal(
                stage, request(headers=[ASKED, NAMED, (b"x-headrace-session-seq", b"0")])
            )
            assert reason is Refusal.SESSION_STORE_UNAVAILABLE
            assert stage.value("session_turns_total", result="unavailable") == 2
            assert stage.value("session_turns_total", result="appended") == 0


async def test_a_turn_that_is_still_to_be_written_is_waited_for_within_the_stores_time() -> None:
    stage = Stage(STRICT, Slow())
    async with asyncio.timeout(20):
        reason, message = await refusal(stage, request())
    assert reason is Refusal.SESSION_STORE_UNAVAILABLE and "timeout" in message


@pytest.mark.parametrize("seq", [b"0", b"2", b"x", b"-1"])
async def test_a_seq_that_is_not_the_sessions_is_refused_before_an_engine_is_asked(seq: bytes) -> None:
    stage = Stage()
    await stage.said()
    reason, message = await refusal(stage, request(headers=[ASKED, NAMED, (b"x-headrace-session-seq", seq)]))
    assert reason is (Refusal.SESSION_CONFLICT if seq.isdigit() else Refusal.INVALID_SESSION)
    assert reason is Refusal.INVALID_SESSION or "seq is 1" in message
    await stage.open(request(headers=[ASKED, NAMED, (b"x-headrace-session-seq", b"1")]))


async def test_of_two_turns_at_once_both_are_kept_as_they_arrive_or_the_second_is_refused() -> None:
    for settings in (SessionSettings(), STRICT):
        stage = Stage(settings)
        first, second = await stage.open(), await stage.open()
        await first.plain_ended(ANSWER, True, None)
        if settings is STRICT:
            with pytest.raises(Refused) as refused:
                await second.plain_ended(ANSWER, True, None)
            assert refused.value.reason is Refusal.SESSION_CONFLICT
        else:
            await second.plain_ended(ANSWER, True, None)
        second.close(None)
        assert (await stage.window()).seq == (1 if settings is STRICT else 2)
        assert stage.value("session_turns_total", result="conflict") == (1 if settings is STRICT else 0)


EVENTS = [
    b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{"content":"b"},"finish_reason":"stop"}]}\n\n',
    b"data: [DONE]\n\n",
]


async def test_the_end_of_a_stream_is_held_until_its_turn_is_taken_where_conflicts_are_strict() -> None:
    for settings in (SessionSettings(), STRICT):
        stage = Stage(settings)
        history = await stage.open()
        history.begin()
        passed = [history.take(event, event) for event in EVENTS]
        assert passed == (EVENTS if settings is not STRICT else [EVENTS[0], b"", b""])
        assert await history.stream_ended(b"!", None) == (
            b"!" if settings is not STRICT else EVENTS[1] + EVENTS[2] + b"!"
        )
        [turn] = (await stage.window()).turns
        assert (
            orjson.loads(b"[%b]" % turn.messages)[1] == {"role": "assistant", "content": "ab"}
            and not turn.is_cut
        )


async def test_a_strict_turn_that_cannot_be_written_is_a_503_or_goes_on_as_configured() -> None:
    for writer in (Away(), Slow()):
        for required in (True, False):
            stage = Stage(
                SessionSettings(conflicts=ConflictRule.STRICT, timeout_ms=1, history_required=required)
            )
            history = await stage.open()
            stage.histories.sessions = stage.sessions._replace(writer=writer)
            async with asyncio.timeout(20):
                if required:
                    with pytest.raises(Refused) as refused:
                        await history.plain_ended(ANSWER, True, None)
                    assert refused.value.reason is Refusal.SESSION_STORE_UNAVAILABLE
                else:
                    await history.plain_ended(ANSWER, True, None)


async def test_a_stream_that_broke_off_is_kept_as_cut_and_one_that_failed_at_once_is_not() -> None:
    stage = Stage()
    history = await stage.open()
    history.begin()
    history.close(None)
    assert (await stage.window()).seq == 0
    history.begin()
    history.take(EVENTS[0], EVENTS[0])
    history.close(None)
    history.close(None)
    window = await stage.window()
    assert window.seq == 1 and window.turns[0].is_cut
    assert stage.value("session_turns_total", result="cut") == 1
    again = request()
    await stage.open(again)
    assert len(again.view.fields["messages"]) == 1
    stage.histories = Histories(SessionSettings(replay_cut=True), stage.sessions)
    again = request()
    await stage.open(again)
    assert [one["content"] for one in again.view.fields["messages"]] == ["hello", "a", "hello"]


async def test_an_answer_that_the_engine_gave_up_is_a_cut_turn() -> None:
    stage = Stage()
    history = await stage.open()
    history.begin()
    event = EVENTS[1].replace(b"stop", b"abort")
    history.take(event, event)
    await history.stream_ended(b"", None)
    assert (await stage.window()).turns[0].is_cut


async def test_store_false_reads_and_writes_nothing() -> None:
    stage = Stage()
    await stage.said()
    made = request({**HELLO, "store": False})
    history = await stage.open(made)
    assert len(made.view.fields["messages"]) == 3
    await history.plain_ended(ANSWER, True, None)
    history.begin()
    history.take(EVENTS[0], EVENTS[0])
    history.close(None)
    assert (await stage.window()).seq == 1


@pytest.mark.parametrize("kb", [1.0, 2.0])
async def test_a_turn_above_max_entry_kb_is_answered_and_not_kept(kb: float) -> None:
    stage = Stage(SessionSettings(max_entry_kb=kb))
    long = ANSWER.replace(b"hi", b"x" * 1500)
    await stage.said(answer=long)
    history = await stage.open()
    history.begin()
    for event in [EVENTS[0].replace(b'"a"', b'"%b"' % (b"x" * 1500)), *EVENTS]:
        history.take(event, event)
    await history.stream_ended(b"", None)
    kept = 0 if kb == 1 else 2
    assert (await stage.window()).seq == kept
    assert (stage.value("session_turns_total", result="too_large") or 0) == 2 - kept


async def test_an_answer_that_cannot_be_read_is_counted_and_not_kept() -> None:
    stage = Stage()
    history = await stage.open()
    await history.plain_ended(b"\x1f\x8b", False, None)
    await history.plain_ended(b"{}", True, None)
    assert (await stage.window()).seq == 0 and stage.value("session_turns_total", result="unreadable") == 2


async def test_tokens_are_what_the_engine_counted_less_what_was_there_and_an_estimate_else() -> None:
    stage = Stage()
    await stage.said(usage=Usage(20, 5, 0))
    await stage.said(usage=Usage(32, 6, 0))
    await stage.said()
    size = len((await stage.window()).turns[-1].messages)
    assert [turn.tokens for turn in (await stage.window()).turns] == [32 - 25 + 6, size // 4]
    # An engine whose template leaves out reasoning counts less than was kept.
    await stage.said(usage=Usage(3, 4, 0))
    assert (await stage.window()).turns[-1].tokens == 1 + 4


async def test_each_turn_has_an_id_of_its_own_and_the_sessions_time_to_live() -> None:
    stage = Stage()
    for text in ("one", "two"):
        history = await stage.open(request(headers=[ASKED, NAMED, (b"x-request-id", b"same")]))
        await history.plain_ended(ANSWER.replace(b"hi", text.encode()), True, None)
    turns = (await stage.window()).turns
    assert len({turn.id for turn in turns}) == 2 and all(1 <= len(turn.id) <= 64 for turn in turns)
    assert stage.value("sessions_active") == 1
    stage.now = 6.9
    assert (await stage.window()).seq == 2 and stage.value("sessions_active") == 1
    stage.now = 7.1
    assert (await stage.window()).seq == 0 and stage.value("sessions_active") == 0


async def test_the_results_of_tools_follow_the_turn_that_called_them() -> None:
    stage = Stage()
    call = ANSWER.replace(
        b'"content":"hi"',
        b'"content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]',
    )
    await stage.said(answer=call)
    history = await stage.open(
        request({"messages": [{"role": "tool", "tool_call_id": "1", "content": "42"}]})
    )
    await history.plain_ended(ANSWER, True, None)
    assert [turn.follows for turn in (await stage.window()).turns] == [False, True]


async def test_a_turn_in_memory_is_there_when_it_was_given() -> None:
    store = MemoryStore(WindowRules(), 10, 1_000_000, lambda: 0.0)
    writer = DirectWriter(store)
    writes = [writer.append(Append(KEY, Turn(str(place), b"{}", 1), 9)) for place in range(3)]
    assert [one.result().seq for one in writes] == [1, 2, 3]
    assert [turn.id for turn in (await store.window(KEY)).turns] == ["0", "1", "2"]
