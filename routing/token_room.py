"""The tokens that a backend's requests hold: what is reserved of its KV cache, and what it has yet to prefill.

State of `policies.capacity_tokens`. A lease holds its tokens from the moment it has a slot until it gives it back, its prompt as backlog until
the first byte of its answer. It remembers of which room and how many, so what it gives back is what it took, whatever the configuration or
the engine said meanwhile; requests that were running when a backend got its limits are not counted.

`kept_for`: a request that is first in turn but too large for what is free. The room is kept for it, so that it is not passed for ever: what
comes after it goes elsewhere or waits, emergencies apart, until so much has ended that it fits. Whoever waits no longer keeps nothing.
Limit: an answer that is not streamed has no first byte before its end, so its prompt counts as backlog all along.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from policies.capacity_tokens import TokenRules, fits, prefill_limit, token_limit
from policies.terms import Tag, TicketId

if TYPE_CHECKING:
    from routing.decision import Lease


class TokenRoom:
    __slots__ = ("backlog", "kept_for", "max_prefill_tokens", "max_tokens", "reserved", "share")

    def __init__(self) -> None:
        self.max_tokens = inf
        self.max_prefill_tokens = inf
        self.reserved = 0
        self.backlog = 0
        self.share = 0.0
        """Of the limit that is nearer, what is in use."""
        self.kept_for: TicketId | None = None

    def limit(self, max_tokens: float, max_prefill_tokens: float) -> None:
        self.max_tokens, self.max_prefill_tokens = max_tokens, max_prefill_tokens
        self._measure()

    def state(self) -> dict[str, float | None]:
        """For the operator's eyes."""
        limits = (self.max_tokens, self.max_prefill_tokens)
        max_tokens, max_prefill_tokens = (None if limit == inf else limit for limit in limits)
        return {
            "reserved": self.reserved,
            "max_tokens": max_tokens,
            "prefill_backlog": self.backlog,
            "max_prefill_tokens": max_prefill_tokens,
        }

    def fits(self, tag: Tag, in_flight: int) -> bool:
        prompt = tag.prompt_tokens
        tokens = prompt + tag.output_tokens_p90
        return fits(
            in_flight, self.reserved, self.max_tokens, tokens, self.backlog, self.max_prefill_tokens, prompt
        )

    def hold(self, lease: Lease) -> None:
        """In whole tokens, so that what is given back leaves nothing behind."""
        tag = lease.tag
        lease.room = self
        lease.tokens_held = tokens = int(tag.prompt_tokens + tag.output_tokens_p90)
        self.reserved += tokens
        if self.max_prefill_tokens < inf:
            lease.prefill_held = prefill = int(tag.prompt_tokens)
            self.backlog += prefill
        self._measure()

    def prefilled(self, lease: Lease) -> None:
        """The first byte of its answer has come."""
        self.backlog -= lease.prefill_held
        lease.prefill_held = 0
        self._measure()

    def release(self, lease: Lease) -> None:
        self.reserved -= lease.tokens_held
        self.backlog -= lease.prefill_held
        lease.room = None
        lease.prefill_held = 0
        self._measure()

    def _measure(self) -> None:
        share = self.reserved / self.max_tokens
        if self.backlog:
            share = max(share, self.backlog / self.max_prefill_tokens)
        self.share = share


def room_of(rules: TokenRules | None, kv_tokens: int | None, before: TokenRoom | None) -> TokenRoom | None:
    """The room that a backend has by these rules; None where nothing is limited. One that it had goes on with what is held in it."""
    if rules is None:
        return None
    max_tokens, max_prefill_tokens = token_limit(rules, kv_tokens), prefill_limit(rules)
    if max_tokens == inf and max_prefill_tokens == inf:
        return None
    room = before or TokenRoom()
    room.limit(max_tokens, max_prefill_tokens)
    return room
