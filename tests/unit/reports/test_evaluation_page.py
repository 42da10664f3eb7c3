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
from nmt.evaluation.analysis.result import analyse
from nmt.evaluation.analysis.signs import SIGNS, Texts
from nmt.evaluation.metrics import metrics_for
from nmt.evaluation.report import Report
from nmt.evaluation.scores import score
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
        p_value = "≤ 0.001" if test["p_value"] == 1 / 1001 else f"{test['p_value']:.3f}"
        result = "better" if test["delta"] > 0 else "worse"
        assert [
            *(name, f"{report[key]:.2f} ±{test['interval']:.2f}"),
            *(f"{test['baseline']:.2f} ±{test['baseline_interval']:.2f}", f"{test['delta']:+.2f}"),
            *(p_value, result if test["p_value"] < 0.05 else "no significant difference"),
        ] in rows
        tile = f"{report[key]:.2f}{name} of loop; ±{test['interval']:.2f} (95% interval)"
        assert tile in [_text(part) for part in root.find_class("tile")]
    analysis = report["analysis"]
    for name, partition in analysis["partitions"].items():
        for label, scores in partition["bins"].items():
            first = {"with": name, "without": f"no {name}"}.get(label, label.replace(" or more", "+"))
            leads = [scores[key] - scores["baseline"][key] for key in ("chrf", "bleu")]
            cells = [f"{scores['chrf']:.2f}", f"{scores['baseline']['chrf']:.2f}", f"{leads[0]:+.2f}"]
            cells.append(f"{scores['bleu']:.2f} ({leads[1]:+.2f})")
            assert [first, str(scores["sentences"]), *cells] in rows
            assert f"{first}: {scores['chrf']:.4g}" in [_text(title) for title in root.iter("title")]
    for name, sign in analysis["signs"].items():
        counts = [sign["hypotheses"], sign["references"], sign["baseline"]["hypotheses"]]
        shares = [f"{count} ({count / sign['sentences']:.1%})" for count in counts]
        shares[0] += " *" * sign["is_fault"]
        words = SIGNS[name].words + SIGNS[name].meaning
        found = [row for row in rows if row[0] == words]
        assert [row[1:5] for row in found] == [[str(sign["sentences"]), *shares]] * any(counts)


def test_sentences_with_their_texts(page: tuple[Any, dict[str, Any]]) -> None:
    root, report = page
    segments = {
        segment["line"]: segment
        for name in ("won", "lost", "worst", "examples")
        for segment in report["analysis"][name]
    }
    assert len(root.findall(".//article")) == len(segments)
    assert len(list(root.iter("script"))) == 2
    for line, segment in segments.items():
        article = root.get_element_by_id(f"line-{line}")
        head = (
            f"Line {line} chrF2: loop {segment['chrf']:.2f}, base {segment['baseline_chrf']:.2f}, difference"
        )
        assert _text(article.find("h3")).startswith(head)
        found = [(f"{key}signs", name) for key, name in (("", "loop"), ("baseline_", "base"))]
        signs = [f"{name}: {SIGNS[sign].words}" for key, name in found for sign in segment[key]]
        assert [_text(sign) for sign in article.find_class("sign")] == signs
        assert [part.text for part in article.iter("dt")] == ["source", "reference", "loop", "base"]
        names = "source", "references", "hypothesis", "baseline"
        texts = [segment[name][0] if name == "references" else segment[name] for name in names]
        assert [part.text_content() for part in article.iter("dd")] == [*map(printable, texts)]
    links = {link.get("href")[1:] for cell in root.find_class("lines") for link in cell.iter("a")}
    assert links and links <= {f"line-{line}" for line in segments}
    assert [_text(part) for part in root.xpath("//td[contains(@class, 'lines')]/div/span")] == [
        *("only base:", "only loop:", "only loop:", "only loop:")
    ]  # fmt: skip
    folded = root.xpath("//tr[contains(th, 'loops')]//details")[0]
    assert _text(folded.find("summary")) == "and 53 more"
    assert _text(folded.find("span")).startswith("8 lines are not on this page")
    lists = {option.text.split(" (")[0]: option.get("data-lines") for option in root.iter("option")}
    for words, name in (("loop better", "won"), ("base better", "lost"), ("worst by chrF2, loop", "worst")):
        part = report["analysis"][name]
        assert lists[words] == " ".join(str(segment["line"]) for segment in part)
        order = [one["chrf"] - (one["baseline_chrf"] if name != "worst" else 0) for one in part]
        assert order == sorted(order, reverse=name == "won")
    assert [mark.text for mark in root.get_element_by_id("line-1").find_class("h")] == ["15", "15"]


def test_plain_sentences(page: tuple[Any, dict[str, Any]]) -> None:
    root, report = page
    said = [_text(sentence) for sentence in root.find_class("said")]
    chrf, bleu = (report["baseline"][key] for key in ("chrf", "bleu"))
    assert said[0] == (
        f"The scores of loop are significantly better than those of base in chrF2 ({chrf['delta']:+.2f}, "
        "p-value ≤ 0.001). No significant difference between loop and base in BLEU "
        f"({bleu['delta']:+.2f}, p-value {bleu['p_value']:.3f})."
    )
    wins = "the chrF2 of loop is higher in 58 sentences, lower in 2 and equal in 0"
    assert said[1] == f"Compared with base, {wins}."
    assert root.findtext("head/title") == "loop compared with base on ref"
    bins = report["analysis"]["partitions"]
    best, worst = bins["length"]["bins"]["11-15"], bins["questions"]["bins"]["without"]
    leads = [scores["chrf"] - scores["baseline"]["chrf"] for scores in (best, worst)]
    assert said[2] == (
        f"The difference in chrF2 is most favourable to loop on sources of 11-15 words (58 sentences): "
        f"{leads[0]:+.2f}, and least on sources without questions (59 sentences): {leads[1]:+.2f}."
    )
    assert (
        said[3] == "Of parts with 30 sentences or more, chrF2 of loop is worst on sources without questions "
        f"(59 sentences): {worst['chrf']:.2f}."
    )
    assert (
        said[4]
        == f"The text of loop is {report['analysis']['length_ratio'] - 1:.0%} longer than the references."
    )
    assert said[5:] == [
        "More frequent in loop than in the references: loops (sign test, p < 0.001).",
        "Compared with base: far too little text less often (0 and 58 of 60); loops more often (58 and 0 of "
        "60).",
    ]


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


def test_source_words_that_the_training_text_does_not_have() -> None:
    texts = Texts([["Ich sehe Ähren"]], ["I see EARS, and Ears of corn"], "en", "de")
    metrics = metrics_for("de", keys=["chrf"])
    analysis = analyse(["Ich sehe"], texts, metrics, counts={"i": 9, "see": 1, "and": 3, "of": 2, "ears": 0})
    assert analysis.as_dict()["unseen_words"] == ["corn", "ears"]
    scores = score(["Ich sehe"], texts.references, metrics)
    root = lxml.html.fromstring(evaluation_page(Report("t", scores, analysis=analysis)).html())
    marks = [mark.text for mark in root.get_element_by_id("line-1").find_class("u")]
    assert marks == ["EARS", "Ears", "corn"]
    assert "wavy: a word of the source that the training text does not have" in _text(root)
    assert analyse(["Ich sehe"], texts, metrics).as_dict()["unseen_words"] is None


def test_words_are_explained_where_they_first_appear(page: tuple[Any, dict[str, Any]]) -> None:
    terms = page[0].find_class("terms")[0]
    assert [term.text for term in terms.iter("dt")] == [
        *("Hypotheses", "References", "BLEU", "chrF2", "95% interval (±)", "p-value", "Sign test")
    ]
    assert page[0].get_element_by_id("summary") in terms.iterancestors()


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
