"""Wrong use of the commands: one clear line on standard error, exit status 2, no files left behind."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
from commands import Toy
from toy import write_toy


def refused(toy: Toy, name: str, *arguments: str) -> str:
    """Runs a command that must refuse; returns its error message without the name of the command."""
    result = toy.run(name, *arguments)
    message = result.stderr.decode()
    assert result.returncode == 2, message
    assert result.stdout == b""
    assert "Traceback" not in message
    *notes, line = message.splitlines()
    assert line.startswith(f"{name}: "), message
    assert len(notes) <= 2, message  # steps before the mistake is detected may be logged
    return line.removeprefix(f"{name}: ")


@pytest.fixture
def own(tmp_path: Path, toy: Toy) -> Toy:
    """A corpus that the test may modify."""
    return Toy(write_toy(tmp_path / "toy", train=60, held_out=5), toy.cache)


def test_options(toy: Toy) -> None:
    assert refused(toy, "nmt-train", "training.max_update=3").startswith(
        "training.max_update: there is no such option. Did you mean training.max_updates?"
    )
    assert refused(toy, "nmt-train", "training.max_updates=many").startswith(
        "training.max_updates: must be a whole number, not many."
    )
    assert refused(toy, "nmt-train", "experiment=wmt14").startswith(
        "experiment=wmt14: there is no such experiment"
    )
    assert refused(toy, "nmt-translate").startswith("model_dir: must be given")
    assert refused(toy, "nmt-eval", "--verbose").startswith("--verbose: is not a flag")


def test_missing_file(own: Toy) -> None:
    line = refused(own, "nmt-train", *own.small("data.train.source=none.src", "run_dir=run"))
    assert "data.train.source" in line and "none.src" in line
    assert not (own.folder / "run").exists()


@pytest.mark.skipif(find_spec("MeCab") is not None, reason="MeCab is installed, so nothing is missing")
def test_a_tokenizer_of_the_target_language_that_is_not_installed(own: Toy) -> None:
    own = Toy(own.folder, own.folder / "cache")
    line = refused(own, "nmt-train", *own.small("data.target_lang=ja", "run_dir=run"))
    assert line.startswith("target_lang=ja: BLEU needs the tokenizer ja-mecab") and "sacrebleu[ja]" in line
    assert not (own.cache / "prepared").exists()  # reported before the data are prepared


@pytest.mark.parametrize("key", ["data.source_lang", "data.train.corpora.news.target_lang"])
def test_the_name_of_a_language_instead_of_its_code(own: Toy, key: str) -> None:
    for flag in ("run_dir=run", "--show"):
        line = refused(own, "nmt-train", *own.small(f"{key}=english", flag))
        assert line.startswith(f"{key}=english: is not a language code. Give a code such as en or zh")
    assert not (own.folder / "run").exists()
    line = refused(own, "nmt-eval", "hypotheses=valid.tgt", "references=valid.tgt", "target_lang=chinese")
    assert line.startswith("target_lang=chinese: is not a language code")


def test_training_text_that_is_all_in_the_validation_set(own: Toy) -> None:
    for language in ("src", "tgt"):
        (own.folder / f"valid.{language}").write_text((own.folder / f"train.{language}").read_text())
    line = refused(own, "nmt-train", *own.small("run_dir=run"))
    assert "no pairs remain after cleaning" in line and "data.valid or data.test: give other files" in line


def test_sides_of_unequal_length(own: Toy) -> None:
    with open(own.folder / "train.tgt", "a") as file:
        file.write("one too many\n")
    line = refused(own, "nmt-train", *own.small("run_dir=run"))
    assert "60" in line and "61" in line and "train.src" in line
    assert not (own.folder / "run").exists()


def test_invalid_utf8(own: Toy) -> None:
    lines = (own.folder / "train.tgt").read_bytes().splitlines(keepends=True)
    lines[16] = b"caf\xe9\n"
    (own.folder / "train.tgt").write_bytes(b"".join(lines))
    line = refused(own, "nmt-train", *own.small("run_dir=run"))
    assert "train.tgt" in line and "17" in line and "UTF-8" in line
    assert not (own.folder / "run").exists()


def test_empty_corpus(own: Toy) -> None:
    for language in ("src", "tgt"):
        (own.folder / f"train.{language}").write_text("")
    assert "has no sentence pairs" in refused(own, "nmt-train", *own.small("run_dir=run"))
    assert not (own.folder / "run").exists()


@pytest.mark.parametrize("name", ["nmt-translate", "nmt-eval"])
def test_a_folder_that_is_no_model(toy: Toy, name: str) -> None:
    assert "not a model folder" in refused(toy, name, "model_dir=.")
    assert "there is no such folder" in refused(toy, name, "model_dir=nowhere")


def test_beam_0(toy: Toy, trained: Path) -> None:
    for name in ("nmt-translate", "nmt-eval"):
        line = refused(toy, name, f"model_dir={trained}", "decoding.beam_size=0")
        assert line == "decoding.beam_size=0: must be between 1 and 1,000."


def test_weights_of_another_vocabulary(toy: Toy, trained: Path, tmp_path: Path) -> None:
    other = toy.run("nmt-train", *toy.small(f"run_dir={tmp_path / 'run'}", "data.tokenizer.vocab_size=310"))
    assert other.returncode == 0, other.stderr.decode()
    model = tmp_path / "run" / "model"
    shutil.copy(trained / "model" / "model.safetensors", model)
    assert "is damaged: its checksum is not the one in SHA256SUMS" in refused(
        toy, "nmt-translate", f"model_dir={model}"
    )
    (model / "SHA256SUMS").unlink()
    line = refused(toy, "nmt-translate", f"model_dir={model}")
    assert "belongs to another vocabulary" in line and "320" in line and "310" in line


def test_a_run_folder_of_another_configuration(toy: Toy, trained: Path) -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in trained.rglob("*"))
    line = refused(toy, "nmt-train", *toy.small(f"run_dir={trained}", "model.d_ff=128", "seed=3"))
    assert "model.d_ff" in line and "64" in line and "128" in line and "seed" in line
    assert sorted((path, path.stat().st_mtime_ns) for path in trained.rglob("*")) == before


def test_unequal_hypotheses(toy: Toy) -> None:
    line = refused(toy, "nmt-eval", "hypotheses=valid.tgt", "references=train.tgt", "target_lang=yy")
    assert "20" in line and "400" in line
