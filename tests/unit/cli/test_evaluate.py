"""nmt-eval: valid combinations of keys, and all that it reads, translates, scores and writes."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nmt.cli.evaluate import evaluate
from nmt.config import (
    CometConfig,
    CorpusConfig,
    DataConfig,
    DecodingConfig,
    EvalConfig,
    EvaluationConfig,
    SetConfig,
    SplitConfig,
    TrainConfig,
)
from nmt.data.corpora import held_out
from nmt.data.corpora.held_out import HeldOut
from nmt.data.corpora.text import file_facts
from nmt.decoding.loading import LoadedModels
from nmt.errors import UserError
from nmt.evaluation.metrics import METRICS, Metric

SIGNATURES = """\
BLEU|nrefs:1|case:mixed|eff:no|tok:{tokenizer}|smooth:exp|version:{version}
chrF2|nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:{version}
TER|nrefs:1|case:lc|tok:tercom|norm:no|punct:yes|asian:no|version:{version}
"""


def signatures(tokenizer: str = "13a") -> str:
    import sacrebleu

    return SIGNATURES.format(tokenizer=tokenizer, version=sacrebleu.__version__)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Writes small texts of three lines to the working folder."""
    monkeypatch.chdir(tmp_path)
    for name, lines in {
        "hyp": ["the cat sat on the mat", "a dog", "hello world again ."],
        "ref": ["the cat sat on a mat", "a dog", "hello world again."],
        "src": ["ON THE MAT THE CAT SAT", "A DOG", ""],
        "labels": ["pets", "pets", "other"],
        "short": ["one", "two"],
    }.items():
        Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return tmp_path


READ_HELD_OUT = held_out.read_held_out
HELD_OUT = HeldOut(
    "pets",
    ["ON THE MAT THE CAT SAT", "A DOG", ""],
    ["on the mat the cat sat", "a cat", "nothing"],
    ["x", "y", "y"],
    {"sha256": "abc"},
)


class FakeTranslator:
    """Returns the source in lower case; cuts sentences of more than four words."""

    calls: list[Any] = []

    def __init__(self, loaded: LoadedModels, decoding: DecodingConfig, utility: Any) -> None:
        assert utility is None
        FakeTranslator.calls.append((decoding, str(loaded.device), loaded.precision.name))

    def translate(
        self, lines: Sequence[str], advance: Callable[[int], object], *, alignments: bool
    ) -> list[Any]:
        assert not alignments  # without an analysis
        advance(len(lines))
        return [
            SimpleNamespace(
                hypotheses=(SimpleNamespace(text=line.lower(), score=0.0),),
                truncated=4 if len(line) > 20 else 0,
                appended=0,
                parts=(),
                num_tokens=0,
                retried=False,
                lost=(2, 1) if line.startswith("A ") else None,
                numbers=("5",) if line.startswith("A ") else (),
                cut_to=1024,
                cut_by="decoding.max_source_tokens",
            )
            for line in lines
        ]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainConfig:
    """A model in `run` for `pets` from English to German; all its parts are stand-ins."""
    config = TrainConfig(data=DataConfig(name="pets", source_lang="en", target_lang="de"))
    config.data.test = SplitConfig(source="pets.en", target="pets.de")
    record = {}
    for side, ending in (("source", "en"), ("target", "de")):
        (tmp_path / f"pets.{ending}").write_text(f"a pet of the {side}\n")
        record[side] = [file_facts(tmp_path / f"pets.{ending}")]
    unchanging = SimpleNamespace(rule="identity", normalized=list)
    tokenizer = SimpleNamespace(source_symbols={"<2fr>": 4}, target=unchanging)
    results = {"data": {"test": record}}
    bundle = SimpleNamespace(
        folder=Path("run/model"),
        config=config,
        model=None,
        tokenizer=tokenizer,
        results=results,
    )

    def read_held_out(split: SplitConfig, data: DataConfig, key: str, trained_on: DataConfig) -> HeldOut:
        if split.source == "gone.en":
            raise UserError(f"{key}.source=gone.en: there is no such file")
        assert (split, key, trained_on) == (data.test, "data.test", config.data)
        return replace(HELD_OUT, source_lang=data.source_lang, target_lang=data.target_lang)

    FakeTranslator.calls = []
    monkeypatch.setitem(sys.modules, "nmt.bundle", SimpleNamespace(load_bundles=lambda paths: [bundle]))
    monkeypatch.setattr(LoadedModels, "readers", lambda *arguments: (FakeTranslator(*arguments), None))
    monkeypatch.setattr(held_out, "read_held_out", read_held_out)
    return config


def test_files_give_a_table_and_nothing_else(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluate(EvalConfig(hypotheses="hyp", references="ref"))
    assert (
        capsys.readouterr().out
        == (
            "hyp on ref\n"
            "\n"
            "                  sentences     BLEU    chrF2      TER\n"
            "hypotheses                3    69.82    86.84    27.27\n"
            "\n"
            "Higher BLEU and chrF2 are better, and lower TER.\n"
        )
        + signatures()
    )
    assert {path.name for path in files.iterdir()} == {"hyp", "ref", "src", "labels", "short"}


def test_groups_baseline_and_json(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluate(
        EvalConfig(hypotheses="hyp", references="ref", groups="labels", baseline="ref", json="report.json")
    )
    table = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in table[3:11]] == [
        *("all", "95%", "pets", "other", "baseline", "95%", "difference", "p-value")
    ]
    report = json.loads((files / "report.json").read_text(encoding="utf-8"))
    assert report["sentences"] == 3
    assert {label: group["sentences"] for label, group in report["groups"].items()} == {"pets": 2, "other": 1}
    assert report["baseline"]["chrf"]["baseline"] == 100.0
    assert report["files"] == {
        "hypotheses": "hyp",
        "references": "ref",
        "groups": "labels",
        "baseline": "ref",
    }


@pytest.mark.parametrize("references", [["ref", "ref2"], "ref*"])
def test_several_references(references: object, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "ref2").write_text("the cat sat there on the mat\na dog\nhello world again .\n")
    evaluate(EvalConfig(hypotheses="hyp", references=references, groups="labels", baseline="ref", json="j"))
    table = capsys.readouterr().out
    assert table.startswith("hyp on ref, ref2\n" if isinstance(references, list) else "hyp on ref*\n")
    assert table.count("|nrefs:2|") == 3
    report = json.loads((files / "j").read_text(encoding="utf-8"))
    # By hand: 12 of 12 words, 9 of 9 pairs, 5 of 6 triples, 2 of 4 fours occur in one of the references.
    assert report["bleu"] == pytest.approx(100 * (5 / 6 * 2 / 4) ** 0.25, abs=1e-9)
    # One edit; the references have (6 + 7) / 2, 2 and (3 + 4) / 2 words.
    assert report["ter"] == pytest.approx(100 / 12, abs=1e-9)
    assert report["groups"]["other"]["bleu"] == pytest.approx(100.0)
    assert report["groups"]["pets"]["signatures"]["bleu"].startswith("nrefs:2|")
    assert report["baseline"]["bleu"]["baseline"] == pytest.approx(100.0)
    assert report["baseline"]["signatures"]["bleu"].startswith("nrefs:2|")
    assert report["files"]["references"] == references


class Shouted(Metric):
    """The share of hypotheses that are their source in lower case."""

    key, name, needs_sources = "shouted", "small", True

    def score(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]], sources: Sequence[str]
    ) -> float:
        found = [ours == source.lower() for ours, source in zip(hypotheses, sources, strict=True)]
        return sum(found) / len(found)


@pytest.fixture
def shouted(monkeypatch: pytest.MonkeyPatch) -> EvaluationConfig:
    monkeypatch.setitem(METRICS, Shouted.key, Shouted)
    return EvaluationConfig(metrics=["shouted", "chrfpp"])


def test_a_metric_that_reads_sources(
    shouted: EvaluationConfig, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (files / "hyp").write_text("on the mat the cat sat\na cat\n\n")
    given: dict[str, Any] = {"groups": "labels", "baseline": "ref", "json": "j", "evaluation": shouted}
    evaluate(EvalConfig(hypotheses="hyp", references="ref", source="src", **given))
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split() == ["sentences", "small", "chrF2++"]
    report = json.loads((files / "j").read_text(encoding="utf-8"))
    assert list(report)[1:5] == ["shouted", "chrfpp", "signatures", "sentences"]
    assert report["shouted"] == pytest.approx(2 / 3)
    assert [report["groups"][label]["shouted"] for label in ("pets", "other")] == [0.5, 1.0]
    assert (report["baseline"]["shouted"]["baseline"], report["baseline"]["shouted"]["delta"]) == (
        pytest.approx(1 / 3),
        pytest.approx(1 / 3),
    )
    assert report["files"]["source"] == "src"


def test_a_metric_gets_the_sources_of_a_model_without_tags(
    shouted: EvaluationConfig, files: Path, model: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.data.train.corpora = {"fr": CorpusConfig(target_lang="fr", tag="<2fr>")}
    text = HeldOut("pets", ["A CAT", "", "A DOG"], ["", "", ""], None, {}, "<2fr>")
    monkeypatch.setattr(held_out, "read_held_out", lambda *given: text)
    evaluate(EvalConfig(model_dir="run", device="cpu", json="j", evaluation=shouted))
    # The stand-in translator retains the tag; the blank line has no tag.
    assert json.loads((files / "j").read_text(encoding="utf-8"))["shouted"] == pytest.approx(1 / 3)
    evaluate(EvalConfig(model_dir="run", source="src", references="ref", json="j", evaluation=shouted))
    assert json.loads((files / "j").read_text(encoding="utf-8"))["shouted"] == 1.0


def test_lines_with_tags_are_scored_in_their_language(
    files: Path, model: TrainConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    model.data.train.corpora = {
        "zh": CorpusConfig(target_lang="zho_Hans", tag="<2zh>"),
        "de": CorpusConfig(tag="<2de>"),
    }
    Path("mixed").write_text("<2zh> A\n<2de> B\n\n", encoding="utf-8")
    evaluate(EvalConfig(model_dir="run", source="mixed", references="ref", json="j"))
    report = json.loads((files / "j").read_text(encoding="utf-8"))
    assert "tok:13a" in report["signatures"]["bleu"]
    groups = report["groups"]
    assert [(label, groups[label]["sentences"]) for label in groups] == [("zho_Hans", 2), ("de", 1)]
    assert "tok:zh" in groups["zho_Hans"]["signatures"]["bleu"]
    assert "tok:13a" in groups["de"]["signatures"]["bleu"]
    shown = capsys.readouterr().out.splitlines()
    assert [line.partition("|")[0] for line in shown if line.endswith("(zho_Hans)")] == ["BLEU", "TER"]
    Path("mixed").write_text("<2zh> A\n\n<2zh> B\n", encoding="utf-8")
    evaluate(EvalConfig(model_dir="run", source="mixed", references="ref", json="j"))
    report = json.loads((files / "j").read_text(encoding="utf-8"))
    assert "tok:zh" in report["signatures"]["bleu"] and "groups" not in report
    evaluate(EvalConfig(model_dir="run", source="mixed", references="ref", json="j", target_lang="en"))
    assert "tok:13a" in json.loads((files / "j").read_text(encoding="utf-8"))["signatures"]["bleu"]


def test_a_metric_that_reads_sources_needs_them(shouted: EvaluationConfig, files: Path) -> None:
    with pytest.raises(UserError) as caught:
        evaluate(EvalConfig(hypotheses="hyp", references="ref", evaluation=shouted))
    assert str(caught.value) == "hypotheses=hyp: source=FILE is missing; shouted needs the sources."
    with pytest.raises(
        UserError, match=r"source=src has 3, hypotheses=short has 2, references=short has 2\."
    ):
        evaluate(EvalConfig(hypotheses="short", references="short", source="src", evaluation=shouted))


def test_a_metric_that_can_not_be_set_up_is_found_before_translating(files: Path, model: TrainConfig) -> None:
    # The configuration of a model may be untrusted, so it cannot choose a command.
    model.evaluation = EvaluationConfig(metrics=["comet"], comet=CometConfig(command="true"))
    comet = EvaluationConfig(metrics=["bleu", "comet"])
    with pytest.raises(
        UserError, match=r"^evaluation\.comet\.command: not set, but the metric comet requires it"
    ):
        evaluate(EvalConfig(model_dir="run", device="cpu", evaluation=comet))
    assert FakeTranslator.calls == []


def test_target_language_chooses_the_tokenizer(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluate(EvalConfig(hypotheses="hyp", references="ref", target_lang="zh"))
    assert "|tok:zh|" in capsys.readouterr().out


def test_tokenised_hypotheses_are_warned_about(files: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "nmt"):
        evaluate(EvalConfig(hypotheses="hyp", references="ref"))
    assert [record.getMessage() for record in caplog.records] == [
        "hypotheses=hyp: seems to be tokenised (lines end in ' .'), but scores need raw text. "
        "Detokenise it first."
    ]


@pytest.mark.parametrize(("form", "share"), [("NFD", 0), ("NFC", None)])
def test_other_unicode_forms_are_warned_about(
    files: Path, caplog: pytest.LogCaptureFixture, form: Any, share: int | None
) -> None:
    text = "Tiếng Việt\n" * 3
    (files / "hyp").write_text(text, encoding="utf-8")
    (files / "ref").write_text(unicodedata.normalize(form, text), encoding="utf-8")
    with caplog.at_level(logging.WARNING, "nmt"):
        evaluate(EvalConfig(hypotheses="hyp", references="ref"))
    assert [record.getMessage() for record in caplog.records] == [
        f"references=ref: differs from the hypotheses in Unicode form: {share}% of its lines and 100% of "
        "the hypotheses are NFC (composed letters). Equal letters in two forms count as errors. Convert both "
        "texts to NFC."
    ] * (share is not None)


def test_a_model_is_scored_on_its_own_test_set(
    files: Path, model: TrainConfig, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    decoding = DecodingConfig(beam_size=7)
    evaluate(EvalConfig(model_dir="run", device="cpu", output="out", json="report.json", decoding=decoding))
    out = capsys.readouterr().out
    assert out.startswith("run on pets (test), en-de\n")
    assert [line.split()[:2] for line in out.splitlines()[3:6]] == [["all", "3"], ["x", "1"], ["y", "2"]]
    assert (files / "out").read_text(encoding="utf-8") == "on the mat the cat sat\na dog\n\n"
    segments = replace(decoding, split_sentences=False)  # a line of a test set is a segment
    assert FakeTranslator.calls == [(segments, "cpu", "fp32")]
    report = json.loads((files / "report.json").read_text(encoding="utf-8"))
    assert (report["model_dir"], report["split"], report["data"]) == ("run", "test", {"sha256": "abc"})
    assert (report["decoding"]["beam_size"], report["precision"]) == (7, "fp32")
    assert "1 of 3 sources: cut to 1,024 tokens (decoding.max_source_tokens)" in caplog.text
    assert "sentences of 1 of 3 lines: their translations have fewer. Lines: " in caplog.text
    assert "numbers of 1 of 3 lines: their translations lack or change some. Lines: 2 (" in caplog.text


def test_a_text_that_is_not_the_runs_own_is_told(
    files: Path, model: TrainConfig, caplog: pytest.LogCaptureFixture
) -> None:
    results = sys.modules["nmt.bundle"].load_bundles(["run"])[0].results
    for recorded, reported in [({"sha256": "abc", "sentences": 3}, False), ({"sha256": "another"}, True)]:
        results["data"]["test"] = {**results["data"]["test"], **recorded}
        caplog.clear()
        evaluate(EvalConfig(model_dir="run", device="cpu"))
        assert ("data.test: not the text of the run" in caplog.text) is reported


def test_a_report_that_cannot_be_written_does_not_cost_the_scores(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match="can't write /dev/full: no space is left on its disk"):
        evaluate(EvalConfig(hypotheses="ref", references="ref", json="/dev/full"))
    assert capsys.readouterr().out.startswith("ref on ref\n")
    with pytest.raises(UserError, match="^json=/proc/report.json: the folder /proc is not writable"):
        evaluate(EvalConfig(hypotheses="ref", references="ref", json="/proc/report.json"))


@pytest.mark.parametrize(
    ("text", "lang", "tokenizer", "logged"),
    [
        (
            "我喜欢猫。",
            None,
            "zh",
            "references=one: in the script of zh. target_lang=CODE gives another",
        ),
        ("我喜欢猫。", "de", "13a", ""),
        ("Die 猫 ist da", None, "13a", ""),
        (
            "ねこがすき",
            None,
            "13a",
            "references=one: in the script of ja, so whole phrases count as words",
        ),
        ("แมวนั่ง", None, "13a", "target_lang=th: BLEU has no tokeniser for this language without spaces"),
    ],
)
def test_the_script_of_the_references_names_their_language(
    text: str,
    lang: str | None,
    tokenizer: str,
    logged: str,
    files: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "MeCab", None)  # not installed
    (files / "one").write_text(text + "\n", encoding="utf-8")
    with caplog.at_level("INFO", "nmt"):
        evaluate(EvalConfig(hypotheses="one", references="one", target_lang=lang))
    assert f"tok:{tokenizer}" in capsys.readouterr().out
    assert logged in caplog.text and (logged or "script of" not in caplog.text)


def test_each_group_of_a_mixed_text_has_the_language_of_its_script(files: Path) -> None:
    text = "我喜欢猫\neine Katze und ein Hund\n我喜欢狗\nein Haus\n"
    (files / "one").write_text(text, encoding="utf-8")
    (files / "two").write_text("zh\nde\nzh\nde\n")
    options = {"hypotheses": "one", "references": "one", "json": "j"}
    evaluate(EvalConfig(**options, groups="two"))
    report = json.loads((files / "j").read_text(encoding="utf-8"))
    tokenizers = {name: part["signatures"]["bleu"].split("|")[3] for name, part in report["groups"].items()}
    assert tokenizers == {"zh": "tok:zh", "de": "tok:13a"}
    assert "tok:13a" in report["signatures"]["bleu"]
    evaluate(EvalConfig(**options))
    assert "groups" not in json.loads((files / "j").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("lang", "reported"), [("th", True), ("km_KH", True), ("zh", False), ("de", False)])
def test_languages_that_bleu_can_not_split(
    lang: str, reported: bool, files: Path, caplog: pytest.LogCaptureFixture
) -> None:
    evaluate(EvalConfig(hypotheses="hyp", references="ref", target_lang=lang))
    assert (f"target_lang={lang}: BLEU has no tokeniser" in caplog.text) is reported


def test_a_model_is_scored_on_files(
    files: Path, model: TrainConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluate(EvalConfig(model_dir="run", device="cpu", source="src", references="ref", baseline="hyp"))
    out = capsys.readouterr().out
    assert out.startswith("run on ref\n")
    assert "baseline " in out and "  x " not in out


def test_a_model_is_scored_on_other_data(
    files: Path, model: TrainConfig, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    other = DataConfig(name="ted", source_lang="en", target_lang="zh", test=SplitConfig(split="test"))
    evaluate(EvalConfig(model_dir="run", device="cpu", data=other))
    out = capsys.readouterr().out
    assert out.startswith("run on ted (test), en-zh\n")
    assert "|tok:zh|" in out
    assert "the model translates from en to de, but the data are from en to zh" in caplog.text


def test_other_spellings_of_the_languages_are_the_same(
    files: Path, model: TrainConfig, caplog: pytest.LogCaptureFixture
) -> None:
    other = DataConfig(name="ted", source_lang="eng", target_lang="de-DE", test=SplitConfig(split="test"))
    evaluate(EvalConfig(model_dir="run", device="cpu", data=other))
    assert "the model translates" not in caplog.text


def test_a_tag_of_the_data_goes_before_their_sources(
    files: Path, model: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.data.train.corpora = {"fr": CorpusConfig(target_lang="fr", tag="<2fr>")}
    text = HeldOut("pets", ["A CAT", "", "A DOG"], ["", "", ""], None, {}, "<2fr>")
    monkeypatch.setattr(held_out, "read_held_out", lambda *given: text)
    evaluate(EvalConfig(model_dir="run", device="cpu", output="out"))
    assert (files / "out").read_text(encoding="utf-8") == "<2fr> a cat\n\n<2fr> a dog\n"
    monkeypatch.setattr(
        sys.modules["nmt.bundle"].load_bundles(["run"])[0].tokenizer, "source_symbols", {"<2de>": 4}
    )
    with pytest.raises(
        UserError, match=r"^data\.test\.tag=<2fr>: the model in run/model knows these tags: <2de>$"
    ):
        evaluate(EvalConfig(model_dir="run", device="cpu"))


def test_a_model_of_several_languages_knows_them_all(
    files: Path, model: TrainConfig, caplog: pytest.LogCaptureFixture
) -> None:
    model.data.train.corpora = {"a": CorpusConfig(), "b": CorpusConfig(target_lang="zh")}
    other = DataConfig(name="ted", source_lang="en", target_lang="zh", test=SplitConfig(split="test"))
    evaluate(EvalConfig(model_dir="run", device="cpu", data=other))
    assert "the model translates" not in caplog.text


@pytest.fixture
def sets(files: Path, model: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> DataConfig:
    """The model has two sets of test text, in German and Chinese, whose tags the model knows."""
    monkeypatch.setattr(held_out, "read_held_out", READ_HELD_OUT)
    for name, lines in {
        "de.src": "A DOG\nA CAT\n",
        "de.ref": "a dog\na cat\n",
        "zh.src": "",
        "zh.ref": "",
    }.items():
        Path(name).write_text(lines or "我喜欢猫。\n" * 2, encoding="utf-8")
    data = model.data
    data.train.corpora = {"zh": CorpusConfig(target_lang="zh", tag="<2zh>"), "de": CorpusConfig()}
    data.test = SplitConfig(
        sets={
            "news": SetConfig(source="de.src", target="de.ref", groups="two"),
            "ted": SetConfig(source="zh.src", target="zh.ref", tag="<2zh>"),
        }
    )
    Path("two").write_text("x\ny\n")
    bundle = sys.modules["nmt.bundle"].load_bundles(["run"])[0]
    bundle.tokenizer.source_symbols = {"<2zh>": 4}
    facts = {name: text.facts for name, text in held_out.read_sets(data.test, data, "data.test").items()}
    bundle.results["data"]["test"] = {"sets": facts}
    return data


def test_named_sets_of_a_model_are_scored_each(
    sets: DataConfig, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    evaluate(EvalConfig(model_dir="run", device="cpu", output="out", json="j"))
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "run on pets (test), 2 sets"
    assert [line.split()[:2] for line in out[3:8]] == [
        ["news", "2"], ["x", "1"], ["y", "1"], ["ted", "2"], ["mean", "4"],
    ]  # fmt: skip
    signed = [
        line.partition("|tok:")[2].partition("|")[0] + line[-7:] for line in out if line.startswith("BLEU")
    ]
    assert signed == ["13a (news)", "zh0 (ted)"]
    assert Path("out").read_text(encoding="utf-8") == "a dog\na cat\n" + "<2zh> 我喜欢猫。\n" * 2
    report = json.loads(Path("j").read_text(encoding="utf-8"))
    parts = report["sets"]
    assert report["chrf"] == (parts["news"]["chrf"] + parts["ted"]["chrf"]) / 2 > 50
    assert (report["sentences"], report["signatures"]) == (4, {})
    assert parts["ted"]["data"]["source"][0]["name"] == "zh.src" and "x" in parts["news"]["groups"]
    assert "not the text of the run" not in caplog.text and "the model translates" not in caplog.text


def test_one_of_the_named_sets_is_scored_alone(sets: DataConfig, capsys: pytest.CaptureFixture[str]) -> None:
    evaluate(EvalConfig(model_dir="run", device="cpu", set="ted", json="j"))
    assert capsys.readouterr().out.startswith("run on pets (test, ted), en-zh\n")
    report = json.loads(Path("j").read_text(encoding="utf-8"))
    assert (report["split"], report["set"], report["sentences"]) == ("test", "ted", 2)
    assert "tok:zh" in report["signatures"]["bleu"] and "sets" not in report


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"set": "nws"},
            "set=nws: data.test of the model in run/model has no such set. Choose from news, ted.",
        ),
        (
            {"baseline": "two"},
            "baseline=two: data.test has several sets. Give set=NAME to score one of news, ted.",
        ),
        (
            {"groups": "two"},
            "groups=two: data.test has several sets. Give set=NAME to score one of news, ted.",
        ),
        (
            {"target_lang": "de"},
            "target_lang=de: data.test has several sets. Give set=NAME to score one of news, ted.",
        ),
        (
            {"set": "ted", "source": "src", "references": "ref"},
            "set=ted: names a set of the data, but the files are given. Leave it out.",
        ),
    ],
)
def test_mistakes_with_named_sets(sets: DataConfig, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        evaluate(EvalConfig(model_dir="run", device="cpu", **options))
    assert str(caught.value) == message and FakeTranslator.calls == []


def test_a_named_set_that_is_not_the_recorded_one(sets: DataConfig) -> None:
    Path("zh.ref").write_text("something else\n" * 2)
    evaluate(EvalConfig(model_dir="run", device="cpu", set="news"))
    with pytest.raises(UserError) as caught:
        evaluate(EvalConfig(model_dir="run", device="cpu"))
    assert str(caught.value) == (
        "data.test.sets.ted.target=zh.ref: not the file that the model's results.json has recorded (a model "
        "could name any file of this machine). To read it, name it explicitly: nmt-eval model_dir=run "
        "data=local data.test.source=zh.src data.test.target=zh.ref 'data.test.tag=<2zh>' "
        "data.source_lang=en data.target_lang=zh"
    )


def test_data_that_moved_are_explained(files: Path, model: TrainConfig) -> None:
    model.data.test.source = "gone.en"
    with pytest.raises(UserError) as caught:
        evaluate(EvalConfig(model_dir="run", device="cpu"))
    assert str(caught.value) == (
        f"data.test.source=gone.en: there is no such file (looked at {files}/gone.en) (recorded with the "
        "model in run/model). If its data have moved, give source=FILE and references=FILE."
    )


@pytest.mark.parametrize("change", ["size", "content", "no record"])
def test_files_that_a_model_names_are_read_only_if_they_are_its_own(
    change: str, files: Path, model: TrainConfig
) -> None:
    if change == "no record":
        sys.modules["nmt.bundle"].load_bundles(["run"])[0].results.clear()
    else:
        Path("pets.en").write_text("a pet of the sauce" + ("" if change == "size" else "s\n"))
    with pytest.raises(UserError) as caught:
        evaluate(EvalConfig(model_dir="run", device="cpu"))
    assert str(caught.value) == (
        "data.test.source=pets.en: not the file that the model's results.json has recorded (a model could "
        "name any file of this machine). To read it, name it explicitly: "
        "nmt-eval model_dir=run source=pets.en references=pets.de"
    )
    assert FakeTranslator.calls == []
    evaluate(EvalConfig(model_dir="run", device="cpu", source="src", references="ref"))


def test_a_model_without_that_split(files: Path, model: TrainConfig) -> None:
    with pytest.raises(UserError) as caught:
        evaluate(EvalConfig(model_dir="run", device="cpu", split="valid"))
    assert str(caught.value) == (
        "the model in run/model: has no data.valid. Try split=test, or give source=FILE and references=FILE."
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "nothing to score. Give model_dir=DIR, or hypotheses=FILE and references=FILE."),
        (
            {"references": "ref"},
            "nothing to score. Give model_dir=DIR, or hypotheses=FILE and references=FILE.",
        ),
        ({"hypotheses": "hyp"}, "hypotheses=hyp: references=FILE is missing."),
        (
            {"hypotheses": "hyp", "model_dir": "run"},
            "model_dir and hypotheses exclude each other. Give one of them. To compare two systems, give "
            "baseline=FILE.",
        ),
        (
            {"hypotheses": "hyp", "references": "ref", "source": "src"},
            "source: requires model_dir=DIR; hypotheses=hyp is already translated.",
        ),
        (
            {"hypotheses": "hyp", "references": "ref", "output": "out"},
            "output: requires model_dir=DIR; hypotheses=hyp is already translated.",
        ),
        (
            {"hypotheses": "hyp", "references": "ref", "decoding": DecodingConfig(beam_size=2)},
            "decoding: requires model_dir=DIR; hypotheses=hyp is already translated.",
        ),
        (
            {"model_dir": "run", "source": "src"},
            "source and references require each other. Give both, or neither for the test set of the model.",
        ),
        (
            {"model_dir": "run", "references": "ref"},
            "source and references require each other. Give both, or neither for the test set of the model.",
        ),
        (
            {"model_dir": "run", "references": "ref", "source": "src", "data": DataConfig("x", "en", "de")},
            "source and data exclude each other. Give source=FILE and references=FILE, or data=NAME.",
        ),
        ({"model_dir": "run", "split": "train"}, "split=train: must be valid or test."),
        (
            {"model_dir": "run", "precision": "fp8"},
            "precision=fp8: must be one of auto, fp32, bf16, fp16.",
        ),
        (
            {"hypotheses": "hyp", "references": "ref", "json": "no/report.json"},
            "json=no/report.json: there is no folder FOLDER/no. Create it first.",
        ),
        (
            {"hypotheses": "hyp", "references": "ref", "json": "./ref"},
            "json=./ref: would overwrite references. Give another name.",
        ),
        (
            {"model_dir": "run", "json": "out", "output": "out"},
            "json=out: would overwrite output. Give another name.",
        ),
        (
            {"hypotheses": "hyp", "references": "ref", "json": "."},
            "json=.: is a folder. Name a file.",
        ),
        (
            {"hypotheses": "hyp", "references": "short"},
            "unequal numbers of sentences: hypotheses=hyp has 3, references=short has 2. "
            "They must correspond line for line.",
        ),
        (
            {"hypotheses": "hyp", "references": ["ref", "short"]},
            "unequal numbers of sentences: hypotheses=hyp has 3, references=ref has 3, "
            "references=short has 2. They must correspond line for line.",
        ),
        (
            {"hypotheses": "hyp", "references": ["ref", "none"]},
            "references=none: there is no such file (looked at FOLDER/none)",
        ),
        (
            {"hypotheses": "hyp", "references": []},
            "references=[]: must be a file or a list of files, references=[FILE,FILE].",
        ),
        (
            {"hypotheses": "hyp", "references": ["hyp", "ref"], "json": "ref"},
            "json=ref: would overwrite references. Give another name.",
        ),
        (
            {"hypotheses": "hyp", "references": "ref", "groups": "short"},
            "unequal numbers of sentences: hypotheses=hyp has 3, references=ref has 3, groups=short has 2. "
            "They must correspond line for line.",
        ),
    ],
)
def test_mistakes_are_told_by_key(
    options: dict[str, Any], message: str, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError) as caught:
        evaluate(EvalConfig(**options))
    assert str(caught.value) == message.replace("FOLDER", str(files.resolve()))
    assert capsys.readouterr().out == ""
    assert not (files / "out").exists()


def test_unequal_files_are_found_before_translating(files: Path, model: TrainConfig) -> None:
    with pytest.raises(UserError, match=r"source=src has 3, baseline=short has 2, references=ref has 3\."):
        evaluate(EvalConfig(model_dir="run", device="cpu", source="src", references="ref", baseline="short"))
    assert FakeTranslator.calls == []


@pytest.fixture
def nmt_eval() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the real command in a subprocess."""

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        code = "import sys; sys.argv[0] = 'nmt-eval'; from nmt.cli.evaluate import main; main()"
        command = [sys.executable, "-c", code, *arguments]
        environment = {**os.environ, "PYTHONPATH": os.fspath(Path(__file__).parents[3])}
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)

    return call


def test_the_command(files: Path, nmt_eval: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = nmt_eval("hypotheses=ref", "references=ref", "json=report.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("ref on ref\n")
    assert "hypotheses                3   100.00   100.00     0.00\n" in done.stdout
    assert json.loads((files / "report.json").read_text(encoding="utf-8"))["sentences"] == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["hypotheses=hyp", "references=none"], "references=none: there is no such file"),
        (["model_dir=nowhere"], "model_dir=nowhere: there is no such folder"),
        (
            ["hypotheses=hyp", "references=ref", "evaluation.metrics=bleu"],
            "evaluation.metrics: must be a list. Write it in brackets: [a,b].",
        ),
    ],
)
def test_mistakes_take_one_line(
    arguments: list[str], message: str, files: Path, nmt_eval: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    done = nmt_eval(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"nmt-eval: {message}")
    assert done.stderr.count("\n") == 1
