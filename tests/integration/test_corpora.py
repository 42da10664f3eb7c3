"""Several corpora with real commands: training with a tag and weights, resuming, translating with the tag."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from commands import Toy
from toy import toy_config, write_toy

from nmt.bundle import load_bundle
from nmt.cli.evaluate import evaluate
from nmt.config import CleaningConfig, CorpusConfig, EvalConfig, SplitConfig, TrainSplitConfig
from nmt.decoding.torch_searcher import TorchSearcher
from nmt.decoding.translator import Translator
from nmt.runtime.machine import choose_device
from nmt.training.run import train
from nmt.training.state.run_folder import RunFolder


def test_two_corpora_and_a_tag(toy: Toy, tmp_path: Path) -> None:
    write_toy(toy.folder / "more", train=100, held_out=5, seed=9)
    mixture = (
        "data.train.source=null",
        "data.train.target=null",
        "+data.train.corpora.real.source=train.src",
        "+data.train.corpora.real.target=train.tgt",
        "+data.train.corpora.back.source=more/train.src",
        "+data.train.corpora.back.target=more/train.tgt",
        "+data.train.corpora.back.weight=2",
        "+data.train.corpora.back.tag='<bt>'",
        "run_dir=mixed",
    )
    toy.done("nmt-train", *toy.small(*mixture, "training.max_updates=3"))
    results = json.loads((toy.folder / "mixed/results.json").read_text())
    corpora = results["data"]["train"]["corpora"]
    assert [corpora[name]["cleaning"]["pairs"] for name in ("real", "back")] == [400, 100]
    assert corpora["back"]["draws_per_epoch"] == 2 * corpora["back"]["cleaning"]["kept"]

    refused = toy.refused("nmt-train", *toy.small(*mixture, "data.train.corpora.back.weight=3"))
    assert "data.train.corpora.back.weight=2.0, not 3.0" in refused
    toy.done("nmt-train", *toy.small(*mixture, "training.max_updates=4"))

    source = (toy.folder / "test.src").read_text().splitlines()[:3]
    lines = "".join(f"{line}\n<bt> {line}\n" for line in source)
    translated = toy.done("nmt-translate", "model_dir=mixed", text=lines)
    assert translated.stdout.decode().count("\n") == 6


def test_two_languages_told_by_tags(tmp_path: Path, said: pytest.LogCaptureFixture) -> None:
    """One corpus has reversed targets. The targets of the other and of the test set repeat every word."""
    write_toy(tmp_path, train=200, held_out=12, seed=3)
    for split in ("train", "test"):
        lines = (tmp_path / f"{split}.src").read_text().splitlines()
        text = "".join(" ".join(f"{word} {word}" for word in line.split()) + "\n" for line in lines)
        (tmp_path / f"{split}.twice").write_text(text)
    config = toy_config(tmp_path, tmp_path / "run", max_updates=30, validate_every=30, checkpoint_every=30)
    source = str(tmp_path / "train.src")
    corpora = {
        "de": CorpusConfig(source=source, target=str(tmp_path / "train.tgt"), tag="<2de>"),
        "x": CorpusConfig(source=source, target=str(tmp_path / "train.twice"), target_lang="xx", tag="<2xx>"),
    }
    data = replace(
        config.data,
        source_lang="en",
        target_lang="de",
        train=TrainSplitConfig(corpora=corpora),
        test=SplitConfig(source=str(tmp_path / "test.src"), target=str(tmp_path / "test.twice"), tag="<2xx>"),
        cleaning=CleaningConfig(min_script=0.5),
    )
    train(replace(config, data=data))
    assert "data.valid has no tag, but every training corpus has one" in said.text
    assert "data.test has no tag" not in said.text
    assert "no script is known for 'xx'" in said.text
    results = json.loads((tmp_path / "run/results.json").read_text())
    reported = results["data"]["train"]["corpora"]
    assert [reported[name]["target_lang"] for name in ("de", "x")] == ["de", "xx"]
    assert (results["data"]["test"]["tag"], results["data"]["valid"]["tag"]) == ("<2xx>", None)

    bundle = load_bundle(tmp_path / "run")
    searcher = TorchSearcher([bundle.model], bundle.tokenizer, config.decoding, device=choose_device("auto"))
    translator = Translator(searcher, bundle.tokenizer)
    found = {}
    for tag in ("<2xx> ", ""):
        lines = [f"{tag}{line}" for line in (tmp_path / "test.src").read_text().splitlines()]
        found[tag] = [translation.hypotheses[0].text for translation in translator.translate(lines)]
    out, report = tmp_path / "out", tmp_path / "report.json"
    options = EvalConfig(model_dir=str(tmp_path / "run"), output=str(out), json=str(report), threads=1)
    evaluate(replace(options, decoding=config.decoding))
    assert out.read_text().splitlines() == found["<2xx> "] != found[""]
    hypotheses = RunFolder(tmp_path / "run").hypotheses("test").read_text().splitlines()
    assert hypotheses == found["<2xx> "]
    assert json.loads(report.read_text())["chrf"] == results["test"]["chrf"]
