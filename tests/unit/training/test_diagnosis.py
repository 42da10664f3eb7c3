"""The diagnosis: each planted fault is named with its figures, and sound runs have no findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nmt.config import (
    DataConfig,
    ModelConfig,
    ScheduleConfig,
    TokenizerConfig,
    TrainConfig,
    TrainingConfig,
)
from nmt.evaluation.analysis.signs import Count
from nmt.runtime.run_files import RunFiles
from nmt.training.diagnosis import FinishedRun, diagnosis, diagnosis_text, rise_p_value
from nmt.training.text_evidence import HeldOutEvidence, Pieces, TextEvidence

PIECES = Pieces("de", 500_000, 4000, 1.4, 40.0, 0.0, 400.0)
TEXT = HeldOutEvidence(1000, 1.02, 0.012, 60.0, 0.5)
TEXTS = TextEvidence(30_000, 8000, PIECES, PIECES, {"valid": TEXT, "test": replace(TEXT, chrf=58.0)})
FAULT = Count(100, 20, 1, [], 1e-5, is_fault=True)


def run(
    loss: Sequence[float] = (4.0, 3.0, 2.5, 2.4, 2.38, 2.39, 2.37, 2.38),
    bleu: Sequence[float] = (5, 20, 30, 35, 35.5, 35.2, 35.8, 35.4),
    train: Sequence[float] = (8.0, 4.0, 3.0, 2.5, 2.4, 2.35, 2.33, 2.32),
    *,
    ppl: Sequence[float] = (3.1, 4.0),
    kinds: Sequence[str] = (),
    ended: str = "training.max_updates=800 is reached",
    training: dict[str, Any] | None = None,
    cleaning: dict[str, Any] | None = None,
    warnings: Sequence[str] = (),
    texts: TextEvidence = TEXTS,
    flat_until: float = float("inf"),
    width: int = 512,
    asked: int = 4000,
    **options: Any,
) -> FinishedRun:
    """Returns a sound run with changes; `ppl` are the last perplexities of training and validation."""
    records: list[dict[str, Any]] = [
        {"kind": "train", "update": 100 * n, "loss": value, "ppl": ppl[0]} for n, value in enumerate(train, 1)
    ]
    for n, (value, score) in enumerate(zip(loss, bleu, strict=False), 1):
        records.append({"kind": "valid", "update": 100 * n, "loss": value, "ppl": ppl[1], "bleu": score})
    records += [{"kind": kind, "update": 800} for kind in kinds]
    facts = {"updates": 800, "ended": ended, "parameters": 2_000_000, "target_tokens": 6_000_000}
    results = {
        "training": facts | (training or {}),
        "data": {"cleaning": {"pairs": 30_000, "dropped": cleaning or {"ratio": 9}}, "warnings": warnings},
    }
    options = {"criterion": "bleu", "max_updates": 800, **options}
    data = DataConfig(tokenizer=TokenizerConfig(vocab_size=asked))
    config = TrainConfig(data=data, model=ModelConfig(d_model=width), training=TrainingConfig(**options))
    return FinishedRun(RunFiles(Path("run")), config, records, results, {}, texts, flat_until)


def with_pieces(**changes: Any) -> TextEvidence:
    return replace(TEXTS, target=replace(PIECES, **changes))


def with_test(**changes: Any) -> TextEvidence:
    return replace(TEXTS, held_out={"valid": TEXT, "test": replace(TEXT, **changes)})


RISING = (4.0, 3.0, 2.5, 2.4, 2.5, 2.6, 2.7, 2.9)
BETTER = (5, 20, 26, 29, 31, 33, 35, 37)
LINEAR = ScheduleConfig(name="linear", warmup_updates=10)
NAMED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "sound": ({}, []),
    "one skipped update": ({"kinds": ["skipped"]}, []),
    "rolled back": ({"kinds": ["skipped", "went_back"]}, ["diverged"]),
    "training loss rose": ({"train": (8.0, 4.0, 3.0, 3.1, 3.8, 4.5, 5.0, 5.0)}, ["diverged"]),
    "knows frequencies alone": (
        {"ppl": (410.0, 405.0), "train": (8.0, 6.0, 6.01, 6.0, 6.01, 6.0, 6.01, 6.0)},
        ["diverged"],
    ),
    "overfitted": ({"loss": RISING}, ["overfitted"]),
    "overfitted at once": (
        {"loss": (2.0, 2.6, 2.9, 2.8, 2.7, 2.6, 2.5, 2.4), "bleu": (20, 9, 8, 9, 10, 11, 12, 13)},
        ["overfitted"],
    ),
    "stopped early": ({"loss": RISING, "ended": "training.patience=4 validations in a row ..."}, []),
    "loss rises and BLEU too": ({"loss": RISING, "bleu": BETTER}, ["still_improving"]),
    "still improving": ({"bleu": BETTER}, ["still_improving"]),
    "improves while the rate falls": ({"bleu": (5, 20, 30, 30.5, 30, 31, 33, 35), "flat_until": 500}, []),
    "rate falls all the time": ({"bleu": BETTER, "schedule": LINEAR}, []),
    "improves by little": ({"bleu": (5, 20, 30, 34, 35.1, 35.2, 35.3, 35.4)}, []),
    "few validations": ({"loss": (3.0, 2.5, 2.4), "bleu": (5, 20, 30)}, []),
    "by heart": ({"ppl": (1.5, 30.0), "texts": with_pieces(tokens=40_000)}, ["too_large"]),
    "small by heart": (
        {"ppl": (1.5, 30.0), "texts": with_pieces(tokens=40_000), "width": 128},
        ["small_corpus"],
    ),
    "a gap, but many tokens": ({"ppl": (1.5, 30.0)}, []),
    "too small": ({"training": {"target_tokens": 60_000_000}, "ppl": (4.0, 4.1)}, ["too_small"]),
    "small, but knows all": ({"training": {"target_tokens": 60_000_000}, "ppl": (1.02, 1.03)}, []),
    "bytes": ({"texts": with_pieces(byte_share=0.2)}, ["characters"]),
    "short pieces": ({"texts": with_pieces(per_word=2.5)}, ["small_vocabulary"]),
    "the text allows no more pieces": ({"texts": with_pieces(per_word=2.5), "asked": 8000}, []),
    "given pieces": ({"texts": replace(with_pieces(median=1.0, vocab_size=32_000), recommended=0)}, []),
    "recommended pieces": ({"texts": with_pieces(per_word=2.5, vocab_size=8000)}, []),
    "rare pieces": ({"texts": with_pieces(median=1.0, vocab_size=32_000)}, ["large_vocabulary"]),
    "dropped pairs": ({"cleaning": {"ratio": 9000, "duplicate": 100}}, ["dirty_data"]),
    "duplicates": ({"cleaning": {"duplicate": 9000, "near_duplicate": 9000, "leaked": 4000}}, []),
    "a warning": ({"warnings": ["data.train: the sides are exchanged."]}, ["dirty_data"]),
    "surprising": ({"texts": with_test(surprise=1.4)}, ["unlike_test"]),
    "long": ({"texts": with_test(long_share=0.3)}, ["unlike_test"]),
    "low score": ({"texts": with_test(chrf=45.0)}, ["unlike_test"]),
    "low score of few": ({"texts": with_test(chrf=45.0, chrf_error=8.0)}, []),
    "faults of a weak model": (
        {"bleu": BETTER, "texts": with_test(signs={"loops": FAULT})},
        ["still_improving", "loops"],
    ),
    "too short and too long": (
        {"texts": with_test(signs={"long": FAULT, "short": FAULT})},
        ["short", "long"],
    ),
    "faults": ({"texts": with_test(signs={"loops": FAULT, "copied": FAULT})}, ["copied", "loops"]),
}


@pytest.mark.parametrize("changes, names", NAMED.values(), ids=NAMED)
def test_planted_faults(changes: dict[str, Any], names: list[str]) -> None:
    found = diagnosis(run(**changes))
    assert [finding["name"] for finding in found] == names
    assert all(finding["finding"].endswith(".") and finding["evidence"].endswith(".") for finding in found)


def test_the_limit_that_ended_the_training_is_doubled() -> None:
    for ended, option in {
        "training.budget=10m is reached": "training.budget=20m",
        "training.max_updates=800 is reached": "training.max_updates=1600",
        "the end was requested": "",
    }.items():
        [finding] = diagnosis(run(bleu=BETTER, ended=ended, budget="10m"))
        assert finding["option"] == option
        assert finding["evidence"] == "Validation BLEU: 31.00 at update 500, 37.00 at update 800."


def test_a_length_penalty_is_not_tuned_twice() -> None:
    texts = with_test(signs={"long": FAULT})
    for tunes, option in ((False, "training.tune_length_penalty=true"), (True, "")):
        one = run(texts=texts)
        training = replace(one.config.training, tune_length_penalty=tunes)
        [finding] = diagnosis(replace(one, config=replace(one.config, training=training)))
        assert (finding["name"], finding["option"]) == ("long", option)


def test_the_text_has_evidence_and_option() -> None:
    assert diagnosis_text([]) == ""
    assert diagnosis_text(diagnosis(run(loss=RISING))) == (
        "diagnosis:\n"
        "  overfitted: The model learnt its training text by heart, and got worse on\n"
        "    other text. Validation loss: 2.400 at update 400, 2.900 at update 800.\n"
        "    Training loss: 2.500 and 2.320. Best validation: update 700.\n"
        "    try: training.patience=5; model.dropout=0.3; training.rdrop=3"
    )


@pytest.mark.parametrize(
    "values, exact",  # pairs that rise in all orders of as many values
    [((1, 2, 3), 1 / 6), ((1, 2, 3, 4), 1 / 24), ((1, 2, 3, 5, 4), 5 / 120), ((1, 1, 1, 1), 1.0)],
)
def test_the_p_value_of_a_rise(values: Sequence[float], exact: float) -> None:
    assert rise_p_value(values) == pytest.approx(exact, abs=0.02 if exact < 1 else 0.4)
