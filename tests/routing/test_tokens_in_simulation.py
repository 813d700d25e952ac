"""The whole router in front of an engine whose KV cache is smaller than its window, in virtual time."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest

from policies.capacity_tokens import TokenRules
from policies.dialects import EngineReport
from policies.lengths import TextSize
from policies.terms import BackendId, PoolName, Verdict
from routing.backend import BackendPlan
from routing.decision import Intent, Lease
from routing.router import Router
from routing.rules import Rules
from tests.kv_engine import Generation, KvEngine

KV_TOKENS = 20_000
WINDOW = 64
SECONDS = 120.0
B = BackendId("b")


@dataclass
class Course:
    preemptions: int = 0
    finished_tokens: int = 0
    seconds: dict[int, list[float]] = field(default_factory=dict)
    """From arrival to the end, by prompt."""


def course(tokens: TokenRules | None, seed: int, per_second: float = 1.6) -> Course:
    """Prompts of 200 and, one in ten, 3,000 tokens; answers of 100 to 800, at most 800 by their own limit."""
    random, router, engine, seen = Random(seed), Router(Rules()), KvEngine(KV_TOKENS), Course()
    router.configure([BackendPlan(B, PoolName("p"), WINDOW, tokens=tokens)], Rules())
    router.engines.reported(B, EngineReport(token_capacity=KV_TOKENS), 0.0)
    now, next_arrival = 0.0, 0.0
    leases: dict[Generation, Lease] = {}
    arrived: dict[object, float] = {}

    def send(lease: Lease) -> None:
        prompt = int(lease.tag.prompt_tokens)
        request = Generation(prompt, random.randint(100, 800))
        leases[request] = lease
        engine.submit(request)

    while now < SECONDS:
        while next_arrival <= now:
            prompt = 3000 if random.random() < 0.1 else 200
            decision = router.arrive(
                "m", next_arrival, Intent(size=TextSize(token_ids=prompt), max_tokens=800, streamed=True)
            )
            arrived[decision] = next_arrival
            if isinstance(decision, Lease):
                send(decision)
            next_arrival += random.expovariate(per_second)
        for ticket, grant in router.pump(now):
            assert isinstance(grant, Lease)
            arrived[grant] = arrived.pop(ticket)
            send(grant)
        seconds, ended = engine.step()
        now += seconds
        for request in ended:
            lease = leases.pop(request)
            lease.verdict, lease.usage = Verdict.GOOD, (request.prompt, request.output, 0)
            router.finish(lease, now)
            seen.finished_tokens += request.output
            seen.seconds.setdefault(request.prompt, []).append(now - arrived.pop(lease))
    seen.preemptions = engine.preemptions
    return seen


@pytest.mark.parametrize("seed", [1, 2])
def test_a_limit_of_tokens_avoids_the_pre_emptions_of_a_full_kv_cache(seed: int) -> None:
    """For some throughput: what is reserved for answers is not in use all the time."""
    free, bound = course(None, seed), course(TokenRules(), seed)
    assert free.preemptions > 50
    assert bound.preemptions <= free.preemptions / 20
    assert bound.finished_tokens >= 0.85 * free.finished_tokens
    long, short = (len(bound.seconds[prompt]) for prompt in (3000, 200))
    assert long >= 0.06 * (long + short), "one in ten that come is long"
