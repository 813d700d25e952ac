"""How much of what the gateway thinks an engine has in its prefix cache the engine really finds there.

Decides: `trust`, 0 to 1, by which a prediction of cached tokens for one backend is multiplied. It is a ratio of sums over samples, decayed:
    predicted := predicted * d + w;   found := found * d + w * share;   d = 2**(-w / HALF_LIFE_TOKENS);   trust = found / predicted
    w      the predicted tokens of the sample, at most `MOST_TOKENS` of what was told: no single prompt moves the trust by more than a tenth
    share  the part of them that was found, at most 1: what was found beyond a sample's predictions makes up for nothing missed in another one
It decays by predicted tokens and not by time: a cache forgets by what passes through it, and a backend that gets few requests is not known worse
for that. It is 1 until `predicted` has reached `ENOUGH_TOKENS`, which takes 13 prompts at the least, and so never divides by less.
Predictions go in as they were before they were multiplied. So an engine whose cache is too small for what is sent to it sinks to the share that it
keeps, also to 0, and comes back when it keeps more: nine tenths of a step are made up in 3.3 half-lives.
Samples, the better source first:
    `told`     one request or a few together, where `usage` has `cached_tokens`. It is 0 also where the engine does not tell it, so 0 counts only
               from an engine that is known to tell (`always`, SGLang's flag) or once has told more.
    `counted`  else the engine's counters between two reports against what was `sent` in the same time: its hit share h / q against the predicted
               share p / a, gathered until both q and a are `GATHERED_TOKENS`, weighed with p / a * min(a, q).
               Shares do not care for the gateway's unit of tokens, nor for what other gateways send as long as it is found like ours.
Inputs: tokens >= 0; counters as `policies.dialects.EngineReport` has them.
Limits: counters, and requests told together, are sums: there a prompt that was found without a prediction makes up for another that was not
found. What was sent and is not yet looked up is off by the engine's queue. An engine that tells neither (SGLang without `--enable-cache-report`,
read from `/v1/loads`) keeps 1: its `prefilled_tokens` hold every gateway's prompts, and without the number of these they say nothing of ours. If
all backends of a pool are trusted little, prompts are spread by load, each engine sees every prefix, and small caches find little: it is the truth
then, but no longer the best that could be had; entries that the engine cannot hold any more should not be predicted in the first place.
"""

from __future__ import annotations

from typing import NamedTuple

from policies.dialects import EngineReport

HALF_LIFE_TOKENS = 100_000.0
ENOUGH_TOKENS = 50_000.0
MOST_TOKENS = 5_000.0
GATHERED_TOKENS = 10_000.0


class Gathered(NamedTuple):
    """Toward a sample from counters: what the gateway sent and predicted, what the engine looked up and found."""

    predicted: float = 0.0
    asked: float = 0.0
    hits: float = 0.0
    queries: float = 0.0


NOTHING_GATHERED = Gathered()


class CacheTrust(NamedTuple):
    predicted: float = 0.0
    found: float = 0.0
    tells: bool = False
    """`usage` has told of cached tokens."""
    gathered: Gathered = NOTHING_GATHERED


FULL_TRUST = CacheTrust()


def hit_share(before: EngineReport | None, after: EngineReport) -> float | None:
    """Of the prompt tokens that an engine looked up between two reports, those that it found; None where it did not say, or looked up none."""
    hits, queries = _rise(before, after, "prefix_hits"), _rise(before, after, "prefix_queries")
    return hits / queries if hits is not None and queries and hits <= queries else None


def trust_in(known: CacheTrust) -> float:
    if known.predicted < ENOUGH_TOKENS:
        return 1.0
    return known.found / known.predicted


def sent(known: CacheTrust, predicted_tokens: float, prompt_tokens: float) -> CacheTrust:
    """A request was given to the engine."""
    if known.tells:
        return known
    predicted, asked, hits, queries = known.gathered
    gathered = Gathered(
        predicted + min(predicted_tokens, prompt_tokens), asked + prompt_tokens, hits, queries
    )
    return known._replace(gathered=gathered)


def told(known: CacheTrust, predicted_tokens: float, cached_tokens: float, always: bool) -> CacheTrust:
    """Requests ended, and `usage` came with them. `always`: this engine tells cached tokens also where there are none."""
    if cached_tokens > 0 or always:
        known = known._replace(tells=True, gathered=NOTHING_GATHERED)
    elif not known.tells:
        return known
    return _with_sample(known, predicted_tokens, cached_tokens, MOST_TOKENS)


def counted(known: CacheTrust, before: EngineReport | None, after: EngineReport) -> CacheTrust:
    """Two reports, one after the other."""
    if known.tells or known.gathered == NOTHING_GATHERED:
        return known
    hits, queries = _rise(before, after, "prefix_hits"), _rise(before, after, "prefix_queries")
    if hits is None or queries is None:
        return known._replace(gathered=NOTHING_GATHERED)
    gathered = known.gathered
    gathered = gathered._replace(hits=gathered.hits + hits, queries=gathered.queries + queries)
    both = min(gathered.asked, gathered.queries)
    if both < GATHERED_TOKENS:
        return known._replace(gathered=gathered)
    predicted, found = both * (gathered.predicted / gathered.asked), both * (gathered.hits / gathered.queries)
    return _with_sample(known._replace(gathered=NOTHING_GATHERED), predicted, found, HALF_LIFE_TOKENS)


def restarted(known: CacheTrust) -> CacheTrust:
    """The engine did: what it keeps will show again, what it tells may be another thing."""
    return known._replace(tells=False, gathered=NOTHING_GATHERED)


def _with_sample(known: CacheTrust, predicted: float, found: float, most: float) -> CacheTrust:
    if predicted <= 0:
        return known
    weight = min(predicted, most)
    share = min(found / predicted, 1.0)
    decay = 2.0 ** (-weight / HALF_LIFE_TOKENS)
    return known._replace(
        predicted=known.predicted * decay + weight, found=known.found * decay + weight * share
    )


def _rise(before: EngineReport | None, after: EngineReport, counter: str) -> int | None:
    """None where it is unknown, or fell: the engine has restarted."""
    known: int | None = None if before is None else getattr(before, counter)
    count: int | None = getattr(after, counter)
    return None if known is None or count is None or count < known else count - known
