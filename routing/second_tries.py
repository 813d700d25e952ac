"""Second tries: how many run, and what is left of their budget. The rule is `policies.retry_budget`; a lease that has `tried` a backend is one."""

from __future__ import annotations

from policies.retry_budget import NO_RETRIES, RetryBudgetRules, after_retry
from policies.terms import Lane
from routing.decision import Lease

NO_SECOND_TRIES = RetryBudgetRules(share=0.0, floor=0.0)
"""But for those that emergencies always have."""


class SecondTries:
    def __init__(self) -> None:
        self._budget = NO_RETRIES
        self._running = 0

    def afford(self, lease: Lease, arrived: int, in_flight: int, now: float, rules: RetryBudgetRules) -> bool:
        """Whether the lease may try another backend; then that is counted. `arrived` since the last that was afforded."""
        is_second = not lease.tried
        budget = after_retry(
            self._budget,
            arrived,
            in_flight,
            self._running - (not is_second),
            lease.tag.lane is Lane.EMERGENCY,
            now,
            rules,
        )
        if budget is None:
            return False
        self._budget = budget
        self._running += is_second
        return True

    def free(self, lease: Lease) -> None:
        """It tries another backend because nobody listens where it was: no engine has more work for it, so the budget has nothing to bound."""
        self._running += not lease.tried

    def ended(self, lease: Lease) -> None:
        if lease.tried:
            self._running -= 1
