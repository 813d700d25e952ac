"""Every request that was recorded of an engine, asked of it again, directly and through the gateway: a client must not be able to tell the two
apart, but where the gateway answers itself as it promises (`tests.own_answers`).

The status that the engine is known for is held as well, so that two equal failures prove nothing. `test_variants` has the
requests that need a vLLM with other flags.
"""

import json
from collections.abc import Iterable

import pytest

from tests import captures
from tests.captures import Capture
from tests.engine.answers import masked
from tests.engine.engines import Engine
from tests.engine.gateways import configured_gateway
from tests.engine.replays import replay, same_both_ways
from tests.own_answers import LONG_HEADERS, MODELS, OWN_ANSWERS, TOO_LARGE

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300, func_only=True)]

VLLM, SGLANG = ([one for one in captures.load(name) if not one.is_variant] for name in captures.ENGINES)


def each(wanted: Iterable[Capture]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("capture", [pytest.param(one, id=one.name) for one in wanted])


def passed(engine: list[Capture]) -> pytest.MarkDecorator:
    return each(one for one in engine if one.name not in OWN_ANSWERS)


def own(engine: list[Capture]) -> pytest.MarkDecorator:
    return each(one for one in engine if one.name in OWN_ANSWERS)


@passed(VLLM)
@pytest.mark.parametrize("engine", ["vllm"], indirect=True)
async def test_what_vllm_answers_comes_through_the_gateway(
    engine: Engine, gateway: str, capture: Capture
) -> None:
    await same_both_ways(engine.url, gateway, capture)


@passed(SGLANG)
@pytest.mark.parametrize("engine", ["sglang"], indirect=True)
async def test_what_sglang_answers_comes_through_the_gateway(
    engine: Engine, gateway: str, capture: Capture
) -> None:
    await same_both_ways(engine.url, gateway, capture)


@own(VLLM)
@pytest.mark.parametrize("engine", ["vllm"], indirect=True)
async def test_what_the_gateway_answers_itself_before_vllm_is_as_promised(
    engine: Engine, gateway: str, capture: Capture
) -> None:
    await _as_promised(engine, gateway, capture)


@own(SGLANG)
@pytest.mark.parametrize("engine", ["sglang"], indirect=True)
async def test_what_the_gateway_answers_itself_before_sglang_is_as_promised(
    engine: Engine, gateway: str, capture: Capture
) -> None:
    await _as_promised(engine, gateway, capture)


async def _as_promised(engine: Engine, gateway: str, capture: Capture) -> None:
    promise = OWN_ANSWERS[capture.name]
    # SGLang thinks about 32 MiB for 50 s before it refuses them, and takes or refuses long headers by how many reads they come in.
    if engine.name == "vllm" or promise not in (TOO_LARGE, LONG_HEADERS):
        assert (await replay(engine.url, capture)).status == capture.status
    answer = await replay(gateway, capture)
    promise.holds_for(answer)
    if promise is MODELS:
        listing = next(one for one in VLLM if one.name == "get-v1-models")
        cards = masked(json.loads((await replay(engine.url, listing)).body))
        # vLLM does not serve one model's card; the gateway does, for any engine.
        expected = cards["data"][0] if capture.name == "get-v1-models-one" else cards
        assert masked(json.loads(answer.body)) == expected


@each(one for one in VLLM if OWN_ANSWERS.get(one.name) is TOO_LARGE)
@pytest.mark.parametrize("engine", ["vllm"], indirect=True)
async def test_a_body_of_32_mib_reaches_vllm_where_the_limit_allows_it(
    engine: Engine, capture: Capture, tmp_path_factory: pytest.TempPathFactory
) -> None:
    settings = {
        "server": {"max_body_mb": 64},
        "pools": [{"name": "main", "backends": [{"url": engine.url}]}],
    }
    log = tmp_path_factory.mktemp("gateway") / "large.log"
    with configured_gateway(json.dumps(settings), log) as gateway:
        await same_both_ways(engine.url, gateway, capture)
