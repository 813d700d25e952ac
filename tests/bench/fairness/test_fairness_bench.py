"""What the verdict of the fairness benchmark rests on: the arithmetic of shares, the bars, the requests and how answers are counted."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Sequence
from random import Random

import pytest

from gateway.configuration import parse
from gateway.emulator.server import start
from gateway.emulator.settings import EngineSettings
from tests.bench.fairness.load import Load, Outcome
from tests.bench.fairness.scenarios import (
    EQUALS,
    LIGHT,
    NOISY,
    WEIGHTS,
    Times,
    equals_verdicts,
    neighbour_verdicts,
    rows,
    weights_verdicts,
)
from tests.bench.fairness.shares import Answer, jain, off_percent, waiting_on_average, worst
from tests.bench.fairness.stage import configuration
from tests.bench.fairness.tenants import Bodies, Shape, Tenant
from tests.bench.slo.bars import Verdict

_TIMES = Times(2.0, 12.0)


def _steady(tenant: str, per_second: int, *, cost: int = 100, queue_ms: float = 20.0) -> list[Answer]:
    """Through all of `_TIMES`, evenly."""
    count = int(_TIMES.end * per_second)
    return [Answer(tenant, number / per_second, cost, 0, 0, queue_ms) for number in range(count)]


async def _once(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  # no event tells of what was counted
        await asyncio.sleep(0)


def _missed(verdicts: Sequence[Verdict]) -> list[str]:
    return [one.name.partition(":")[2].strip() for one in verdicts if not one.met]


def test_jains_index_is_one_for_equals_and_one_of_n_for_a_monopoly() -> None:
    assert jain([3.0] * 8) == pytest.approx(1.0)
    assert jain([5.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)
    assert jain([1.0, 2.0]) == pytest.approx(0.9)
    assert math.isnan(jain([0.0, 0.0]))


def test_a_ratio_is_off_in_either_direction() -> None:
    assert off_percent(2.1, 2.0) == pytest.approx(5.0)
    assert off_percent(1.9, 2.0) == pytest.approx(5.0)


def test_tokens_count_in_the_weights_that_are_charged() -> None:
    assert Answer("a", 0.0, 100, 60, 10, 0.0).cost == pytest.approx(40 + 6 + 20)


def test_waiting_on_average_is_rate_times_wait() -> None:
    assert waiting_on_average(_steady("a", 10, queue_ms=500.0), _TIMES.end) == pytest.approx(5.0)
    assert waiting_on_average([Answer("a", 0.0, 1, 0, 1, -1.0)], 1.0) == 0.0


def test_the_worst_stretch_is_found_and_the_warm_up_is_not_in_it() -> None:
    answers = [
        Answer("a", 0.5, 900, 0, 0, 0.0),
        Answer("a", 3.5, 7, 0, 0, 0.0),
        Answer("a", 12.5, 5, 0, 0, 0.0),
    ]
    assert worst(answers, ["a", "b"], 2.0, 14.0, lambda got: got["a"]) == {"a": 12.0, "b": 0.0}
    assert worst(answers, ["a", "b"], 2.0, 14.0, lambda got: -got["a"]) == {"a": 5.0, "b": 0.0}
    with pytest.raises(ValueError, match="no stretch"):
        worst(answers, ["a"], 2.0, 11.0, lambda got: got["a"])


def test_weights_are_kept_within_five_percent() -> None:
    assert not _missed(weights_verdicts(Outcome(_steady("double", 20) + _steady("single", 10)), _TIMES))
    off = _missed(weights_verdicts(Outcome(_steady("double", 22) + _steady("single", 10)), _TIMES))
    assert len(off) == 1
    assert off[0].startswith("tokens in the worst 10 s 2.2")
    assert len(_missed(weights_verdicts(Outcome(_steady("double", 20)), _TIMES))) == 1


def test_a_tenant_that_did_not_wait_proves_nothing() -> None:
    answers = _steady("double", 20) + _steady("single", 10, queue_ms=0.0)
    assert _missed(weights_verdicts(Outcome(answers), _TIMES)) == ["answers of a tenant that had not waited"]


def test_equals_may_differ_in_calls_but_not_in_tokens() -> None:
    fair = [answer for one in EQUALS for answer in _steady(one.name, 10)]
    sizes = [
        answer
        for number, one in enumerate(EQUALS)
        for answer in _steady(one.name, 10 if number else 2, cost=100 if number else 500)
    ]
    by_call = [
        answer
        for number, one in enumerate(EQUALS)
        for answer in _steady(one.name, 10, cost=100 + 100 * number)
    ]
    assert not _missed(equals_verdicts(Outcome(fair), _TIMES))
    assert not _missed(equals_verdicts(Outcome(sizes), _TIMES))
    assert _missed(equals_verdicts(Outcome(by_call), _TIMES)) == ["Jain's index of tokens in the worst 10 s"]


def test_a_light_tenant_must_neither_wait_nor_cost_throughput() -> None:
    alone = Outcome(_steady("noisy", 100, queue_ms=900.0))
    noisy = _steady("noisy", 90, queue_ms=900.0)
    assert not _missed(neighbour_verdicts(alone, Outcome(noisy + _steady("light", 10)), _TIMES))
    slow = Outcome(noisy + _steady("light", 10, queue_ms=60.0))
    assert _missed(neighbour_verdicts(alone, slow, _TIMES)) == ["the light tenant in the queue, P99"]
    idle = Outcome(noisy[::2] + _steady("light", 10))
    assert _missed(neighbour_verdicts(alone, idle, _TIMES)) == [
        "throughput, of that with the noisy tenant alone"
    ]
    refused = Outcome(noisy + _steady("light", 10))
    refused.others["light", 429] += 1
    refused.others["noisy", 429] += 500
    assert _missed(neighbour_verdicts(alone, refused, _TIMES)) == ["refused calls of the light tenant"]
    assert "the light tenant in the queue, P99" in _missed(neighbour_verdicts(alone, Outcome(noisy), _TIMES))


def test_the_noisy_tenant_calls_ten_times_as_often() -> None:
    assert NOISY.rate == 10 * LIGHT.rate
    assert NOISY.shape == LIGHT.shape


def test_the_gateway_understands_its_configuration() -> None:
    settings = parse(json.dumps(configuration(8080, [8001, 8002], WEIGHTS)), "test", {})
    assert [(one.name, one.weight) for one in settings.tenants] == [("double", 2.0), ("single", 1.0)]
    assert len(settings.pools[0].backends) == 2


def test_a_request_has_the_size_its_tenant_asks_for() -> None:
    tenant = Tenant(name="a", shape=Shape((100, 100), (7, 7), ends_early=True))
    bodies = Bodies(tenant, 80, Random(1))
    head, _, body = bodies.make().partition(b"\r\n\r\n")
    assert f"content-length: {len(body)}".encode() in head
    assert f"authorization: Bearer {tenant.key}".encode() in head
    fields = json.loads(body)
    assert (len(fields["messages"][0]["content"]), fields["max_tokens"]) == (400, 7)
    assert "stop" in fields
    assert bodies.make() != bodies.make()


async def test_the_load_counts_the_usage_of_every_answer() -> None:
    server = await start(EngineSettings(time_scale=0), "127.0.0.1", 0)
    shape = Shape((50, 50), (5, 5))
    tenants = (Tenant(name="closed", shape=shape, clients=2), Tenant(name="open", shape=shape, rate=200.0))
    outcome = Outcome()
    load = Load(server.port, tenants, 1, outcome)
    await load.run(_once(lambda: len({one.tenant for one in outcome.answers}) == 2))
    await server.close()
    assert {one.output_tokens for one in outcome.answers} == {5}
    assert all(50 <= one.prompt_tokens < 70 for one in outcome.answers)
    assert not outcome.others


async def test_refused_and_lost_calls_are_no_answers() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            b"HTTP/1.1 429 Too Many Requests\r\ntransfer-encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n"
        )
        await reader.readuntil(b"POST")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    tenant = Tenant(name="a", shape=Shape((9, 9), (9, 9)), clients=1)
    outcome = Outcome()
    await Load(port, (tenant,), 1, outcome).run(_once(lambda: bool(outcome.refused("a") and outcome.lost())))
    server.close()
    await server.wait_closed()
    assert not outcome.answers
    [row] = rows("x", outcome, [tenant], Times(0.0, 0.3))
    assert (row.answers_per_second, row.queue_p99_ms) == (0.0, None)
