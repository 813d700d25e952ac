"""What an exception of the `redis` package says of the store, in the words of `StoreFault`."""

from __future__ import annotations

import ssl

from redis import exceptions

from gateway.sessions.store import StoreFault

_BY_CODE = {
    "LOADING": StoreFault.LOADING,
    "READONLY": StoreFault.READ_ONLY,
    "MISCONF": StoreFault.READ_ONLY,
    "NOREPLICAS": StoreFault.READ_ONLY,
    "OOM": StoreFault.FULL,
    "NOAUTH": StoreFault.REFUSED,
    "WRONGPASS": StoreFault.REFUSED,
    "NOPERM": StoreFault.REFUSED,
}
"""By the first word of an error that a server answers, also from inside of a script."""
_BY_KIND: tuple[tuple[type[Exception], StoreFault], ...] = (
    (exceptions.BusyLoadingError, StoreFault.LOADING),
    (exceptions.AuthenticationError, StoreFault.REFUSED),
    (exceptions.AuthorizationError, StoreFault.REFUSED),
    (exceptions.NoPermissionError, StoreFault.REFUSED),
    (exceptions.ReadOnlyError, StoreFault.READ_ONLY),
    (exceptions.OutOfMemoryError, StoreFault.FULL),
    (exceptions.ClusterDownError, StoreFault.CONNECTION),
    (exceptions.TimeoutError, StoreFault.TIMEOUT),
    (TimeoutError, StoreFault.TIMEOUT),
)


def fault_of(error: BaseException) -> StoreFault:
    for kind, fault in _BY_KIND:
        if isinstance(error, kind):
            return fault
    for code, fault in _BY_CODE.items():
        if f"{code} " in str(error):
            return fault
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return StoreFault.REFUSED
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, (exceptions.ConnectionError, exceptions.RedisClusterException, OSError)):
        return StoreFault.CONNECTION
    return StoreFault.ANSWERED if isinstance(error, exceptions.ResponseError) else StoreFault.OTHER
