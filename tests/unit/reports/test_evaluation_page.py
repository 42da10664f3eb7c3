"""nmt-eval report=FILE.html: the JSON's figures, plain sentences, hostile text, and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lxml.html
import pytest

import nmt
from nmt.cli.evaluate import evaluate
from nmt.config import EvalConfig, EvaluationConfig
from nmt.errors import UserError
from nmt.evaluation.analysis.signs import SIGNS
from nmt.evaluation.report import Report
from nmt.reports.evaluation import evaluation_page
from nmt.runtime.streams import printable

HOSTILE = """</script><script>alert(1)</script> '"& \u202e\u2066 <b>""" + "x" * 10_000
TEXTS = {
    "src": ["Is it 15?", HOSTILE, *["We do not go home today because we have to work"] * 58],
    "ref": ["Sind es 15?", "a", *["Wir gehen heute nicht nach Hause, weil wir arbeiten müssen"] * 58],
    "loop": ["Sind es?", HOSTILE, *["Wir gehen heute gehen heute gehen heute weil wir arbeiten müssen"] * 58],
    "base": [
        "Sind es 15?",
        "a",
        *["Wir gehen heute nach Hause"] * 29,
        *["Wir gehen heute nicht nach Hause"] * 29,
    ],
}
OPTIONS: dict[str, Any] = {
    "hypotheses": "loop", "references": "ref", "source": "src", "source_lang": "en", "target_lang": "de",
    "baseline": "base", "json": "j", "report": "r.html", "evaluation": EvaluationConfig(["chrf", "bleu"]),
}  # fmt: skip


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, dict[str, Any]]:
    """Returns the elements of a page, and the report of `json=`."""
    folder = tmp_path_factory.mktemp("page")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, lines in TEXTS.items():
            Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        evaluate(EvalConfig(**OPTIONS))
    assert (folder / "r.html").stat().st_size < 500_000
    report = json.loads((folder / "j").read_text("utf-8"))
    return lxml.html.fromstring((folder / "r.html").read_text("utf-8")), report


def _text(element: Any) -> str:
    return " ".join(element.text_content().split())


def test_figures_equal_the_json(page: tuple[Any, dict[str, Any]]) -> None:
    root, report = page
    assert json.loads(root.get_element_by_id("data").text) == report
    rows = [[_text(cell) for cell in row] for row in root.iter("tr")]
    for key, name in (("chrf", "chrF2"), ("bleu", "BLEU")):
        test = report["baseline"][key]
        result = "better" if test["delta"] > 0 else "worse"
        assert [
            *(name, f"{report[key]:.2f} ±{test['interval']:.2f}"),
            *(f"{test['baseline']:.2f} ±{test['baseline_interval']:.2f}", f"{test['delta']:+.2f}"),
            *(f"{test['p_value']:.3f}", result if test["p_value"] < 0.05 else "no significant difference"),
        ] in rows
        tile = f"{report[key]:.2f}{name}; ±{test['interval']:.2f} (95% interval)"
        assert tile in [_text(part) for part in root.find_class("tile")]
    analysis = report["analysis"]
    for name, partition in analysis["partitions"].items():
        for label, scores in partition["bins"].items():
            first = {"with": name, "without": f"no {name}"}.get(label, label.replace(" or more", "+"))
            cells = [
                f"{scores[key]:.2f} ({scores[key] - scores['baseline'][key]:+.2f})"
                for key in ("chrf", "bleu")
            ]
            assert [first, str(scores["sentences"]), *cells] in rows
            assert f"{first}: {scores['chrf']:.4g}" in [_text(title) for title in root.iter("title")]
    for name, sign in analysis["signs"].items():
        counts = [sign["hypotheses"], sign["references"], sign["baseline"]["hypotheses"]]
        shares = [f"{count} ({count / sign['sentences']:.1%})" for count in counts]
        shares[0] += " *" * sign["is_fault"]
        found = [row for row in rows if row[0] == SIGNS[name].words]
        assert [row[1:5] for row in found] == [[str(sign["sentences"]), *shares]] * any(counts[:2])


def test_sentences_with_their_texts(page: tuple[Any, dict[str, Any]]) -> None:
    root, report = page
    segments = {
        segment["line"]: segment
        for name in ("worst", "different", "examples")
        for segment in report["analysis"][name]
    }
    assert len(root.findall(".//article")) == len(segments)
    assert len(list(root.iter("script"))) == 2
    for line, segment in segments.items():
        article = root.get_element_by_id(f"line-{line}")
        head = f"Line {line} chrF2 {segment['chrf']:.2f}; baseline {segment['baseline_chrf']:.2f}"
        assert _text(article.find("h3")).startswith(head)
        names = "source", "references", "hypothesis", "baseline"
        texts = [segment[name][0] if name == "references" else segment[name] for name in names]
        assert [part.text_content() for part in article.iter("dd")] == [*map(printable, texts)]
    links = {link.get("href")[1:] for cell in root.find_class("lines") for link in cell.iter("a")}
    assert links and links <= {f"line-{line}" for line in segments}
    assert [mark.text for mark in root.get_element_by_id("line-1").find_class("h")] == ["15", "15"]


def test_plain_sentences(page: tuple[Any, dict[str, Any]]) -> None:
    root, report = page
    said = [_text(sentence) for sentence in root.find_class("said")]
    chrf, bleu = (report["baseline"][key] for key in ("chrf", "bleu"))
    assert said[0] == (
        f"The hypotheses are significantly better than the baseline in chrF2 ({chrf['delta']:+.2f}, p = "
        f"{chrf['p_value']:.3f}). No significant difference from the baseline in BLEU "
        f"({bleu['delta']:+.2f}, p = {bleu['p_value']:.3f})."
    )
    assert said[1] == "The chrF2 of the hypotheses is higher in 58 sentences, lower in 2 and equal in 0."
    bins = report["analysis"]["partitions"]
    best, worst = bins["length"]["bins"]["11-15"], bins["questions"]["bins"]["without"]
    leads = [scores["chrf"] - scores["baseline"]["chrf"] for scores in (best, worst)]
    assert said[2] == (
        f"The difference in chrF2 is most favourable on sources of 11-15 words (58 sentences): "
        f"{leads[0]:+.2f}, and least on sources without questions (59 sentences): {leads[1]:+.2f}."
    )
    assert (
        said[3]
        == "Of parts with 30 sentences or more, chrF2 is worst on sources without questions (59 sentences): "
        f"{worst['chrf']:.2f}."
    )
    assert (
        said[4]
        == f"The hypotheses are {report['analysis']['length_ratio'] - 1:.0%} longer than the references."
    )
    assert said[-1] == "The hypotheses have loops more often than the references (sign test, p < 0.001)."


def test_several_sets_have_sections_each() -> None:
    parts = {
        name: nmt.evaluate(
            TEXTS["loop"][:size], TEXTS["ref"][:size], metrics=["chrf"], overrides=["analysis=true"]
        )
        for name, size in (("a", 40), ("b", 60))
    }
    page = evaluation_page(Report.of_sets("two", parts))
    names = ["signs", "sentences"]
    assert [section.name for section in page.sections] == [
        "summary", "scores", *(f"set{number}-{name}" for number in (1, 2) for name in names)
    ]  # fmt: skip
    means, *sets = page.sections[0].content["sentences"]
    values = [part.scores["chrf"] or 0 for part in parts.values()]
    assert means == f"chrF2 is {sum(values) / 2:.2f} in the mean of 2 sets, and worst on a: {values[0]:.2f}."
    assert [sentence[:3] for sentence in sets] == ["a: ", "b: "]
    root = lxml.html.fromstring(page.html())
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    assert {link.get("href")[1:] for link in root.iter("a")} <= {*ids}


def test_a_single_system_in_a_language_without_spaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, lines in {"h": ["東京都"] * 3, "ref": ["東北都", "", "東京都"]}.items():
        Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    options = {"hypotheses": "h", "references": "ref", "target_lang": "zh", "report": "r.html"}
    evaluate(EvalConfig(**options, evaluation=EvaluationConfig(["chrf"])))
    root = lxml.html.fromstring(Path("r.html").read_text("utf-8"))
    marks = [mark.text for mark in root.get_element_by_id("line-1").iter("mark")]
    assert marks == ["北", "京"]
    assert "baseline" not in _text(root.find("body/main"))


WRONG = [
    ({"report": "r.pdf"}, r"report=r\.pdf: must end in \.html\."),
    ({"report": "no/r.html"}, r"report=no/r\.html: "),
    ({"report": "src.html", "source": "src.html"}, r"report=src\.html: would overwrite source"),
    ({"score": True, "hypotheses": None, "baseline": None, "target_lang": None, "source_lang": None},
     r"report=r\.html: has no meaning with score=true"),
]  # fmt: skip


@pytest.mark.parametrize("changed, message", WRONG)
def test_wrong_options(
    changed: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("src", "src.html", "ref", "loop", "base"):
        Path(name).write_text("a\n")
    with pytest.raises(UserError, match=message):
        evaluate(EvalConfig(**(OPTIONS | changed)))
