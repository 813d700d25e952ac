"""The gateway's wall clock, moved by libfaketime (Debian: `apt-get install faketime`): for its process alone, from outside, while its monotonic clock stays right.

Where the library cannot be had no clock is moved, and the report says so.
"""

from __future__ import annotations

from pathlib import Path

from tests.bench.peers import AbsentError, from_apt

SEEN_WITHIN_SECONDS = 1.0
"""The library looks into its file so often."""
_LIBRARY = "faketime/libfaketimeMT.so.1"


class WallClock:
    def __init__(self, scratch: Path) -> None:
        self._file = scratch / "clock"
        self.absent = ""
        """Why it cannot be moved."""
        self.environment: list[str] = []
        """NAME=VALUE for the process whose clock it is."""
        try:
            library = _library()
        except AbsentError as error:
            self.absent = str(error)
            return
        self.step("+0")
        self.environment = [
            f"LD_PRELOAD={library}",
            f"FAKETIME_TIMESTAMP_FILE={self._file}",
            f"FAKETIME_CACHE_DURATION={SEEN_WITHIN_SECONDS:.0f}",
            "FAKETIME_DONT_FAKE_MONOTONIC=1",
        ]

    def step(self, offset: str) -> None:
        """Seconds with their sign, against the machine's clock."""
        self._file.write_text(offset)


def _library() -> Path:
    from_apt("faketime", "faketime")
    for root in ("/usr/lib", "/usr/local/lib", "/usr/lib64"):
        for found in (*Path(root).glob(_LIBRARY), *Path(root).glob(f"*/{_LIBRARY}")):
            return found
    raise AbsentError("libfaketime is not where it should be")
