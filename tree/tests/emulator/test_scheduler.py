"""Continuous batching in virtual time: speed, batches, order, preemption and bounds."""

from __future__ import annotations

import pytest

from gateway.emulator.scheduler import Engine
from gateway.emulator.settings import EngineSettings, SchedulingPolicy
from tests.emulator.virtual_time import closed_loop, prompt, run_until_idle, sequence

ENGINES = 8


@pytest.mark.parametrize(("batch", "requests_per_second"), [(8, 420), (16, 680), (24, 850), (32, 920)])
def test_eight_engines_serve_what_the_field_table_says_within_six_percent(
    batch: int, requests_per_second: int
) -> None:
    engine: Engine[str] = Engine(EngineSettings(max_num_seqs=batch))
    throughput, residence = closed_loop(engine, prompt(300), batch, 60)
    assert throughput * ENGINES == pytest.approx(requests_per_second, rel=0.06)
    assert residence == pytest.approx(0.110 + 0.00525 * batch, rel=0.03)


def test_more_clients_than_slots_add_waiting_and_no_throughput() -> None:
    settings = EngineSettings(max_num_seqs=8)
    full, residence = closed_loop(Engine[str](settings), prompt(300), 8, 30)
    flooded, waiting = closed_loop(Engine[str](settings), prompt(300), 16, 30)
    assert flooded == pytest.approx(full, rel=0.02)
    assert waiting == pytest.approx(2 * residence, rel=0.05)


def test_a_step_lasts_as_long_as_its_batch_and_its_prefill_say() -> None:
    settings = EngineSettings(base_ms=100, slope_ms=10, prefill_tokens_per_second=1000)
    engine: Engine[str] = Engine(settings)
    engine.submit([sequence("a", prompt(500), 2)], 0.0)
    assert run_until_idle(engine).step_seconds == pytest.approx([0.5055, 0.0055])


def test_slowness_and_time_scale_multiply_every_step() -> None:
    def seconds(scale: float, slowdown: float) -> float:
        engine: Engine[str] = Engine(EngineSettings(time_scale=scale))
        engine.submit([sequence("a", prompt(320))], 0.0)
        return sum(run_until_idle(engine, slowdown=slowdown).step_seconds)

    assert seconds(1, 3) == pytest.approx(3 * seconds(1, 1))
    assert seconds(0.5, 1) == pytest.approx(0.5 * seconds(1, 1))
    assert seconds(0, 3) == 0


def test_a_newcomer_joins_at_the_next_step_and_leaves_alone() -> None:
    engine: Engine[str] = Engine(EngineSettings())
    engine.submit([sequence("first", prompt(32, 1), 3)], 0.0)
    engine.step(0.0)
    engine.submit([sequence("second", prompt(32, 2), 3)], 0.001)
    run = run_until_idle(engine, 0.01)
    assert run.batches == [2, 2, 1]
    assert run.order == ["first", "second"]


def test_a_prompt_longer_than_the_token_budget_is_prefilled_in_chunks_beside_the_others() -> None:
    engine: Engine[str] = Engine(EngineSettings(max_num_seqs=4, max_num_batched_tokens=100))
    engine.submit([sequence("short", prompt(16, 1), 10)], 0.0)
    engine.submit([sequence("long", prompt(400, 2), 1)], 0.0)
    run = run_until_idle(engine)
    # 84, then 99 beside one decoding sequence each time: the long prompt is in after five steps, the short answer after ten.
    assert run.order == ["long", "short"]
    assert engine.measurements.step_tokens.total == 16 + 400 + 10 + 1
    assert len(run.step_seconds) == 10


def test_a_cached_prefix_is_not_computed_again_but_the_last_token_is() -> None:
    engine: Engine[str] = Engine(EngineSettings(prefill_tokens_per_second=1000))
    engine.submit([sequence("cold", prompt(320), 1)], 0.0)
    cold = run_until_idle(engine).step_seconds[0]
    warm = sequence("warm", prompt(320), 1)
    engine.submit([warm], 1.0)
    assert cold - run_until_idle(engine, 1.0).step_seconds[0] == pytest.approx(0.304)
    assert warm.cached_tokens == 304
    assert (engine.measurements.prefix_queries, engine.measurements.prefix_hits) == (640, 304)


def test_without_prefix_caching_nothing_is_remembered() -> None:
    engine: Engine[str] = Engine(EngineSettings(prefix_caching=False))
    for owner in "ab":
        engine.submit([sequence(owner, prompt(320), 1)], 0.0)
    run_until_idle(engine)
    assert engine.measurements.prefix_hits == 0
    assert engine.blocks.remembered == engine.blocks.used == 0


def test_when_blocks_run_out_the_latest_arrival_is_preempted_and_still_gets_its_whole_answer() -> None:
    settings = EngineSettings(kv_blocks=4, max_model_len=64, max_num_seqs=2)
    engine: Engine[str] = Engine(settings)
    old, young = sequence("old", prompt(30, 1), 30), sequence("young", prompt(30, 2), 30)
    engine.submit([old], 0.0)
    engine.submit([young], 0.0)
    run = run_until_idle(engine)
    assert run.order == ["old", "young"]
    assert (old.preemptions, old.generated) == (0, 30)
    assert young.preemptions > 0
    assert young.generated == 30
    assert engine.measurements.preemptions == young.preemptions
    assert engine.blocks.used == 0


def test_a_preempted_sequence_computes_its_answer_so_far_again() -> None:
    settings = EngineSettings(kv_blocks=4, max_model_len=64, prefix_caching=False)
    engine: Engine[str] = Engine(settings)
    for owner, name in (("old", 1), ("young", 2)):
        engine.submit([sequence(owner, prompt(30, name), 30)], 0.0)
    run_until_idle(engine)
    # Both needed a third block after two tokens of their answer: the young one gave way with three.
    assert engine.measurements.step_tokens.total == 30 + 30 + 60 + (30 + 3)


def test_under_priority_the_lower_number_is_admitted_first_and_preempted_last() -> None:
    settings = EngineSettings(max_num_seqs=1, scheduling_policy=SchedulingPolicy.PRIORITY)
    engine: Engine[str] = Engine(settings)
    engine.submit([sequence("running", prompt(16), 2, priority=9)], 0.0)
    engine.step(0.0)
    for owner, priority in (("later", 5), ("sooner", -1), ("later too", 5)):
        engine.submit([sequence(owner, prompt(16), 2, priority=priority)], 0.0)
    assert run_until_idle(engine).order == ["running", "sooner", "later", "later too"]

    scarce: Engine[str] = Engine(
        EngineSettings(kv_blocks=4, max_model_len=64, scheduling_policy=SchedulingPolicy.PRIORITY)
    )
    lax, urgent = (
        sequence("lax", prompt(30, 1), 30, priority=3),
        sequence("urgent", prompt(30, 2), 30, priority=-3),
    )
    scarce.submit([lax], 0.0)
    scarce.submit([urgent], 0.0)
    assert run_until_idle(scarce).order == ["urgent", "lax"]
    assert lax.preemptions > 0


def test_under_fcfs_a_priority_changes_nothing() -> None:
    engine: Engine[str] = Engine(EngineSettings(max_num_seqs=1))
    for owner, priority in (("first", 5), ("second", -5), ("third", -9)):
        engine.submit([sequence(owner, prompt(16), 2, priority=priority)], 0.0)
    assert run_until_idle(engine).order == ["first", "second", "third"]


def test_the_bound_counts_running_and_waiting_and_takes_a_request_whole_or_not() -> None:
    engine: Engine[str] = Engine(EngineSettings(max_num_seqs=2, max_num_queued_reqs=4))
    assert engine.submit([sequence("a", prompt(16)) for _ in range(3)], 0.0)
    engine.step(0.0)
    assert not engine.submit([sequence("b", prompt(16)) for _ in range(2)], 0.0)
    assert engine.submit([sequence("c", prompt(16))], 0.0)
    assert (len(engine.running), len(engine.waiting), engine.measurements.rejections) == (2, 2, 1)


@pytest.mark.parametrize("steps", range(6))
def test_an_abort_at_any_step_gives_everything_back_at_once(steps: int) -> None:
    engine: Engine[str] = Engine(EngineSettings(max_num_seqs=2, max_num_batched_tokens=64))
    sequences = [sequence(str(index), prompt(150, index)) for index in range(4)]
    engine.submit(sequences, 0.0)
    for step in range(steps):
        engine.step(step * 0.01)
    engine.abort(sequences)
    engine.abort(sequences)
    assert engine.load == engine.blocks.used == 0
    assert engine.step(1.0).seconds is None
    assert engine.measurements.success == dict.fromkeys(engine.measurements.success, 0)


def test_blocks_that_were_never_computed_are_not_remembered() -> None:
    engine: Engine[str] = Engine(EngineSettings(max_num_seqs=2, max_num_batched_tokens=64))
    half_done = sequence("half done", prompt(640, 1))
    engine.submit([half_done], 0.0)
    engine.step(0.0)
    engine.step(0.1)
    engine.abort([half_done])
    again = sequence("again", prompt(640, 1))
    engine.submit([again], 0.2)
    run_until_idle(engine, 0.2)
    assert again.cached_tokens == 64


def test_time_is_measured_from_arrival_through_admission_to_the_end() -> None:
    engine: Engine[str] = Engine(EngineSettings(max_num_seqs=1))
    engine.submit([sequence("a", prompt(16), 20)], 0.0)
    engine.submit([sequence("b", prompt(16), 20)], 0.0)
    run = run_until_idle(engine)
    measured = engine.measurements
    assert measured.queue_time.total == pytest.approx(run.finished["a"])
    assert measured.end_to_end.total == pytest.approx(run.finished["a"] + run.finished["b"])
    assert measured.inference_time.total == pytest.approx(run.finished["b"])
    assert measured.prefill_time.total + measured.decode_time.total == pytest.approx(
        measured.inference_time.total
    )
    assert sum(measured.inter_token.counts) == 38
    assert measured.inter_token.total == pytest.approx(measured.decode_time.total)
