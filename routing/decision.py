"""What the router is asked and what it answers, and who owns it.

`Intent`: what the gateway knows of a request. `Lease`: the request may run on `backend` now; whoever holds it gives it back with exactly one
`Router.finish`. `Ticket`: the request waits; it ends by a grant from `Router.pump` or by `Router.cancel`, never by both. `Refusal`: the
request is not taken, and nothing is owed.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from policies.cache_key import CacheKey
from policies.cost import weighted_tokens
from policies.lengths import TextSize
from policies.members import COLD, GOOD, HOT
from policies.terms import BackendId, CachePath, Lane, PoolName, Refusal, Tag, TicketId, Verdict
from routing.backend import Backend
from routing.token_room import TokenRoom


class Intent(NamedTuple):
    """`lane` is clamped already; `pools` are those that its business type or a trusted client names, in order of preference.

    `size` is what was counted of the prompt, None where there is none that the gateway looks into; `max_tokens` the longest answer
    to reckon with, None where nothing says.
    """

    business: str = "default"
    lane: Lane = Lane.STANDARD
    tenant: str = "anonymous"
    weight: float = 1.0
    target_seconds: float = inf
    size: TextSize | None = None
    max_tokens: int | None = None
    streamed: bool = False
    pools: tuple[PoolName, ...] = ()
    backend: BackendId | None = None
    relegate: bool = False
    """Rather served late, as batch, than refused for its deadline."""
    key: CacheKey | None = None
    """What an engine's cache may hold of it; None where the gateway does not look."""
    path: CachePath | None = None
    """As a trusted client named it."""
    is_held: bool = False
    """`backend` alone can serve it: its pool, the only one in `pools`, takes it whatever its length."""


NO_INTENT = Intent()


class Line(NamedTuple):
    """Requests that the same slots can serve wait in one line, hot and cold ones apart. `model` is the name that the engine knows, or "" for any."""

    model: str
    pools: tuple[PoolName, ...]
    backend: BackendId | None = None
    path: CachePath = CachePath.COLD

    def on_other_path(self) -> Line:
        return Line(self.model, self.pools, self.backend, HOT if self.path is COLD else COLD)


class Ticket:
    """A waiting request; `lease` is one that waits for its next backend."""

    __slots__ = ("arrived", "id", "intent", "lease", "line", "predicted_seconds", "tag")

    def __init__(
        self, id: TicketId, line: Line, tag: Tag, intent: Intent, arrived: float, lease: Lease | None = None
    ) -> None:
        self.id = id
        self.line = line
        self.tag = tag
        self.intent = intent
        self.arrived = arrived
        self.lease = lease
        self.predicted_seconds: float | None = None
        """How long it was predicted to wait when it came, where that was asked."""

    @property
    def model(self) -> str:
        return self.line.model


class Lease:
    """One slot on one backend, for as long as the request runs. A retry moves the lease, so it never holds two slots.

    `ticket` is set while a moved lease waits for a slot elsewhere and holds none. `is_trial`: the backend was absent when it was given.
    The holder sets, before the lease is finished: `verdict`, what the last attempt said of its backend; `service_seconds`, from its dispatch to
    the first byte of its answer, 0 where there was none; `usage`, tokens as the engine counted them (prompt, completion, cached).
    Most of it stays at its default, so the defaults are the class's.
    """

    attempts = 1
    tried: Sequence[Backend] = ()
    open = True
    ticket: Ticket | None = None
    verdict = Verdict.IGNORED
    service_seconds = 0.0
    usage: tuple[int, int, int] | None = None
    produced = 0
    """Output tokens seen so far."""
    circuit_changes = 0
    """Of its backend, when it was given."""
    has_moved = False
    """Whether it ever gave a slot back before its end, or is about to."""
    gives_way = False
    """Its slot is wanted by an emergency, and its attempt is being ended."""
    preemptions = 0
    """How often it gave way; these attempts count in `attempts` too."""
    found_nobody = False
    """Set by the holder: the attempt ended because nobody listens there, so no engine works on it."""
    in_vain = 0
    """Attempts that found nobody; these count in `attempts` too."""
    room: TokenRoom | None = None
    """Where it holds tokens of its backend; None where these have no limit."""
    tokens_held = 0
    prefill_held = 0
    prefill_ahead = 0
    """Where the prefill is measured: what was in prefill when it was sent, its own prompt included."""
    known_depth = 0
    """Characters of its prompt that its backend had been sent before."""
    cached_tokens = 0.0
    """What that is in tokens, estimated: what the backend's cache holds at best."""
    prefilling = 0
    """Prompt tokens that its engine has yet to compute before the first byte, as expected; of a streamed answer."""
    prefill_seconds = 0.0
    """And for how long the first of that was in prefill by then."""

    def __init__(
        self, backend: Backend, line: Line, tag: Tag, intent: Intent, queue_seconds: float, is_trial: bool
    ) -> None:
        self.backend = backend
        self.line = line
        self.tag = tag
        self.intent = intent
        self.queue_seconds = queue_seconds
        self.is_trial = is_trial
        self.charged = tag.cost
        """Weighted tokens that its flow has paid for it so far."""

    @property
    def model(self) -> str:
        return self.line.model

    @property
    def tries(self) -> int:
        """Attempts that count as such: those that an engine may have worked on, and did not have to give way. The first always does."""
        return max(1, self.attempts - self.preemptions - self.in_vain - self.found_nobody)

    def leaves(self) -> None:
        """Its attempt is over: what was said of it so far is not about the next one."""
        self.has_moved = True
        self.verdict = Verdict.IGNORED
        self.service_seconds = 0.0
        self.in_vain += self.found_nobody
        self.found_nobody = False

    def consumed(self) -> float:
        """Weighted tokens that the request really took, where the engine said so; else as far as it got."""
        if self.usage is not None:
            prompt, completion, cached = self.usage
            cost = weighted_tokens(prompt, cached, completion)
            if cost < 1.0:
                return 1.0
            return cost
        if self.verdict is GOOD:
            return self.tag.cost
        if not self.service_seconds:
            return 0.0
        return weighted_tokens(self.tag.prompt_tokens, 0.0, self.produced)


Decision = Lease | Ticket | Refusal
