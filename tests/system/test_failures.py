"""Engines that are gone, cut answers, fall silent or err: what the client is told, what is tried again, and what never is."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack

import pytest

from gateway.settings import ProbeSettings, RetrySettings, TimeoutSettings, UpstreamSettings
from tests import client
from tests.backend import Backend, Ending, Framing, Gate, Request, Script, json_script, sse_script
from tests.emulator.running import engine, until
from tests.gateway_process import free_port
from tests.running import CHAT, JSON, running

EVENT = b'{"choices":[{"delta":{"content":"x"}}]}'
STREAM = b'{"stream":true}'
WRAPPED = b"data: " + EVENT + b"\n\n"
NEVER_AGAIN = ProbeSettings(interval_seconds=3600)
OFTEN = ProbeSettings(interval_seconds=0.05)

DEAD = Script(framing=Framing.RAW, ending=Ending.CUT)
ERROR_EVENT = b'{"error":{"message":"x","type":"InternalServerError","code":500}}'


def reason(answer: client.Answer) -> tuple[int, bytes | None]:
    """Status and reason of a refusal by the gateway, which has to be OpenAI-shaped."""
    error = json.loads(answer.body)["error"]
    assert error["message"] and error["type"] and error["code"] == answer.status
    return answer.status, answer.value(b"x-headrace-reason")


def event_reason(answer: client.Answer, before: bytes) -> str:
    """Of a stream that was broken off after `before`: its error event comes last, without `[DONE]` and without a proper end."""
    assert not answer.complete and b"[DONE]" not in answer.body
    assert answer.body.startswith(before), answer.body
    event = json.loads(answer.body.removeprefix(before).removeprefix(b"data: "))
    assert event["error"]["message"] and event["error"]["type"]
    said: str = event["error"]["reason"]
    return said


async def test_without_a_backend_the_refusal_is_there_at_once() -> None:
    async with running(f"http://127.0.0.1:{free_port()}", probes=NEVER_AGAIN) as gateway:
        answer = await gateway.post({})
        assert reason(answer) == (503, b"no_backend")
        assert answer.value(b"retry-after")
        assert reason(await gateway.post(STREAM)) == (503, b"no_backend")
        assert (await gateway.get("/readyz")).status == 503
        assert reason(await gateway.get("/v1/models")) == (503, b"no_backend")
        # Nothing was waited for: the request log has the gateway's own time.
        await until(lambda: len(gateway.log) >= 2)
        assert all(line["total_ms"] < 1000 and line["outcome"] == "refused" for line in gateway.log)


async def test_a_refused_connection_is_tried_elsewhere_and_skipped_from_then_on() -> None:
    async with Backend() as gone, Backend() as there, running(gone, there, probes=NEVER_AGAIN) as gateway:
        await gone.stop()
        for _ in range(10):
            assert (await gateway.post({})).status == 200
        assert gateway.present() == [False, True]
        assert len(there.exchanges) == 10
        assert gateway.metric("headrace_retries_total") <= 1


async def test_any_number_of_refused_connections_costs_no_try_that_an_engine_has_to_work_for() -> None:
    fleet = [Backend() for _ in range(6)]
    once = RetrySettings(max_retries=1, budget_share=0, budget_floor=0)
    async with AsyncExitStack() as stack:
        for backend in fleet:
            await stack.enter_async_context(backend)
        gateway = await stack.enter_async_context(running(*fleet, probes=NEVER_AGAIN, retries=once))
        for backend in fleet[:5]:
            await backend.stop()
        answers = await asyncio.gather(*[gateway.post({}) for _ in range(12)])
        assert [answer.status for answer in answers] == [200] * 12
        assert gateway.metric("headrace_retry_budget_refusals_total") == 0


async def test_a_backend_that_returns_is_used_again_after_a_probe() -> None:
    async with Backend() as only, running(only, probes=OFTEN) as gateway:
        await only.stop()
        await until(lambda: gateway.present() == [False])
        assert reason(await gateway.post({})) == (503, b"no_backend")
        await only.start()
        await until(lambda: gateway.present() == [True])
        assert (await gateway.post({})).status == 200


async def test_a_backend_that_returns_is_used_again_after_one_trial_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Backend() as only, running(only, probes=NEVER_AGAIN) as gateway:
        await until(
            lambda: "tells no load" in caplog.text
        )  # the first probe is over: a request has to find out
        await only.stop()
        assert reason(await gateway.post({})) == (502, b"backend_unreachable")
        await only.start()

        # The pause after one failure is a second; until it is over nothing is sent there.
        while (answer := await gateway.post({})).status == 503:
            assert only.exchanges == []
        assert answer.status == 200 and gateway.present() == [True]


async def test_one_late_health_answer_does_not_take_a_backend_out_but_the_third_in_a_row_does() -> None:
    probes = ProbeSettings(interval_seconds=0.05, timeout_seconds=0.05, failures=3)
    async with Backend(record_probes=True) as only, running(only, probes=probes) as gateway:

        def failures() -> int:
            return next(iter(gateway.gateway.router.fleet)).probe_failures

        only.probes["/health"] = Script(before_head=Gate())
        await until(lambda: failures() == 1)
        assert gateway.present() == [True]
        only.probes["/health"] = Script()
        await until(lambda: failures() == 0)
        only.probes["/health"] = Script(status=503)
        await until(lambda: failures() == 2)
        assert gateway.present() == [True]
        await until(lambda: gateway.present() == [False])
        only.probes["/health"] = Script()
        await until(lambda: gateway.present() == [True])
        asked = {exchange.request.start_line for exchange in only.exchanges}
        assert all(line.startswith(b"GET ") for line in asked), "only cheap GETs are sent"


CUTS = {
    "reset": (Framing.CHUNKED, Ending.RESET),
    "no final chunk": (Framing.CHUNKED, Ending.CUT),
    "clean end without a finish": (Framing.CHUNKED, Ending.CLEAN),
    "closed without framing": (Framing.UNTIL_CLOSE, Ending.CLEAN),
}


@pytest.mark.parametrize(("framing", "ending"), CUTS.values(), ids=CUTS.keys())
async def test_a_stream_cut_by_its_engine_reaches_the_client_as_an_error_event_and_a_broken_end(
    framing: Framing, ending: Ending
) -> None:
    gate = Gate()

    def script(_: Request) -> Script:
        headers = [(b"content-type", b"text/event-stream")]
        return Script(headers=headers, chunks=[WRAPPED] * 5 + [gate], framing=framing, ending=ending)

    async with Backend(script) as one, Backend() as two, running(one, two) as gateway:
        two.script = script
        async with await gateway.begin(STREAM) as connection:
            head = await connection.read_head()
            async for piece in connection.pieces(head):
                assert piece == WRAPPED * 5
                break
            gate.set()
            if framing is Framing.CHUNKED:
                rest = await connection.read_until_closed()
                assert b"backend_broke" in rest and not rest.endswith(b"0\r\n\r\n") and b"[DONE]" not in rest
        gate.set()
        answer = await gateway.post(STREAM)
        assert event_reason(answer, WRAPPED * 5) == "backend_broke"
        assert len(one.exchanges) + len(two.exchanges) == 2, "nothing is repeated after the first byte"
        await until(gateway.is_quiet)
        assert gateway.metric("headrace_cut_answers_total") >= 1


async def test_a_plain_answer_of_some_length_that_is_cut_has_a_broken_end() -> None:
    gate = Gate()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 65537\r\n\r\n"

    def script(_: Request) -> Script:
        return Script(chunks=[head + b'{"a":', gate, b"1"], framing=Framing.RAW, ending=Ending.CUT)

    async with Backend(script) as one, Backend(script) as two, running(one, two) as gateway:
        async with await gateway.begin({}) as connection:
            answer_head = await connection.read_head()
            gate.set()
            answer = await connection.read_body(answer_head)
            assert (answer.status, answer.body, answer.complete) == (200, b'{"a":1', False)
        assert len(one.exchanges) + len(two.exchanges) == 1
        assert gateway.metric("headrace_cut_answers_total") == 1


@pytest.mark.parametrize("ending", [Ending.CUT, Ending.RESET])
async def test_a_short_plain_answer_that_is_cut_is_tried_elsewhere_and_none_of_it_reaches_the_client(
    ending: Ending,
) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 65536\r\n\r\n"
    half = Script(chunks=[head + b'{"a":'], framing=Framing.RAW, ending=ending)
    async with Backend(lambda _: half) as bad, Backend() as good, running(bad, good) as gateway:
        for _ in range(4):
            answer = await gateway.post({})
            assert (answer.status, answer.complete) == (200, True)
            assert json.loads(answer.body)["object"] == "chat.completion"
        assert len(good.exchanges) == 4
        assert gateway.metric("headrace_retries_total") == len(bad.exchanges) > 0
        good.script = bad.script
        assert reason(await gateway.post({})) == (502, b"backend_broke")


async def test_an_error_event_inside_a_stream_passes_unchanged_and_counts_as_a_failure() -> None:
    stream = [EVENT, b'{"error":{"message":"died","type":"X","code":500}}', b"[DONE]"]
    async with Backend(lambda _: sse_script(*stream)) as backend, running(backend) as gateway:
        answer = await gateway.post(STREAM)
        assert answer.complete
        assert answer.body == b"".join(b"data: " + event + b"\n\n" for event in stream)
        assert gateway.metric("headrace_cut_answers_total") == 1


async def test_a_stream_that_begins_with_an_error_moves_to_another_backend() -> None:
    async with (
        Backend(lambda _: sse_script(ERROR_EVENT, b"[DONE]")) as bad,
        Backend(lambda _: sse_script(EVENT, b"[DONE]")) as good,
        running(bad, good) as gateway,
    ):
        for _ in range(4):
            answer = await gateway.post(STREAM)
            assert (answer.body, answer.complete) == (WRAPPED + b"data: [DONE]\n\n", True)
        assert len(good.exchanges) == 4
        assert gateway.metric("headrace_retries_total") == len(bad.exchanges) > 0


async def test_an_error_at_a_streams_beginning_passes_where_it_is_the_clients_or_nobody_else_is_there() -> (
    None
):
    client_fault = b'{"error":{"message":"too long","type":"BadRequestError","code":400}}'
    said = [client_fault]
    async with Backend(lambda _: sse_script(said[0], b"[DONE]")) as one:
        async with Backend() as two, running(one, two) as gateway:
            two.script = one.script
            answer = await gateway.post(STREAM)
            assert answer.body == b"data: " + client_fault + b"\n\ndata: [DONE]\n\n"
            assert len(one.exchanges) + len(two.exchanges) == 1
        said[0] = ERROR_EVENT
        async with running(one) as gateway:
            answer = await gateway.post(STREAM)
            assert answer.body == b"data: " + ERROR_EVENT + b"\n\ndata: [DONE]\n\n"


LIMITS = {
    "first_byte": (TimeoutSettings(first_byte_seconds=0.1), b"first_byte_timeout"),
    "total": (TimeoutSettings(total_seconds=0.1), b"total_timeout"),
}


@pytest.mark.parametrize(("timeouts", "named"), LIMITS.values(), ids=LIMITS.keys())
async def test_a_time_limit_before_the_first_byte_is_a_504_that_names_itself(
    timeouts: TimeoutSettings, named: bytes
) -> None:
    async with (
        Backend(lambda _: Script(before_head=Gate())) as backend,
        running(backend, timeouts=timeouts) as gateway,
    ):
        for body in (b"{}", STREAM):
            assert reason(await gateway.post(body)) == (504, named)
        for exchange in backend.exchanges:
            await exchange.peer_closed.wait()
        assert gateway.present() == [True]


async def test_headers_alone_are_no_progress_and_comments_neither() -> None:
    comment = b": still here\n\n"

    def script(_: Request) -> Script:
        headers = [(b"content-type", b"text/event-stream")]
        return Script(headers=headers, chunks=[comment, Gate()], framing=Framing.CHUNKED)

    timeouts = TimeoutSettings(first_byte_seconds=0.1)
    async with Backend(script) as backend, running(backend, timeouts=timeouts) as gateway:
        assert event_reason(await gateway.post(STREAM), comment) == "first_byte_timeout"


@pytest.mark.parametrize(
    ("timeouts", "named"),
    [
        (TimeoutSettings(gap_seconds=0.1), "gap_timeout"),
        (TimeoutSettings(total_seconds=0.2), "total_timeout"),
    ],
)
async def test_a_time_limit_inside_a_stream_is_an_error_event_before_the_close(
    timeouts: TimeoutSettings, named: str
) -> None:
    async with (
        Backend(lambda _: sse_script(EVENT, ending=Ending.SILENT)) as backend,
        running(backend, timeouts=timeouts) as gateway,
    ):
        clock = asyncio.get_running_loop().time
        asked_at = clock()
        assert event_reason(await gateway.post(STREAM), WRAPPED) == named
        assert clock() - asked_at < 1.2, "at its time, give or take a second"
        await backend.exchanges[0].peer_closed.wait()
        assert backend.exchanges[0].closed_at - asked_at < 1.2
        await until(gateway.is_quiet)


async def test_an_engine_that_stops_reading_the_request_is_given_up() -> None:
    def stop(request: Request) -> Script | None:
        return Script(ending=Ending.STOP_READING, framing=Framing.RAW) if request.method == "POST" else None

    timeouts = TimeoutSettings(first_byte_seconds=0.2)
    async with Backend(on_head=stop) as backend, running(backend, timeouts=timeouts) as gateway:
        answer = await gateway.post(b'{"a":"' + b"x" * 20_000_000 + b'"}')
        assert reason(answer) == (504, b"first_byte_timeout")
        await backend.stop()


async def test_a_steady_stream_outlives_its_gap_limit_many_times() -> None:
    timeouts = TimeoutSettings(gap_seconds=0.25, first_byte_seconds=0.25)
    loop = asyncio.get_running_loop()

    def script(_: Request) -> Script:
        gates = [Gate() for _ in range(12)]
        for number, gate in enumerate(gates):
            loop.call_later(0.05 * number, gate.set)
        return sse_script(*[part for gate in gates for part in (gate, EVENT)], b"[DONE]")

    async with Backend(script) as backend, running(backend, timeouts=timeouts) as gateway:
        answer = await gateway.post(STREAM)
        assert answer.complete and answer.body.count(WRAPPED) == 12


RETRIED = {
    "500": json_script({}, status=500),
    "502": json_script({}, status=502),
    "503": json_script({}, status=503),
    "429": json_script({}, status=429),
    "closed": DEAD,
    "reset": Script(framing=Framing.RAW, ending=Ending.RESET),
    "not http": Script(chunks=[b"nonsense\r\n\r\n"], framing=Framing.RAW, ending=Ending.CUT),
}


@pytest.mark.parametrize("failed", RETRIED.values(), ids=RETRIED.keys())
async def test_a_failure_before_the_first_byte_is_tried_on_another_backend_and_never_the_same(
    failed: Script,
) -> None:
    async with Backend(lambda _: failed) as bad, Backend() as good, running(bad, good) as gateway:
        for _ in range(6):
            hits = len(bad.exchanges)
            answer = await gateway.post({})
            assert answer.status == 200
            assert len(bad.exchanges) - hits <= 1
            expected = b"attempts=2" if len(bad.exchanges) > hits else b"attempts=1"
            assert expected in (answer.value(b"x-headrace-route") or b"")
        assert len(good.exchanges) == 6 and bad.exchanges


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422])
async def test_a_clients_own_fault_is_not_tried_again_and_says_nothing_about_the_backend(status: int) -> None:
    fault = json_script({"error": {"message": "m"}}, status=status)
    async with Backend(lambda _: fault) as one, Backend(lambda _: fault) as two, running(one, two) as gateway:
        for _ in range(20):
            assert (await gateway.post({})).status == status
        assert len(one.exchanges) + len(two.exchanges) == 20
        assert gateway.present() == [True, True]


@pytest.mark.parametrize("body", [b'{"store":true}', b'{"background":true}', b'{"store":true,"stream":true}'])
async def test_a_request_that_stores_something_is_never_sent_twice(body: bytes) -> None:
    async with Backend(lambda _: DEAD) as one, Backend(lambda _: DEAD) as two, running(one, two) as gateway:
        for target in ("/v1/responses", CHAT):
            assert reason(await gateway.post(body, target)) == (502, b"backend_broke")
        assert len(one.exchanges) + len(two.exchanges) == 2


@pytest.mark.parametrize(("retries", "attempts"), [(0, 1), (1, 2), (2, 3), (10, 4)])
async def test_attempts_are_bound_by_the_setting_and_by_the_backends(retries: int, attempts: int) -> None:
    async with Backend() as a, Backend() as b, Backend() as c, Backend() as d:
        fleet = (a, b, c, d)
        for backend in fleet:
            backend.script = lambda _: json_script({"error": {"message": "full"}}, status=503)
        async with running(*fleet, retries=RetrySettings(max_retries=retries)) as gateway:
            answer = await gateway.post({})
            assert answer.status == 503 and json.loads(answer.body)["error"]["message"] == "full"
            assert sum(len(backend.exchanges) for backend in fleet) == attempts
            assert gateway.metric("headrace_retries_total") == attempts - 1


async def test_a_kept_connection_that_died_costs_one_free_try_on_a_fresh_one() -> None:
    async with Backend() as only, running(only, retries=RetrySettings(max_retries=0)) as gateway:
        assert (await gateway.post({})).status == 200
        only.script = lambda _: DEAD if len(only.exchanges) == 2 else json_script({})
        assert (await gateway.post({})).status == 200
        first, dead, fresh = only.exchanges
        assert first.connection == dead.connection != fresh.connection


async def test_one_stuck_backend_does_not_hold_up_another_models_requests() -> None:
    stuck = Backend(lambda _: Script(before_head=Gate()), models=["a"])
    async with stuck, Backend(models=["b"]) as well, running(stuck, well) as gateway:
        crowd = [await gateway.begin({"model": "a"}) for _ in range(100)]
        await stuck.until(lambda: len(stuck.exchanges) == 100)
        for _ in range(20):
            assert (await gateway.post({"model": "b"})).status == 200
        for connection in crowd:
            connection.close()


async def test_more_requests_than_upstream_connections_get_503() -> None:
    gate = Gate()
    upstream = UpstreamSettings(max_connections=3)
    async with (
        Backend(lambda _: Script(before_head=gate)) as only,
        running(only, upstream=upstream) as gateway,
    ):
        held = [await gateway.begin({}) for _ in range(3)]
        await only.until(lambda: len(only.exchanges) == 3)
        assert reason(await gateway.post({})) == (503, b"upstream_full")
        gate.set()
        for connection in held:
            assert (await connection.read_answer()).status == 200
            connection.close()
        assert (await gateway.post({})).status == 200


async def test_an_emulated_engine_that_refuses_for_a_while_comes_back() -> None:
    async with engine() as one, engine() as two, running(one, two, probes=OFTEN) as gateway:
        raw = client.request(
            "POST", CHAT, [JSON], b'{"model":"emulated","messages":[{"role":"user","content":"a"}]}'
        )
        one.refuse()
        for _ in range(10):
            assert (await gateway.send(raw)).status == 200
        await until(lambda: gateway.present() == [False, True])
        await one.listen()
        await until(lambda: gateway.present() == [True, True])
