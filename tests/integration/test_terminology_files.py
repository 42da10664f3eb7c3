"""A terminology file and constraints, through the command and through Python."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from commands import Toy

import nmt
from nmt.errors import UserError

TERMS = {"ba": "zwei Worte", "be bi": "ub", "lo": "ol", "DU": "groß"}
FILE = "# source\ttarget\n\n" + "".join(f"{source}\t{target}\n" for source, target in TERMS.items())


@pytest.fixture(scope="module")
def terms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("terms") / "terms.tsv"
    path.write_text(FILE, encoding="utf-8")
    return path


def has(text: str, *phrases: str) -> bool:
    """Whether a text has the words of all phrases, each as often as given."""
    return not Counter(" ".join(phrases).split()) - Counter(text.split())


def test_terms_are_in_the_translations(toy: Toy, trained: Path, terms: Path) -> None:
    lines = ["ba be bi", "", "Lo lo, du", "fo", "be ba be bi DU"] + [f"lo f{a}" for a in "aeiou"] * 14
    expected = [["zwei Worte", "ub"], [], ["ol", "ol"], [], ["zwei Worte", "ub", "groß"]] + [["ol"]] * 70
    options = [f"model_dir={trained}", "device=cpu", f"terminology={terms}", "decoding.beam_size=3"]
    text = "\n".join(lines) + "\n"
    results = [
        toy.run("nmt-translate", *options, f"decoding.workers={workers}", text=text) for workers in (1, 2)
    ]
    for result in results:
        assert result.returncode == 0 and b"is not met" not in result.stderr, result.stderr.decode()
    assert results[0].stdout == results[1].stdout
    written = results[0].stdout.decode().split("\n")[:-1]
    assert len(written) == len(lines)
    for translation, phrases in zip(written, expected, strict=True):
        assert has(translation, *phrases)

    plain = toy.run("nmt-translate", *options[:2], options[3], text=text).stdout.decode().split("\n")[:-1]
    assert [plain[1], plain[3]] == [written[1], written[3]]
    model = nmt.load(trained, device="cpu", threads=1)
    assert model.translate(lines, terminology=terms, beam_size=3) == written
    assert model.translate(lines, constraints=expected, beam_size=3)[1:4] == written[1:4]


def test_terms_that_a_processor_forbids_are_reported(toy: Toy, trained: Path, terms: Path) -> None:
    result = toy.done(
        "nmt-translate",
        f"model_dir={trained}",
        f"terminology={terms}",
        "decoding.no_repeat_ngram=1",
        text="fo\nlo lo\nfo\n",
    )
    assert len(result.stdout.decode().split("\n")) == 4
    errors = result.stderr.decode()
    assert errors.count("not met") == 1 and 'line 2: the constraint "ol" is not met' in errors


def test_the_guarantee_in_python(toy: Toy, trained: Path, said: pytest.LogCaptureFixture) -> None:
    model = nmt.load(trained, device="cpu", threads=1)
    constraints = [["ab", "ab"], [], ["eb ib"]]
    lists = model.translate_nbest(["ba", "be", "bi"], constraints=constraints, beam_size=8, nbest=2)
    for results, phrases in zip(lists, constraints, strict=True):
        assert all(has(one.text, *phrases) for one in results)
    assert has(model.translate("ba", constraints=[["eb"]]), "eb")
    assert not [message for message in said.messages if "not met" in message]
    assert model.translate([""], constraints=[["a", "b"]]) == [""]
    assert 'line 1: the constraints "a", "b" are not met' in said.messages


def test_mistakes(toy: Toy, trained: Path, tmp_path: Path) -> None:
    model = f"model_dir={trained}"
    twice = tmp_path / "terms"
    given = {
        f"terminology={tmp_path / 'none'}": "there is no such file",
        f"terminology={twice}": f"{twice}:2: 'ba' has another target term in line 1",
    }
    twice.write_text("ba\tx\nba\ty\n")
    for option, message in given.items():
        assert message in toy.refused("nmt-translate", model, option, text="ba\n")
    loaded = nmt.load(trained, device="cpu")
    with pytest.raises(UserError, match="constraints: 1 lists for 2 lines"):
        loaded.translate(["a", "b"], constraints=[["c"]])
    with pytest.raises(TypeError, match="constraints of line 1: must be a list of phrases, not str"):
        loaded.translate(["a"], constraints=["c"])
    with pytest.raises(UserError, match="decoding.samples=2: samples can't have constraints"):
        loaded.translate_nbest(["a"], constraints=[["c"]], samples=2)
