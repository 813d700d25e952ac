"""How much there is to remember: the working set of a schedule in blocks of the engines' KV cache, and what could be had from a cache without bounds.

The working set of a time are the distinct blocks that its calls hold and that the load, what came before that time included, asks for more than once:
shared system prompts and documents, and what sessions have said, as far as they do come again. Blocks that come once are no part of it: what is seen
once is not worth keeping. Equal blocks are equal prefixes, as in the engines (`gateway.emulator.tokens`).

Limit: what would have come again only after the schedule's end is not counted, so a longer time has a larger working set.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gateway.emulator import chat_template
from gateway.emulator.tokens import BLOCK_TOKENS, Prompt, read_text
from tests.bench.cache.requests import Requests
from tests.bench.cache.schedule import Call


@dataclass(frozen=True, slots=True)
class WorkingSet:
    blocks: int
    repeated_share: float
    """Prompt tokens that a single cache without bounds would find, of all prompt tokens."""
    mean_prompt_tokens: float


def working_set(schedule: Sequence[Call], seed: int, begin: float, end: float) -> WorkingSet:
    """Over the seconds `begin` to `end` of the schedule."""
    requests = Requests(0, seed)
    return of_prompts([(call.due, read_prompt(requests.make(call))) for call in schedule], begin, end)


def of_prompts(prompts: Iterable[tuple[float, Prompt]], begin: float, end: float) -> WorkingSet:
    """In the order of their time."""
    uses: Counter[int] = Counter()
    held: set[int] = set()
    asked = found = calls = 0
    for due, prompt in prompts:
        hashes = prompt.block_hashes
        if begin <= due < end:
            held.update(hashes)
            calls += 1
            asked += prompt.tokens
            # As in the engine: the last token is always computed.
            hits = min(sum(block in uses for block in hashes), (prompt.tokens - 1) // BLOCK_TOKENS)
            found += hits * BLOCK_TOKENS
        uses.update(hashes)
    repeated = sum(uses[block] > 1 for block in held)
    return WorkingSet(repeated, found / max(asked, 1), asked / max(calls, 1))


def read_prompt(request: bytes) -> Prompt:
    body = json.loads(request.partition(b"\r\n\r\n")[2])
    return read_text(chat_template.render(body["messages"], []))
