"""The gateway's wall clock, moved from outside for its process alone, while its monotonic clock and its waits stay right (`wall_clock.c`).

That is compiled with the machine's `cc`; where there is none no clock is moved, and the report says so.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

_SOURCE = Path(__file__).with_name("wall_clock.c")


class WallClock:
    def __init__(self, scratch: Path) -> None:
        self._file = scratch / "wall-clock"
        self.absent = ""
        """Why it cannot be moved."""
        self.environment: list[str] = []
        """NAME=VALUE for the process whose clock it is."""
        compiler = shutil.which("cc")
        if compiler is None:
            self.absent = "there is no C compiler (cc)"
            return
        library = scratch / "wall_clock.so"
        argv = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(_SOURCE), "-ldl"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            self.absent = f"{_SOURCE.name} could not be compiled: {done.stderr[-300:].strip()}"
            return
        self._file.write_bytes(bytes(8))
        self.environment = [f"LD_PRELOAD={library}", f"WALL_CLOCK_FILE={self._file}"]

    def step(self, seconds: int) -> None:
        """Against the machine's clock; at once."""
        with self._file.open("r+b") as file:  # the other process has it mapped: never replaced, never cut
            file.write(struct.pack("=q", seconds))
