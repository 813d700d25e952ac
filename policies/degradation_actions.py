"""What a degradation rule does while it holds, and what several of them do together.

Decides the combination of all actions that are asked for at one time (`combined`), whatever their order and however often one is asked for:
- of the shares of a backend's window the smallest (not the product), and so of a pool's for batch requests; of the limits of requests per second and of an
  answer's length the smallest;
- of the lanes that are let in the most urgent bound;
- of all others the union.
Inputs: who is concerned by each action (`Asked`), for some actions are about backends or pools; `requests_per_second` is what `LimitRate` comes to, fixed when its rule
took hold. Units: shares 0..1, tokens, requests per second.
Emergencies are outside of all that is about requests.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from policies.terms import BackendId, Lane, PoolName

URGENCY = tuple(Lane)
MIN_PER_SECOND = 1.0
"""No limit is below: where next to nothing was served it would shut everybody out."""


@dataclass(frozen=True, slots=True)
class CloseColdPath:
    """Cold requests are refused, emergencies apart."""


@dataclass(frozen=True, slots=True)
class WindowShare:
    """So much of the window of each of the subject's backends is used."""

    share: float


@dataclass(frozen=True, slots=True)
class Serial:
    """Nothing is gathered in the subject's pools: each request goes as it comes."""


@dataclass(frozen=True, slots=True)
class HoldBackends:
    """The subject's backends get nothing new."""


@dataclass(frozen=True, slots=True)
class PreferFallback:
    """Pools tagged `fallback` come first for whoever may use them."""


@dataclass(frozen=True, slots=True)
class ActivateStandby:
    """Pools tagged `standby` are used."""


@dataclass(frozen=True, slots=True)
class LimitRate:
    """Requests are let in at this share of what was served per second when the rule took hold."""

    share: float


@dataclass(frozen=True, slots=True)
class ClampMaxTokens:
    """An answer in this lane ends at `tokens`; None is the 90th percentile of what was learnt of its business type."""

    lane: Lane
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class RefuseBelow:
    """Lanes less urgent than this one are refused."""

    lane: Lane


@dataclass(frozen=True, slots=True)
class NoRetries:
    """No second tries, but for the few that emergencies always have."""


@dataclass(frozen=True, slots=True)
class NoLending:
    """No slot of the emergency reserve is lent."""


@dataclass(frozen=True, slots=True)
class BatchShare:
    """Batch requests hold at most so much of the windows of each of the subject's pools together, but one slot always."""

    share: float


@dataclass(frozen=True, slots=True)
class BatchCold:
    """Batch requests that come are cold ones, whatever is known of their prompts or a client says."""


@dataclass(frozen=True, slots=True)
class NoOptionalWork:
    """No text is classified by what was learned from labelled lines; what headers, keys, models, paths and words tell stays."""


@dataclass(frozen=True, slots=True)
class ShedOverShare:
    """No burst is absorbed: at the first delay above the allowed one what is beyond what is served is refused, of the heaviest flows first (`policies.overload`)."""


Action = (
    CloseColdPath
    | WindowShare
    | Serial
    | HoldBackends
    | PreferFallback
    | ActivateStandby
    | LimitRate
    | ClampMaxTokens
    | RefuseBelow
    | NoRetries
    | NoLending
    | BatchShare
    | BatchCold
    | NoOptionalWork
    | ShedOverShare
)


class Asked(NamedTuple):
    """One action, and whom it is about."""

    action: Action
    backends: tuple[BackendId, ...] = ()
    pools: tuple[PoolName, ...] = ()
    requests_per_second: float = 0.0


@dataclass(frozen=True, slots=True)
class Effects:
    """All that holds now. What is a set of pairs is sorted, so that equal effects are equal records."""

    closes_cold_path: bool = False
    prefers_fallback: bool = False
    activates_standby: bool = False
    has_no_retries: bool = False
    has_no_lending: bool = False
    has_no_optional_work: bool = False
    batch_is_cold: bool = False
    sheds_over_share: bool = False
    refuses_below: Lane | None = None
    requests_per_second: float | None = None
    clamps: tuple[tuple[Lane, int | None], ...] = ()
    """Per lane the most tokens, and None beside or in place of them where the learnt length bounds as well."""
    serial_pools: frozenset[PoolName] = frozenset()
    held: frozenset[BackendId] = frozenset()
    window_shares: tuple[tuple[BackendId, float], ...] = ()
    batch_shares: tuple[tuple[PoolName, float], ...] = ()


NO_EFFECTS = Effects()


def combined(asked: Iterable[Asked]) -> Effects:
    flags: set[type[Action]] = set()
    shares: dict[BackendId, float] = {}
    batch_shares: dict[PoolName, float] = {}
    held: set[BackendId] = set()
    serial: set[PoolName] = set()
    clamps: set[tuple[Lane, int | None]] = set()
    lanes: list[Lane] = []
    rates: list[float] = []
    for action, backends, pools, requests_per_second in asked:
        if isinstance(action, WindowShare):
            for backend in backends:
                shares[backend] = min(shares.get(backend, 1.0), action.share)
        elif isinstance(action, BatchShare):
            for pool in pools:
                batch_shares[pool] = min(batch_shares.get(pool, 1.0), action.share)
        elif isinstance(action, HoldBackends):
            held.update(backends)
        elif isinstance(action, Serial):
            serial.update(pools)
        elif isinstance(action, LimitRate):
            rates.append(max(requests_per_second, MIN_PER_SECOND))
        elif isinstance(action, ClampMaxTokens):
            clamps.add((action.lane, action.tokens))
        elif isinstance(action, RefuseBelow):
            lanes.append(action.lane)
        else:
            flags.add(type(action))
    return Effects(
        closes_cold_path=CloseColdPath in flags,
        prefers_fallback=PreferFallback in flags,
        activates_standby=ActivateStandby in flags,
        has_no_retries=NoRetries in flags,
        has_no_lending=NoLending in flags,
        has_no_optional_work=NoOptionalWork in flags,
        batch_is_cold=BatchCold in flags,
        sheds_over_share=ShedOverShare in flags,
        refuses_below=min(lanes, key=URGENCY.index) if lanes else None,
        requests_per_second=min(rates) if rates else None,
        clamps=_clamps(clamps),
        serial_pools=frozenset(serial),
        held=frozenset(held),
        window_shares=tuple(sorted((id, share) for id, share in shares.items() if share < 1.0)),
        batch_shares=tuple(sorted((pool, share) for pool, share in batch_shares.items() if share < 1.0)),
    )


def refuses(effects: Effects, lane: Lane) -> bool:
    bound = effects.refuses_below
    return bound is not None and URGENCY.index(lane) > URGENCY.index(bound)


def wording(action: Action) -> str:
    """As the configuration writes it: what `action_of` reads."""
    for word, kind in _SHARES.items():
        if isinstance(action, kind):
            return f"{word} {action.share:g}"
    if isinstance(action, RefuseBelow):
        return f"refuse_below {action.lane}"
    if isinstance(action, ClampMaxTokens):
        return f"clamp_max_tokens {action.lane} {'p90' if action.tokens is None else action.tokens}"
    return next(word for word, plain in _PLAIN.items() if plain == action)


_PLAIN: dict[str, Action] = {
    "close_cold_path": CloseColdPath(),
    "serial": Serial(),
    "hold": HoldBackends(),
    "prefer_fallback": PreferFallback(),
    "activate_standby": ActivateStandby(),
    "no_retries": NoRetries(),
    "no_lending": NoLending(),
    "batch_cold": BatchCold(),
    "no_optional_work": NoOptionalWork(),
    "shed_over_share": ShedOverShare(),
}
_SHARES: dict[str, type[WindowShare] | type[LimitRate] | type[BatchShare]] = {
    "window_share": WindowShare,
    "limit_rate": LimitRate,
    "batch_share": BatchShare,
}


def action_of(text: str) -> Action:
    """`ValueError` says what is allowed."""
    name, *values = text.split() or [""]
    if name in _PLAIN:
        if values:
            raise ValueError(f"{name} takes no value")
        return _PLAIN[name]
    if name in _SHARES:
        return _SHARES[name](_share(name, values))
    if name == "refuse_below":
        if len(values) != 1 or values[0] not in _REFUSABLE:
            raise ValueError(f"refuse_below needs a lane; allowed: {', '.join(_REFUSABLE)}")
        return RefuseBelow(Lane(values[0]))
    if name == "clamp_max_tokens":
        return _clamp(values)
    raise ValueError(f"is not an action; allowed: {', '.join((*_PLAIN, *_WITH_VALUES))}")


def _share(name: str, values: list[str]) -> float:
    try:
        share = float(values[0]) if len(values) == 1 else 0.0
    except ValueError:
        share = 0.0
    if not 0.0 < share <= 1.0:
        raise ValueError(f"{name} needs a share above 0 and at most 1, such as {name} 0.5")
    return share


def _clamp(values: list[str]) -> ClampMaxTokens:
    lane, tokens = values if len(values) == 2 else ("", "")
    if lane not in (Lane.STANDARD, Lane.BATCH) or not (
        tokens == "p90" or (len(tokens) < 9 and tokens.isdecimal() and int(tokens) >= 1)
    ):
        raise ValueError(
            "clamp_max_tokens needs a lane (standard, batch) and tokens, such as: batch 256, or batch p90"
        )
    return ClampMaxTokens(Lane(lane), None if tokens == "p90" else int(tokens))


_WITH_VALUES = (*_SHARES, "refuse_below", "clamp_max_tokens")
_REFUSABLE = ("emergency", "interactive", "standard")


def _clamps(asked: set[tuple[Lane, int | None]]) -> tuple[tuple[Lane, int | None], ...]:
    """Of the numbers the smallest of each lane."""
    found: list[tuple[Lane, int | None]] = []
    for lane in URGENCY:
        numbers = [tokens for of, tokens in asked if of is lane and tokens is not None]
        if numbers:
            found.append((lane, min(numbers)))
        if (lane, None) in asked:
            found.append((lane, None))
    return tuple(found)
