"""The tests' own Redis-compatible server is a real one."""

from __future__ import annotations

import redis

from tests.redis_server import redis_server


def test_a_real_redis_compatible_server_is_at_hand() -> None:
    with redis_server() as url, redis.Redis.from_url(url) as client:
        assert client.rpush("turns", "a", "b") == 2
        assert client.eval("return redis.call('LLEN', KEYS[1])", 1, "turns") == 2
