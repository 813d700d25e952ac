"""One property for each place where bytes of strangers come in. A property takes bytes and a source of cuts, and raises where it does not hold."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import isfinite
from typing import Any

import orjson

from gateway.body import for_engine, view_form, view_json
from gateway.configuration import ConfigurationError, parse
from gateway.errors import Refused, refusal_answer
from gateway.events import HELD_LIMIT_BYTES, EventReader
from gateway.headers import answer_headers, forwarded, request_head, usable_request_id
from gateway.message_texts import message_texts
from gateway.paths import Kind
from gateway.prompt_prefix import prompt_prefix, session_of
from gateway.sessions.capture import StreamCapture, plain_message
from gateway.sessions.response_sight import ResponseSight
from gateway.text_format import MOST_SAMPLES, labels_of, samples_of
from gateway.text_size import text_size
from policies.hints import MAX_TEXT, hints
from tests.fuzz import strict
from tests.fuzz.wire import answered, served

Cuts = Sequence[int]
Check = Callable[[bytes, Cuts], None]
NAMES = ("vllm:num_requests_running", "vllm:kv_cache_usage_perc", "sglang:num_running_reqs")


def front(data: bytes, cuts: Cuts) -> None:
    """What reaches an application is what a strict reader finds, whole messages only; what the client gets is whole answers."""
    seen, written = served(_cut(data, cuts))
    meant = strict.requests(data)
    assert len(seen) <= len(meant), ("more requests than there are", seen, meant)
    for (method, path, headers, body), message in zip(seen, meant, strict=False):
        assert (method, body) == (message.method, message.body), ("another request", method, body, message)
        if message.target.startswith(b"/"):
            assert path == message.target.partition(b"?")[0].partition(b"#")[0], (path, message.target)
        if b"upgrade" not in dict(message.headers):
            assert [(name, value.strip(b" \t")) for name, value in headers] == message.headers
    rest = written
    answers = 0
    while rest:
        read = strict.answer(rest, False)
        assert read is not None, ("no whole answer", rest)
        message, rest = read
        answers += 1
        assert message.target == b"200" or (not rest and message.target[:1] == b"4"), message
    assert answers <= len(seen) + 1


def engine(data: bytes, cuts: Cuts) -> None:
    """An answer counts as whole only where a strict reader finds it so; a connection is kept only where nothing stands behind it."""
    for has_ended in (False, True):
        read = answered(_cut(data, cuts), has_ended)
        assert read.most_held < 300_000
        if not read.is_complete:
            continue
        meant = strict.answer(data, has_ended)
        assert meant is not None, ("taken for whole", read, data)
        message, rest = meant
        assert (b"%d" % read.status, read.body) == (message.target, message.body), (read, message)
        assert not read.is_reusable or not rest.strip(b"\r\n"), ("kept with a rest", rest)
        heads = answer_headers(read.headers, True) + forwarded(read.headers)
        assert not any(b"\n" in name + value or b"\r" in value or b"\0" in value for name, value in heads)


def events(data: bytes, cuts: Cuts) -> None:
    """Every byte passes where nothing is kept back, no later than the bound; where usage is, what passes is not more than came."""
    parts = _cut(data, cuts)
    plain = EventReader(False)
    behind, out = 0, []
    for part in parts:
        out.append(plain.feed(part))
        behind += len(part) - len(out[-1])
        assert behind <= HELD_LIMIT_BYTES
    assert b"".join([*out, plain.flush()]) == data
    keeping = EventReader(True)
    passed = b"".join([*map(keeping.feed, parts), keeping.flush()])
    assert len(passed) <= len(data) + 16 * len(parts) + data.count(b"system_fingerprint") * len(data)
    assert keeping.finished in (True, False) and keeping.usage == plain.usage and keeping.done == plain.done


def body(data: bytes, cuts: Cuts) -> None:
    """A body is an object or refused; what is changed in it is what was to be changed; nothing that a body says makes a header."""
    view_form(data, b"multipart/form-data; boundary=" + data[2:40].partition(b"\r\n")[0])
    try:
        view = view_json(data)
    except Refused as refused:
        _, headers, content = refusal_answer(refused)
        json.loads(content)
        assert not any(b"\n" in value or b"\r" in value for _, value in headers)
        return
    session_of(view.fields)
    for kind in (Kind.CHAT, Kind.COMPLETION, Kind.JSON):
        texts = message_texts(kind, view.fields)
        prompt_prefix(kind, view.fields, view.model, text_size(kind, view.fields, texts), texts)
        changed, asked = for_engine(data, view, kind, "other" if view.model else "")
        try:
            before, after = orjson.loads(data), orjson.loads(changed)
        except orjson.JSONDecodeError:
            before, after = json.loads(data.decode("utf-8-sig", "surrogatepass")), _lenient(changed)
        if view.model:
            assert after.pop("model") == "other"
            before.pop("model")
        if asked:
            assert after.pop("stream_options")["include_usage"] is True
            before.pop("stream_options", None)
        assert repr(after) == repr(before)


def _lenient(data: bytes) -> Any:
    return json.loads(data.decode("utf-8-sig", "surrogatepass"))


def configuration(data: bytes, cuts: Cuts) -> None:
    """A text is a configuration or a list of faults, one a line."""
    try:
        parse(data.decode("utf-8", "replace"), "f", {"SECRET": "s3cret-of-the-environment"})
    except ConfigurationError as error:
        assert str(error) and "s3cret" not in str(error)
        assert all(line.isprintable() for line in str(error).split("\n")), str(error)


def metrics(data: bytes, cuts: Cuts) -> None:
    """Whatever a page holds, a sample is a finite number or none, and there are not too many."""
    found = samples_of(data, NAMES)
    assert sum(map(len, found.values())) <= MOST_SAMPLES
    for samples in found.values():
        for sample in samples:
            labels_of(sample)
            assert all(value is None or isfinite(value) for value in (sample.value, sample.at))


def sessions(data: bytes, cuts: Cuts) -> None:
    """A session's or a request's id, and every other hint, is a short printable word or was not said."""
    for name in (b"x-headrace-session", b"x-session-id", b"x-smg-routing-key", b"x-headrace-business", b"x-headrace-tenant", b"x-headrace-backend", b"x-headrace-deadline-ms", b"priority", b"x-headrace-lane"):  # fmt: skip
        said = hints([(name, data)])
        for word in (said.session, said.business, said.tenant, said.backend):
            assert len(word) <= MAX_TEXT and word.isascii() and word.isprintable() and " " not in word
    if usable_request_id(data):
        head = request_head("GET", b"/", b"h", b"", None, data.decode("ascii"), b"")
        assert head.count(b"\r\n") == 4 and len(data) <= 128


def capture(data: bytes, cuts: Cuts) -> None:
    """What a session keeps of an answer does not hang on where it was cut, is one message of the engine's words, and no longer than it may be."""
    limit = 4096
    whole, cut = StreamCapture(limit), StreamCapture(limit)
    whole.feed(data)
    for part in _cut(data, cuts):
        cut.feed(part)
    for one in (whole, cut):
        one.end()
    assert (whole.has_finish, whole.is_broken) == (cut.has_finish, cut.is_broken)
    for is_cut in (False, True):
        message = cut.message(is_cut)
        assert message == whole.message(is_cut)
        if message is not None:
            texts = [text for text in orjson.loads(message).values() if isinstance(text, str)]
            assert len("".join(texts[1:]).encode()) <= limit
    plain = plain_message(data)
    assert plain is None or isinstance(_lenient(plain), dict)


def response(data: bytes, cuts: Cuts) -> None:
    """The id of a response does not hang on where it was cut; it is that of the object, and may stand in a key of the store."""
    for is_stream in (False, True):
        whole, cut = ResponseSight(is_stream), ResponseSight(is_stream)
        found = whole.feed(data)
        assert found == next(filter(None, map(cut.feed, _cut(data, cuts))), "")
        assert len(found) <= 128 and all("!" <= letter <= "~" for letter in found)
        if found and not is_stream:
            try:
                fields = orjson.loads(data)
            except orjson.JSONDecodeError:
                continue
            assert found in (fields["id"], _first_of(data, "id"))


def _first_of(data: bytes, name: str) -> Any:
    """Where a name stands twice JSON's readers take the last; what is read on the way sees the first."""
    pairs: list[tuple[str, Any]] = json.loads(data, object_pairs_hook=list)
    return next((value for key, value in pairs if key == name), None)


TARGETS: dict[str, Check] = {
    "front": front,
    "engine": engine,
    "events": events,
    "capture": capture,
    "response": response,
    "body": body,
    "configuration": configuration,
    "metrics": metrics,
    "sessions": sessions,
}


def _cut(data: bytes, cuts: Cuts) -> list[bytes]:
    places = [0, *sorted({min(cut, len(data)) for cut in cuts} - {0, len(data)}), len(data)]
    parts = [data[start:end] for start, end in pairwise(places) if start < end]
    return [part[at : at + 65536] for part in parts for at in range(0, len(part), 65536)]
