"""Whether a failed attempt may be repeated on another backend.

Decides: yes or no, from what is known when the attempt failed. Before the answer's first byte nothing was promised to the client, and
generation has no side effect, so a second try is safe; after it the client would see the beginning twice. A request that asked the engine
to store something (`store: true`, `background: true`) is never repeated.
Settings: `max_retries` second tries per request (0..10, default 2).
Limit: a count per request; `policies.retry_budget` bounds all of them together.
"""

from __future__ import annotations

from dataclasses import dataclass

from policies.terms import Verdict


@dataclass(frozen=True, slots=True)
class RetryRules:
    max_retries: int = 2


def may_retry(
    verdict: Verdict, attempts: int, first_byte_sent: bool, repeatable: bool, rules: RetryRules
) -> bool:
    """`attempts` counts the failed one."""
    if first_byte_sent or not repeatable or attempts > rules.max_retries:
        return False
    return verdict in (Verdict.FAULT, Verdict.BACKPRESSURE)
