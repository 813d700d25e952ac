"""A chat of which the client sends only what is new, over real sockets: what the engine gets, what is kept, and who may see it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable
from dataclasses import replace
from hashlib import sha256
from typing import Any

import orjson
import pytest

from gateway.errors import Refused
from gateway.session_settings import ConflictRule, HistoryUse, SessionSettings
from gateway.sessions.memory import MemoryStore
from gateway.sessions.store import Append, Appended, SessionKey, StoreFault, StoreUnavailable
from gateway.sessions.writer import DirectWriter
from gateway.settings import ServerSettings, TenantSettings
from policies.session_window import WindowRules
from policies.terms import Refusal
from tests import client
from tests.backend import Backend, Ending, Framing, Gate, Request, Script, json_script, sse_script
from tests.emulator.running import engine, until
from tests.running import CHAT, JSON, Running, running
from tests.script import SSE

Header = tuple[bytes, bytes]
SERVER: Header = (b"X-Headrace-History", b"server")
SYSTEM = {"role": "system", "content": "be brief"}


def named(name: str = "s", *more: Header) -> list[Header]:
    return [SERVER, (b"X-Headrace-Session", name.encode()), *more]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def echo(request: Request) -> Script:
    """Answers with the number of messages that came, streamed in three parts where that is wanted."""
    content = request.json()
    text = f"of {len(content['messages'])}"
    usage = {"prompt_tokens": 100 * len(content["messages"]), "completion_tokens": 50, "total_tokens": 0}
    if not content.get("stream"):
        message = {"role": "assistant", "content": text, "refusal": None}
        return json_script(
            {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}
        )
    deltas = [{"role": "assistant", "content": ""}, {"content": text[:2]}, {"content": text[2:]}]
    events = [orjson.dumps({"choices": [{"index": 0, "delta": delta}]}) for delta in deltas]
    finish = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    return sse_script(*events, orjson.dumps(finish), orjson.dumps({"choices": [], "usage": usage}), b"[DONE]")


async def say(
    gateway: Running, *messages: Any, headers: list[Header] | None = None, **fields: Any
) -> client.Answer:
    body = {"model": "m", "messages": list(messages), **fields}
    return await gateway.post(body, headers=named() if headers is None else headers)


async def page(gateway: Running, name: str = "s", *headers: Header, method: str = "GET") -> tuple[int, Any]:
    answer = await gateway.send(client.request(method, f"/v1/sessions/{name}", headers))
    return answer.status, json.loads(answer.body)


def contents(backend: Backend, index: int = -1) -> list[Any]:
    return [message["content"] for message in backend.exchanges[index].request.json()["messages"]]


async def test_three_turns_of_which_only_what_is_new_is_sent_plain_and_streamed() -> None:
    async with Backend(echo) as backend, running(backend, aliases={"alias": "m"}) as gateway:
        first = await say(gateway, SYSTEM, user("one"))
        assert first.value(b"x-headrace-session") == b"seq=0;turns=0;tokens=0;dropped=0"
        second = await say(gateway, user("two"), stream=True)
        assert second.value(b"x-headrace-session") == b"seq=1;turns=1;tokens=240;dropped=0"
        assert b'"usage"' not in second.body and second.body.endswith(b"data: [DONE]\n\n")
        body = b'{ "messages":[ {"role":"user","content":"\\u0033"} ],"model":"alias","temperature":1.0e0}'
        third = await gateway.post(body, headers=named())
        assert third.value(b"x-headrace-session") == b"seq=2;turns=2;tokens=440;dropped=0"
        assert contents(backend) == ["be brief", "one", "of 2", "two", "of 4", "3"]
        sent = backend.exchanges[-1].request
        assert sent.body.startswith(b'{ "messages":[ {"role": "system", "content":')
        assert sent.body.endswith(b',{"role":"user","content":"\\u0033"} ],"model":"m","temperature":1.0e0}')
        assert sent.value(b"x-headrace-history") is None and sent.value(b"x-headrace-session") is None
        status, session = await page(gateway)
        assert status == 200
        assert [one["content"] for one in session.pop("messages")] == [
            *("be brief", "one", "of 2", "two", "of 4", "3", "of 6")
        ]
        # The last prompt, its answer, and not the system message: 600 + 50 - 10.
        tokens = session.pop("tokens")
        assert session == {"object": "session", "id": "s", "seq": 3, "turns": 3, "dropped_turns": 0}
        assert tokens == 600 + 50 - len(json.dumps(SYSTEM)) // 4
        assert gateway.metric("headrace_session_turns_total", result="appended") == 3
        assert gateway.metric("headrace_sessions_active") == 1
        plain = await gateway.post({"model": "m", "messages": [user("alone")]}, headers=named()[1:])
        assert contents(backend) == ["alone"] and plain.value(b"x-headrace-session") is None
        assert (await page(gateway))[1]["seq"] == 3


async def test_an_emulated_engine_counts_the_whole_window() -> None:
    async with engine() as emulated, running(emulated) as gateway:
        prompts = []
        for stream in (False, True, False):
            options = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
            body = {"messages": [user("hello there")], "max_tokens": 8, **options}
            answer = await gateway.post(body, headers=named())
            assert answer.status == 200 and answer.complete
            found = re.findall(rb'"prompt_tokens":(\d+)', answer.body)
            prompts.append(int(found[-1]))
        assert prompts[0] < prompts[1] < prompts[2]
        _, session = await page(gateway)
        assert [one["role"] for one in session["messages"]] == ["user", "assistant"] * 3
        assert all(one["content"] for one in session["messages"])


async def test_a_tool_call_and_its_result_reach_the_engine_together() -> None:
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}}

    def script(request: Request) -> Script:
        if len(request.json()["messages"]) > 1:
            return echo(request)
        parts = [{"tool_calls": [call]}, {"tool_calls": [{"index": 0, "function": {"arguments": '{"a":'}}]},
                 {"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]}]  # fmt: skip
        events = [orjson.dumps({"choices": [{"index": 0, "delta": part}]}) for part in parts]
        return sse_script(
            *events, b'{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}', b"[DONE]"
        )

    async with Backend(script) as backend, running(backend) as gateway:
        await say(gateway, user("what is it"), stream=True)
        await say(gateway, {"role": "tool", "tool_call_id": "c1", "content": "42"})
        sent = backend.exchanges[-1].request.json()["messages"]
        assert [one["role"] for one in sent] == ["user", "assistant", "tool"]
        [kept] = sent[1]["tool_calls"]
        assert kept == {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}


async def test_a_cut_answer_and_an_aborted_one_are_kept_as_cut_and_not_replayed() -> None:
    part = b'{"choices":[{"index":0,"delta":{"content":"half"}}]}'
    gate = Gate()
    scripts = [sse_script(part, ending=Ending.CUT), sse_script(part, gate), sse_script(part, b"[DONE]")]
    async with Backend(lambda _: scripts.pop(0)) as backend, running(backend) as gateway:
        cut = await say(gateway, user("one"), stream=True)
        assert not cut.complete and b'"error"' in cut.body
        async with await gateway.begin(
            {"messages": [user("two")], "stream": True}, headers=named()
        ) as leaving:
            await leaving.read_head()
            await until(lambda: backend.exchanges[1].chunks_sent == 1)
            while b"half" not in await leaving.read_some():
                pass
        await until(gateway.is_quiet)
        status, session = await page(gateway)
        assert status == 200 and session["seq"] == 2
        assert [one["content"] for one in session["messages"]] == ["one", "half", "two", "half"]
        assert gateway.metric("headrace_session_turns_total", result="cut") == 2
        await say(gateway, user("three"), stream=True)
        assert contents(backend) == ["three"]
        gateway.gateway.configure(
            replace(gateway.gateway.settings, sessions=SessionSettings(replay_cut=True))
        )
        scripts.append(json_script({"choices": []}))
        await say(gateway, user("four"))
        assert contents(backend) == ["one", "half", "two", "half", "three", "half", "four"]
        assert gateway.metric("headrace_session_turns_total", result="unreadable") == 1


async def test_refusals_and_engine_errors_leave_no_turn() -> None:
    answers = [400, 500, 404]
    async with (
        Backend(lambda _: json_script({"error": {"message": "no"}}, status=answers.pop(0))) as backend,
        running(backend) as gateway,
    ):
        for expected in (400, 500, 404):
            answer = await say(gateway, user("x"))
            assert answer.status == expected and answer.value(b"x-headrace-session")
        assert (await say(gateway, SYSTEM)).status == 400
        assert (await page(gateway))[0] == 404
        for body, target in (({"model": "m", "prompt": "x"}, "/v1/completions"), ({"model": "m"}, CHAT)):
            assert (await gateway.post(body, target, named())).status == 400
        assert (await say(gateway, user("x"), headers=[SERVER])).value(
            b"x-headrace-reason"
        ) == b"invalid_session"
        assert (await say(gateway, user("x"), headers=named("a b"))).status == 400
        assert len(backend.exchanges) == 3


@pytest.mark.parametrize("body", [b'"\\u0041"', b"[]", b'["\\n",{"choices":[]}]', b"1", b"null"])
async def test_an_answer_that_is_no_object_passes_and_leaves_no_turn(body: bytes) -> None:
    script = Script(headers=[JSON], chunks=[body])
    async with Backend(lambda _: script) as backend, running(backend) as gateway:
        answer = await say(gateway, user("one"))
        assert (answer.status, answer.body) == (200, body)
        assert (await page(gateway))[0] == 404


async def test_store_false_is_answered_from_the_window_and_not_kept() -> None:
    async with Backend(echo) as backend, running(backend) as gateway:
        await say(gateway, user("one"))
        for stream in (False, True):
            await say(gateway, user("secret"), store=False, stream=stream)
            assert contents(backend) == ["one", "of 1", "secret"]
        assert [one["content"] for one in (await page(gateway))[1]["messages"]] == ["one", "of 1"]


async def test_two_turns_at_once_are_both_kept_in_the_order_of_their_ends() -> None:
    gates = {"one": Gate(), "two": Gate()}

    def script(request: Request) -> Script:
        return replace(echo(request), before_head=gates[request.json()["messages"][-1]["content"]])

    async with Backend(script) as backend, running(backend) as gateway:
        first = asyncio.create_task(say(gateway, user("one")))
        await backend.exchange(0)
        second = asyncio.create_task(say(gateway, user("two"), stream=True))
        await backend.exchange(1)
        gates["two"].set()
        assert (await second).complete
        gates["one"].set()
        assert (await first).status == 200
        assert [one["content"] for one in (await page(gateway))[1]["messages"]] == [
            "two",
            "of 1",
            "one",
            "of 1",
        ]


async def test_in_strict_mode_the_second_to_end_is_a_409_or_an_error_event() -> None:
    strict = SessionSettings(conflicts=ConflictRule.STRICT)
    gate = Gate()

    def script(request: Request) -> Script:
        made = echo(request)
        return (
            replace(made, before_head=gate) if request.json()["messages"][-1]["content"] == "late" else made
        )

    async with Backend(script) as backend, running(backend, sessions=strict) as gateway:
        plain = asyncio.create_task(say(gateway, user("late")))
        await backend.exchange(0)
        stream = asyncio.create_task(say(gateway, user("late"), stream=True))
        await backend.exchange(1)
        assert (await say(gateway, user("early"), stream=True)).body.endswith(b"[DONE]\n\n")
        gate.set()
        refused = await plain
        assert (refused.status, refused.value(b"x-headrace-reason")) == (409, b"session_conflict")
        broken = await stream
        assert broken.status == 200 and not broken.complete and b"[DONE]" not in broken.body
        assert b'"reason":"session_conflict"' in broken.body and b'"finish_reason":"stop"' not in broken.body
        assert [one["content"] for one in (await page(gateway))[1]["messages"]] == ["early", "of 1"]
        assert gateway.metric("headrace_session_turns_total", result="conflict") == 2
        assert all(gateway.present()), "an engine that answered well is not to blame"


async def test_a_seq_that_has_moved_on_is_refused_before_an_engine_is_asked() -> None:
    async with Backend(echo) as backend, running(backend) as gateway:
        seq = b"X-Headrace-Session-Seq"
        assert (await say(gateway, user("one"), headers=named("s", (seq, b"0")))).status == 200
        refused = await say(gateway, user("two"), headers=named("s", (seq, b"0")))
        assert (refused.status, refused.value(b"x-headrace-reason")) == (409, b"session_conflict")
        assert len(backend.exchanges) == 1
        assert (await say(gateway, user("two"), headers=named("s", (seq, b"1")))).status == 200


def tenant(name: str) -> tuple[TenantSettings, Header]:
    settings = TenantSettings(name=name, key_sha256=(sha256(name.encode()).hexdigest(),))
    return settings, (b"Authorization", b"Bearer " + name.encode())


async def test_a_session_belongs_to_its_tenant_and_can_be_shown_and_deleted() -> None:
    (bank, bank_key), (shop, shop_key) = tenant("bank"), tenant("shop")
    async with Backend(echo) as backend, running(backend, tenants=(bank, shop)) as gateway:
        await say(gateway, user("of the bank"), headers=named("s", bank_key))
        await say(gateway, user("of the shop"), headers=named("s", shop_key))
        assert contents(backend) == ["of the shop"]
        assert (await page(gateway, "s", bank_key))[1]["messages"][0]["content"] == "of the bank"
        await say(gateway, user("x"), headers=named("only-banks", bank_key))
        for method in ("GET", "DELETE"):
            status, error = await page(gateway, "only-banks", shop_key, method=method)
            assert status == 404 and error["error"]["type"] == "NotFoundError"
            status, _ = await page(gateway, "s", (b"Authorization", b"Bearer wrong"), method=method)
            assert status == 401
            assert (await page(gateway, "a%20b", bank_key, method=method))[0] == 400
        gone = {"id": "s", "object": "session.deleted", "deleted": True}
        assert await page(gateway, "s", bank_key, method="DELETE") == (200, gone)
        assert (await page(gateway, "s", bank_key, method="DELETE"))[0] == 404
        assert (await page(gateway, "s", bank_key))[0] == 404 and (await page(gateway, "s", shop_key))[
            0
        ] == 200
        status, error = await page(gateway, "s", bank_key, method="POST")
        assert status == 405 and "DELETE" in error["error"]["message"]
        head = await gateway.send(client.request("HEAD", "/v1/sessions/s", [shop_key]))
        assert head.status == 200 and head.body == b""


class Away:
    async def window(self, key: SessionKey) -> Any:
        raise StoreUnavailable(StoreFault.OPEN)

    async def delete(self, key: SessionKey) -> bool:
        raise StoreUnavailable(StoreFault.READ_ONLY)

    def append(self, append: Append) -> asyncio.Future[Appended]:
        raise AssertionError("nothing to write was read")

    def pending(self, key: SessionKey) -> None:
        return None


async def test_a_store_that_is_away_is_a_503_or_an_answer_without_history() -> None:
    async with Backend(echo) as backend, running(backend) as gateway:
        inner = gateway.gateway
        inner.sessions.current = inner.sessions.current._replace(store=Away(), writer=Away())  # type: ignore[arg-type]
        inner.configure(inner.settings)
        refused = await say(gateway, user("one"))
        assert (refused.status, refused.value(b"x-headrace-reason")) == (503, b"session_store_unavailable")
        assert refused.value(b"retry-after") and not backend.exchanges
        for method in ("GET", "DELETE"):
            assert (await page(gateway, method=method))[0] == 503
        inner.configure(replace(inner.settings, sessions=SessionSettings(history_required=False)))
        for stream in (False, True):
            answer = await say(gateway, user("one"), stream=stream)
            assert answer.status == 200 and answer.value(b"x-headrace-session") == b"unavailable"
            assert contents(backend) == ["one"]


class Held(DirectWriter):
    """Gives the store no turn until it may."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.gate = asyncio.Event()
        self.asked = 0
        self.last: asyncio.Task[Appended] | None = None

    def append(self, append: Append) -> asyncio.Future[Appended]:
        self.last = asyncio.create_task(self._later(append))
        return self.last

    async def _later(self, append: Append) -> Appended:
        await self.gate.wait()
        return super().append(append).result()

    def pending(self, key: SessionKey) -> Awaitable[Any] | None:  # type: ignore[override]  # this one is late
        self.asked += 1
        return self.last


async def test_a_turn_that_is_still_to_be_written_is_deleted_too() -> None:
    patient = SessionSettings(timeout_ms=10_000)
    async with Backend(echo) as backend, running(backend, sessions=patient) as gateway:
        inner = gateway.gateway
        store = MemoryStore(WindowRules(), 10, 1_000_000, lambda: 0.0)
        writer = Held(store)
        inner.sessions.current = inner.sessions.current._replace(store=store, writer=writer)
        inner.configure(inner.settings)
        assert (await say(gateway, user("one"))).status == 200
        deleting = asyncio.create_task(page(gateway, method="DELETE"))
        await until(lambda: writer.asked == 2 or deleting.done())
        writer.gate.set()
        assert (await deleting)[0] == 200
        assert (await page(gateway))[0] == 404


async def test_a_strict_stream_that_comes_in_one_piece_has_a_first_byte() -> None:
    strict = SessionSettings(conflicts=ConflictRule.STRICT)

    def script(request: Request) -> Script:
        whole = b"".join(chunk for chunk in echo(request).chunks if isinstance(chunk, bytes))
        return Script(headers=[SSE], chunks=[whole], framing=Framing.CHUNKED)

    async with Backend(script) as backend, running(backend, sessions=strict) as gateway:
        answer = await say(gateway, user("one"), stream=True)
        assert answer.complete and answer.body.endswith(b"[DONE]\n\n")
        await until(gateway.is_quiet)
        assert (
            b'headrace_first_byte_seconds_count{pool="default"} 1.0' in (await gateway.get("/metrics")).body
        )


async def test_a_reload_switches_history_off_for_the_next_request() -> None:
    async with Backend(echo) as backend, running(backend) as gateway:
        assert (await say(gateway, user("one"))).status == 200
        off = SessionSettings(history=HistoryUse.OFF)
        gateway.gateway.configure(replace(gateway.gateway.settings, sessions=off))
        refused = await say(gateway, user("two"))
        assert refused.status == 400 and b"switched off" in refused.body and len(backend.exchanges) == 1


async def test_the_whole_prompt_is_what_is_decided_about() -> None:
    async with Backend(echo) as backend, running(backend) as gateway:
        long = await say(gateway, user("word " * 20_000))
        assert b"length=long" in (long.value(b"x-headrace-route") or b"")
        short = await say(gateway, user("and now"))
        assert b"length=long" in (short.value(b"x-headrace-route") or b"")
        alone = await say(gateway, user("and now"), headers=named("other"))
        assert b"length=short" in (alone.value(b"x-headrace-route") or b"")


async def test_nothing_that_was_said_and_no_id_is_in_metrics_or_logs() -> None:
    async with Backend(echo) as backend, running(backend) as gateway:
        await say(gateway, user("a-secret-word"), headers=named("a-secret-name"))
        await say(gateway, SYSTEM, headers=named("a-secret-name"))
        metrics = (await gateway.get("/metrics")).body
        assert b"headrace_session_turns_total" in metrics and b"secret" not in metrics
        log = gateway.log
        assert "secret" not in json.dumps(log)


async def test_browsers_may_read_the_state_of_a_session() -> None:
    cors = ServerSettings(port=0, cors_origins=("*",))
    async with Backend(echo) as backend, running(backend, server=cors) as gateway:
        answer = await say(gateway, user("one"), headers=named("s", (b"Origin", b"http://page.test")))
        assert b"x-headrace-session" in (answer.value(b"access-control-expose-headers") or b"")


async def test_a_stream_interrupted_at_shutdown_keeps_what_came() -> None:
    part = b'{"choices":[{"index":0,"delta":{"content":"half"}}]}'
    async with Backend(lambda _: sse_script(part, Gate())) as backend, running(backend) as gateway:
        async with await gateway.begin(
            {"messages": [user("two")], "stream": True}, headers=named()
        ) as waiting:
            await waiting.read_head()
            while b"half" not in await waiting.read_some():
                pass
            [departure] = gateway.gateway.proxy.live
            departure.interrupt(Refused(Refusal.SHUTTING_DOWN, "leaving"))
            await waiting.read_until_closed()
        await until(gateway.is_quiet)
        assert [one["content"] for one in (await page(gateway))[1]["messages"]] == ["two", "half"]


async def test_a_plain_answer_that_is_being_read_is_not_given_up_for_an_emergency() -> None:
    gate = Gate()
    body = orjson.dumps({"choices": [{"index": 0, "message": {"role": "assistant", "content": "x"}}]})
    script = Script(headers=[JSON], chunks=[body[:9], gate, body[9:]], framing=Framing.CHUNKED)
    async with Backend(lambda _: script) as backend, running(backend) as gateway:
        asked = asyncio.create_task(say(gateway, user("one")))
        await backend.exchange(0)
        [departure] = gateway.gateway.proxy.live
        await until(lambda: departure.attempt is not None and departure.attempt[1].body_started)
        assert departure.spare_attempt() is None
        gate.set()
        assert (await asked).body == body
        assert (await page(gateway))[1]["turns"] == 1


async def test_an_answer_far_above_what_may_be_kept_passes_as_it_comes_and_is_not_kept() -> None:
    gate = Gate()
    large = b"x" * 100_000

    def script(_: Request) -> Script:
        return Script(headers=[JSON], chunks=[b'{"a":"', large, gate, large, b'"}'], framing=Framing.CHUNKED)

    sessions = SessionSettings(max_entry_kb=16)
    async with Backend(script) as backend, running(backend, sessions=sessions) as gateway:
        body = {"model": "m", "messages": [user("one")]}
        async with await gateway.begin(body, headers=named()) as connection:
            head = await connection.read_head()
            pieces = connection.pieces(head)
            assert (await anext(pieces)).startswith(b'{"a":"x'), "before all of it was there"
            gate.set()
            rest = [piece async for piece in pieces]
            assert rest[-1].endswith(b'x"}')
        assert gateway.metric("headrace_session_turns_total", result="too_large") == 1
        assert (await page(gateway))[0] == 404
