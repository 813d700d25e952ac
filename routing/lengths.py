"""What was learnt about lengths, per model and business type, and the estimate for a request that arrives.

Keeps per model a prompt correction and output histograms, one per business type and one for all; and one histogram over everything.
An output estimate comes from the first of these that has seen enough: business type and model, model, everything; else it is the start value.
Events: a request arrives (reads only), an engine reported usage (learns).
Bounds: `MODELS` models and `BUSINESS_TYPES` of each, the one that learnt longest ago leaves first. A name costs memory only once an engine
has answered for it.
Cost: past a model's first 400 samples a business type learns from one answer in eight (at irregular gaps, so that no pattern of arrivals
hides a part of them), and answers enter a histogram a sixteenth of its samples at a time, so what is expected lags by that much.
"""

from __future__ import annotations

from typing import NamedTuple

from policies.lengths import UNCORRECTED, Correction, LengthRules, Prices, TextSize, corrected, priced, prices
from policies.outputs import EMPTY, Histogram, OutputRules, expected_beyond, mean, observed, quantile

MODELS = 256
BUSINESS_TYPES = 64
_ALL_BELOW = 400
_THEN_SKIPPED = 15
"""At most one less between two; seven on average."""
_GOLDEN = 0.618033988749895
_FRESH_SHARE = 1 / 16
_LIMITS_REMEMBERED = 16


class Estimate(NamedTuple):
    prompt_tokens: float
    output_mean: float
    output_p90: float


class _Outputs:
    """A histogram and what was lately computed from it, by `max_tokens`."""

    __slots__ = ("_computed", "_fresh", "_room", "_rules", "histogram", "is_enough", "skip")

    def __init__(self, rules: OutputRules) -> None:
        self._rules = rules
        self.histogram: Histogram = EMPTY
        self.is_enough = False
        self.skip = 0
        """So many answers are not looked at."""
        self._fresh: list[int] = []
        """Answers that are not in the histogram yet."""
        self._room = 1.0
        self._computed: dict[int | None, tuple[float, float]] = {}

    def expected(self, max_tokens: int | None) -> tuple[float, float]:
        """Mean and 90th percentile."""
        found = self._computed.get(max_tokens)
        if found is None:
            histogram, rules = self.histogram, self._rules
            found = mean(histogram, max_tokens, rules), quantile(histogram, 0.9, max_tokens, rules)
            if len(self._computed) >= _LIMITS_REMEMBERED:
                self._computed.clear()
            self._computed[max_tokens] = found
        return found

    def learned(self, output_tokens: int) -> None:
        self._fresh.append(output_tokens)
        if len(self._fresh) >= self._room:
            self.histogram = observed(self.histogram, self._fresh, self._rules)
            self._fresh.clear()
            self._computed.clear()
            samples = self.histogram.samples
            self._room = samples * _FRESH_SHARE
            self.is_enough = samples >= self._rules.enough_samples


class _Model:
    __slots__ = ("by_business", "correction", "outputs", "prices", "samples")

    def __init__(self, rules: OutputRules) -> None:
        self.correction: Correction = UNCORRECTED
        self.prices: Prices | None = None
        """By `correction`; None until somebody asks."""
        self.samples = 0
        self.outputs = _Outputs(rules)
        self.by_business: dict[str, _Outputs] = {}
        """The one that learnt last is the last."""


class Lengths:
    def __init__(self, rules: LengthRules, output_rules: OutputRules) -> None:
        self._rules = rules
        self._output_rules = output_rules
        self._models: dict[str, _Model] = {}
        """The one that learnt last is the last."""
        self._outputs = _Outputs(output_rules)
        self._start = _Outputs(output_rules)
        """Has seen nothing, and never will."""
        self._start_prices = prices(UNCORRECTED, rules)
        self._draw = 0.0

    def configure(self, rules: LengthRules) -> None:
        """What was learnt stays."""
        self._rules = rules
        self._start_prices = prices(UNCORRECTED, rules)
        for known in self._models.values():
            known.prices = None

    def arrived(self, model: str, business: str, size: TextSize, max_tokens: int | None) -> Estimate:
        known = self._models.get(model)
        price = self._start_prices
        if known is not None:
            if known.prices is None:
                known.prices = prices(known.correction, self._rules)
            price = known.prices
        output_mean, output_p90 = self._of(known, business).expected(max_tokens)
        return Estimate(priced(size, price), output_mean, output_p90)

    def expected_output(
        self, model: str, business: str, produced_tokens: float, max_tokens: int | None
    ) -> float:
        """Tokens of the whole answer, once `produced_tokens` of it are out."""
        histogram = self._of(self._models.get(model), business).histogram
        return expected_beyond(histogram, produced_tokens, max_tokens, self._output_rules)

    def learnt_p90(self, model: str, business: str) -> float | None:
        """Tokens of an answer that nine of ten do not exceed; None where too little was seen."""
        outputs = self._of(self._models.get(model), business)
        return None if outputs is self._start else outputs.expected(None)[1]

    def learned(
        self, model: str, business: str, size: TextSize, prompt_tokens: int, completion_tokens: int
    ) -> bool:
        """What the engine reported; a report without prompt tokens is none. Whether it was looked at."""
        if prompt_tokens <= 0:
            return False
        known = self._models.get(model)
        if known is not None:
            outputs = known.by_business.get(business)
            if outputs is not None and outputs.skip:
                outputs.skip -= 1
                return False
        known = self._models.pop(model, None)
        if known is None:
            known = _Model(self._output_rules)
            _make_room(self._models, MODELS)
        self._models[model] = known
        known.samples += 1
        known.correction = corrected(known.correction, size, prompt_tokens, self._rules)
        known.prices = None
        outputs = known.by_business.pop(business, None)
        if outputs is None:
            outputs = _Outputs(self._output_rules)
            _make_room(known.by_business, BUSINESS_TYPES)
        known.by_business[business] = outputs
        if known.samples > _ALL_BELOW and outputs.is_enough:
            self._draw = (self._draw + _GOLDEN) % 1.0
            outputs.skip = int(_THEN_SKIPPED * self._draw)
        for each in (outputs, known.outputs, self._outputs):
            each.learned(completion_tokens)
        return True

    def correction(self, model: str) -> Correction:
        """For the operator's eyes."""
        known = self._models.get(model)
        return UNCORRECTED if known is None else known.correction

    def _of(self, known: _Model | None, business: str) -> _Outputs:
        if known is not None:
            outputs = known.by_business.get(business)
            if outputs is not None and outputs.is_enough:
                return outputs
            if known.outputs.is_enough:
                return known.outputs
        return self._outputs if self._outputs.is_enough else self._start


def _make_room(items: dict[str, _Model] | dict[str, _Outputs], limit: int) -> None:
    if len(items) >= limit:
        del items[next(iter(items))]
