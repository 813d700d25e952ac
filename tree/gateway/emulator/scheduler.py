"""Continuous batching as a synchronous state machine: which sequences run in the next step, and how long the
step lasts.

`submit` queues, `abort` takes out, `step(now)` ends the step in progress, hands out its tokens, and begins
the next one. The caller owns the clock: it calls `step` again after the returned duration, or, when that is
None, after the next `submit`.

Per step, every running sequence gets one token; a sequence with a prompt left to compute gets a chunk of
prefill instead, and its first token with the last chunk. All of a step's tokens stay within
`max_num_batched_tokens`. New sequences are admitted in queue order while there are slots, token budget and KV
blocks; the first that does not fit stops the admission. When a running sequence needs a block and there is
none, another one is preempted: the latest arrival, under `priority` the one with the largest (priority,
arrival). It loses its blocks, waits again in its old place, and computes its prompt and its answer so far
anew; nothing is admitted in that step.

    step seconds = slowdown * time_scale * ((base_ms + slope_ms * sequences) / 20 / 1000 + prefilled / prefill_tokens_per_second)

Limits: attention's growth with the context is not modelled, nor speculative decoding, nor swapping. Priority
never preempts for urgency alone, only when blocks are short, as in the engine it imitates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from gateway.emulator.blocks import BlockPool
from gateway.emulator.measurements import Measurements
from gateway.emulator.sequence import Phase, Sequence
from gateway.emulator.settings import RESIDENCE_TOKENS, EngineSettings, SchedulingPolicy
from gateway.emulator.tokens import BLOCK_TOKENS
from gateway.emulator.waiting import WaitingQueue

Owner = TypeVar("Owner")


@dataclass(frozen=True, slots=True)
class Step(Generic[Owner]):
    """What the ended step brought. `progressed` holds streamed sequences that go on, `finished` all that are
    complete."""

    progressed: list[Sequence[Owner]]
    finished: list[Sequence[Owner]]
    seconds: float | None
    """How long the step that has just begun will last; None when nothing runs."""


def step_seconds(settings: EngineSettings, sequences: int, prefilled: int, slowdown: float) -> float:
    decode = (settings.base_ms + settings.slope_ms * sequences) / RESIDENCE_TOKENS / 1000
    return slowdown * settings.time_scale * (decode + prefilled / settings.prefill_tokens_per_second)


class Engine(Generic[Owner]):
    """One engine. Not thread-safe; every call is O(what it touches)."""

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings
        self.running: list[Sequence[Owner]] = []
        self.waiting: WaitingQueue[Owner] = WaitingQueue()
        self.blocks = BlockPool(settings.kv_blocks)
        self.measurements = Measurements(settings.max_model_len)
        self._by_priority = settings.scheduling_policy is SchedulingPolicy.PRIORITY
        self._arrivals = 0
        self._batch: list[Sequence[Owner]] = []
        self._growing: list[Sequence[Owner]] = []
        self._prefilling: list[Sequence[Owner]] = []
        self._began_at = 0.0
        self._prefilled = 0

    @property
    def load(self) -> int:
        """Running plus waiting sequences."""
        return len(self.running) + len(self.waiting)

    def submit(self, sequences: list[Sequence[Owner]], now: float) -> bool:
        """Queue the sequences of one request, or none of them when `max_num_queued_reqs` would be passed."""
        bound = self.settings.max_num_queued_reqs
        if bound and self.load + len(sequences) > bound:
            self.measurements.rejections += 1
            return False
        self.measurements.params_n.observe(len(sequences))
        for sequence in sequences:
            self._arrivals += 1
            sequence.arrival = self._arrivals
            sequence.arrived_at = now
            if not self._by_priority:
                sequence.priority = 0
            self.measurements.params_max_tokens.observe(sequence.new_tokens)
            self.waiting.push(sequence)
        return True

    def abort(self, sequences: list[Sequence[Owner]]) -> None:
        """Their client is gone. Takes effect at once; sequences that have ended are left alone."""
        for sequence in sequences:
            if sequence.phase is Phase.WAITING:
                self.waiting.discard(sequence)
            elif sequence.phase is Phase.RUNNING:
                self.running.remove(sequence)
                self._leave(sequence, Phase.ENDED)

    def step(self, now: float, slowdown: float = 1.0) -> Step[Owner]:
        progressed, finished = self._end_step(now)
        return Step(progressed, finished, self._begin_step(now, slowdown))

    def _end_step(self, now: float) -> tuple[list[Sequence[Owner]], list[Sequence[Owner]]]:
        batch, self._batch = self._batch, []
        progressed: list[Sequence[Owner]] = []
        finished: list[Sequence[Owner]] = []
        if not batch:
            return progressed, finished
        running = Phase.RUNNING
        growing = self._growing
        first = continuing = 0
        for sequence in batch:
            if sequence.phase is not running:
                continue  # aborted while the step ran
            if sequence.chunk:
                sequence.uncomputed -= sequence.chunk
                sequence.chunk = 0
                if sequence.uncomputed:
                    continue
                self._prefilling.remove(sequence)
            if sequence.generated:
                continuing += 1
            else:
                first += 1
                sequence.first_token_at = now
                self.measurements.time_to_first_token.observe(now - sequence.arrived_at)
            sequence.generated += 1
            if sequence.generated >= sequence.new_tokens:
                finished.append(sequence)
                continue
            sequence.room -= 1
            if sequence.room < 0:
                growing.append(sequence)
            if sequence.streamed:
                progressed.append(sequence)
        self.measurements.stepped(now - self._began_at, self._prefilled, continuing, first)
        for sequence in finished:
            self._leave(sequence, Phase.ENDED)
            self.measurements.finished(sequence, now)
        if finished:
            self.running = [sequence for sequence in self.running if sequence.phase is running]
        return progressed, finished

    def _begin_step(self, now: float, slowdown: float) -> float | None:
        short_of_blocks = self._grow()
        budget = self.settings.max_num_batched_tokens - len(self.running) + len(self._prefilling)
        prefilled = 0
        for sequence in self._prefilling:
            sequence.chunk = min(sequence.uncomputed, budget - prefilled)
            prefilled += sequence.chunk
        while not short_of_blocks and prefilled < budget and len(self.running) < self.settings.max_num_seqs:
            head = self.waiting.head()
            if head is None or not self._admit(head, now):
                break
            head.chunk = min(head.uncomputed, budget - prefilled)
            prefilled += head.chunk
        if self._prefilling:
            # A sequence in the midst of its prefill that got no chunk has no part in this step.
            self._batch = [one for one in self.running if one.chunk or not one.uncomputed]
        else:
            self._batch = self.running.copy()
        self._began_at = now
        self._prefilled = prefilled
        return step_seconds(self.settings, len(self._batch), prefilled, slowdown) if self._batch else None

    def _admit(self, sequence: Sequence[Owner], now: float) -> bool:
        # A preempted sequence computes what it had generated as well.
        tokens = sequence.prompt.tokens + sequence.generated
        hashes = sequence.prompt.block_hashes if self.settings.prefix_caching else ()
        # The last token is always computed: its output is the next token.
        hits = self.blocks.hits(hashes, (tokens - 1) // BLOCK_TOKENS)
        blocks = -(-tokens // BLOCK_TOKENS)
        if not self.blocks.acquire(hashes, blocks - len(hashes)):
            return False
        self.waiting.pop()
        sequence.phase = Phase.RUNNING
        sequence.private = blocks - len(hashes)
        sequence.room = blocks * BLOCK_TOKENS - tokens
        sequence.uncomputed = tokens - hits * BLOCK_TOKENS
        self.running.append(sequence)
        self._prefilling.append(sequence)
        if sequence.admitted_at < 0:
            sequence.admitted_at = now
            sequence.cached_tokens = hits * BLOCK_TOKENS
            self.measurements.admitted(sequence, now - sequence.arrived_at)
        return True

    def _grow(self) -> bool:
        """Give a block to each sequence that has filled its last one; whether somebody was preempted for
        it."""
        growing, self._growing = self._growing, []
        preempted = False
        for sequence in growing:
            while sequence.phase is Phase.RUNNING:
                if self.blocks.grow():
                    sequence.private += 1
                    sequence.room += BLOCK_TOKENS
                    break
                preempted = True
                self._preempt(max(self.running, key=_least_urgent))
        return preempted

    def _preempt(self, sequence: Sequence[Owner]) -> None:
        self.running.remove(sequence)
        self._leave(sequence, Phase.WAITING)
        sequence.preemptions += 1
        self.measurements.preemptions += 1
        self.waiting.push(sequence)

    def _leave(self, sequence: Sequence[Owner], phase: Phase) -> None:
        sequence.phase = phase
        if sequence.uncomputed:
            self._prefilling.remove(sequence)
        hashes = sequence.prompt.block_hashes if self.settings.prefix_caching else ()
        computed = (sequence.prompt.tokens + sequence.generated - sequence.uncomputed) // BLOCK_TOKENS
        self.blocks.release(hashes, sequence.private, computed)
        sequence.private = 0
        sequence.uncomputed = sequence.chunk = 0


def _least_urgent(sequence: Sequence[Any]) -> tuple[int, int]:
    return sequence.priority, sequence.arrival
