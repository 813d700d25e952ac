"""The tokens that a backend's requests hold: what is reserved of its KV cache, and what it has yet to prefill.

State of `policies.capacity_tokens` and `policies.prefill_rate`. A lease holds its tokens from the moment it has a slot until it gives it back, its
prompt as backlog until the first byte of its answer. It remembers of which room and how many, so what it gives back is what it took, whatever the
configuration or the engine said meanwhile; requests that were running when a backend got its limits are not counted.

`kept_for`: a request that is first in turn but too large for what is free. The room is kept for it, so that it is not passed for ever: what
comes after it goes elsewhere or waits, emergencies apart, until so much has ended that it fits. Whoever waits no longer keeps nothing.
Limit: an answer that is not streamed has no first byte before its end. Under a limit that is configured its prompt counts as backlog all along;
under one that is measured never, for a fleet of such answers would be held to a few at a time: it waits for the backlog of the others and adds nothing.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from policies.capacity_tokens import TokenRules, fits, is_prefill_measured, prefill_limit, token_limit
from policies.members import HOT
from policies.prefill_rate import UNKNOWN, PrefillRate, is_sample, sampled, tokens_per_second
from policies.terms import Tag, TicketId

if TYPE_CHECKING:
    from routing.decision import Lease


class TokenRoom:
    __slots__ = (
        "_prefilling_since",
        "backlog",
        "kept_for",
        "max_prefill_tokens",
        "max_tokens",
        "measured_by",
        "rate",
        "reserved",
        "reserved_hot",
        "share",
    )

    def __init__(self) -> None:
        self.max_tokens = inf
        self.max_prefill_tokens = inf
        self.reserved = 0
        self.reserved_hot = 0
        """Of these, what hot requests hold."""
        self.backlog = 0
        self.share = 0.0
        """Of the limit that is nearer, what is in use."""
        self.kept_for: TicketId | None = None
        self.measured_by: TokenRules | None = None
        """Where the limit of the prefill follows from what is measured."""
        self.rate = UNKNOWN
        self._prefilling_since = 0.0
        """Since when the first of the backlog is being prefilled: it came, or the one before was done."""

    def limit(self, max_tokens: float, max_prefill_tokens: float) -> None:
        self.max_tokens, self.max_prefill_tokens = max_tokens, max_prefill_tokens
        self._measure()

    def sample(self, lease: Lease) -> None:
        """One with `prefill_ahead` ended well."""
        usage = lease.usage
        if self.measured_by is not None and (usage is None or is_sample(usage[0], usage[2])):
            seconds = lease.prefill_seconds + lease.service_seconds
            self._know(sampled(self.rate, lease.prefill_ahead, seconds), self.measured_by)

    def forget(self) -> None:
        """The engine has come up, and may be another one."""
        if self.measured_by is not None:
            self._know(UNKNOWN, self.measured_by)

    def state(self) -> dict[str, float | None]:
        """For the operator's eyes."""
        limits = (self.max_tokens, self.max_prefill_tokens)
        max_tokens, max_prefill_tokens = (None if limit == inf else limit for limit in limits)
        return {
            "reserved": self.reserved,
            "max_tokens": max_tokens,
            "prefill_backlog": self.backlog,
            "max_prefill_tokens": max_prefill_tokens,
            "prefill_tokens_per_second": self.prefill_tokens_per_second,
        }

    @property
    def prefill_tokens_per_second(self) -> float | None:
        return None if self.measured_by is None else tokens_per_second(self.rate)

    def fits(self, tag: Tag, in_flight: int) -> bool:
        prompt = tag.prompt_tokens
        tokens = prompt + tag.output_tokens_p90
        return fits(
            in_flight, self.reserved, self.max_tokens, tokens, self.backlog, self.max_prefill_tokens, prompt
        )

    def hold(self, lease: Lease, now: float) -> None:
        """In whole tokens, so that what is given back leaves nothing behind."""
        tag = lease.tag
        lease.room = self
        lease.tokens_held = tokens = int(tag.prompt_tokens + tag.output_tokens_p90)
        self.reserved += tokens
        if tag.path is HOT:
            self.reserved_hot += tokens
        if self.measured_by is not None:
            lease.prefill_ahead = 0
            if tag.streamed and (prefill := int(tag.prompt_tokens)):
                if not self.backlog:
                    self._prefilling_since = now
                lease.prefill_held, lease.prefill_seconds = prefill, now - self._prefilling_since
                self.backlog += prefill
                lease.prefill_ahead = self.backlog
        elif self.max_prefill_tokens < inf:
            lease.prefill_held = prefill = int(tag.prompt_tokens)
            self.backlog += prefill
        self._measure()

    def prefilled(self, lease: Lease, now: float) -> None:
        """The first byte of its answer has come."""
        self.backlog -= lease.prefill_held
        lease.prefill_held = 0
        self._prefilling_since = now
        self._measure()

    def release(self, lease: Lease) -> None:
        self.reserved -= lease.tokens_held
        if lease.tag.path is HOT:
            self.reserved_hot -= lease.tokens_held
        self.backlog -= lease.prefill_held
        lease.room = None
        lease.prefill_held = 0
        self._measure()

    def _know(self, rate: PrefillRate, rules: TokenRules) -> None:
        self.rate = rate
        self.max_prefill_tokens = prefill_limit(rules, tokens_per_second(rate))

    def _measure(self) -> None:
        share = self.reserved / self.max_tokens
        if self.backlog:
            share = max(share, self.backlog / self.max_prefill_tokens)
        self.share = share


def room_of(rules: TokenRules | None, kv_tokens: int | None, before: TokenRoom | None) -> TokenRoom | None:
    """The room that a backend has by these rules; None where nothing is limited. One that it had goes on with what is held in it."""
    if rules is None:
        return None
    max_tokens, is_measured = token_limit(rules, kv_tokens), is_prefill_measured(rules)
    if max_tokens == inf and prefill_limit(rules) == inf and not is_measured:
        return None
    room = before or TokenRoom()
    room.measured_by = rules if is_measured else None
    room.limit(max_tokens, prefill_limit(rules, tokens_per_second(room.rate)))
    return room
