"""nmt-eval analysis=true: the table, the JSON, Markdown and LaTeX, and the counts of training words."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nmt.cli.evaluate import evaluate
from nmt.config import CorpusConfig, DataConfig, EvalConfig, EvaluationConfig, TrainConfig, TrainSplitConfig
from nmt.data.corpora.text import file_facts
from nmt.errors import UserError
from nmt.evaluation.model_data import training_counts

SOURCES = ["Is it 15?", *["We do not go home today because we have to work"] * 19]
REFERENCES = ["Sind es 15?", *["Wir gehen heute nicht nach Hause, weil wir arbeiten müssen"] * 19]
LOOPING = ["Sind es?", *["Wir gehen heute gehen heute gehen heute weil wir arbeiten müssen"] * 19]

OPTIONS: dict[str, Any] = {
    "hypotheses": "loop|.de", "references": "ref", "source": "src", "source_lang": "en", "target_lang": "de",
    "analysis": True, "evaluation": EvaluationConfig(["chrf"]),
}  # fmt: skip

BLOCK = """\
sources           sentences           chrF2
source words
  1-5                     1  55.55 (-44.45)
  11-15                  19  63.55 (-36.45)
numbers
  with                    1  55.55 (-44.45)
  without                19  63.55 (-36.45)
negation
  with                   19  63.55 (-36.45)
  without                 1  55.55 (-44.45)
questions
  with                    1  55.55 (-44.45)
  without                19  63.55 (-36.45)
In brackets: the difference from the baseline.

signs of faults              sentences    hypotheses  references  baseline
  loops                             20  19 (95.0%) *    0 (0.0%)  0 (0.0%)
  lost or changed numbers            1    1 (100.0%)    0 (0.0%)  0 (0.0%)
* More frequent in the hypotheses than in the references: loops (sign test, p <
0.001). Compared with the baseline: loops more often (19 and 0 of 20).

worst sentences, by line                                                   chrF2
  2: Wir gehen heute gehen heute gehen heute weil wir arbeiten müssen      63.55
  3: Wir gehen heute gehen heute gehen heute weil wir arbeiten müssen      63.55
  4: Wir gehen heute gehen heute gehen heute weil wir arbeiten müssen      63.55
  5: Wir gehen heute gehen heute gehen heute weil wir arbeiten müssen      63.55
  6: Wir gehen heute gehen heute gehen heute weil wir arbeiten müssen      63.55
"""

MARKDOWN = """\
| signs of faults | sentences | hypotheses | references | baseline |
| --- | ---: | ---: | ---: | ---: |
| &nbsp;&nbsp;loops | 20 | 19 (95.0%) \\* | 0 (0.0%) | 0 (0.0%) |
| &nbsp;&nbsp;lost or changed numbers | 1 | 1 (100.0%) | 0 (0.0%) | 0 (0.0%) |

\\* More frequent in the hypotheses than in the references: loops (sign test, p &lt; 0.001). \
Compared with the baseline: loops more often (19 and 0 of 20).
"""

LATEX = r"""
\begin{tabular}{lrrrr}
\hline
signs of faults & sentences & hypotheses & references & baseline \\
\hline
\quad loops & 20 & 19 (95.0\%) * & 0 (0.0\%) & 0 (0.0\%) \\
\quad lost or changed numbers & 1 & 1 (100.0\%) & 0 (0.0\%) & 0 (0.0\%) \\
\hline
\end{tabular}

* More frequent in the hypotheses than in the references: loops (sign test, p \textless{} 0.001). BASELINE
"""


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, lines in {"src": SOURCES, "ref": REFERENCES, "loop|.de": LOOPING}.items():
        Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def test_table_and_files(capsys: pytest.CaptureFixture[str]) -> None:
    evaluate(EvalConfig(**OPTIONS, baseline="ref", json="j", table="t.md"))
    out = capsys.readouterr().out
    assert out.endswith(f"\n\n{BLOCK}")
    assert Path("t.md").read_text("utf-8").startswith("# loop\\|.de on ref\n\n|  | sentences | chrF2 |\n")
    assert f"\n\n{MARKDOWN}\n" in Path("t.md").read_text("utf-8")
    evaluate(EvalConfig(**OPTIONS, baseline="ref", table="t.tex"))
    tex = Path("t.tex").read_text("utf-8")
    assert LATEX.replace("BASELINE", "Compared with the baseline: loops more often (19 and 0 of 20).") in tex
    assert r"\quad 11-15 & 19 & 63.55 ($-$36.45) \\" in tex
    analysis = json.loads(Path("j").read_text("utf-8"))["analysis"]
    assert (analysis["faults"], analysis["undecided"]) == (["loops"], [])
    assert analysis["signs"]["loops"]["difference_p_value"] == pytest.approx(2 / 2**19)
    assert analysis["signs"]["loops"]["lines"] == [*range(2, 21)]
    assert analysis["signs"]["loops"]["baseline"]["hypotheses"] == 0
    assert analysis["partitions"]["length"]["title"] == "source words"
    short = analysis["partitions"]["length"]["bins"]["1-5"]
    assert (round(short["chrf"], 2), short["sentences"], short["baseline"]) == (55.55, 1, {"chrf": 100.0})


def test_one_system_has_the_interval_of_the_comparison(capsys: pytest.CaptureFixture[str]) -> None:
    evaluate(EvalConfig(**OPTIONS, json="one"))
    alone = capsys.readouterr().out
    evaluate(EvalConfig(**OPTIONS, json="two", baseline="ref"))
    compared = capsys.readouterr().out
    (interval,) = {line for line in alone.splitlines() if "95% interval" in line}
    assert interval in compared
    one, two = (json.loads(Path(name).read_text("utf-8")) for name in ("one", "two"))
    assert one["analysis"]["intervals"]["chrf"] == two["baseline"]["chrf"]["interval"]


def test_a_sound_system_and_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    evaluate(EvalConfig(**(OPTIONS | {"hypotheses": "ref"})))
    assert capsys.readouterr().out.endswith(
        "No sign of faults is significantly more frequent than in the references (p <\n0.001).\n"
    )
    evaluate(EvalConfig(hypotheses="loop|.de", references="ref", json="j"))
    assert "analysis" not in json.loads(Path("j").read_text("utf-8"))
    assert "95%" not in capsys.readouterr().out


WRONG = [
    ({"analysis": False}, r"source: requires model_dir=DIR"),
    ({"table": "ref"}, r"table=ref: must end in \.md \(Markdown\) or \.tex \(LaTeX\)\."),
    ({"table": "src.md", "json": "src.md"}, r"table=src.md: would overwrite json"),
    ({"score": True, "hypotheses": None, "target_lang": None, "source_lang": None}, r"analysis=True: has no"),
]


@pytest.mark.parametrize("changed, message", WRONG)
def test_wrong_options(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        evaluate(EvalConfig(**(OPTIONS | changed)))


@pytest.mark.parametrize("named", [False, True])
def test_training_words_are_counted_in_recorded_files(named: bool) -> None:
    Path("t.en").write_text("the cat and the dog\nThe end\n")
    Path("t.de").write_text("die Katze und der Hund\nEnde\n")
    data = DataConfig(name="pets", source_lang="en", target_lang="de")
    data.train = TrainSplitConfig(source="t.en", target="t.de")
    record: dict[str, Any] = {"source": [file_facts(Path("t.en"))], "target": [file_facts(Path("t.de"))]}
    if named:
        data.train = TrainSplitConfig(corpora={"pets": CorpusConfig(source="t.en", target="t.de")})
        record = {"corpora": {"pets": record}}
    bundle: Any = SimpleNamespace(config=TrainConfig(data=data), results={"data": {"train": record}})
    assert training_counts(bundle, ["The mouse", "a cat"]) == {"the": 3, "mouse": 0, "a": 0, "cat": 1}
    Path("t.en").write_text("another cat and the dog\nThe end\n")
    assert training_counts(bundle, ["The mouse"]) is None
    bundle.config.data.train = TrainSplitConfig(split="train")
    assert training_counts(bundle, ["The mouse"]) is None
