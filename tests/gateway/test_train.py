"""`headrace train`: what it writes, what it prints, and what it says of lines that it cannot use; and reading the file again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.__main__ import main
from gateway.classifier_file import MAX_BYTES, UnusableModel, read_model, written
from gateway.train import report
from policies.classifier_training import HeldOut, train
from tests.policies.labelled_lines import FILE, labelled_lines

CLASSIFIER = train(labelled_lines()).classifier
MODEL: dict[str, Any] = orjson.loads(written(CLASSIFIER))
POOLS = "pools: [{name: a, backends: [{url: 'http://a'}]}]\n"


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    """The faults that are printed."""
    assert main(["train", *arguments]) == 2
    out, err = capsys.readouterr()
    assert not out
    return err.splitlines()


def test_a_file_is_written_that_says_the_same_and_the_report_tells_how_good_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "model.json")
    assert main(["train", str(FILE), "--out", out]) == 0
    printed = capsys.readouterr().out
    assert Path(out).read_bytes() == written(CLASSIFIER) and os.listdir(tmp_path) == ["model.json"]
    again = read_model(out)
    assert (again.types, again.scale) == (CLASSIFIER.types, CLASSIFIER.scale)
    assert again.weights == CLASSIFIER.weights and written(again) == written(CLASSIFIER)
    for part in ("240 different lines", "accuracy 9", "at confidence 0.8 and above", f"{out}: 6"):
        assert part in printed


def test_the_report_counts_what_was_said_of_each_type_and_draws_its_line_where_it_is_told_to() -> None:
    held_out = [
        HeldOut("a", "a", 0.9),
        HeldOut("a", "b", 0.7),
        HeldOut("b", "b", 0.6),
        HeldOut("b", "", 0.0),
    ]
    printed = report(held_out, 0.7)
    assert "accuracy 50.0 %" in printed
    assert "at confidence 0.7 and above 50.0 % of them are decided, 50.0 % of these right" in printed
    assert [line.split()[:4] for line in printed.splitlines()[4:7]] == [
        ["labelled", "a", "b", "(nothing)"],
        ["a", "1", "1", "0"],
        ["b", "0", "1", "1"],
    ]
    assert "above 0.0 % of them are decided, none of these right" in report(held_out, 0.95)


def test_the_line_is_drawn_where_min_confidence_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "m.json")
    for confidence in ("0.5", "1"):
        assert main(["train", str(FILE), "--out", out, "--min-confidence", confidence]) == 0
        assert f"at confidence {confidence} and above" in capsys.readouterr().out


def test_every_line_that_cannot_be_used_is_named_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "lines.tsv", tmp_path / "m.json"
    file.write_bytes(
        b"\xef\xbb\xbf# a comment\n\na\tone text\nno tab here\na\t \n\ttext\ntwo words\ttext two\nb\tone text\nb\t\xff\na\tone text\r\n"
    )
    faults = refused(capsys, str(file), "--out", str(out))
    assert [line.removeprefix(f"{file}:").split(":")[0] for line in faults] == ["4", "5", "6", "7", "8", "9"]
    for line, says in zip(
        faults,
        ("a tab, then the text", "has no text", "is not a name", "is not a name", "'a' on line 3", "UTF-8"),
        strict=True,
    ):
        assert says in line
    assert not out.exists()


def test_of_very_many_faults_the_first_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "lines.tsv"
    file.write_text("x\n" * 1000)
    faults = refused(capsys, str(file), "--out", str(tmp_path / "m.json"))
    assert len(faults) == 21 and faults[-1].endswith("980 faults more")


def test_too_few_lines_and_files_that_cannot_be_opened_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "lines.tsv", str(tmp_path / "m.json")
    file.write_text("a\tx\n")
    assert refused(capsys, str(file), "--out", out) == [f"{file}: there are 1 types; allowed: 2 to 64"]
    assert "none.tsv" in refused(capsys, str(tmp_path / "none.tsv"), "--out", out)[0]
    assert "nowhere" in refused(capsys, str(FILE), "--out", str(tmp_path / "nowhere" / "m.json"))[0]


def test_with_a_configuration_only_its_business_types_are_allowed_though_its_classifier_is_still_to_come(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, out = tmp_path / "c.yaml", tmp_path / "m.json"
    types = "business_types: [{name: credit-card}, {name: wealth}, {name: %s}]\n"
    config.write_text(POOLS + types % "loans" + f"classifier: {{file: '{out}'}}\n")
    faults = refused(capsys, str(FILE), "--out", str(out), "--config", str(config))
    first = next(number for number, (name, _) in enumerate(labelled_lines(), 1) if name == "loan")
    assert faults[0] == f"{FILE}:{first}: 'loan' is unknown; allowed: credit-card, default, loans, wealth"
    config.write_text(POOLS + types % "loan" + f"classifier: {{file: '{out}'}}\n")
    assert main(["train", str(FILE), "--out", str(out), "--config", str(config)]) == 0
    capsys.readouterr()
    assert main(["check", str(config)]) == 0
    assert f"classifier {out}: from confidence 0.8" in capsys.readouterr().out
    config.write_text("pools: [")
    assert "is not valid YAML" in refused(capsys, str(FILE), "--out", str(out), "--config", str(config))[0]


# --- the file -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"format": "other"}, "is not a classifier"),
        ({"version": 2}, "is of another version"),
        ({"types": ["a"]}, "`types`"),
        ({"types": ["a", "a", "b"]}, "`types`"),
        ({"types": ["a", "", "b"]}, "`types`"),
        ({"types": ["a", 1, "b"]}, "`types`"),
        ({"types": "abc"}, "`types`"),
        ({"types": [f"t{number}" for number in range(65)]}, "`types`"),
        ({"scale": 0}, "`scale`"),
        ({"scale": "1"}, "`scale`"),
        ({"scale": True}, "`scale`"),
        ({"features": []}, "`features`"),
        ({"features": {f"w{number}": [0, 0, 0] for number in range(1 << 16 | 1)}}, "too many"),
        ({"features": {"w": [1, 2]}}, "a right weight for each type"),
        ({"features": {"w": [1, 2, 2001]}}, "a right weight for each type"),
        ({"features": {"w": [1, 2, 0.5]}}, "a right weight for each type"),
        ({"features": {"w": [1, 2, True]}}, "a right weight for each type"),
    ],
)
def test_a_file_that_is_no_model_is_refused(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    path = tmp_path / "m.json"
    path.write_bytes(orjson.dumps({**MODEL, **changes}))
    with pytest.raises(UnusableModel, match=says):
        read_model(str(path))


def test_what_cannot_be_read_as_a_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_bytes(b" " * (MAX_BYTES + 1))
    for name, says in (
        (str(path), "is too long"),
        (str(tmp_path), "is not a file"),
        (str(tmp_path / "none"), "is not a file"),
        ("/dev/zero", "is not a file"),
        ("a\0b", "a file that `headrace train` has written is needed"),
    ):
        with pytest.raises(UnusableModel, match=says):
            read_model(name)


@given(st.binary(max_size=60) | st.sampled_from([b"[]", b"{}", b"null", b"1e999", b'{"format":{}}']))
def test_a_file_of_any_bytes_is_refused_and_nothing_else_happens(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_bytes(content)
    with pytest.raises(UnusableModel):
        read_model(str(path))


def test_a_file_that_changed_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_bytes(written(CLASSIFIER))
    first = read_model(str(path))
    assert read_model(str(path)) is first
    path.write_bytes(orjson.dumps({**MODEL, "types": ["a", "b", "longer"]}))
    assert read_model(str(path)).types == ("a", "b", "longer")
