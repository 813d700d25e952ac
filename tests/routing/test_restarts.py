"""A backend's generation changes with each restart of its engine that is seen, and with nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.absence import AbsenceRules
from policies.dialects import Dialect, EngineFlags, EngineReport, sizes_of
from policies.terms import BackendId, PoolName
from policies.windows import WindowRules
from routing.backend import Backend, BackendPlan
from routing.capacity import WARM_UP_SAMPLES
from routing.router import Router
from routing.rules import Rules
from tests.gateway.core_stage import ends_well, leased

B = BackendId("b")
PLAN = BackendPlan(B, PoolName("p"), 8, WindowRules(start=8, min=4, max=32))
RULES = Rules(absence=AbsenceRules())
VLLM = EngineReport(0, 0, 0.0, None, 65536, 1600, 6704, started_at=1e9)
SGLANG = EngineReport(0, 0, 0.0, 8, 65536, waiting_tokens=0, prefilled_tokens=3055)
SILENT = EngineReport(waiting=0, running=0)
FRESH = {VLLM: VLLM._replace(prefix_hits=0, prefix_queries=0, started_at=1e9 + 60), SGLANG: SGLANG._replace(prefilled_tokens=11)}  # fmt: skip


def stage() -> tuple[Router, Backend]:
    router = Router(RULES)
    router.configure([PLAN], RULES)
    backend = router.fleet.get(B)
    assert backend is not None and backend.generation == 0
    return router, backend


def comes_back(router: Router, backend: Backend, how: str = "its probe says so") -> None:
    router.unreachable(backend, 1.0)
    if how == "its probe says so":
        router.engines.probed(B, True, False, 2.0)
    else:
        ends_well(router, leased(router, 3600.0), 3600.0, 0.1)
    assert backend.is_present()


@pytest.mark.parametrize("told", FRESH)
def test_a_report_that_shows_a_restart_begins_a_generation(told: EngineReport) -> None:
    router, backend = stage()
    router.engines.reported(B, told, 0.0)
    assert backend.generation == 0
    router.engines.reported(B, FRESH[told], 1.0)
    assert backend.generation == 1
    router.engines.reported(B, FRESH[told], 2.0)
    assert backend.generation == 1


def test_after_a_restart_the_first_requests_are_no_samples() -> None:
    router, backend = stage()
    router.engines.reported(B, VLLM, 0.0)

    def samples_after(count: int) -> int:
        for _ in range(count):
            ends_well(router, leased(router), 0.0, 0.1)
        assert backend.control is not None
        return backend.control.samples

    assert samples_after(WARM_UP_SAMPLES + 1) == 1
    router.engines.reported(B, FRESH[VLLM], 0.0)
    assert samples_after(WARM_UP_SAMPLES) == 1
    assert samples_after(1) == 2


@pytest.mark.parametrize("how", ["its probe says so", "its trial ended well"])
@pytest.mark.parametrize("told", [None, SILENT])
def test_where_nothing_tells_each_return_from_absence_begins_a_generation(
    how: str, told: EngineReport | None
) -> None:
    router, backend = stage()
    for generation in range(3):
        assert backend.generation == generation
        if told is not None:
            router.engines.reported(B, told, 0.0)
            assert backend.generation == generation
        comes_back(router, backend, how)


def test_a_probe_that_finds_a_backend_well_again_and_again_begins_none() -> None:
    router, backend = stage()
    for _ in range(3):
        router.engines.probed(B, True, False, 0.0)
    assert backend.generation == 0


@pytest.mark.parametrize("told", FRESH)
def test_where_the_engine_tells_the_report_after_the_absence_decides(told: EngineReport) -> None:
    router, backend = stage()
    router.engines.reported(B, told, 0.0)
    comes_back(router, backend)
    assert backend.generation == 0
    router.engines.reported(B, told, 3.0)
    assert backend.generation == 0, "the connection had been broken"
    comes_back(router, backend)
    router.engines.reported(B, FRESH[told], 5.0)
    assert backend.generation == 1


def test_what_was_told_before_counts_although_reports_between_did_not_tell_it() -> None:
    router, backend = stage()
    router.engines.reported(B, SGLANG, 0.0)
    for report in (SILENT, sizes_of(SGLANG), EngineReport()):
        router.engines.reported(B, report, 1.0)
    comes_back(router, backend)
    router.engines.reported(B, sizes_of(FRESH[SGLANG]), 3.0)
    assert backend.generation == 0
    router.engines.reported(B, FRESH[SGLANG], 4.0)
    assert backend.generation == 1


def test_another_kind_of_engine_at_the_address_is_a_restart_once() -> None:
    router, backend = stage()
    router.engines.is_dialect(B, Dialect.VLLM, EngineFlags("0.32.0"))
    router.engines.reported(B, VLLM, 0.0)
    comes_back(router, backend)
    router.engines.is_dialect(B, Dialect.SGLANG, EngineFlags("0.5.23"))
    assert backend.generation == 1
    router.engines.reported(B, SGLANG, 3.0)
    assert backend.generation == 1


def test_an_engine_that_tells_other_things_after_an_absence_is_another_one() -> None:
    router, backend = stage()
    router.engines.reported(B, VLLM, 0.0)
    router.engines.reported(B, SGLANG, 1.0)
    assert backend.generation == 0, "it was there all the time"
    router, backend = stage()
    router.engines.reported(B, VLLM, 0.0)
    comes_back(router, backend)
    router.engines.reported(B, SGLANG, 3.0)
    assert backend.generation == 1
    router.engines.reported(B, SGLANG, 4.0)
    assert backend.generation == 1


def test_an_engine_that_is_told_anew_may_have_another_fingerprint() -> None:
    router, backend = stage()
    backend.fingerprint = "v1"
    router.engines.is_dialect(B, Dialect.VLLM, EngineFlags("0.32.0"))
    assert backend.fingerprint == ""


@pytest.mark.parametrize("dialect", Dialect)
def test_an_engine_whose_kind_becomes_known_or_stays_as_it_was_has_not_restarted(dialect: Dialect) -> None:
    router, backend = stage()
    router.engines.is_dialect(B, dialect, EngineFlags("1"))
    router.engines.is_dialect(B, dialect, EngineFlags("2"))
    router.engines.is_dialect(B, Dialect.UNKNOWN, EngineFlags())
    router.engines.is_dialect(B, dialect, EngineFlags("1"))
    assert backend.generation == 0


def test_a_backend_that_left_and_is_named_again_is_a_new_one() -> None:
    router, backend = stage()
    router.engines.reported(B, VLLM, 0.0)
    router.configure([], RULES)
    router.configure([PLAN], RULES)
    again = router.fleet.get(B)
    assert again is not None and again is not backend
    router.engines.reported(B, FRESH[VLLM], 1.0)
    assert again.generation == 0


def test_a_change_of_the_configuration_is_no_restart() -> None:
    router, backend = stage()
    router.engines.reported(B, VLLM, 0.0)
    router.configure([BackendPlan(B, PoolName("q"), 4)], RULES)
    router.engines.reported(B, VLLM, 1.0)
    assert router.fleet.get(B) is backend and backend.generation == 0


@given(st.lists(st.tuples(st.integers(0, 1000), st.booleans(), st.booleans()), max_size=30))
def test_each_life_of_an_engine_that_tells_its_start_is_one_generation(
    steps: list[tuple[int, bool, bool]],
) -> None:
    """Each step: tokens looked up, whether it restarts before that, whether it was absent meanwhile."""
    router, backend = stage()
    lives, queries = 0, 0
    router.engines.reported(B, VLLM._replace(prefix_hits=None, prefix_queries=0), 0.0)
    for tokens, restarts, was_absent in steps:
        if was_absent:
            router.unreachable(backend, 1.0)
        lives, queries = (lives + 1, tokens) if restarts else (lives, queries + tokens)
        if was_absent:
            router.engines.probed(B, True, False, 2.0)
        router.engines.reported(B, EngineReport(prefix_queries=queries, started_at=1e9 + 60 * lives), 3.0)
        assert backend.generation == lives
