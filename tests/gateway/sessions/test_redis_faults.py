"""What the client package raises, in the words in which the store's breaker, metrics and log speak of it."""

from __future__ import annotations

import ssl

import pytest
from redis import exceptions

from gateway.sessions.redis_faults import fault_of
from gateway.sessions.store import StoreFault


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def in_the_midst_of(error: Exception, context: Exception) -> Exception:
    error.__context__ = context
    return error


SAID = [
    (exceptions.BusyLoadingError("LOADING"), StoreFault.LOADING),
    (exceptions.ReadOnlyError("a replica"), StoreFault.READ_ONLY),
    (exceptions.OutOfMemoryError("full"), StoreFault.FULL),
    (exceptions.AuthenticationError("no"), StoreFault.REFUSED),
    (exceptions.NoPermissionError("no"), StoreFault.REFUSED),
    (exceptions.ClusterDownError("CLUSTERDOWN"), StoreFault.CONNECTION),
    (exceptions.MasterDownError("MASTERDOWN"), StoreFault.CONNECTION),
    (exceptions.TimeoutError("slow"), StoreFault.TIMEOUT),
    (TimeoutError(), StoreFault.TIMEOUT),
    (exceptions.ConnectionError("gone"), StoreFault.CONNECTION),
    (exceptions.RedisClusterException("no slot"), StoreFault.CONNECTION),
    (ConnectionResetError(), StoreFault.CONNECTION),
    (exceptions.ResponseError("WRONGTYPE Operation against a key"), StoreFault.ANSWERED),
    (ValueError("what"), StoreFault.OTHER),
]
IN_WORDS = [
    ("LOADING Redis is loading the dataset in memory", StoreFault.LOADING),
    ("READONLY You can't write against a read only replica.", StoreFault.READ_ONLY),
    ("MISCONF Redis is configured to save RDB snapshots", StoreFault.READ_ONLY),
    ("NOREPLICAS Not enough good replicas to write.", StoreFault.READ_ONLY),
    ("OOM command not allowed when used memory > 'maxmemory'.", StoreFault.FULL),
    ("WRONGPASS invalid username-password pair", StoreFault.REFUSED),
    ("Error running script: OOM command not allowed", StoreFault.FULL),
]


@pytest.mark.parametrize(("error", "fault"), SAID, ids=lambda case: repr(case))
def test_an_exception_says_what_is_wrong_by_its_kind(error: Exception, fault: StoreFault) -> None:
    assert fault_of(error) is fault


@pytest.mark.parametrize(("text", "fault"), IN_WORDS, ids=lambda case: str(case).split()[0])
def test_an_error_that_has_no_kind_of_its_own_says_it_by_its_code(text: str, fault: StoreFault) -> None:
    assert fault_of(exceptions.ResponseError(text)) is fault


def test_a_handshake_that_failed_below_is_a_refusal_and_no_lost_connection() -> None:
    below = ssl.SSLCertVerificationError("unknown authority")
    outer = exceptions.ConnectionError("Error 1 connecting")
    assert fault_of(caused(outer, below)) is StoreFault.REFUSED
    assert fault_of(in_the_midst_of(exceptions.ConnectionError("x"), caused(OSError(), below))) is (
        StoreFault.REFUSED
    )
    assert fault_of(caused(exceptions.ConnectionError("x"), OSError())) is StoreFault.CONNECTION
