"""A response of the Responses API is asked for where it is, from any gateway, by whom it belongs to; and who asks in vain is told why."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import pytest
from openai import AsyncOpenAI, NotFoundError

from gateway.sessions.memory import MemoryStore
from gateway.sessions.responses import Responses
from gateway.sessions.store import ResponseOwner, StoreFault, StoreUnavailable
from gateway.settings import (
    BackendSettings,
    PoolSettings,
    ProbeSettings,
    PromptTokensSettings,
    ServerSettings,
    Settings,
    TenantSettings,
)
from policies.absence import AbsenceRules
from policies.session_window import WindowRules
from policies.terms import BackendId, PoolName
from routing.backend import BackendPlan
from routing.fleet import Fleet
from tests import client
from tests.backend import Ending, Framing, Gate, Script, json_script
from tests.emulator.running import until
from tests.gateway.sessions.holding_engine import (
    NEVER_AGAIN,
    RESPONSES,
    Engine,
    events,
    nodes,
    response,
    shares,
)
from tests.running import JSON, Running, running, running_with
from tests.system.crowd import Header

ASKED = {"model": "m", "input": "hi"}
STREAMED = ASKED | {"stream": True}


def key(tenant: str) -> Header:
    return b"Authorization", f"Bearer {tenant}-key".encode()


TENANTS = tuple(
    TenantSettings(name=name, key_sha256=(sha256(f"{name}-key".encode()).hexdigest(),))
    for name in ("bank", "shop")
)


def refusal(answer: client.Answer) -> tuple[int, bytes | None]:
    return answer.status, answer.value(b"x-headrace-reason")


def id_in(answer: client.Answer) -> str:
    assert answer.status == 200, answer.body
    found: dict[str, Any] = json.loads(
        answer.body.split(b"data: ", 2)[1] if answer.body.startswith(b"data: ") else answer.body
    )
    named: str = found.get("response", found)["id"]
    return named


async def make(gateway: Running, *headers: Header, **more: Any) -> str:
    return id_in(await gateway.post(ASKED | more, RESPONSES, headers))


async def call(
    gateway: Running, method: str, response_id: str, below: str = "", *headers: Header
) -> client.Answer:
    return await gateway.send(client.request(method, f"{RESPONSES}/{response_id}{below}", headers))


def hits(engines: tuple[Engine, ...]) -> int:
    return sum(len(engine.exchanges) for engine in engines)


@pytest.mark.parametrize("streamed", [False, True])
async def test_what_names_a_response_goes_where_it_is_from_any_node(streamed: bool) -> None:
    engines = Engine("a"), Engine("b"), Engine("c")
    async with nodes(*engines) as (one, two):
        made = [await make(one, stream=streamed) for _ in range(6)]
        assert {name.split("_")[1] for name in made} == {"a", "b", "c"}
        for gateway in (one, two):
            for name in made:
                assert (await call(gateway, "GET", name)).status == 200
                assert (await call(gateway, "GET", name, "/input_items?limit=2")).status == 200
                assert (await call(gateway, "POST", name, "/cancel")).status == 200
                follow_up = await gateway.post(
                    (STREAMED if streamed else ASKED) | {"previous_response_id": name}, RESPONSES
                )
                assert id_in(follow_up).split("_")[1] == name.split("_")[1]
        for name in made:
            assert (await call(two, "DELETE", name)).status == 200
        assert [(await call(one, "GET", name)).status for name in made] == [404] * 6
        assert refusal(await call(one, "GET", made[0])) == (404, None), "the engine says so itself"


async def test_the_official_client_goes_on_with_a_response_and_fetches_it() -> None:
    async with (
        nodes(Engine("a"), Engine("b")) as gateways,
        AsyncOpenAI(base_url=f"{gateways[0].url}/v1", api_key="k", max_retries=0) as one,
        AsyncOpenAI(base_url=f"{gateways[1].url}/v1", api_key="k", max_retries=0) as two,
    ):
        last = await one.responses.create(model="m", input="hi")
        for api in (two, one, two, one):
            last = await api.responses.create(model="m", input="and?", previous_response_id=last.id)
            assert (await api.responses.retrieve(last.id)).output_text == "hello"
        stream = await two.responses.create(
            model="m", input="and?", previous_response_id=last.id, stream=True
        )
        kinds = [event.type async for event in stream]
        assert kinds == ["response.created", "response.in_progress", "response.completed"]
        assert (await one.responses.cancel(last.id)).status == "cancelled"
        with pytest.raises(NotFoundError):
            await one.responses.create(model="m", input="and?", previous_response_id="resp_none")


def plain(pieces: int) -> Engine:
    def shape(name: str) -> Script:
        whole = json.dumps(response(name)).encode()
        size = -(-len(whole) // pieces)
        return Script(
            headers=[JSON],
            chunks=[whole[at : at + size] for at in range(0, len(whole), size)],
            framing=Framing.CHUNKED,
        )

    return Engine("a", shape)


def late_id(name: str) -> Script:
    content = {"output": [{"id": "msg", "x": 'a"}]{\\'}], "metadata": {"id": "resp_wrong"}, "id": name}
    return Script(headers=[JSON], chunks=[json.dumps(content).encode()])


def odd_stream(name: str) -> Script:
    [created, *_] = events(name)
    raw = (
        b': keep-alive "{\r\n\r\nevent: other\r\ndata: {"id":"resp_wrong","response":{"x":{"id":"resp_wrong"}}}\r\n\r\n'
        b"event: response.created\r\ndata:" + created + b"\r\n\r\n"
    )
    return Script(
        headers=[(b"content-type", b"text/event-stream")],
        chunks=[raw[at : at + 7] for at in range(0, len(raw), 7)],
        framing=Framing.CHUNKED,
    )


@pytest.mark.parametrize(
    "engine",
    [plain(2), plain(97), Engine("a", late_id), Engine("a", odd_stream)],
    ids=["plain-2", "plain-97", "late-id", "odd-stream"],
)
async def test_the_id_is_seen_wherever_it_stands_and_in_whatever_pieces_it_comes(engine: Engine) -> None:
    async with nodes(engine, Engine("b"), count=1) as [gateway]:
        while not engine.held:
            assert (await gateway.post(ASKED, RESPONSES)).status == 200
        [name] = engine.held
        assert [(await call(gateway, "GET", name)).status for _ in range(4)] == [200] * 4


async def test_a_stream_that_is_still_running_can_be_cancelled() -> None:
    gate = Gate()

    def shape(name: str) -> Script:
        first, *rest = (b"data: " + event + b"\n\n" for event in events(name))
        return Script(
            headers=[(b"content-type", b"text/event-stream")],
            chunks=[first, gate, *rest],
            framing=Framing.CHUNKED,
        )

    engines = Engine("a", shape), Engine("b", shape)
    async with nodes(*engines) as (one, two), await one.begin(STREAMED, RESPONSES) as connection:
        head = await connection.read_head()
        async for _ in connection.pieces(head):
            break
        [name] = engines[0].held | engines[1].held
        for gateway in (one, two):
            assert (await call(gateway, "POST", name, "/cancel")).status == 200
        gate.set()
        assert b"response.completed" in await _rest(connection)


async def _rest(connection: client.Connection) -> bytes:
    seen = b""
    while b"0\r\n\r\n" not in seen and (piece := await connection.read_some()):
        seen += piece
    return seen


async def test_an_answer_that_is_not_stored_or_not_one_is_not_remembered() -> None:
    engine = Engine("a")
    async with nodes(engine, Engine("b"), count=1) as [gateway]:
        remembered = gateway.gateway.proxy.responses
        await make(gateway, store=False)
        await gateway.post(ASKED | {"previous_response_id": "resp_none"}, RESPONSES)
        assert (await call(gateway, "GET", "resp_none")).status == 404
        await gateway.post({"messages": []})
        assert len(remembered) == 0
        await make(gateway, store=None)
        assert len(remembered) == 1


async def test_where_nobody_is_told_apart_the_engine_speaks_of_what_is_not_known() -> None:
    engines = Engine("a"), Engine("b")
    async with nodes(*engines, count=1) as [gateway]:
        assert refusal(await call(gateway, "GET", "resp_none")) == (404, None)
        assert refusal(await call(gateway, "GET", "x" * 500)) == (404, None)
        assert hits(engines) == 2


async def test_a_response_of_another_tenant_is_as_unknown_as_one_that_never_was() -> None:
    engines = Engine("a"), Engine("b")
    async with nodes(*engines, tenants=TENANTS) as (one, two):
        name = await make(one, key("bank"))
        before = hits(engines)
        said = []
        for gateway in (one, two):
            for headers in ((key("shop"),), ()):
                for other in (name, "resp_none"):
                    asked = ASKED | {"previous_response_id": other}
                    answers = [await gateway.post(asked, RESPONSES, headers)]
                    for method, below in (("GET", ""), ("DELETE", ""), ("POST", "/cancel")):
                        answers.append(await call(gateway, method, other, below, *headers))
                    assert {refusal(answer) for answer in answers} == {(404, b"unknown_response")}
                    said += [answer.body.replace(other.encode(), b"*") for answer in answers]
        assert len(set(said)) == 1 and hits(engines) == before
        for gateway in (one, two):
            assert (await call(gateway, "GET", name, "", key("bank"))).status == 200


async def test_an_id_that_a_client_chose_gives_it_no_right_to_anothers_response() -> None:
    engine = Engine("a")
    async with nodes(engine, count=1, tenants=TENANTS) as [gateway]:
        name = await make(gateway, key("bank"))
        assert await make(gateway, key("shop"), request_id=name) == name
        assert refusal(await call(gateway, "GET", name, "", key("shop"))) == (404, b"unknown_response")
        assert (await call(gateway, "GET", name, "", key("bank"))).status == 200


async def test_when_the_engine_is_gone_the_client_is_told_to_send_the_conversation_again() -> None:
    engines = Engine("a"), Engine("b")
    async with nodes(*engines) as (one, two):
        name = await make(one)
        holder = next(engine for engine in engines if name in engine.held)
        other = next(engine for engine in engines if engine is not holder)
        assert (await call(two, "GET", name)).status == 200
        await holder.stop()
        before = len(other.exchanges)
        for gateway in (one, two):
            for _ in range(2):  # the first finds out, the second knows
                answer = await gateway.post(ASKED | {"previous_response_id": name}, RESPONSES)
                assert refusal(answer) == (404, b"response_gone")
                assert "without `previous_response_id`" in json.loads(answer.body)["error"]["message"]
            assert refusal(await call(gateway, "GET", name)) == (404, b"response_gone")
        assert len(other.exchanges) == before
        assert (await one.post(ASKED, RESPONSES)).status == 200


async def test_an_engine_that_restarted_has_nothing_any_more() -> None:
    engine = Engine("a")
    async with nodes(engine, count=1, probes=ProbeSettings(interval_seconds=0.05)) as [gateway]:
        name = await make(gateway)
        await engine.stop()
        await until(lambda: gateway.present() == [False])
        await engine.start()
        await until(lambda: gateway.present() == [True])
        assert refusal(await call(gateway, "GET", name)) == (404, b"response_gone")
        assert (await call(gateway, "GET", await make(gateway))).status == 200


async def test_a_backend_that_left_the_configuration_took_its_responses_along() -> None:
    engines = Engine("a"), Engine("b")
    async with nodes(*engines) as (one, two):
        name = await make(one)
        holder = next(engine for engine in engines if name in engine.held)
        others = tuple(BackendSettings(url=engine.url) for engine in engines if engine is not holder)
        for gateway in (one, two):
            pools = (PoolSettings(name="default", backends=others),)
            gateway.gateway.configure(Settings(pools=pools, probes=NEVER_AGAIN))
            assert refusal(await call(gateway, "GET", name)) == (404, b"response_gone")


async def test_a_held_request_is_tried_nowhere_else() -> None:
    engines = Engine("a"), Engine("b")
    async with nodes(*engines, count=1) as [gateway]:
        name = await make(gateway)
        [other] = [engine for engine in engines if name not in engine.held]
        for engine in engines:
            engine.script = lambda _: Script(framing=Framing.RAW, ending=Ending.CUT)
        before = len(other.exchanges)
        answer = await gateway.post(ASKED | {"previous_response_id": name}, RESPONSES)
        assert refusal(answer) == (502, b"backend_broke")
        assert len(other.exchanges) == before


async def test_a_new_response_that_no_engine_began_is_tried_elsewhere_and_remembered_where_it_was_made() -> (
    None
):
    full, engine = Engine("full", lambda _: json_script({}, status=503)), Engine("a")
    async with nodes(full, engine, count=1) as [gateway]:
        made = [await make(gateway) for _ in range(3)]
        assert {name.split("_")[1] for name in made} == {"a"} and full.exchanges
        assert [(await call(gateway, "GET", name)).status for name in made] == [200] * 3


async def test_who_waits_for_an_engine_that_goes_is_told_so() -> None:
    engine, other, gate = Engine("a"), Engine("b"), Gate()
    async with nodes(engine, other, count=1, window=1) as [gateway]:
        while not engine.held:
            await make(gateway)
        [name] = engine.held
        engine.script = lambda _: Script(before_head=gate)
        asked = ASKED | {"previous_response_id": name}
        async with (
            await gateway.begin(asked, RESPONSES) as runs,
            await gateway.begin(asked, RESPONSES) as waits,
        ):
            await until(lambda: gateway.gateway.router.waiting == 1)
            pool = PoolSettings(name="default", backends=(BackendSettings(url=other.url),))
            gateway.gateway.configure(Settings(pools=(pool,), probes=NEVER_AGAIN))
            assert refusal(await waits.read_answer()) == (404, b"response_gone")
            gate.set()
            assert (await runs.read_answer()).status == 200


async def test_the_pool_that_holds_it_takes_a_prompt_that_it_would_not_take() -> None:
    short, long = Engine("short"), Engine("long")
    async with short, long:
        bounds = ((short, 0, 100), (long, 101, None))
        pools = tuple(
            PoolSettings(
                name=engine.name,
                prompt_tokens=PromptTokensSettings(min=smallest, max=largest),
                backends=(BackendSettings(url=engine.url),),
            )
            for engine, smallest, largest in bounds
        )
        settings = Settings(pools=pools, server=ServerSettings(port=0), probes=NEVER_AGAIN)
        async with running_with(settings) as gateway:
            name = await make(gateway, input="word " * 1000)
            assert name.startswith("resp_long")
            assert (await make(gateway, previous_response_id=name)).startswith("resp_long")
            assert (await make(gateway)).startswith("resp_short")


class AwayStore(MemoryStore):
    async def response(self, response_id: str) -> ResponseOwner | None:
        raise StoreUnavailable(StoreFault.TIMEOUT)


async def test_a_store_that_is_away_knows_nothing_and_is_counted() -> None:
    engine = Engine("a")
    async with engine, running(engine, probes=NEVER_AGAIN) as gateway:
        shares(gateway, AwayStore(WindowRules(), 10, 1000, lambda: 0.0))
        name = await make(gateway)
        assert (await call(gateway, "GET", name)).status == 200
        assert refusal(await call(gateway, "GET", "resp_none")) == (404, None)
        assert gateway.gateway.proxy.responses.store_failures == 1


async def test_only_so_many_are_remembered_and_each_for_its_time() -> None:
    fleet, now = Fleet(AbsenceRules()), [0.0]
    backend = BackendPlan(BackendId("a"), PoolName("p"))
    fleet.configure([backend])
    [one] = fleet
    responses = Responses(fleet, lambda: now[0], capacity=2, ttl_seconds=10.0)
    for name in ("x", "y", "z"):
        responses.made(name, "t", one)
    held = [await responses.hold(name, "t", tells_tenants_apart=False) for name in ("x", "y", "z")]
    assert [hold and hold.backend for hold in held] == [None, "a", "a"] and len(responses) == 2
    now[0] = 10.0
    assert await responses.hold("z", "t", tells_tenants_apart=False) is None
