"""Who stands in front of the fleet: Headrace, and the routers of vLLM and SGLang with each of three policies, everything else at their defaults."""

from __future__ import annotations

from dataclasses import replace

from tests.bench.cache.configuration import configuration
from tests.bench.slo import contenders as known
from tests.bench.slo.requests import Tags

SUBJECT = "headrace"
ROUTERS = ("smg", "vllm-router")
ROUND_ROBIN = tuple(f"{router}-round-robin" for router in ROUTERS)
POWER_OF_TWO = tuple(f"{router}-power-of-two" for router in ROUTERS)
CACHE_AWARE = tuple(f"{router}-cache-aware" for router in ROUTERS)

CONTENDERS = {
    contender.name: contender
    for contender in (
        known.headrace(SUBJECT, Tags.NONE, configuration),
        *(known.CONTENDERS[name] for name in ROUND_ROBIN),
        *(replace(known.CONTENDERS[router], name=f"{router}-power-of-two") for router in ROUTERS),
        *(known.CONTENDERS[name] for name in CACHE_AWARE),
    )
}
