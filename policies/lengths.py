"""How long a prompt is: tokens estimated from what was counted in its text, corrected by what the engine reported, and its length class.

Decides: the estimate, the next correction, the class. A prompt is seen as parts (wide characters, letters, digits, marks, template, tools,
images, audio); each part has start tokens (count x start rate) and, per model, a learnt scale. Estimate = sum of scale x start tokens, plus
token ids, which need no estimate. The scales are learnt from `usage.prompt_tokens` by a Kalman filter with a diagonal covariance, on relative
errors: a part moves as far as it is both unsure and large in the sample, so an image's price is learnt from prompts that are mostly image.
With z = a part's share of the estimate, P = its variance, R = `noise`**2, S = sum(P z^2) + R and e = (tokens - estimate) / estimate, believed
by b = min(1, 2 sqrt(S) / |e|): scale += b P z e / S, P -= b (P z)^2 / S. So one absurd sample moves little, and many alike, since they
leave P large, convince soon. P then grows by min(1, z) R (ln 2 / `half_life_samples`)^2, never above its start: that growth makes a sample's weight
halve over so many later ones, and a changed tokenizer is followed at that pace.
Inputs: counts of characters; tokens. Source of the start rates: least squares over five public tokenizers on Chinese, English, code and
mixed texts, rounded between them.
Settings: `short_below` (tokens, 1.., default 512), `long_above` (tokens, >= short_below, default 4096), `half_life_samples` (1.., default
200), `noise` (relative deviation of one estimate, default 0.15).
Limits: scripts of three-byte characters share one scale, so Chinese, Japanese and Thai for one model at once are priced at their mixture. An
image's pixels and a remote file's length are not known before the engine reads them. Encoded data as text (base64, hexadecimal) costs
up to twice the estimate.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log, sqrt
from operator import mul
from typing import NamedTuple

from policies.terms import LengthClass

TOKEN_CHARS = 4
"""What one token is in English."""
_COUNTED = 7
"""Fields of `TextSize` that are characters, before all others."""


class TextSize(NamedTuple):
    """What was counted in a request's body; counts of a long text may come from a sample of it."""

    wide: float = 0.0
    """Characters of three or four bytes in UTF-8: Chinese, Japanese, Korean, most Indic scripts, emoji."""
    accented: float = 0.0
    """Characters of two bytes: accented Latin, Greek, Cyrillic, Hebrew, Arabic."""
    letters: float = 0.0
    """ASCII letters."""
    digits: float = 0.0
    marks: float = 0.0
    """Other visible ASCII, and control characters but line ends."""
    spaces: float = 0.0
    lines: float = 0.0
    """Line ends."""
    messages: int = 0
    tools: int = 0
    """Tool definitions; their text is counted with the rest."""
    images: int = 0
    small_images: int = 0
    """Images asked for in low detail."""
    audio_bytes: float = 0.0
    token_ids: int = 0
    """Of a prompt that came as tokens."""

    @property
    def chars(self) -> float:
        """Of all text; a token id stands as `TOKEN_CHARS`."""
        return sum(self[:_COUNTED]) + TOKEN_CHARS * self.token_ids


@dataclass(frozen=True, slots=True)
class StartRates:
    """Tokens before anything was learnt: per character, or per piece."""

    wide: float = 0.9
    accented: float = 0.5
    letter: float = 0.235
    space: float = 0.04
    digit: float = 1.0
    mark: float = 0.33
    line: float = 1.1
    prompt: float = 3.0
    message: float = 4.0
    toolbox: float = 60.0
    """What a template says once where there are tools."""
    tool: float = 10.0
    image: float = 1000.0
    small_image: float = 85.0
    audio_byte: float = 1 / 1280
    """25 tokens per second of 16-bit sound at 16 kHz."""


@dataclass(frozen=True, slots=True)
class LengthRules:
    short_below: float = 512.0
    long_above: float = 4096.0
    half_life_samples: float = 200.0
    noise: float = 0.15
    rates: StartRates = StartRates()


PARTS = ("wide", "accented", "letters", "digits", "marks", "template", "tools", "images", "audio")
_START_VARIANCES = (0.1, 0.1, 0.1, 0.1, 0.1, 0.5, 0.5, 1.0, 1.0)
"""Between tokenizers a character's price differs by a third; a picture's by more than its own."""
_SHORT, _MEDIUM, _LONG = LengthClass.SHORT, LengthClass.MEDIUM, LengthClass.LONG
_LEAST_SCALE = 1 / 32
_GREATEST_SCALE = 32.0


class Correction(NamedTuple):
    """What was learnt about one model, in the order of `PARTS`."""

    scales: tuple[float, ...] = (1.0,) * len(PARTS)
    variances: tuple[float, ...] = _START_VARIANCES


UNCORRECTED = Correction()


class Prices(NamedTuple):
    """Tokens per piece of a `TextSize`, in its order, and what a template adds once where there are messages, or tools."""

    each: tuple[float, ...]
    prompt: float
    toolbox: float


def prices(correction: Correction, rules: LengthRules) -> Prices:
    """Worked out once for many estimates."""
    wide, accented, letters, digits, marks, template, tools, images, audio = correction.scales
    rates = rules.rates
    each = (
        wide * rates.wide,
        accented * rates.accented,
        letters * rates.letter,
        digits * rates.digit,
        marks * rates.mark,
        letters * rates.space,
        marks * rates.line,
        template * rates.message,
        tools * rates.tool,
        images * rates.image,
        images * rates.small_image,
        audio * rates.audio_byte,
        1.0,
    )
    return Prices(each, template * rates.prompt, tools * rates.toolbox)


def priced(size: TextSize, prices: Prices) -> float:
    tokens: float = sum(map(mul, prices.each, size))
    if size.messages:
        tokens += prices.prompt
    return tokens + prices.toolbox if size.tools else tokens


def corrected(correction: Correction, size: TextSize, prompt_tokens: float, rules: LengthRules) -> Correction:
    """`prompt_tokens` as the engine reported them, cached ones included; a report of nothing teaches nothing."""
    measured = prompt_tokens - size.token_ids
    parts = _start_tokens(size, rules.rates)
    estimate: float = sum(map(mul, correction.scales, parts))
    if not 0.0 < measured < inf or not 1.0 <= estimate < inf:
        return correction
    scales = list(correction.scales)
    variances = list(correction.variances)
    noise = spread = rules.noise * rules.noise
    pulls: list[tuple[int, float, float]] = []
    for i, part in enumerate(parts):
        if part:
            share = part / estimate
            gain = variances[i] * share
            spread += gain * share
            pulls.append((i, share, gain))
    reach = 2.0 * sqrt(spread)
    error = (measured - estimate) / estimate
    belief = min(1.0, reach / abs(error)) if error else 1.0
    step = belief * error / spread
    pace = log(2.0) / rules.half_life_samples
    growth = noise * pace * pace
    for i, share, gain in pulls:
        scale = scales[i] + gain * step
        if scale < _LEAST_SCALE:
            scale = _LEAST_SCALE
        elif scale > _GREATEST_SCALE:
            scale = _GREATEST_SCALE
        scales[i] = scale
        if share > 1.0:
            share = 1.0
        variance = variances[i] - belief * gain * gain / spread + share * growth
        if variance > _START_VARIANCES[i]:
            variance = _START_VARIANCES[i]
        variances[i] = variance
    return Correction(tuple(scales), tuple(variances))


def length_class(tokens: float, rules: LengthRules) -> LengthClass:
    if tokens < rules.short_below:
        return _SHORT
    return _LONG if tokens > rules.long_above else _MEDIUM


def _start_tokens(size: TextSize, rates: StartRates) -> tuple[float, ...]:
    """In the order of `PARTS`."""
    (
        wide, accented, letters, digits, marks, spaces, lines,
        messages, tools, images, small_images, audio_bytes, _,
    ) = size  # fmt: skip
    return (
        rates.wide * wide,
        rates.accented * accented,
        rates.letter * letters + rates.space * spaces,
        rates.digit * digits,
        rates.mark * marks + rates.line * lines,
        rates.prompt + rates.message * messages if messages else 0.0,
        rates.toolbox + rates.tool * tools if tools else 0.0,
        rates.image * images + rates.small_image * small_images,
        rates.audio_byte * audio_bytes,
    )
