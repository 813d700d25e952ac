"""What verifies the certificates of others: one context for all servers with the same authorities.

Making one reads hundreds of certificates: 25 ms in which nothing else has its turn, and megabytes. So each is made once, and again when its file has changed.
Bound: `_MOST` contexts; beyond it the one that was made first goes.
"""

from __future__ import annotations

import os
import ssl

_MOST = 64
_Version = tuple[int, int, int]
_known: dict[tuple[str, tuple[str, ...]], tuple[_Version, ssl.SSLContext]] = {}


def trusting(ca_file: str, protocols: tuple[str, ...] = ()) -> ssl.SSLContext:
    """`ca_file` "" is the system's authorities. `protocols` are offered in the handshake. `OSError` where the file cannot be read."""
    key = ca_file, protocols
    version = _version(ca_file)
    found = _known.get(key)
    if found is not None and found[0] == version:
        return found[1]
    context = ssl.create_default_context(cafile=ca_file or None)
    if protocols:
        context.set_alpn_protocols(list(protocols))
    _known.pop(key, None)
    if len(_known) >= _MOST:
        del _known[next(iter(_known))]
    _known[key] = version, context
    return context


def _version(path: str) -> _Version:
    path = path or ssl.get_default_verify_paths().cafile or ""
    if not path:
        return 0, 0, 0
    status = os.stat(path)
    return status.st_ino, status.st_size, status.st_mtime_ns
