"""How an attempt at an engine can fail: by who failed and when.

UpstreamFailure
    PoolFull            no connection may be opened: `max_connections` are busy
    ConnectFailed       refused, unreachable, name unknown, certificate not trusted
        ConnectTimeout  no answer within `connect_seconds`
    StaleConnection     a reused connection was dead before any byte of the answer: tried again once, for free
    ResponseBroken      the answer began or was awaited, and is not HTTP, was cut, or exceeded a bound
    FirstByteTimeout    nothing within `first_byte_seconds`
    GapTimeout          silence of `gap_seconds` inside an answer
    TotalTimeout        longer than `total_seconds` in all
        AnswerTooLong   the same of an answer that has begun: it may be long, or its client slow, so it says nothing of the engine
"""

from __future__ import annotations

from typing import ClassVar

from policies.terms import Refusal, Verdict


class UpstreamFailure(Exception):
    reason: ClassVar[Refusal] = Refusal.BACKEND_BROKE
    verdict: ClassVar[Verdict] = Verdict.FAULT


class PoolFull(UpstreamFailure):
    reason = Refusal.UPSTREAM_FULL
    verdict = Verdict.BACKPRESSURE


class ConnectFailed(UpstreamFailure):
    reason = Refusal.BACKEND_UNREACHABLE


class ConnectTimeout(ConnectFailed):
    pass


class ResponseBroken(UpstreamFailure):
    pass


class StaleConnection(ResponseBroken):
    pass


class FirstByteTimeout(UpstreamFailure):
    reason = Refusal.FIRST_BYTE_TIMEOUT


class GapTimeout(UpstreamFailure):
    reason = Refusal.GAP_TIMEOUT


class TotalTimeout(UpstreamFailure):
    reason = Refusal.TOTAL_TIMEOUT


class AnswerTooLong(TotalTimeout):
    verdict = Verdict.IGNORED
