"""How much one backend may hold at once: its window of requests and its room for tokens.

State of `policies.windows` (how a window moves), `policies.automatic_window` (between which bounds, where that is left open) and
`routing.token_room`. What the engine says of its sizes (KV cache, requests at a time) counts until it says otherwise; what it says
of its load counts when it is said, see `policies.windows`.
It says it on a page that is read now and then (a report, whole), and on answers (a mention: the queue and the KV cache, of what it says
nothing stays as it was). A mention within `FRESH_SECONDS` of the last word is not asked for and not heard. What it says of the queue counts
where nothing else has been said of it for `QUEUE_SECONDS`, the usual time between two reports: three of these in a row shrink a window, and
three moments of one second would be one queue counted thrice.
The first `WARM_UP_SAMPLES` requests of a backend that is new or has come back move no window and measure no prefill: they meet cold caches and lazy
compilation. How fast it prefilled before is forgotten then.
`generation` counts the lives of its engine that were seen, for whoever remembers what is in the engine's KV cache: it changes when a report shows
a restart (`policies.restart`). Where the engine never told what would show one, each return from absence counts as one; where it did, the
next report decides, and one of another kind of engine, which tells nothing that could be compared, is a restart too.
`share` of the whole window is what may be used: what an operator's rules, a slow start or a fault leave of it, 1 slot at least. A backend without a window is
held to that share of what its engine says that it runs at a time; where it does not say, it counts as that much slower than the others.
Samples that cannot move the window, those inside a control interval, are kept and given to the policy together, at most `MAX_KEPT` at once.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Protocol

from policies.automatic_window import AutomaticWindow, automatic_rules
from policies.capacity_tokens import TokenRules
from policies.dialects import NOTHING_TOLD, EngineReport, amended
from policies.restart import has_restarted, tells_life, would_tell
from policies.windows import (
    Window,
    WindowRules,
    gathered,
    gathers_until,
    pushed_back,
    reported,
    sampled,
    started,
)
from routing.token_room import TokenRoom, room_of

if TYPE_CHECKING:
    from routing.decision import Lease

WARM_UP_SAMPLES = 3
FRESH_SECONDS = 0.25
QUEUE_SECONDS = 1.0
MAX_KEPT = 256


class CapacityPlan(Protocol):
    """`window` is in requests, None for unbounded; `adaptive` lets it move; `automatic` takes the place of both; `tokens` None limits no tokens."""

    @property
    def window(self) -> int | None: ...

    @property
    def adaptive(self) -> WindowRules | None: ...

    @property
    def automatic(self) -> AutomaticWindow | None: ...

    @property
    def tokens(self) -> TokenRules | None: ...


class Capacity:
    """Methods that may move the window or the room tell whether they did."""

    __slots__ = (
        "_asked_at",
        "_automatic",
        "_control",
        "_gathers_until",
        "_is_in_doubt",
        "_lifetime",
        "_max_num_seqs",
        "_queue_told_at",
        "_reported_at",
        "_samples",
        "_token_rules",
        "_unexplained",
        "_warm_up",
        "adaptive",
        "foreign",
        "generation",
        "in_flight",
        "kv_tokens",
        "report",
        "room",
        "share",
        "whole_window",
        "window",
    )

    def __init__(self, window: int | None) -> None:
        self.window = self.whole_window = window
        self.share = 1.0
        self.in_flight = 0
        self.foreign = 0
        """Requests of others there, as two reports in a row agree; 0 with a window that moves by what the engine reports."""
        self._unexplained = 0
        """In the last report beyond our own."""
        self.adaptive: WindowRules | None = None
        self._control: Window | None = None
        """The state of an adaptive window, without what is in `_samples`."""
        self._samples: list[tuple[float, int]] = []
        self._gathers_until = -inf
        self.room: TokenRoom | None = None
        """None where tokens have no limit."""
        self.report: EngineReport | None = None
        """What the engine said of its own load, last."""
        self._reported_at = self._queue_told_at = self._asked_at = -inf
        self._automatic: AutomaticWindow | None = None
        self._token_rules: TokenRules | None = None
        self._max_num_seqs: int | None = None
        self.kv_tokens: int | None = None
        """What its KV cache holds, as it says."""
        self._warm_up = WARM_UP_SAMPLES
        self.generation = 0
        """How often its engine was seen to have restarted."""
        self._lifetime: EngineReport | None = None
        """The last that was told of each field in this generation."""
        self._is_in_doubt = False
        """It was absent, and no report has come since."""

    @property
    def control(self) -> Window | None:
        """The state of an adaptive window."""
        if self._samples and self._control is not None:
            self._control = gathered(self._control, self._samples)
            self._samples.clear()
        return self._control

    def adapt(self, plan: CapacityPlan) -> None:
        """Take over a configuration; a window that moves by the same rules stays where it is."""
        self._automatic, self._token_rules = plan.automatic, plan.tokens
        adaptive = plan.adaptive
        if plan.automatic is not None:
            adaptive = automatic_rules(plan.automatic, self._max_num_seqs)
        if adaptive is None:
            self.adaptive = self._control = None
            self._samples.clear()
            self._take_window(plan.window)
        else:
            self._move_by(adaptive)
        self.room = room_of(plan.tokens, self.kv_tokens, self.room)

    @property
    def has_size(self) -> bool:
        """Whether there is anything to take a share of."""
        return self.whole_window is not None or self._max_num_seqs is not None

    @property
    def slowdown(self) -> float:
        """Times that it counts as slower than its like, where a share of it is to be used and it has no window."""
        return 1.0 / self.share if self.window is None else 1.0

    def use_share(self, share: float) -> bool:
        """Of its window, above 0 and at most 1."""
        self.share = share
        return self._take_window(self.whole_window)

    @property
    def reported_at(self) -> float:
        """When its engine last told of its load."""
        return self._reported_at

    def report_age(self, now: float) -> float:
        """Seconds since the engine last told anything of its load."""
        return now - self._reported_at

    def warm_up(self) -> None:
        """The engine has come up."""
        self._warm_up = WARM_UP_SAMPLES
        if self.room is not None:
            self.room.forget()

    def restarted(self) -> None:
        """The engine's KV cache is empty."""
        self.generation += 1
        self.foreign = self._unexplained = 0
        self._lifetime = None
        self._is_in_doubt = False
        self.warm_up()

    def came_back(self) -> None:
        """It was absent."""
        if self._lifetime is not None and tells_life(self._lifetime):
            self._is_in_doubt = True
            self.warm_up()
        else:
            self.restarted()

    def sample(self, lease: Lease, now: float) -> bool:
        """A request ended well, and its slot is still counted; the window is an adaptive one."""
        rules = self.adaptive
        assert rules is not None
        if self._warm_up:
            self._warm_up -= 1
            return False
        if lease.prefill_ahead and lease.room is not None:
            lease.room.sample(lease)
        if now < self._gathers_until and len(self._samples) < MAX_KEPT:
            self._samples.append((lease.service_seconds, self.in_flight))
            return False
        if rules.min == rules.max:
            return False
        control = self.control
        assert control is not None
        control = sampled(control, lease.service_seconds, self.in_flight, now, rules)
        self._gathers_until = gathers_until(control)
        return self._moved_to(control)

    def take_report(self, report: EngineReport, now: float) -> bool:
        """A whole one: what it does not tell is not known any more, sizes apart."""
        window, has_other_size = self.window, False
        if has_restarted(self._lifetime, report) or self._is_anothers(report):
            self.restarted()
        elif tells_life(report):
            self._is_in_doubt = False
        self._lifetime = amended(self._lifetime, report)
        self.report = report
        if report.waiting is not None or report.kv_usage is not None:
            self._reported_at = now
        if report.max_num_seqs != self._max_num_seqs or report.token_capacity != self.kv_tokens:
            self._learn_sizes(
                report.max_num_seqs or self._max_num_seqs, report.token_capacity or self.kv_tokens
            )
            has_other_size = True
        self._hear(report.waiting, report.kv_usage, now)
        return self._sees_others(report) or has_other_size or self.window != window

    def _sees_others(self, report: EngineReport) -> bool:
        """Own requests are known at once and without error; what an engine has beyond them is others'. One report alone may still count requests that have just ended here."""
        before, foreign = self._unexplained, self.foreign
        if report.waiting is None or report.running is None or self.adaptive is not None:
            self._unexplained = self.foreign = 0
        else:
            self._unexplained = max(0, report.waiting + report.running - self.in_flight)
            self.foreign = min(before, self._unexplained)
        return self.foreign != foreign

    def asks_load(self, now: float) -> bool:
        """Whether a mention would be news to the window. Who is told so asks for it, others not for a while: the answer may be long in coming."""
        rules = self.adaptive
        if (
            rules is None
            or rules.min == rules.max
            or now - max(self._reported_at, self._asked_at) < FRESH_SECONDS
        ):
            return False
        self._asked_at = now
        return True

    def take_mention(self, told: EngineReport, now: float) -> bool:
        if told == NOTHING_TOLD or now - self._reported_at < FRESH_SECONDS:
            return False
        self.report = amended(self.report, told)
        self._reported_at = now
        waiting = told.waiting if now - self._queue_told_at >= QUEUE_SECONDS else None
        return self._hear(waiting, told.kv_usage, now)

    def push_back(self, now: float) -> bool:
        """The engine said that it is full."""
        control = self.control
        if self.adaptive is None or control is None:
            return False
        return self._moved_to(pushed_back(control, now, self.adaptive))

    def _is_anothers(self, report: EngineReport) -> bool:
        return self._is_in_doubt and tells_life(report) and not would_tell(self._lifetime, report)

    def _hear(self, waiting: int | None, kv_usage: float | None, now: float) -> bool:
        if waiting is not None:
            self._queue_told_at = now
        control = self.control
        if self.adaptive is None or control is None:
            return False
        return self._moved_to(reported(control, waiting, kv_usage, now, self.adaptive))

    def _learn_sizes(self, max_num_seqs: int | None, kv_tokens: int | None) -> None:
        self._max_num_seqs, self.kv_tokens = max_num_seqs, kv_tokens
        if self._automatic is not None:
            self._move_by(automatic_rules(self._automatic, max_num_seqs))
        if self.share < 1.0:
            self._take_window(self.whole_window)
        self.room = room_of(self._token_rules, kv_tokens, self.room)

    def _move_by(self, rules: WindowRules) -> None:
        if rules != self.adaptive:
            self.adaptive, self._control = rules, started(rules)
            self._samples.clear()
            self._gathers_until = -inf
            self._take_window(int(self._control.limit))

    def _moved_to(self, control: Window) -> bool:
        self._control = control
        return self._take_window(int(control.limit))

    def _take_window(self, window: int | None) -> bool:
        self.whole_window = window
        share = self.share
        if share < 1.0:
            whole = self._max_num_seqs if window is None else window
            window = None if whole is None else max(1, int(whole * share))
        if window == self.window:
            return False
        self.window = window
        return True
