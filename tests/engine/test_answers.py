"""The official client cannot tell the gateway from the engine: each case, asked directly and through it."""

from collections.abc import Callable

import openai
import pytest

from tests.engine.cases import Case
from tests.engine.engines import ENGINES, Engine
from tests.engine.questions import CASES

pytestmark = [pytest.mark.engine, pytest.mark.timeout(120, func_only=True)]

EACH_CASE = [
    pytest.param(name, case, id=f"{name}-{case.name}")
    for name in ENGINES
    for case in CASES
    if name in case.engines
]


@pytest.mark.parametrize(("engine", "case"), EACH_CASE, indirect=["engine"])
async def test_an_answer_through_the_gateway_equals_the_engines_own(
    engine: Engine, gateway: str, case: Case, openai_client: Callable[[str], openai.AsyncOpenAI]
) -> None:
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
