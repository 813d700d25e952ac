"""The official client cannot tell the gateway from the engine: each case, asked directly and through it."""

from collections.abc import Callable

import openai
import pytest

from tests.engine.cases import Case
from tests.engine.engines import ENGINES, Engine
from tests.engine.questions import CASES, SGLANG_CASES, VLLM_CASES

pytestmark = [pytest.mark.engine, pytest.mark.timeout(120, func_only=True)]

Clients = Callable[[str], openai.AsyncOpenAI]


def each(cases: tuple[Case, ...]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in cases])


@each(CASES)
@pytest.mark.parametrize("engine", ENGINES, indirect=True)
async def test_an_answer_through_the_gateway_equals_the_engines_own(
    engine: Engine, gateway: str, case: Case, openai_client: Clients
) -> None:
    await _ask_both_ways(engine, gateway, case, openai_client)


@each(VLLM_CASES)
@pytest.mark.parametrize("engine", ["vllm"], indirect=True)
async def test_an_answer_through_the_gateway_equals_vllms_own(
    engine: Engine, gateway: str, case: Case, openai_client: Clients
) -> None:
    await _ask_both_ways(engine, gateway, case, openai_client)


@each(SGLANG_CASES)
@pytest.mark.parametrize("engine", ["sglang"], indirect=True)
async def test_an_answer_through_the_gateway_equals_sglangs_own(
    engine: Engine, gateway: str, case: Case, openai_client: Clients
) -> None:
    await _ask_both_ways(engine, gateway, case, openai_client)


async def _ask_both_ways(engine: Engine, gateway: str, case: Case, openai_client: Clients) -> None:
    direct = openai_client(engine.url)
    # Asked once before, so that the prompt's prefix is in the engine's cache for both of those compared:
    # `cached_tokens` is part of the answer, and a cached prefix may move the last digits of logprobs.
    await case.ask(direct)
    expected = await case.ask(direct)

    answer = await case.ask(openai_client(gateway))

    assert expected.status == case.status
    if case.answered_by_gateway:
        assert answer.without_wording() == expected.without_wording()
    else:
        assert answer == expected
