"""From bytes to a YAML node tree, or to the faults that prevent one.

Composed nodes keep the line of every key, which constructed objects do not. Refused here, because a configuration needs none of it
and each is a way to surprise: anchors and aliases (a few lines can expand to billions of nodes), tags, more than one document.

Bounds: `MAX_BYTES` of file and `MAX_DEPTH` of nesting. The pure Python composer is the only one whose steps can be bounded from
outside; it reads about 100 KB/s, so a file at the bound takes seconds, and one of usual size a few milliseconds.
"""

from __future__ import annotations

import re

import yaml

from gateway.configuration.faults import ConfigurationError, Fault

MAX_BYTES = 1 << 20
MAX_DEPTH = 16

_NULL = "tag:yaml.org,2002:null"
_QUOTED_NAME = re.compile(r"\b(handle|anchor|alias)\b.*", re.DOTALL)
"""The parser quotes names after these words, and an unquoted secret that starts with `!`, `&` or `*` is read as such a name."""


def read(path: str) -> str:
    """The text of the file at `path`, of which no more than the bound is ever in memory."""
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise _single(path, 0, f"cannot be read: {reason or 'the path is not valid'}") from None
    if len(content) > MAX_BYTES:
        raise _too_long(path)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _single(path, line, "is not UTF-8; write the file in UTF-8") from None


def compose(text: str, file: str) -> yaml.MappingNode:
    """The root mapping of the one document in `text`."""
    if len(text) > MAX_BYTES:
        raise _too_long(file)
    try:
        composer = _Composer(text)
        root = composer.get_single_node()
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise _single(file, line, "is not valid YAML: it holds a control character") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = _QUOTED_NAME.sub(r"\1", error.problem or "syntax error")
        raise _single(file, mark.line + 1 if mark else 0, f"is not valid YAML: {problem}") from None
    except (yaml.YAMLError, ValueError, OverflowError):
        # PyYAML lets these through for an escape beyond Unicode ("\UFFFFFFFF") and for an endless %YAML version.
        raise _single(
            file, 0, "is not valid YAML: an escape or a directive holds a number that is too large"
        ) from None
    if composer.refused:
        raise ConfigurationError(Fault(file, line, "", message) for line, message in composer.refused)
    if root is None or (isinstance(root, yaml.ScalarNode) and root.tag == _NULL):
        raise _single(file, 1, "is empty; at least `pools` has to be given")
    if not isinstance(root, yaml.MappingNode):
        raise _single(file, root.start_mark.line + 1, "must be a mapping of keys to values at its top level")
    return root


class _Composer(yaml.SafeLoader):
    """Composes while it notes what is refused. It runs on lazily parsed events, so the depth bound stops it before the parser is far ahead."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.refused: list[tuple[int, str]] = []
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]  # the stubs leave it out
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            self.get_event()  # type: ignore[no-untyped-call]  # the same
            self.refused.append((line, "aliases (*name) are not allowed; write the value out, or in quotes"))
            return yaml.ScalarNode(_NULL, "")
        if event.anchor is not None:
            event.anchor = None
            self.refused.append((line, "anchors (&name) are not allowed; write the value out, or in quotes"))
        if event.tag is not None:
            self.refused.append((line, "tags (!name) are not allowed; write the value without, or in quotes"))
        if self._depth >= MAX_DEPTH:
            raise yaml.composer.ComposerError(
                None, None, f"nested deeper than {MAX_DEPTH} levels", event.start_mark
            )
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


def _too_long(file: str) -> ConfigurationError:
    return _single(file, 0, f"is too long; at most {MAX_BYTES} bytes are allowed")


def _single(file: str, line: int, message: str) -> ConfigurationError:
    return ConfigurationError([Fault(file, line, "", message)])
