"""The `model` field of a multipart form, which nothing inside a file can pass for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.form import field_span
from tests.strategies import pieces

BOUNDARY = b"----b.0+(x)"
CONTENT_TYPE = b'multipart/form-data; boundary="%b"' % BOUNDARY


def part(value: bytes, *headers: bytes) -> bytes:
    return b"".join(header + b"\r\n" for header in headers) + b"\r\n" + value


def form(*parts: bytes, boundary: bytes = BOUNDARY) -> bytes:
    return b"".join(b"--%b\r\n%b\r\n" % (boundary, one) for one in parts) + b"--%b--\r\n" % boundary


def model(
    value: bytes = b"tiny", disposition: bytes = b'Content-Disposition: form-data; name="model"'
) -> bytes:
    return part(value, disposition)


def file(content: bytes) -> bytes:
    return part(
        content,
        b'Content-Disposition: form-data; name="file"; filename="speech.wav"',
        b"Content-Type: audio/wav",
    )


def found(body: bytes, content_type: bytes = CONTENT_TYPE) -> bytes | None:
    span = field_span(body, content_type, "model")
    return None if span is None else body[span[0] : span[1]]


@pytest.mark.parametrize(
    "body",
    [
        form(model(), file(b"RIFF")),
        form(file(b"RIFF"), model()),
        form(file(b"RIFF"), model(), part(b"en", b'Content-Disposition: form-data; name="language"')),
        form(model(disposition=b"content-disposition: form-data; name=model")),
        form(model(disposition=b'CONTENT-DISPOSITION:form-data;NAME="model"')),
        form(model(disposition=b'Content-Disposition: form-data; x="; name=no"; name="model"')),
        form(part(b"tiny", b"Content-Type: text/plain", b'Content-Disposition: form-data; name="model"')),
        form(part(b"tiny", b'Content-Disposition: form-data; name="mo\\del"')),
        form(model(b"other"), model()),
        form(model()).removesuffix(b"\r\n"),
        form(model()) + b"an epilogue",
        form(part(b"no headers"), model()),
        b"\r\n\r\n" + form(model()),
        form(file(b"\r\n--" + BOUNDARY + b"x\r\n"), model()),
    ],
)
def test_the_model_is_found_wherever_it_stands(body: bytes) -> None:
    assert found(body) == b"tiny"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"--",
        b'{"model":"tiny"}',
        form(),
        form(file(b"RIFF")),
        form(file(b"\r\n" + model())),
        form(file(b'--other\r\nContent-Disposition: form-data; name="model"\r\n\r\nevil\r\n--other--\r\n')),
        form(part(b"x", b'Content-Disposition: form-data; name="file"; filename="; name=\\"model\\""')),
        form(part(b"x", b'Content-Disposition: form-data; name="model"; filename="model"')),
        form(part(b"x", b'Content-Disposition: attachment; name="model"')),
        form(part(b"x", b'X-Content-Disposition: form-data; name="model"')),
        form(part(b"x", b'Content-Disposition: form-data; name="models"')),
        form(part(b"x", b"Content-Type: text/plain")),
        b"--" + BOUNDARY + b"\r\n" + model(),
        b"preamble\r\n" + form(model()),
        form(model(), boundary=b"other"),
        form(model(b"evil"), boundary=b"other") + form(model()),
    ],
)
def test_nothing_else_is_taken_for_it(body: bytes) -> None:
    assert found(body) is None


@pytest.mark.parametrize(
    ("content_type", "model_there"),
    [
        (b"multipart/form-data; boundary=b", b"tiny"),
        (b'Multipart/Form-Data; charset=utf-8;Boundary="b" ; x=y', b"tiny"),
        (b"multipart/form-data", None),
        (b"", None),
        (b"multipart/form-data; boundary=", None),
        (b"multipart/form-data; boundary=other", None),
        (b"multipart/form-data; boundary=b; boundary=other", None),
        (b"multipart/form-data; xboundary=b", None),
    ],
)
def test_the_boundary_is_the_one_that_the_head_names(content_type: bytes, model_there: bytes | None) -> None:
    assert found(form(model(), boundary=b"b"), content_type) == model_there


def test_a_value_may_be_empty_or_hold_line_ends() -> None:
    assert found(form(model(b""), file(b"x"))) == b""
    assert found(form(model(b"a\r\nb\n"))) == b"a\r\nb\n"


NOISE = st.lists(
    st.sampled_from(
        [
            b"\r\n",
            b"--",
            b"\r\n--",
            b"Content-Disposition: form-data; ",
            b'name="model"',
            b"\r\n\r\n",
            BOUNDARY[:-1],
        ]
    )
    | st.binary(max_size=4)
).map(b"".join)


@given(NOISE, NOISE, st.sampled_from(["before", "after", "absent"]))
def test_whatever_a_file_holds_it_names_no_model(content: bytes, value: bytes, place: str) -> None:
    delimiter = b"\r\n--" + BOUNDARY
    content, value = (text.replace(delimiter, b"") for text in (content, value))
    parts = [file(content)]
    if place == "before":
        parts.insert(0, model(value))
    elif place == "after":
        parts.append(model(value))
    assert found(form(*parts)) == (None if place == "absent" else value)


@given(st.data())
def test_no_bytes_make_it_fail(data: st.DataObject) -> None:
    body = form(file(b"RIFF\r\n--"), model())
    parts = pieces(body, sorted(data.draw(st.sets(st.integers(1, len(body) - 1), max_size=4))))
    field_span(b"".join(data.draw(st.permutations(parts))), CONTENT_TYPE, "model")
