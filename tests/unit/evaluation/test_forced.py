"""nmt-eval score=true: lines, summary and refusals with a stand-in; the command with a real small model."""

from __future__ import annotations

import json
import logging
import math
import os
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nmt.cli.evaluate import evaluate
from nmt.config import (
    DataConfig,
    DecodingConfig,
    EvalConfig,
    EvaluationConfig,
    ModelConfig,
    Norm,
    SplitConfig,
    Tie,
    TokenizerConfig,
    TrainConfig,
)
from nmt.decoding.loading import LoadedModels
from nmt.decoding.scoring import ScoredTarget
from nmt.errors import UserError
from nmt.evaluation.forced import ForcedReport

SOURCES = ["a b c", "", "  ", "a\u2028b", "long " * 9]
REFERENCES = ["x y", "", "x", "", "x y z"]
LINES = ["-0.750000\t3\t-0.250000", "0.000000\t1\t0.000000", "-inf\t2\t-inf", "-0.250000\t1\t-0.250000"]
LINES.append("-1.000000\t4\t-0.250000")


class Stub:
    """Gives each token the log-probability -1/4; cuts sources of more than `max_source_tokens` words."""

    calls: list[Any] = []
    source_limit = "decoding.max_source_tokens"

    def __init__(self, loaded: LoadedModels, decoding: DecodingConfig) -> None:
        self.searcher, self.max_source_tokens = self, decoding.max_source_tokens
        Stub.calls.append((decoding, loaded.precision.name))

    def score(self, pairs: Sequence[tuple[str, str]], advance: Callable[[int], object]) -> list[ScoredTarget]:
        advance(len(pairs))
        return [self._scored(*pair) for pair in pairs]

    def _scored(self, source: str, target: str) -> ScoredTarget:
        if not source.strip():
            return ScoredTarget.of_blank_source([5] * len(target.split()))
        size = len(source.split())
        cut = size if size > self.max_source_tokens else 0
        return ScoredTarget((-0.25,) * (len(target.split()) + 1), cut)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainConfig:
    """Texts in the working folder, and a stand-in for the model in `run`."""
    monkeypatch.chdir(tmp_path)
    for name, lines in {"src": SOURCES, "ref": REFERENCES, "short": ["one"]}.items():
        Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    Path("empty").touch()
    config = TrainConfig(data=DataConfig(name="pets", source_lang="en", target_lang="de"))
    bundle = SimpleNamespace(
        folder=Path("run/model"),
        config=config,
        model=None,
        tokenizer=SimpleNamespace(source_symbols={}),
        results={},
    )
    Stub.calls = []
    monkeypatch.setitem(sys.modules, "nmt.bundle", SimpleNamespace(load_bundles=lambda paths: [bundle]))
    monkeypatch.setattr(LoadedModels, "readers", lambda *arguments: (None, Stub(*arguments)))
    return config


def forced(**options: Any) -> None:
    given = {"model_dir": "run", "device": "cpu", "source": "src", "references": "ref", **options}
    evaluate(EvalConfig(score=True, **{key: value for key, value in given.items() if value is not None}))


def test_a_line_for_each_pair_and_a_summary(
    model: TrainConfig, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    decoding = DecodingConfig(max_source_tokens=5)
    with caplog.at_level(logging.INFO, "nmt"):
        forced(json="report.json", decoding=decoding, precision="bf16")
    assert capsys.readouterr().out == "".join(f"{line}\n" for line in LINES)
    assert caplog.messages[:2] == [
        "1 of 5 sources: cut to 5 tokens (decoding.max_source_tokens)",
        "1 of 5 pairs: the source is blank and the reference is not. Their probability is 0. The mean and "
        "the perplexity do not count them.",
    ]
    assert caplog.messages[2].startswith("5 pairs, 9 tokens, ")
    assert caplog.messages[2].endswith(" pairs/s; mean log-probability per token -0.2222, perplexity 1.25")
    assert len(caplog.messages) == 3
    assert Stub.calls == [(decoding, "bf16")]
    report = json.loads(Path("report.json").read_text(encoding="utf-8"))
    assert report.pop("seconds") >= 0 and report.pop("pairs_per_second") > 0
    assert report.pop("decoding")["max_source_tokens"] == 5
    assert report.pop("log_prob_per_token") == pytest.approx(-2 / 9)
    assert report.pop("perplexity") == pytest.approx(math.exp(2 / 9))
    assert report == {
        "title": "run on ref",
        "pairs": 5,
        "impossible_pairs": 1,
        "tokens": 9,
        "files": {"source": "src", "references": "ref"},
        "model_dir": "run",
        "precision": "bf16",
    }


def test_the_scores_go_to_a_file(model: TrainConfig, capsys: pytest.CaptureFixture[str]) -> None:
    forced(output="scores", references=["ref"])
    assert capsys.readouterr().out == ""
    assert Path("scores").read_text(encoding="utf-8").splitlines() == LINES


def test_options_of_the_search_have_no_effect(model: TrainConfig, capsys: pytest.CaptureFixture[str]) -> None:
    forced(decoding=DecodingConfig(mbr="chrf", samples=4))
    assert capsys.readouterr().out.splitlines() == LINES
    assert Stub.calls == [(DecodingConfig(samples=4), "fp32")]


def test_the_test_set_of_the_model(model: TrainConfig, capsys: pytest.CaptureFixture[str]) -> None:
    data = DataConfig("other", "en", "de", test=SplitConfig(source="src", target="ref"))
    forced(source=None, references=None, data=data)
    assert capsys.readouterr().out.splitlines() == LINES


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model_dir": None}, "score=true: model_dir=DIR is missing."),
        *(
            (
                {**more, key: value},
                f"{key}={value}: has no meaning with score=true, which scores references with a model. Leave "
                "one of them out.",
            )
            for key, value, more in (
                ("hypotheses", "ref", {"model_dir": None}),
                ("baseline", "ref", {}),
                ("groups", "ref", {}),
                ("target_lang", "de", {}),
            )
        ),
        (
            {"evaluation": EvaluationConfig(metrics=["bleu"])},
            "evaluation: score=true computes no metrics. Leave one of them out.",
        ),
        (
            {"references": "[rs]*"},
            "references=[rs]*: score=true needs one reference of each sentence, and these are 3 files. "
            "Give one file.",
        ),
        (
            {"references": None},
            "source and references require each other. Give both, or neither for the test set of the model.",
        ),
        (
            {"references": "short"},
            "unequal numbers of sentences: source=src has 5, references=short has 1. They must correspond "
            "line for line.",
        ),
        (
            {"source": "empty", "references": "empty"},
            "no sentences to score: source=empty and references=empty are empty.",
        ),
        ({"output": "ref"}, "output=ref: would overwrite references. Give another name."),
        ({"precision": "int4"}, "precision=int4: must be one of auto, fp32, bf16, fp16."),
    ],
)
def test_refusals(
    options: dict[str, Any], message: str, model: TrainConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError) as caught:
        forced(**options)
    assert str(caught.value) == message
    assert capsys.readouterr().out == "" and Stub.calls == []


def test_numbers_that_are_not_finite() -> None:
    nothing = ForcedReport("t", [ScoredTarget((-math.inf,))], 0.0)
    assert nothing.summary() == (
        "1 pairs, 0 tokens, 0.0 s, 1,000,000,000 pairs/s; mean log-probability per token nan, perplexity nan"
    )
    assert (nothing.as_dict()["log_prob_per_token"], nothing.as_dict()["perplexity"]) == (None, None)
    huge = ForcedReport("t", [ScoredTarget((-1000.0, -0.0))], 1.0)
    assert (huge.mean, huge.perplexity, huge.as_dict()["perplexity"]) == (
        -500.0,
        math.exp(500),
        math.exp(500),
    )
    assert ForcedReport("t", [ScoredTarget((-1000.0,))], 1.0).as_dict()["perplexity"] is None
    assert [*ForcedReport("t", [ScoredTarget((-1e-9,))], 1.0).lines()] == ["0.000000\t1\t0.000000"]


def test_the_command_equals_the_scores_in_python(tmp_path: Path) -> None:
    import torch

    import nmt
    from nmt.bundle import save_bundle
    from nmt.data.subwords.learning import train_tokenizer
    from nmt.model import Transformer

    generator = random.Random(1)
    words = "red green blue old new big small cat dog bird house tree sees likes finds".split()
    texts = [" ".join(generator.choices(words, k=generator.randint(1, 9))) for _ in range(80)]
    vocabulary = TokenizerConfig(vocab_size=300)
    tokenizer = train_tokenizer(lambda: iter(zip(texts, texts, strict=True)), vocabulary, tmp_path / "spm")
    config = TrainConfig(data=DataConfig("toy", "xx", "yy"))
    config.model = ModelConfig(
        encoder_layers=1, decoder_layers=1, d_model=32, d_ff=64, heads=2, norm=Norm.pre, tie=Tie.none
    )
    torch.manual_seed(2)
    network = Transformer(config.model, tokenizer.source.size, tokenizer.target.size)
    save_bundle(tmp_path / "model", config, network.state_dict(), tokenizer, {})
    pairs = [
        *zip(texts[:40], texts[40:], strict=True),
        ("", ""),
        (" ", "cat"),
        ("cat", ""),
        ("\u2028", "\x0c"),
    ]
    for name, side in (("src", 0), ("ref", 1)):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")

    code = "import sys; sys.argv[0] = 'nmt-eval'; from nmt.cli.evaluate import main; main()"
    options = ["model_dir=model", "source=src", "references=ref", "score=true", "device=cpu"]
    done = subprocess.run(
        [sys.executable, "-c", code, *options, "threads=1", "decoding.max_sentences=7", "json=report.json"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.fspath(Path(__file__).parents[3])},
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in done.stdout.split("\n")[:-1]]
    expected = nmt.load(tmp_path / "model", device="cpu")
    tokens = expected.score_tokens(pairs)
    assert [float(row[0]) for row in rows] == pytest.approx(expected.score(pairs), abs=1e-5)
    assert [int(row[1]) for row in rows] == [*map(len, tokens)]
    assert [float(row[2]) for row in rows] == pytest.approx([sum(one) / len(one) for one in tokens], abs=1e-5)
    assert [row[0] for row in rows[40:42]] == ["0.000000", "-inf"]
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    finite = [one for one in tokens if -math.inf not in one]
    assert report["tokens"] == sum(map(len, finite)) and report["impossible_pairs"] == 1
    assert report["log_prob_per_token"] == pytest.approx(sum(map(sum, finite)) / sum(map(len, finite)))
    assert done.stderr.splitlines()[-1].startswith(f"44 pairs, {report['tokens']:,} tokens, ")
    with pytest.raises(UserError, match=r"^score: nmt\.evaluate returns no such scores\. Call nmt\.load"):
        nmt.evaluate(model_dir=tmp_path / "model", overrides=["score=true"])
