"""Members of `policies.terms`' enums for what runs at every request.

On Python 3.11 to reach a member through its class costs as much as a dozen comparisons, and a request asks for one some twenty times.
Elsewhere the member is spelt out.
"""

from __future__ import annotations

from policies.terms import CachePath, Lane, Refusal, Verdict

EMERGENCY = Lane.EMERGENCY
INTERACTIVE = Lane.INTERACTIVE
STANDARD = Lane.STANDARD
BATCH = Lane.BATCH
GOOD = Verdict.GOOD
BACKPRESSURE = Verdict.BACKPRESSURE
FAULT = Verdict.FAULT
HOT = CachePath.HOT
COLD = CachePath.COLD
QUEUE_FULL = Refusal.QUEUE_FULL
NO_BACKEND = Refusal.NO_BACKEND
