"""Which backend of a group gets a request: the one whose cache holds the most of its prompt, as long as that one has no more than its share of the load.

Decides, among backends that may be used and have a free slot (`choose`):
1. its session's, while within `LEAVE_FACTOR` times the load bound; a session that leaves goes on where it went;
2. the one that holds the longest known beginning of its prompt and is within the bound (`policies.load_bound`); of several the emptiest. A popular beginning
   whose backends are all at the bound so gets one backend more. What is worth less than `MIN_GAIN_TOKENS` is not looked for;
3. the first two in rendezvous order of its session, its hot beginning, or else its first `KEY_CHARS`, if within the bound: what other gateways would choose;
4. None: then the least loaded of all (`policies.least_time`), which a power of two choices only approximates.
State: what was sent where (`routing.affinity_table`, `routing.session_homes`), how often prefixes come (`routing.frequency_sketch`), and how far the
engines' own counts bear the guesses out (`policies.cache_trust`), which weakens 2 by itself. Own in-flight counts decide; what engines report of their load
moves the windows, and with them each one's share.
Settings: `AffinityRules`. Bounds: those of the parts; all follow from `max_prefixes`.
Limit: sent is not computed: two requests with a new prefix that come together both count as known from the second on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from policies.cache_key import CacheKey
from policies.cache_lifetime import LifetimeRules
from policies.dialects import EngineReport
from policies.heat import HeatRules, counted, is_hot, is_hot_request
from policies.load_bound import LEAVE_FACTOR, narrowed, within_bound
from policies.path_split import PathRules
from policies.terms import Tag
from routing.affinity_table import AffinityTable
from routing.decision import Lease
from routing.fleet import Backend, Fleet
from routing.frequency_sketch import FrequencySketch
from routing.group import Group
from routing.homes import Homes
from routing.path_shares import PathShares
from routing.session_homes import SessionHomes

MIN_GAIN_TOKENS = 32.0
KEY_CHARS = 1024
_COUNTERS_PER_PREFIX = 4
_SESSIONS_SHARE = 8
_UNUSED = 64


@dataclass(frozen=True, slots=True)
class AffinityRules:
    enabled: bool = True
    max_prefixes: int = 131_072
    load_bound: float = 1.25
    heat: HeatRules = field(default_factory=HeatRules)
    lifetime: LifetimeRules = field(default_factory=LifetimeRules)
    paths: PathRules = field(default_factory=PathRules)


class Placement:
    def __init__(self, rules: AffinityRules) -> None:
        self.homes = Homes()
        self.paths = PathShares(rules.paths)
        self.rules = rules
        self.by: dict[str, int] = dict.fromkeys(("session", "prefix", "rendezvous", "load"), 0)
        """Requests by what placed them."""
        self._remember(_UNUSED)

    def _remember(self, max_prefixes: int) -> None:
        """Anew, and nothing of what was."""
        rules = self.rules
        self._max_prefixes = max_prefixes
        self.table = AffinityTable(max_prefixes, self.paths.shares()[0])
        self.sessions = SessionHomes(max(1, max_prefixes // _SESSIONS_SHARE), rules.lifetime)
        width = 1 << (_COUNTERS_PER_PREFIX * max_prefixes - 1).bit_length()
        self.sketch = FrequencySketch(width, rules.heat.window_seconds)

    def configure(self, rules: AffinityRules, fleet: Fleet) -> None:
        """What was learnt stays unless its size changes."""
        self.rules = rules
        self.sketch.window_seconds = rules.heat.window_seconds
        self.sessions.configure(rules.lifetime)
        self.paths.configure(rules.paths)
        self.homes.keep_only(fleet)

    # --- heat -----------------------------------------------------------------------------------------------------------------

    def heat(self, key: CacheKey, now: float) -> tuple[bool, int]:
        """Whether a request that has just come is hot, and how many of its prefixes are. Counts it."""
        (hashes, depths, chars), session = key
        rules = self.rules.heat
        if (
            self._max_prefixes != self.rules.max_prefixes
        ):  # not before the first that has a key: a fleet without prompts needs none of it
            self._remember(self.rules.max_prefixes)
        sketch, table = self.sketch, self.table
        indices = counted(depths)
        seen = [hashes[index] for index in indices]
        if session:
            seen.append(session)
        sketch.count(seen, now)
        hot = hot_depth = 0
        for index in reversed(indices):
            fingerprint = hashes[index]
            frequency = sketch.seen(fingerprint, now)
            if is_hot(frequency, frequency < rules.min_hits and table.is_hot(fingerprint, now), rules):
                hot, hot_depth = index + 1, depths[index]
                break
        if session and is_hot(sketch.seen(session, now), False, rules):
            return True, len(hashes)
        return is_hot_request(hot_depth, chars), hot

    # --- one request ----------------------------------------------------------------------------------------------------------

    def choose(
        self, group: Group, key: CacheKey, tag: Tag, tried: Sequence[Backend], now: float
    ) -> Backend | None:
        (hashes, depths, chars), session = key
        bound, per_slot = self.rules.load_bound, group.load_per_slot()
        if session:
            number = self.sessions.home(session, now)
            home = self.homes.get(number) if number else None
            if home is not None and self._may(home.backend, group, tried, per_slot, LEAVE_FACTOR * bound):
                self.by["session"] += 1
                return home.backend
        homes, home_of = self.table.homes, self.homes.get
        for index in range(len(hashes) - 1, -1, -1):
            numbers = homes(hashes[index], now)
            if not numbers:
                continue
            best: Backend | None = None
            worth = depths[index] / chars * tag.prompt_tokens
            if worth < MIN_GAIN_TOKENS:
                break
            for number in numbers:
                home = home_of(number)
                if (
                    home is not None
                    and worth * home.trust >= MIN_GAIN_TOKENS
                    and self._may(home.backend, group, tried, per_slot, narrowed(bound, home.trust))
                    and (best is None or home.backend.in_flight < best.in_flight)
                ):
                    best = home.backend
            if best is not None:
                self.by["prefix"] += 1
                return best
        if session:
            preferred = session
        elif tag.hot_prefixes:
            preferred = hashes[tag.hot_prefixes - 1]
        elif hashes:
            preferred = hashes[_first_above(depths)]
        else:
            return None
        for backend in group.rendezvous.order(preferred):
            if self._may(backend, group, tried, per_slot, bound):
                self.by["rendezvous"] += 1
                return backend
        self.by["load"] += 1
        return None

    def sent(self, lease: Lease, key: CacheKey, now: float) -> None:
        """It goes to its backend: that one will hold its prompt, and held a part of it already."""
        home = self.homes.of(lease.backend)
        (hashes, depths, chars), session = key
        if session:
            self.sessions.sent(session, home.number, now)
        if hashes:
            self.table.hot.lifetime_seconds = self.sessions.lifetime_seconds
            known = self.table.sent(hashes, lease.tag.hot_prefixes, home.number, now)
            lease.known_depth = depths[known - 1] if known else 0
            lease.cached_tokens = lease.known_depth / chars * lease.tag.prompt_tokens
            home.sent(lease.cached_tokens, lease.tag.prompt_tokens)

    def ended(self, lease: Lease, cached_tokens: int) -> None:
        """Well, and its engine said how much of its prompt it had cached, or said nothing, which is 0."""
        if lease.known_depth:
            self.homes.of(lease.backend).told(lease.cached_tokens, cached_tokens)

    def reported(self, backend: Backend, before: EngineReport | None, after: EngineReport) -> None:
        self.homes.of(backend).counted(before, after)

    @staticmethod
    def _may(backend: Backend, group: Group, tried: Sequence[Backend], per_slot: float, bound: float) -> bool:
        in_flight, window = backend.in_flight, backend.window
        return (
            not backend.is_blocked
            and (window is None or in_flight < window)
            and within_bound(in_flight, group.fair_share(backend, per_slot), bound)
            and backend not in tried
            and backend in group
        )


def _first_above(depths: Sequence[int]) -> int:
    """The first boundary at `KEY_CHARS` or deeper, else the deepest."""
    for index, depth in enumerate(depths):
        if depth >= KEY_CHARS:
            return index
    return len(depths) - 1
