"""What a process and all its descendants use: CPU seconds, resident memory, descriptors, sockets. Linux only.

CPU is user + system time of all threads, living and ended, read with the nanosecond clock the kernel keeps per process
(`clock_getcpuclockid(3)`); children that have ended and were reaped are not counted, and no peer here has any.
"""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
ESTABLISHED = "01"
STEAL = 7
"""Its place among the kernel's kinds of core time."""


def process_tree(root: int) -> list[int]:
    """The pids of `root` and its descendants, as far as they still live."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:  # it ended meanwhile
                continue
            children[int(stat.rpartition(")")[2].split()[1])].append(int(entry.name))
    found, pids = [root], [root]
    while pids:
        offspring = children[pids.pop()]
        found += offspring
        pids += offspring
    return found


def cpu_seconds(root: int) -> float:
    """User + system seconds used so far by the whole tree."""
    total = 0.0
    for pid in process_tree(root):
        # The clock id of another process, as glibc's clock_getcpuclockid builds it: ~pid << 3, with 2 for "scheduler time".
        total += time.clock_gettime((~pid << 3) | 2)
    return total


def run_queue_seconds(pid: int) -> float:
    """How long the main thread of `pid` has been ready to run without getting a core: what other work on the machine cost it."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9


def stolen_share(before: Sequence[int], after: Sequence[int]) -> float:
    """Part of all cores' time between two `core_ticks` that the host gave to other machines; 0 on one of its own."""
    spent = [late - early for early, late in zip(before, after, strict=True)]
    return spent[STEAL] / max(sum(spent[: STEAL + 1]), 1)


def core_ticks() -> list[int]:
    """Of all cores together, by kind: user, nice, system, idle, iowait, irq, softirq, steal."""
    return [int(ticks) for ticks in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1 : STEAL + 2]]


def resident_bytes(root: int) -> int:
    """Resident set size summed over the tree; shared pages count once per process."""
    return (
        sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in process_tree(root)) * PAGE_BYTES
    )


def open_descriptors(root: int) -> int:
    return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in process_tree(root))


class Socket(NamedTuple):
    is_established: bool
    peer_port: int


def sockets(root: int) -> list[Socket]:
    """All TCP sockets of the tree, on either side of their connection."""
    inodes = {target[8:-1] for target in _targets(root) if target.startswith("socket:[")}
    return [
        Socket(row[3] == ESTABLISHED, int(row[2].rpartition(":")[2], 16))
        for row in _tcp_rows()
        if row[9] in inodes
    ]


def kinds_of_descriptors(root: int) -> Counter[str]:
    """What the open descriptors of the tree are: a path, a kind, or of a TCP socket its state and its peer's port.

    A connection that was reset and is not closed yet stands in no table of the kernel.
    """
    tcp = {row[9]: f"tcp state {row[3]} to {int(row[2].rpartition(':')[2], 16)}" for row in _tcp_rows()}
    tcp |= {row.split()[6]: "unix socket" for row in _socket_table("unix")}
    return Counter(
        tcp.get(target[8:-1], "socket in no table")
        if target.startswith("socket:[")
        else target.partition(":[")[0]
        for target in _targets(root)
    )


def _targets(root: int) -> Iterator[str]:
    for pid in process_tree(root):
        for descriptor in os.scandir(f"/proc/{pid}/fd"):
            with suppress(OSError):  # closed between the listing and the look
                yield os.readlink(descriptor.path)


def _tcp_rows() -> list[list[str]]:
    return [line.split() for table in ("tcp", "tcp6") for line in _socket_table(table)]


def established_sockets(root: int) -> int:
    return sum(socket.is_established for socket in sockets(root))


def _socket_table(name: str) -> list[str]:
    table = Path("/proc/net") / name
    return table.read_text().splitlines()[1:] if table.exists() else []
