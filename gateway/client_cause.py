"""Why a client will not get its answer."""

from __future__ import annotations

from enum import StrEnum


class Cause(StrEnum):
    CLIENT_LEFT = "client_left"
    CLIENT_STALLED = "client_stalled"
    BODY_TIMEOUT = "body_timeout"
