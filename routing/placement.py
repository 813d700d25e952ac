"""Which backend of a group gets a request: the one whose cache holds the most of its prompt, as far as load and the line of prompts there allow.

Decides, among backends that may be used and have a free slot (`choose`), the first of these that is within the load bound (`policies.load_bound`) and has no longer line
of prompts to compute than is worth it (`policies.prefill_patience`):
1. its session's; a session that leaves goes on where it went;
2. the one that holds the longest known beginning of its prompt; of several the one with the fewest prompt tokens ahead. A popular beginning whose backends are all
   at the bound so gets one backend more. What is worth less than `MIN_GAIN_TOKENS` is not looked for;
3. the first two in rendezvous order of its session, its hot beginning, or else its first `KEY_CHARS`: what other gateways would choose;
4. the one with the fewest prompt tokens ahead, of several the least loaded. Of a group above `MAX_SCANNED` the least loaded and those of 3 are looked at.
State: what was sent where (`routing.affinity_table`, `routing.session_homes`, `routing.homes`) and how often prefixes come (`routing.frequency_sketch`). Own counts
decide; what engines report of their load moves the windows, and with them each one's share, or, where no window moves, corrects the own counts by what others run there
(twice in a row, so that one late report does not send everybody elsewhere); what they report of their caches says how much those hold and
how far the guesses are borne out, which weakens 1 and 2 by itself.
Settings: `AffinityRules`. Bounds: those of the parts; all follow from `max_prefixes`.
Limits: sent is not computed: two requests with a new prefix that come together both count as known from the second on. Prompts of answers that are not streamed are in no
line, for nothing shows when they are computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from policies.cache_key import CacheKey
from policies.cache_lifetime import LifetimeRules
from policies.dialects import EngineReport
from policies.heat import HeatRules, counted, is_hot, is_hot_request
from policies.load_bound import LEAVE_FACTOR, most_in_flight
from policies.path_split import PathRules
from policies.prefill_patience import is_worth
from policies.terms import Tag
from routing.affinity_table import AffinityTable
from routing.backend import Backend
from routing.decision import Lease
from routing.fleet import Fleet
from routing.frequency_sketch import FrequencySketch
from routing.group import Group
from routing.homes import Homes
from routing.path_shares import PathShares
from routing.session_homes import SessionHomes

MIN_GAIN_TOKENS = 32.0
KEY_CHARS = 1024
MAX_SCANNED = 16
_COUNTERS_PER_PREFIX = 4
_SESSIONS_SHARE = 8
_UNUSED = 64
SHARE_SECONDS = 10.0
"""How often the table's parts are shared out anew by the traffic: the entries follow a little with each request."""


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
        """Anew, and nothing of what was. Not before the first request that has a key: a fleet without prompts needs none of it."""
        rules = self.rules
        self._max_prefixes = max_prefixes
        self._share_at = 0.0
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
        (hashes, depths, chars, _, _), session = key
        rules = self.rules.heat
        if self._max_prefixes != self.rules.max_prefixes:
            self._remember(self.rules.max_prefixes)
        sketch, table = self.sketch, self.table
        if now >= self._share_at:
            self._share_at = now + SHARE_SECONDS
            table.share_out(self.paths.shares()[0])
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
        if session:
            seen_now, sessions = sketch.seen(session, now), self.sessions
            is_busy = is_hot(seen_now, seen_now < rules.min_hits and sessions.was_hot(session), rules)
            sessions.mark(session, is_busy)
            if is_busy:
                return True, len(hashes)
        return is_hot_request(hot_depth, chars), hot

    # --- one request ----------------------------------------------------------------------------------------------------------

    def choose(
        self, group: Group, key: CacheKey, tag: Tag, tried: Sequence[Backend], now: float
    ) -> Backend | None:
        """None where no backend has a free slot."""
        bound, per_slot = self.rules.load_bound, group.load_per_slot()
        least = self._least_ahead(group, key, tag, tried, bound, per_slot)
        if least is None:
            return None
        (hashes, _, _, sizes, size), session = key
        ahead = least.prefilling
        tokens_per_byte = tag.prompt_tokens / size if size else 0.0
        get = self.homes.get

        def may(backend: Backend, bound: float, trust: float, spared: float) -> bool:
            in_flight, window = backend.in_flight, backend.window
            return (
                not backend.is_blocked
                and (window is None or in_flight < window)
                and in_flight + backend.foreign
                <= most_in_flight(group.fair_share(backend, per_slot), bound, trust)
                and is_worth(backend.prefilling, ahead, trust * spared)
                and backend not in tried
                and backend in group
            )

        if session and (home := get(self.sessions.home(session, now))) is not None:
            known = self.table.known(hashes, home, now)
            spared = tokens_per_byte * sizes[known - 1] if known else 0.0
            if may(home.backend, LEAVE_FACTOR * bound, home.trust, spared):
                self.by["session"] += 1
                return home.backend
        best: Backend | None = None
        for index in range(len(hashes) - 1, -1, -1):
            spared = tokens_per_byte * sizes[index]
            if spared < MIN_GAIN_TOKENS:
                break
            for number, written in self.table.homes(hashes[index], now):
                home = get(number)
                if (
                    home is not None
                    and home.holds(written)
                    and home.trust * spared >= MIN_GAIN_TOKENS
                    and may(home.backend, bound, home.trust, spared)
                    and (best is None or home.backend.prefilling < best.prefilling)
                ):
                    best = home.backend
            if best is not None:
                self.by["prefix"] += 1
                return best
        if session or hashes:
            for backend in group.rendezvous.order(_preferred(key, tag)):
                if may(backend, bound, 1.0, 0.0):
                    self.by["rendezvous"] += 1
                    return backend
        self.by["load"] += 1
        return least

    def sent(self, lease: Lease, now: float) -> None:
        """It goes to its backend: that one will hold its prompt, and held a part of it already."""
        tag = lease.tag
        key = tag.key
        if key is None:  # it was not looked into, and pushes out as much as any other
            if (written := self.homes.known(lease.backend)) is not None:
                written.wrote(tag.prompt_tokens + tag.output_tokens)
            return
        home = self.homes.of(lease.backend)
        (hashes, depths, _, sizes, size), session = key
        if session:
            self.sessions.sent(session, home.number, now, is_moved=lease.attempts > 1)
        prompt = tag.prompt_tokens
        if hashes:
            table = self.table
            table.hot.lifetime_seconds = self.sessions.lifetime_seconds
            known = table.known(hashes, home, now)
            if known:
                lease.known_depth, lease.cached_tokens = depths[known - 1], sizes[known - 1] / size * prompt
            else:  # it may have had a part of it elsewhere, before it was moved
                lease.known_depth, lease.cached_tokens = 0, 0.0
            home.sent(lease.cached_tokens, prompt, tag.output_tokens)
            table.sent(hashes, tag.hot_prefixes, home, now)
        if tag.streamed:
            lease.prefilling = int(prompt - home.trust * lease.cached_tokens)
            lease.backend.prefilling += lease.prefilling

    def learn(self, session: int, backend: Backend, fingerprint: int, now: float) -> None:
        """Another gateway sent this session to `backend`, where its prompt was as long as the boundary of that fingerprint (0: not told)."""
        if self._max_prefixes != self.rules.max_prefixes:
            self._remember(self.rules.max_prefixes)
        home = self.homes.of(backend)
        self.sessions.learnt(session, home.number, now)
        if fingerprint:
            self.table.sent((fingerprint,), 0, home, now)

    def ended(self, lease: Lease, cached_tokens: int) -> None:
        """Well, and its engine said how much of its prompt it had cached, or said nothing, which is 0."""
        home = self.homes.known(lease.backend) if lease.known_depth else None
        if home is not None:
            home.told(lease.cached_tokens, cached_tokens)

    def reported(self, backend: Backend, before: EngineReport | None, after: EngineReport) -> None:
        self.homes.of(backend).counted(before, after)

    def _least_ahead(
        self,
        group: Group,
        key: CacheKey,
        tag: Tag,
        tried: Sequence[Backend],
        bound: float,
        per_slot: float,
    ) -> Backend | None:
        """Of those with a free slot and within the bound the one with the fewest prompt tokens ahead; of several, or where none is within it, the least loaded."""
        best = group.best(tried)
        if best is None or not best.prefilling:
            return best
        others = group.members
        if len(others) > MAX_SCANNED:
            others = group.rendezvous.order(_preferred(key, tag))
        for backend in others:
            if (
                (backend.prefilling, backend.in_flight) < (best.prefilling, best.in_flight)
                and not backend.is_blocked
                and (backend.window is None or backend.in_flight < backend.window)
                and backend not in tried
                and backend.in_flight + backend.foreign
                <= most_in_flight(group.fair_share(backend, per_slot), bound)
            ):
                best = backend
        return best


def _preferred(key: CacheKey, tag: Tag) -> int:
    """By what the rendezvous order is made."""
    (hashes, depths, _, _, _), session = key
    if session or not hashes:
        return session
    if tag.hot_prefixes:
        return hashes[tag.hot_prefixes - 1]
    for fingerprint, depth in zip(hashes, depths, strict=True):
        if depth >= KEY_CHARS:
            return fingerprint
    return hashes[-1]
