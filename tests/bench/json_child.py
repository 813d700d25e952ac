"""A job as JSON on a child's standard input, its outcome as JSON on its standard output: so a load has an interpreter of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from tests.bench.children import ROOT

_GRACE_SECONDS = 60.0


def tell(found: object) -> None:
    """To the parent, from the child. All of it: where Python's output is not buffered (`PYTHONUNBUFFERED`), `print` loses what a full pipe does not take at once."""
    data = memoryview(json.dumps(found).encode())
    os.set_blocking(1, True)
    while data:
        data = data[os.write(1, data) :]


def run_in_child(module: str, job: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """What `python -m module` makes of the job, which should take `seconds`; raises `RuntimeError` with the end of what it said if it fails."""
    done = subprocess.run(
        [sys.executable, "-m", module],
        input=json.dumps(job).encode(),
        capture_output=True,
        cwd=ROOT,
        timeout=seconds + _GRACE_SECONDS,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the load generator failed: {done.stderr.decode()[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found
