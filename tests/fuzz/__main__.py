"""`python -m tests.fuzz --seconds N [--target NAME ...] [--seed N] [--replay FILE]`: bytes mutated at random against `targets`.

Begins from `corpus`, and ends with 1 and a file of the input at the first that breaks a property,
takes longer than `SLOW_SECONDS`, or more memory than the process may have. A fifth of the time is for fragments that are repeated to
`GROWN_BYTES`: eight times as many bytes may take `MOST_GROWTH` times as much processor time, which work that is the square of its input exceeds.
"""

from __future__ import annotations

import argparse
import random
import resource
import signal
import sys
import time
from collections.abc import Sequence
from math import inf
from pathlib import Path
from types import FrameType

from tests.fuzz.corpus import FRAGMENTS, MAX_SEED_BYTES, seeds
from tests.fuzz.targets import TARGETS

SLOW_SECONDS = 5
MEMORY_BYTES = 2 << 30
GROWN_BYTES = (64 << 10, 512 << 10)
MOST_GROWTH = 24
_LEAST_CPU_SECONDS = 0.005
"""Below it a clock tick or a collection of garbage would be the growth."""
_MAX_BYTES = 4 * MAX_SEED_BYTES


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="in all (default: %(default)s)")
    parser.add_argument("--target", action="append", choices=TARGETS, help="may be repeated (default: all)")
    parser.add_argument(
        "--seed", type=int, default=None, help="of the mutations (default: another each time)"
    )
    parser.add_argument("--replay", type=Path, help="one input, of the one --target")
    chosen = parser.parse_args()
    names = chosen.target or list(TARGETS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
    signal.signal(signal.SIGALRM, _too_slow)
    if chosen.replay is not None:
        TARGETS[names[0]](chosen.replay.read_bytes(), ())
        return 0
    seed = random.randrange(1 << 32) if chosen.seed is None else chosen.seed
    print(f"seed {seed}")
    return max(_run(name, chosen.seconds / len(names), random.Random(seed)) for name in names)


def _run(name: str, seconds: float, chance: random.Random) -> int:
    found = seeds(name)
    began = time.monotonic()
    tried = grown = 0
    while (passed := time.monotonic() - began) < seconds:
        if passed > 0.8 * seconds:
            start = chance.choice(found)[: chance.choice((0, 0, 200, MAX_SEED_BYTES))]
            unit = b"".join(chance.choices(FRAGMENTS[name], k=chance.choice((1, 1, 2, 3, 5))))
            step = chance.choice((0, 0, 16, 300))
            fault = _growth(name, start, unit, step)
            grown += 1
        else:
            data = found[tried] if tried < len(found) else mutated(found, FRAGMENTS[name], chance)
            cuts = [chance.randrange(len(data) + 1) for _ in range(chance.choice((0, 0, 1, 3)))]
            if chance.random() < 0.02:
                cuts = list(range(len(data)))
            fault = _fault(name, data, cuts)
            tried += 1
        if fault:
            print(f"{name}: {fault}")
            return 1
    print(f"{name}: {tried} inputs, {grown} of them grown")
    return 0


def _fault(name: str, data: bytes, cuts: Sequence[int]) -> str:
    """What is wrong with it, or nothing."""
    signal.alarm(SLOW_SECONDS)
    try:
        TARGETS[name](data, cuts)
    except (Exception, MemoryError) as error:
        file = Path(f"fuzz-{name}.bin")
        file.write_bytes(data)
        said = f"{type(error).__name__}: {str(error)[:2000]}"
        return f"{said}\n{data[:2000]!r}\ncuts {list(cuts[:50])}\nkept in {file}"
    finally:
        signal.alarm(0)
    return ""


def _growth(name: str, start: bytes, unit: bytes, step: int) -> str:
    """Of `start` and `unit` over and over, in reads of `step` bytes."""
    best = [inf, inf]
    for _ in range(3):  # what something else on this machine made slow is not slow three times
        for place, size in enumerate(GROWN_BYTES):
            data = (start + unit * (size // len(unit)))[:size]
            began = time.process_time()
            if fault := _fault(name, data, range(step, size, step) if step else ()):
                return f"grown from {start[:200]!r} and {unit[:200]!r}, step {step}: {fault[:1000]}"
            best[place] = min(best[place], time.process_time() - began)
        if best[1] <= MOST_GROWTH * max(best[0], _LEAST_CPU_SECONDS):
            return ""
    return f"{GROWN_BYTES} bytes took {best} s of the processor: {start!r} and {unit!r} over and over, in reads of {step} bytes"


def mutated(found: list[bytes], fragments: Sequence[bytes], chance: random.Random) -> bytes:
    """One of `found` or nothing at all, changed one to eight times."""
    data = bytearray(chance.choice(found) if chance.random() < 0.8 else b"")
    for _ in range(chance.choice((1, 1, 2, 3, 8))):
        at = chance.randrange(len(data) + 1)
        to = min(len(data), at + chance.choice((1, 1, 2, 8, 64)))
        what = chance.randrange(8)
        if what == 0 and data:
            at = min(at, len(data) - 1)
            data[at] ^= 1 << chance.randrange(8)
        elif what == 1:
            data[at:at] = bytes([chance.randrange(256)])
        elif what == 2:
            del data[at:to]
        elif what == 3:
            data[at:at] = data[at:to]
        elif what == 4:
            other = chance.choice(found)
            data[at:] = other[chance.randrange(len(other) + 1) :]
        elif what == 5:
            data = data + data
        else:
            data[at:at] = b"".join(chance.choices(fragments, k=chance.choice((1, 1, 2, 4, 10))))
    return bytes(data[:_MAX_BYTES])


def _too_slow(number: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"more than {SLOW_SECONDS} s")


if __name__ == "__main__":
    sys.exit(main())
