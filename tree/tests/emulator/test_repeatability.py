"""Equal seeds and equal requests give equal runs, in every process."""

from __future__ import annotations

import subprocess
import sys

from gateway.emulator.settings import EngineSettings
from gateway.emulator.vocabulary import Vocabulary
from tests.emulator.running import chat, decoded, engine


async def conversation(seed: int) -> list[tuple[str, str, dict[str, int]]]:
    async with engine(EngineSettings(time_scale=0, seed=seed)) as server:
        answers = [decoded(await chat(server, f"question {number % 3} of many")) for number in range(6)]
    return [(one["id"], one["choices"][0]["message"]["content"], one["usage"]) for one in answers]


async def test_a_run_repeats_in_ids_texts_and_usage_and_another_seed_changes_it() -> None:
    first, again, other = await conversation(7), await conversation(7), await conversation(8)
    assert first == again
    assert [text for _, text, _ in first] != [text for _, text, _ in other]
    assert not {name for name, _, _ in first} & {name for name, _, _ in other}


async def test_equal_questions_get_equal_texts_under_different_ids() -> None:
    run = await conversation(7)
    assert run[0][1] == run[3][1]
    assert len({name for name, _, _ in run}) == len(run)


def test_texts_do_not_depend_on_the_processs_hash_seed() -> None:
    script = (
        "from gateway.emulator.tokens import read_text\n"
        "from gateway.emulator.vocabulary import Vocabulary\n"
        "print(b''.join(Vocabulary(3).words(read_text('水利 question').fingerprint, 9)).hex())\n"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1


def test_an_answer_longer_than_the_ring_goes_round() -> None:
    words = Vocabulary(0).words(4000, 10_000)
    assert len(words) == 10_000
    assert words[96] == words[96 + 4096]
