"""Field case of the list of models: each name that can be called once, and none that cannot."""

from __future__ import annotations

import json

from gateway.settings import ProbeSettings
from tests.emulator.running import until
from tests.running import running
from tests.system.test_models import CARD, serving

LORA = {
    "id": "tuned",
    "object": "model",
    "owned_by": "vllm",
    "root": "/adapters/tuned",
    "parent": "org/large",
}
ALIASES = {"fast": "org/large", "mine": "tuned", "lost": "gone"}
OFTEN = ProbeSettings(interval_seconds=0.05)


async def test_b161_the_list_holds_each_name_that_can_be_called_and_holds_it_once() -> None:
    gone_too = {"id": "only-there", "object": "model"}
    async with (
        serving(CARD) as one,
        serving(CARD, LORA) as two,
        serving(CARD, gone_too) as three,
        running(one, two, three, aliases=ALIASES, probes=OFTEN) as gateway,
    ):
        candidates = {"org/large", "tuned", "fast", "mine", "lost", "gone", "only-there", "tune"}

        async def check(expected: set[str]) -> None:
            listed = [card["id"] for card in json.loads((await gateway.get("/v1/models")).body)["data"]]
            assert len(listed) == len(set(listed))
            called = {name for name in candidates if (await gateway.post({"model": name})).status == 200}
            assert set(listed) == called == expected

        await check({"org/large", "tuned", "fast", "mine", "only-there"})
        await three.stop()
        await until(lambda: gateway.present() == [True, True, False])
        await check({"org/large", "tuned", "fast", "mine"})
        await two.stop()
        await until(lambda: gateway.present() == [True, False, False])
        await check({"org/large", "fast"})
