"""How an HTTP/1.1 message is laid out in bytes, read strictly and independently of the parser under test.

`parse_head` turns the bytes up to the blank line into a start line and raw headers; `BodyReader` takes what follows piece by
piece and says where the body ends and whether it ended as its framing promised. Headers keep their case, order and duplicates.
Anything malformed raises `ValueError`: in a test that is a failure, never something to be lenient about.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

Headers = list[tuple[bytes, bytes]]

HEAD_END = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Head:
    start_line: bytes
    headers: Headers

    def values(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.headers if key.lower() == name.lower()]

    def value(self, name: bytes) -> bytes | None:
        found = self.values(name)
        return found[0] if found else None

    def says(self, name: bytes, token: bytes) -> bool:
        """Whether the comma-separated header `name` has `token`."""
        tokens = b",".join(self.values(name)).lower().split(b",")
        return token in (item.strip() for item in tokens)


def parse_head(raw: bytes) -> Head:
    """`raw` without its final blank line."""
    start_line, *lines = raw.split(b"\r\n")
    headers: Headers = []
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not name or name != name.strip():
            raise ValueError(f"not a header line: {line!r}")
        headers.append((name, value.strip(b" \t")))
    return Head(start_line, headers)


def render_head(start_line: bytes, headers: Headers) -> bytes:
    return b"\r\n".join([start_line, *(name + b": " + value for name, value in headers)]) + HEAD_END


def encode_chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


class Layout(Enum):
    """How the end of a body is recognised."""

    LENGTH = "content-length"
    CHUNKED = "chunked"
    UNTIL_CLOSE = "until close"


class BodyReader:
    """Feed it bytes as they come; `done` once the body's own end was seen, `rest` then holds what followed it.

    A body that runs until the connection closes is `done` with `end_of_stream`; the two other layouts never are, which is how a
    broken answer is told from a finished one.
    """

    def __init__(self, layout: Layout, length: int = 0) -> None:
        self.layout = layout
        self.done = layout is Layout.LENGTH and length == 0
        self.chunk_sizes: list[int] = []
        self.rest = b""
        self._missing = length
        self._pending = b""
        self._in_trailer = False
        self._after_chunk = False

    @classmethod
    def of_request(cls, head: Head) -> BodyReader:
        if head.says(b"transfer-encoding", b"chunked"):
            return cls(Layout.CHUNKED)
        return cls(Layout.LENGTH, int(head.value(b"content-length") or b"0"))

    @classmethod
    def of_answer(cls, head: Head, status: int, method: bytes) -> BodyReader:
        if method == b"HEAD" or status in (204, 304) or status < 200:
            return cls(Layout.LENGTH, 0)
        if head.says(b"transfer-encoding", b"chunked"):
            return cls(Layout.CHUNKED)
        length = head.value(b"content-length")
        return cls(Layout.UNTIL_CLOSE) if length is None else cls(Layout.LENGTH, int(length))

    def feed(self, data: bytes) -> bytes:
        """The decoded body bytes in `data`."""
        if self.done:
            self.rest += data
            return b""
        if self.layout is Layout.UNTIL_CLOSE:
            return data
        if self.layout is Layout.LENGTH:
            taken, self.rest = data[: self._missing], data[self._missing :]
            self._missing -= len(taken)
            self.done = self._missing == 0
            return taken
        return self._dechunk(data)

    def end_of_stream(self) -> None:
        if self.layout is Layout.UNTIL_CLOSE:
            self.done = True

    def _dechunk(self, data: bytes) -> bytes:
        out = []
        buffer = self._pending + data
        at = 0
        while not self.done:
            if self._missing:
                piece = buffer[at : at + self._missing]
                out.append(piece)
                at += len(piece)
                self._missing -= len(piece)
                if self._missing:
                    break
                self._after_chunk = True
            end = buffer.find(b"\r\n", at)
            if end < 0:
                break
            line = buffer[at:end]
            at = end + 2
            self._take_line(line)
        self._pending = b"" if self.done else buffer[at:]
        if self.done:
            self.rest = buffer[at:]
        return b"".join(out)

    def _take_line(self, line: bytes) -> None:
        if self._after_chunk:
            if line:
                raise ValueError(f"no line end after a chunk, but {line[:40]!r}")
            self._after_chunk = False
        elif self._in_trailer:
            self.done = not line
        else:
            size = line.split(b";", 1)[0]
            if not size or not set(size.lower()) <= set(b"0123456789abcdef"):
                raise ValueError(f"not a chunk size: {line[:40]!r}")
            self._missing = int(size, 16)
            self.chunk_sizes.append(self._missing)
            self._in_trailer = self._missing == 0
