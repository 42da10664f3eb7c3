"""Several corpora with real commands: training with a tag and weights, resuming, translating with the tag."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import Toy
from toy import WORDS, toy_config, write_toy

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


def test_named_sets(toy: Toy) -> None:
    """The validation has two sets and the test one; a letter for each word is scored as Chinese."""
    for split in ("train", "valid", "test"):
        lines = (toy.folder / f"{split}.src").read_text().splitlines()
        text = ["".join(chr(0x4E00 + 7 * WORDS.index(word)) for word in line.split()) for line in lines]
        (toy.folder / f"{split}.han").write_text("".join(f"{line}\n" for line in text), encoding="utf-8")
    options = ["data.cleaning.drop_leaked=false", "run_dir=sets", "training.max_updates=3"]
    for split in ("train", "valid", "test"):
        options += [f"data.{split}.source=null", f"data.{split}.target=null"]
        for name, ending in (("plain", "tgt"), ("han", "han")) if split != "test" else (("han", "han"),):
            key = f"data.{split}.{'corpora' if split == 'train' else 'sets'}.{name}"
            options += [f"{key}.source={split}.src", f"{key}.target={split}.{ending}", f"{key}.tag=<2{name}>"]
    options.append("data.train.corpora.han.target_lang=zh")
    done = toy.done("nmt-train", *toy.small(*options, "training.criterion_set=han"))
    assert "scored by BLEU (han) on the validation set" in done.stderr.decode()
    folder = toy.folder / "sets"
    results = json.loads((folder / "results.json").read_text())
    valid = results["valid"]
    assert (list(valid["sets"]), list(results["test"]["sets"])) == (["plain", "han"], ["han"])
    tokenizers = [part["signatures"]["bleu"].split("|")[3] for part in valid["sets"].values()]
    assert tokenizers == ["tok:13a", "tok:zh"]
    (record,) = (r for r in read_records(folder) if r["kind"] == "valid")
    for key in ("bleu", "chrf", "loss"):
        assert record[key] == pytest.approx((record[f"plain/{key}"] + record[f"han/{key}"]) / 2)
    assert results["training"]["best"]["bleu"] == record["han/bleu"]
    assert results["training"]["candidates"][0]["bleu"] == valid["sets"]["han"]["bleu"]
    assert {path.name for path in folder.glob("*.hypotheses.txt")} == {
        "test.han.hypotheses.txt", "valid.han.hypotheses.txt", "valid.plain.hypotheses.txt",
    }  # fmt: skip

    decoding = "decoding.beam_size=2"
    toy.done("nmt-eval", "model_dir=sets", "split=valid", "json=report.json", "output=out.txt", decoding)
    report = json.loads((toy.folder / "report.json").read_text())
    assert {key: report[key] for key in ("bleu", "chrf", "ter", "sentences")} == {
        key: valid[key] for key in ("bleu", "chrf", "ter", "sentences")
    }
    written = [(folder / f"valid.{name}.hypotheses.txt").read_text() for name in ("plain", "han")]
    assert (toy.folder / "out.txt").read_text() == "".join(written)

    refused = toy.refused("nmt-train", *toy.small(*options, "training.criterion_set=plain"))
    assert "training.criterion_set=han, not plain" in refused
    more = "data.valid.sets.more.path=valid.tsv"
    (toy.folder / "valid.tsv").write_text("source\ttarget\nba\tab\n")
    refused = toy.refused("nmt-train", *toy.small(*options, more, "training.criterion_set=han"))
    assert "started with data.valid.sets=[plain, han], not [plain, han, more]. Give" in refused


def read_records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
