"""The series of a metrics page are found as Prometheus' own library finds them, whatever else is on it, and no page can make the reader raise or go on for ever."""

from __future__ import annotations

from math import isfinite

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from gateway.foreign_page import MOST_METRICS_BYTES
from gateway.text_format import MOST_SAMPLES, Sample, labels_of, number, samples_of


def one(line: bytes) -> Sample:
    (sample,) = samples_of(line, ("a",))["a"]
    return sample


@pytest.mark.parametrize(
    ("line", "value", "at"),
    [
        (b"a 5", 5.0, None),
        (b"a\t 5 \t", 5.0, None),
        (b"a 5\r\n", 5.0, None),
        (b'a{x="y"} -1.5e3\n', -1500.0, None),
        (b'a {x="y"}\t7', 7.0, None),
        (b'a{x="y"}7', 7.0, None),
        (b'a{ x = "y" , z="" , } 7', 7.0, None),
        (b"a{} 7", 7.0, None),
        (b"a 5 1712345678901", 5.0, 1_712_345_678.901),
        (b"a 5 1712345678.9", 5.0, 1_712_345_678.9),
        (b'a 5 # {trace_id="b"} 0.5 1712345678.9', 5.0, None),
        (b'a{x="y"} 5 # {trace_id="}"} 0.5', 5.0, None),
        (b'a{x="}"} 5', 5.0, None),
        (b'a{x="\\"} 4 #"} 5', 5.0, None),
        (b'a{x="\xff\xfe\x00"} 5', 5.0, None),
    ],
)
def test_a_line_is_read_as_the_format_allows_it(line: bytes, value: float, at: float | None) -> None:
    sample = one(line)
    assert (sample.value, sample.at) == (value, at)


@pytest.mark.parametrize(
    "rest",
    [
        b"", b" ", b" NaN", b" nan", b" +Inf", b" -Inf", b" Infinity", b" x", b" 0x10", b" 1_000", b" 1,5", b" --1", b" 5 then", b" 5 NaN", b" 5 6 7", b" " + b"9" * 65,
        b'{x="y" 5', b'{x="y} 5', b"{x=y}", b'{x="y"}', b'{x="y"}}', b"}", b"{", b'"', b" 5\x00", b" 5 \xff", b'{x="' + b"y" * 8192 + b'"} 5',
    ],
)  # fmt: skip
def test_a_line_of_a_wanted_name_that_is_no_number_is_seen_and_unknown(rest: bytes) -> None:
    assert one(b"b 1\na" + rest + b"\nb 2").value is None


@pytest.mark.parametrize(
    "line",
    [b"ab 5", b"a:b 5", b"a_total 5", b"ba 5", b"# a 5", b"#a 5", b'b{x="a"} 5', b"b a 5", b"b 1\ra 5"],
)
def test_another_name_is_not_taken_for_the_wanted_one(line: bytes) -> None:
    assert samples_of(line, ("a",)) == {}


def test_the_samples_of_a_name_come_in_the_pages_order_and_those_of_other_names_apart() -> None:
    found = samples_of(b'a{n="1"} 1\nb 2\n# a\na{n="2"} 3\n\nc 4', ("a", "b", "d"))
    assert {name: [sample.value for sample in samples] for name, samples in found.items()} == {
        "a": [1.0, 3.0],
        "b": [2.0],
    }


def test_labels_come_without_their_escapes() -> None:
    sample = one(b'a{path="C:\\\\n",said="\\"x\\",y=\\"z\\"\\n",empty="",x ="1"} 5')
    assert labels_of(sample) == {b"path": b"C:\\n", b"said": b'"x",y="z"\n', b"empty": b"", b"x": b"1"}


def test_of_a_page_with_too_many_samples_nothing_is_told() -> None:
    assert len(samples_of(b"a 5\n" * MOST_SAMPLES, ("a",))["a"]) == MOST_SAMPLES
    assert samples_of(b"a 5\n" * (MOST_SAMPLES + 1), ("a",)) == {}
    assert len(samples_of(b"b 5\n" * (MOST_SAMPLES + 1) + b"a 5", ("a",))["a"]) == 1


@pytest.mark.parametrize(
    "piece",
    [
        b"a", b"\n", b"a{", b'a{"', b'a{x="y",', b'a{x="\\"', b'a"\\', b"a ", b"a\t5 ", b" ", b"}", b"{}", b"a{}#", b"\na", b"\na{", b'\na{x="', b"a 5\n", b"\r", b"\\", b"9",
    ],
)  # fmt: skip
def test_no_page_takes_longer_than_its_length_lets_expect(piece: bytes) -> None:
    """One that took more than linear time would not end before anybody lost patience."""
    page = piece * (MOST_METRICS_BYTES // len(piece))
    for whole in (page, b"a" + page, b"a{" + page, b'a{x="' + page):
        for samples in samples_of(whole, ("a", "aa")).values():
            assert len(samples) <= MOST_SAMPLES


PIECES = st.sampled_from(
    [b"a", b"b", b"\n", b" ", b"\t", b"\r", b"{", b"}", b'"', b"\\", b",", b"=", b"#", b"5", b".", b"e9", b"NaN", b"+Inf", b"-", b'x="y"', b'a{x="y"} 5\n']
)  # fmt: skip


@given(st.binary() | st.lists(PIECES, max_size=40).map(b"".join))
def test_no_page_makes_the_reader_raise(page: bytes) -> None:
    for name, samples in samples_of(page, ("a", "b")).items():
        assert name in ("a", "b") and samples
        for sample in samples:
            assert sample.value is None or isfinite(sample.value)
            assert sample.at is None or isfinite(sample.at)
            labels_of(sample)


@given(
    st.lists(
        st.tuples(st.text(max_size=6), st.text(max_size=6), st.floats()),
        max_size=5,
        unique_by=lambda it: it[:2],
    )
)
def test_what_the_official_library_writes_is_read_as_it_reads_it(
    series: list[tuple[str, str, float]],
) -> None:
    registry = CollectorRegistry()
    gauge = Gauge("a", "Help with a 5\nand\\n more", ("x", "y"), registry=registry)
    for x, y, value in series:
        gauge.labels(x, y).set(value)
    page = generate_latest(registry)
    (family,) = text_string_to_metric_families(page.decode())
    told = [
        (
            {name: value.encode() for name, value in sample.labels.items()},
            sample.value if isfinite(sample.value) else None,
        )
        for sample in family.samples
    ]
    found = [
        ({name.decode(): value for name, value in labels_of(sample).items()}, sample.value)
        for sample in samples_of(page, ("a",)).get("a", [])
    ]
    assert found == told


def test_a_number_is_finite_or_unknown() -> None:
    assert number(b"1e300") == 1e300 and number(b"-0") == 0.0
    assert number(b"1e400") is None and number(b"") is None
