"""What a soak makes of time in which a process had no core."""

from __future__ import annotations

import pytest

from policies.terms import Refusal
from tests.bench.soak.explain import STORE_RECOVERY_SECONDS, is_explained, is_the_machines
from tests.bench.soak.machine import LATE_SECONDS, STARVED_SECONDS, Cores
from tests.bench.soak.trouble import LATE, STARVED, Kind, Spans


def test_what_had_no_core_explains_what_waited_for_it_and_nothing_else() -> None:
    spans = Spans()
    store, broke = Refusal.SESSION_STORE_UNAVAILABLE, Refusal.BACKEND_BROKE
    spans.begin(LATE, "redis", 10.0).ended = 10.5
    assert is_the_machines(store, "", 10.5 + STORE_RECOVERY_SECONDS, 20.0, spans)
    assert not is_the_machines(store, "", 10.6 + STORE_RECOVERY_SECONDS, 20.0, spans)
    assert not is_the_machines(broke, "e-1", 10.0, 11.0, spans)
    spans.begin(LATE, "e-1", 20.0).ended = 20.5
    assert not is_the_machines(broke, "e-1", 20.0, 21.0, spans)
    spans.begin(STARVED, "e-1", 20.0).ended = 20.5
    assert is_the_machines(broke, "e-1", 20.0, 21.0, spans)
    assert not is_the_machines(broke, "e-2", 20.0, 21.0, spans)
    assert not is_the_machines(store, "", 20.0, 21.0, spans)
    assert is_the_machines(Refusal.NO_BACKEND, "", 21.0, 22.0, spans)
    spans.begin(STARVED, "gateway", 100.0).ended = 100.5
    assert is_the_machines(broke, "e-2", 100.0, 101.0, spans)
    assert not is_the_machines(Refusal.INTERNAL, "", 100.0, 101.0, spans)
    assert not is_explained(broke, "e-2", 100.0, 101.0, spans)


def test_a_wait_for_a_core_is_a_span_of_its_process_and_one_that_began_meanwhile_is_not() -> None:
    spans = Spans()
    waited = {1: 5.0, 2: 7.0}
    pids = {"gateway": 1, "redis": 2, "gone": 9}
    cores = Cores(spans, lambda: pids, lambda pid: waited[pid] if pid in waited else _raise(OSError()))
    cores.look(10.0)
    waited |= {1: 5.0 + 1.1 * LATE_SECONDS, 2: 7.0 + 1.1 * STARVED_SECONDS}
    cores.look(10.5)
    assert spans.were(Kind.LATE, 10.2, 10.3, "gateway") and not spans.were(
        Kind.STARVED, 10.2, 10.3, "gateway"
    )
    assert spans.were(Kind.LATE, 10.2, 10.3, "redis") and spans.were(Kind.STARVED, 10.2, 10.3, "redis")
    pids["redis"], waited[3] = 3, 60.0
    cores.look(11.0)
    waited[1] += 0.9 * LATE_SECONDS
    cores.look(11.5)
    assert not spans.were(Kind.LATE, 10.6, 11.5)
    assert cores.waited_seconds == {
        "gateway": pytest.approx(2.0 * LATE_SECONDS),
        "redis": pytest.approx(1.1 * STARVED_SECONDS),
    }


def _raise(error: Exception) -> float:
    raise error
