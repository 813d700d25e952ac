"""What an answer is to the scheduler's driver, and what a connection is to an answer."""

from __future__ import annotations

from typing import Protocol

from gateway.emulator.faults import Faults
from gateway.emulator.sequence import Sequence

FINGERPRINT = b'"headrace-emulator"'


class Sink(Protocol):
    """The way back to the client: exactly one of `respond`, `end`, `cut` and `reset` ends a request, or
    nothing if it hangs."""

    def respond(
        self, status: int, body: bytes, content_type: bytes = b"application/json", lines: bytes = b""
    ) -> None:
        """`lines` are further headers."""
        ...

    def begin_stream(self) -> None:
        """Status 200 and the headers of an event stream."""
        ...

    def write(self, data: bytes) -> None: ...

    def end(self) -> None:
        """The stream is complete; its final chunk was part of the last `write`."""
        ...

    def truncate(self, body: bytes, lines: bytes = b"") -> None:
        """The headers of a whole plain answer and half of its body."""
        ...

    def cut(self) -> None:
        """Close the connection as it is."""
        ...

    def reset(self) -> None:
        """Close the connection with a RST."""
        ...


class Answer(Protocol):
    """One request's answer in the making. The driver calls it from within a step; it never waits."""

    sequences: list[Sequence[Answer]]

    def progressed(self, sequence: Sequence[Answer]) -> None:
        """A streamed sequence has one more token and goes on."""
        ...

    def finished(self, sequence: Sequence[Answer]) -> None:
        """A sequence has its last token."""
        ...


def is_hit(faults: Faults, draw: float) -> bool:
    """Whether a fault that hits only a share of the requests hits this one; `draw` is uniform in [0, 1)."""
    return draw < faults.share
