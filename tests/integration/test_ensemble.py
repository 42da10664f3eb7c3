"""Ensembles of several models, through the commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import Toy
from toy import write_toy

from nmt.bundle import load_bundles
from nmt.decoding.torch_searcher import TorchSearcher
from nmt.decoding.translator import Translator
from nmt.runtime.machine import choose_device


@pytest.fixture(scope="module")
def second(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that differs from `trained` only in its seed; data and vocabulary are the same."""
    folder = tmp_path_factory.mktemp("second") / "run"
    toy.done("nmt-train", *toy.small(f"run_dir={folder}", "seed=2"))
    return folder


def text_of(toy: Toy) -> str:
    return (toy.folder / "test.src").read_text(encoding="utf-8")


def test_translating(toy: Toy, trained: Path, second: Path) -> None:
    """A model twice translates like the model once; two models translate like `Translator` with both."""
    alone = toy.run("nmt-translate", f"model_dir={trained}", text=text_of(toy))
    beside_itself = toy.run("nmt-translate", f"model_dir=[{trained},{trained}]", text=text_of(toy))
    both = toy.run("nmt-translate", f"model_dir=[{trained},{second}]", "scores=true", text=text_of(toy))
    assert alone.returncode == beside_itself.returncode == both.returncode == 0, both.stderr.decode()
    assert beside_itself.stdout == alone.stdout

    bundles = load_bundles([str(trained), str(second)])
    searcher = TorchSearcher(
        [bundle.model for bundle in bundles],
        bundles[0].tokenizer,
        bundles[0].config.decoding,
        device=choose_device("cpu"),
    )
    lines = text_of(toy).split("\n")[:-1]
    translator = Translator(searcher, bundles[0].tokenizer)
    best = [found.hypotheses[0] for found in translator.translate(lines)]
    reported = [line.split("\t") for line in both.stdout.decode().split("\n")[:-1]]
    assert [text for _, text in reported] == [one.text for one in best]
    assert [float(score) for score, _ in reported] == pytest.approx([one.score for one in best], abs=1e-3)
    assert [text for _, text in reported] != alone.stdout.decode().split("\n")[:-1]


def test_scoring(toy: Toy, trained: Path, second: Path, tmp_path: Path) -> None:
    """The test set and the decoding options are those of the first model."""
    report, written = tmp_path / "report.json", tmp_path / "hypotheses"
    models = f"model_dir=[{trained},{second}]"
    result = toy.done("nmt-eval", models, f"json={report}", f"output={written}")
    assert f"{trained} + {second} on local (test)" in result.stdout.decode()
    reported = json.loads(report.read_text())
    assert reported["model_dir"] == [str(trained), str(second)]
    assert reported["decoding"]["beam_size"] == 2
    assert written.read_bytes() == toy.run("nmt-translate", models, text=text_of(toy)).stdout


def test_models_of_two_vocabularies(toy: Toy, trained: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    toy.done("nmt-train", *toy.small(f"run_dir={other}", "data.tokenizer.vocab_size=310"))
    line = toy.refused("nmt-translate", f"model_dir=[{trained},{other}]", text="ba de\n")
    assert line.endswith(
        f"models that translate together must have the same vocabulary, but that of {other} differs from "
        f"that of {trained}. Train it with data.tokenizer.path={trained}."
    )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("[]", "model_dir=[]: must be a folder or a list of folders"),
        ("{a: b}", "model_dir={a: b}: there is no such folder"),
    ],
)
def test_values_that_name_no_folders(toy: Toy, value: str, message: str) -> None:
    assert message in toy.refused("nmt-translate", f"model_dir={value}", text="ba de\n")


@pytest.mark.slow
def test_an_ensemble_of_a_sweep(toy: Toy, tmp_path: Path) -> None:
    """The commands of the README, on the toy corpus."""
    few = ("training.max_updates=2", "training.validate_every=2", "training.checkpoint_every=2")
    own = Toy(write_toy(tmp_path, train=100, held_out=5), toy.cache)
    own.done("nmt-train", "-m", *own.small("run_dir=runs/toy", "seed=1,2,3"), *few)
    names = sorted(path.name for path in (tmp_path / "runs/toy").iterdir())
    assert names == ["seed-1", "seed-2", "seed-3", "sweep.html"]
    models = "model_dir=[runs/toy/seed-1,runs/toy/seed-2,runs/toy/seed-3]"
    own.done("nmt-translate", models, "input=test.src", "output=test.out")
    assert (tmp_path / "test.out").read_bytes().count(b"\n") == 5
    own.done("nmt-eval", models)
