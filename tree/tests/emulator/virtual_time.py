"""Drives the scheduler without a clock: a client loop that keeps an engine busy, and single requests."""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.emulator.scheduler import Engine
from gateway.emulator.sequence import Sequence
from gateway.emulator.tokens import Prompt


def prompt(tokens: int, name: int = 0) -> Prompt:
    """`tokens` tokens whose blocks are shared with every prompt of the same name."""
    return Prompt(tokens, [hash((name, block)) for block in range(tokens // 16)], name)


def sequence(owner: str, of: Prompt, new_tokens: int = 20, *, priority: int = 0) -> Sequence[str]:
    return Sequence(owner=owner, prompt=of, new_tokens=new_tokens, priority=priority, streamed=True)


@dataclass
class Run:
    """What came out until the engine was idle: who finished when, and how long each step was."""

    finished: dict[str, float] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    step_seconds: list[float] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)


def run_until_idle(engine: Engine[str], now: float = 0.0, slowdown: float = 1.0) -> Run:
    run = Run()
    while True:
        step = engine.step(now, slowdown)
        for one in step.finished:
            run.finished[one.owner] = now
            run.order.append(one.owner)
        if step.seconds is None:
            return run
        run.batches.append(len(engine.running))
        run.step_seconds.append(step.seconds)
        now += step.seconds


def closed_loop(engine: Engine[str], of: Prompt, clients: int, seconds: float) -> tuple[float, float]:
    """`clients` that each send the next request when the last is answered; requests per second and mean
    residence seconds."""
    for client in range(clients):
        engine.submit([sequence(str(client), of)], 0.0)
    now = 0.0
    done = 0
    residence = 0.0
    while now < seconds:
        step = engine.step(now)
        for one in step.finished:
            done += 1
            residence += now - one.arrived_at
            engine.submit([sequence(one.owner, of)], now)
        if step.seconds is None:
            step = engine.step(now)
        assert step.seconds is not None
        now += step.seconds
    return done / now, residence / done
