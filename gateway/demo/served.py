"""The child's side: the gateway of the demo, `python -m gateway.demo.served`.

Reads one line of JSON from standard input, `{"port": .., "directory": .., "pools": [{"name", "window", "backends": [[name, url], ..]}]}`, then serves as `headrace serve`
would with the settings of `configuration`, without a request log. `directory` holds the engines' sockets. The end of standard input ends it: in order at
first, whatever runs is cut `GRACE_SECONDS` later.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
import time

from gateway import server
from gateway.demo.configuration import settings_from
from gateway.demo.redis_child import end_left_behind

GRACE_SECONDS = 0.5


def _end_with_parent() -> None:
    # Not sys.stdin: a thread that holds its lock at the interpreter's end aborts the process.
    while os.read(0, 65536):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> int:
    plan = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        return server.run(settings_from(plan), None)
    finally:
        # The parent's to end and to remove, unless it was killed.
        end_left_behind(plan["directory"])
        shutil.rmtree(plan["directory"], ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
