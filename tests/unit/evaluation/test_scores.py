"""Scores: literal values, signatures, tokenizers by language, groups, baselines, texts that don't match."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import PairedTest

from nmt.errors import UserError
from nmt.evaluation.metrics import metrics_for, tokenizer_for
from nmt.evaluation.scores import Scores, compare, composed_share, looks_tokenized, score, score_groups

HYPOTHESES = ["the cat sat on the mat", "a dog", "hello world again ."]
REFERENCES = ["the cat sat on a mat", "a dog", "hello world again."]


def version() -> str:
    import sacrebleu

    return str(sacrebleu.__version__)


def test_known_scores_and_signatures() -> None:
    found = score(HYPOTHESES, [REFERENCES], metrics_for("de"))
    # Counted by hand: matching n-grams of all n-grams; lengths equal the references, so no penalty.
    assert found["bleu"] == pytest.approx(100 * (11 / 12 * 7 / 9 * 4 / 6 * 2 / 4) ** 0.25, abs=1e-9)
    assert found["chrf"] == pytest.approx(86.84259670711486, abs=1e-9)
    assert found["ter"] == pytest.approx(100 * 3 / 11, abs=1e-9)  # one word replaced; "again ." for "again."
    assert found.sentences == 3
    assert found.signatures == {
        "bleu": f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{version()}",
        "chrf": f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:{version()}",
        "ter": f"nrefs:1|case:lc|tok:tercom|norm:no|punct:yes|asian:no|version:{version()}",
    }


@pytest.mark.parametrize(
    ("hypotheses", "expected"),
    [
        (REFERENCES, (100.0, 100.0, 0.0)),
        (["", "", ""], (0.0, 0.0, 100.0)),
        (["1 2 3", "4", "5"], (0.0, 0.0, 100.0)),
    ],
)
def test_ends_of_the_scale(hypotheses: list[str], expected: tuple[float, float, float]) -> None:
    found = score(hypotheses, [REFERENCES], metrics_for("de"))
    assert (found["bleu"], found["chrf"], found["ter"]) == pytest.approx(expected, abs=1e-9)


def test_short_output_is_penalised_for_brevity() -> None:
    # Every n-gram matches, but there are 5 words for 6: exp(1 - 6/5).
    found = score(["the cat sat on a"], [["the cat sat on a mat"]], metrics_for("de"))
    assert found["bleu"] == pytest.approx(81.87307530779819)


def test_scores_as_results_json_holds_them() -> None:
    signatures = {"bleu": "b", "chrf": "c", "ter": "t"}
    assert Scores({"bleu": 1.5, "chrf": 2.5, "ter": 3.5}, signatures, sentences=4).as_dict() == {
        "bleu": 1.5,
        "chrf": 2.5,
        "ter": 3.5,
        "signatures": {"bleu": "b", "chrf": "c", "ter": "t"},
        "sentences": 4,
    }


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("de", "13a"),
        ("en_US", "13a"),
        ("zh", "zh"),
        ("zh-TW", "zh"),
        ("ZH_cn", "zh"),
        ("zho_Hans", "zh"),
        ("ja", "ja-mecab"),
        ("jpn_Jpan", "ja-mecab"),
        ("ko", "ko-mecab"),
        ("kor_Hang", "ko-mecab"),
        ("zha", "13a"),  # Zhuang is not Chinese
        ("cmn_Hant", "zh"),
        ("wuu", "zh"),
        ("zh-Latn", "13a"),
        ("ja-Latn", "13a"),
        ("xx", "13a"),
        ("", "13a"),
    ],
)
def test_tokenizer_follows_the_language(language: str, expected: str) -> None:
    assert tokenizer_for(language) == expected


def test_chinese_is_scored_by_character() -> None:
    found = score(["我喜欢猫。"], [["我喜欢狗。"]], metrics_for("zh"))
    # 4 of 5 characters, 2 of 4 pairs, 1 of 3 triples, no quadruple: smoothing gives half a match.
    assert found["bleu"] == pytest.approx(100 * (4 / 5 * 2 / 4 * 1 / 3 * 0.5 / 2) ** 0.25, abs=1e-9)
    assert "tok:zh" in found.signatures["bleu"]
    assert found["ter"] == pytest.approx(20.0)  # one character of five, not the whole "word"
    assert "norm:yes|punct:yes|asian:yes" in found.signatures["ter"]


def test_a_wrong_particle_of_korean() -> None:
    """The figures of docs/korean.md: `ko-mecab` counts the particle, `13a` the word with it."""
    pytest.importorskip("mecab_ko", reason="the extra ko is not installed")
    texts = ["이 모듈이 파일을 여는 함수를 제공합니다."], [["이 모듈은 파일을 여는 함수를 제공합니다."]]
    korean, other = (score(*texts, metrics_for(language)) for language in ("ko", "xx"))
    assert korean["bleu"] == pytest.approx(100 * (11 / 12 * 9 / 11 * 7 / 10 * 6 / 9) ** 0.25, abs=1e-9)
    assert other["bleu"] == pytest.approx(100 * (6 / 7 * 4 / 6 * 3 / 5 * 2 / 4) ** 0.25, abs=1e-9)
    assert f"{korean['bleu']:.1f} {other['bleu']:.1f} {other['chrf']:.1f}" == "76.9 64.3 79.7"
    assert "tok:ko-mecab" in korean.signatures["bleu"]


def test_a_group_in_one_language_has_its_tokenizer() -> None:
    texts = ["我喜欢猫。", "ein Hund"], [["我喜欢狗。", "ein Hund"]]
    found = score_groups(*texts, ["a", "b"], metrics_for("de"), target_langs=["zh", "de"])
    assert found["a"].values == score(["我喜欢猫。"], [["我喜欢狗。"]], metrics_for("zh")).values
    assert "tok:zh" in found["a"].signatures["bleu"] and "asian:yes" in found["a"].signatures["ter"]
    assert "tok:13a" in found["b"].signatures["bleu"]
    mixed = score_groups(*texts, ["a", "a"], metrics_for("de"), target_langs=["zh", "de"])
    assert "tok:13a" in mixed["a"].signatures["bleu"]


@pytest.mark.parametrize(
    ("language", "module", "extra"),
    [("ja", "ja_mecab", "sacrebleu[ja]"), ("ko", "ko_mecab", "sacrebleu[ko]")],
)
def test_missing_tokenizer_names_what_to_install(
    language: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"sacrebleu.tokenizers.tokenizer_{module}.MeCab", None)
    with pytest.raises(UserError) as caught:
        score(["a"], [["a"]], metrics_for(language))
    assert str(caught.value) == (
        f"target_lang={language}: BLEU needs the tokenizer {language}-mecab, which is not installed. "
        f'Install it: pip install "{extra}"'
    )


def test_groups_are_scored_by_themselves_in_order_of_appearance() -> None:
    found = score_groups(HYPOTHESES, [REFERENCES], ["ted", "news", "ted"], metrics_for("de"))
    assert list(found) == ["ted", "news"]
    assert found["ted"] == score(
        [HYPOTHESES[0], HYPOTHESES[2]], [[REFERENCES[0], REFERENCES[2]]], metrics_for("de")
    )
    assert found["news"].sentences == 1
    assert found["news"]["chrf"] == 100.0


@pytest.mark.parametrize(
    ("hypotheses", "references", "expected"),
    [
        (["So be it ."] * 3, ["So be it."] * 3, True),
        (["So be it ."] * 3, ["So be it ."] * 3, False),  # the references are tokenised too
        (["So be it ."] + ["Yes."] * 9, ["So be it."] + ["Yes."] * 9, True),
        (["So be it ."] + ["Yes."] * 10, ["So be it."] + ["Yes."] * 10, False),
        (["Yes."], ["Yes."], False),
    ],
)
def test_tokenised_hypotheses_are_noticed(
    hypotheses: list[str], references: list[str], expected: bool
) -> None:
    assert looks_tokenized(hypotheses, references) is expected


def test_the_share_of_composed_lines() -> None:
    assert composed_share(["abc", "Ti\u1ebfng", "Tie\u0302\u0301ng", "각", "가\u11a8"]) == 0.6


def test_sacrebleu_keeps_quiet(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    with caplog.at_level(logging.INFO):
        score(["so be it ."] * 120, [["so be it ."] * 120], metrics_for("zh"))
    assert not caplog.records
    assert capfd.readouterr() == ("", "")


def test_importing_costs_neither_sacrebleu_nor_torch() -> None:
    code = (
        "import sys, nmt.evaluation.report, nmt.evaluation.scores\n"
        "sys.exit(sum(name in sys.modules for name in ('sacrebleu', 'torch', 'numpy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_metrics_stand_under_the_keys_of_results_json() -> None:
    assert list(metrics_for("de")) == ["bleu", "chrf", "ter"]


LONG = " ".join(f"w{number % 977}" for number in range(60_000))
"""sacreBLEU would take far too long for its TER."""


@pytest.mark.parametrize("side", ["hypothesis", "reference", "second reference"])
def test_a_set_with_a_line_of_60000_words_has_no_ter(side: str, caplog: pytest.LogCaptureFixture) -> None:
    hypotheses, references = list(HYPOTHESES), [list(REFERENCES), list(REFERENCES)]
    {"hypothesis": hypotheses, "reference": references[0], "second reference": references[1]}[side][1] = LONG
    with caplog.at_level(logging.WARNING, "nmt"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(logging.getLogger("nmt"), "propagate", True)
        found = score(hypotheses, references, metrics_for("de"))
    assert found["ter"] is None
    assert found.as_dict()["ter"] is None
    assert found["bleu"] > 0 and found["chrf"] > 0
    assert found.signatures["ter"] == (
        f"nrefs:2|case:lc|tok:tercom|norm:no|punct:yes|asian:no|version:{version()}"
    )
    [message] = caplog.messages
    assert message.startswith("TER is omitted: line 2 has 60,000 words, and lines with more than 1,000 words")


def test_only_the_group_of_the_long_line_has_no_ter() -> None:
    found = score_groups(
        [*HYPOTHESES, LONG], [[*REFERENCES, "short"]], ["a", "a", "b", "b"], metrics_for("de")
    )
    assert found["a"]["ter"] == score(HYPOTHESES[:2], [REFERENCES[:2]], metrics_for("de"))["ter"]
    assert found["b"]["ter"] is None


def test_a_line_of_1000_words_has_ter() -> None:
    line = " ".join(f"word{number}" for number in range(1000))
    assert score([line], [[line.replace("word7 ", "other ")]], metrics_for("de"))["ter"] == pytest.approx(0.1)
    assert score([f"{line} more"], [[line]], metrics_for("de"))["ter"] is None


def test_without_spaces_characters_count() -> None:
    line = "\u8bcd" * 1001
    assert score([line], [[line]], metrics_for("zh"))["ter"] is None
    assert score([line], [[line]], metrics_for("de"))["ter"] == 0.0


# Comparisons with a baseline

LONGER = [f"sentence number {number} is a little longer than the others ." for number in range(40)]
GOOD = [line.replace("little", "bit") if row % 4 == 0 else line for row, line in enumerate(LONGER)]
BAD = [line.replace("longer than", "shorter like") if row % 2 else line for row, line in enumerate(LONGER)]


def test_a_system_does_not_differ_from_itself() -> None:
    found = compare(GOOD, GOOD, [LONGER], metrics_for("en"), resamples=50)
    for difference in (found["bleu"], found["chrf"], found["ter"]):
        assert (difference.delta, difference.p_value) == (0.0, 1.0)
        assert difference.interval == difference.baseline_interval


def test_a_clearly_better_system() -> None:
    found = compare(GOOD, BAD, [LONGER], metrics_for("en"), resamples=100)
    ours, theirs = score(GOOD, [LONGER], metrics_for("en")), score(BAD, [LONGER], metrics_for("en"))
    assert found["bleu"].baseline == theirs["bleu"]
    assert found["bleu"].delta == ours["bleu"] - theirs["bleu"] > 0
    assert found["ter"].delta == ours["ter"] - theirs["ter"] < 0
    assert found["bleu"].p_value == pytest.approx(1 / 101)  # none of the 100 resamples is that far away
    assert found["bleu"].interval > 0


def test_the_sides_are_not_swapped() -> None:
    forth = compare(GOOD, BAD, [LONGER], metrics_for("en"), resamples=50)
    back = compare(BAD, GOOD, [LONGER], metrics_for("en"), resamples=50)
    assert forth["bleu"].delta == -back["bleu"].delta
    assert forth["bleu"].p_value == back["bleu"].p_value


def test_numbers_are_sacrebleus_own() -> None:
    found = compare(GOOD, BAD, [LONGER], metrics_for("en"), resamples=50)
    systems = [("baseline", BAD), ("system", GOOD)]
    signatures, results = PairedTest(
        systems, {"BLEU": BLEU(force=True)}, [LONGER], test_type="bs", n_samples=50
    )()
    baseline, system = results["BLEU"]
    assert found["bleu"].p_value == system.p_value
    assert found["bleu"].interval == float(system.ci)
    assert found["bleu"].baseline_interval == float(baseline.ci)
    assert found.signatures["bleu"] == str(signatures["BLEU"])


def test_seed_and_resamples_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    found = compare(GOOD, BAD, [LONGER], metrics_for("en"), resamples=20)
    assert (found.resamples, found.seed) == (20, "12345")
    assert "bs:20|seed:12345" in found.signatures["ter"]
    assert json.loads(json.dumps(found.as_dict())) == found.as_dict()
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    assert compare(GOOD, BAD, [LONGER], metrics_for("en"), resamples=20).seed == "7"


def test_without_ter_where_a_line_is_too_long_for_it() -> None:
    """The long line may be in any of the three texts."""
    long = [" ".join(["word"] * 1001), *LONGER[1:]]
    for *systems, references in ([long, BAD, LONGER], [GOOD, long, LONGER], [GOOD, BAD, long]):
        found = compare(*systems, [references], metrics_for("en"), resamples=10)
        assert found["ter"] is None
        assert found["bleu"].p_value > 0
        assert set(found.signatures) == {"bleu", "chrf"}
        assert json.loads(json.dumps(found.as_dict()))["ter"] is None
