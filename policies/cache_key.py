"""What a request could find again in an engine's cache: the beginnings of its prompt, and the session that it belongs to."""

from __future__ import annotations

from typing import NamedTuple

from policies.prefix_chain import Prefix


class CacheKey(NamedTuple):
    """`session` is a 64-bit hash of tenant and session id, 0 without one; `prefix` has no boundaries where the prompt is too short to look for."""

    prefix: Prefix
    session: int = 0


NO_PREFIX = Prefix((), (), 0, (), 0)
