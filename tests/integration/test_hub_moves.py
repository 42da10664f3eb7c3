"""A run on hub data resumes with the commit it started with, even if the hub has a newer one."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import datasets
import huggingface_hub
import pytest
from toy import toy_config, write_toy

from nmt.bundle import read_config
from nmt.config import HubConfig, SplitConfig, TrainConfig, TrainSplitConfig
from nmt.data.corpora.hub import open_hub
from nmt.errors import UserError
from nmt.runtime.streams import log
from nmt.training.run import train

OLD, NEW = "0" * 40, "1" * 40


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainConfig:
    """Options that read all data from `toy/words`; the hub cannot be reached."""

    def unreachable(self: object, *arguments: object, **options: object) -> None:
        raise ConnectionError("no network")

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", unreachable)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    monkeypatch.chdir(tmp_path)
    base = toy_config(write_toy(tmp_path / "text", train=200, held_out=6), tmp_path / "run", max_updates=2)
    splits = {"valid": SplitConfig(split="validation"), "test": SplitConfig(split="test")}
    train_split = TrainSplitConfig(split="train")
    return replace(base, data=replace(base.data, hub=HubConfig("toy/words"), train=train_split, **splits))


def published(config: TrainConfig, commit: str) -> None:
    """Fills the cache as if `toy/words` had been loaded at this commit."""
    copy = Path(f"copies/{commit}/words")
    copy.mkdir(parents=True)
    for split in ("train", "valid", "test"):
        sides = (Path(f"text/{split}.{side}").read_text().splitlines() for side in ("src", "tgt"))
        lines = [json.dumps({"xx": source, "yy": target}) for source, target in zip(*sides, strict=True)]
        (copy / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    open_hub(replace(config.data, hub=HubConfig(str(copy))), "train", "data.train")
    (info,) = Path("hf/by-content").glob("*/words/default*/0.0.0/*/dataset_info.json")
    shutil.copytree(info.parent, f"hf/toy___words/default/0.0.0/{commit}")
    shutil.rmtree("hf/by-content")


def test_a_new_commit_on_the_hub_does_not_end_a_run(
    config: TrainConfig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(log, "propagate", True)
    published(config, OLD)
    train(config)
    warnings = [record for record in caplog.records if "could not be reached" in record.getMessage()]
    assert len(warnings) == 1 and f"Using revision {OLD} from the cache" in warnings[0].getMessage()
    run = Path(config.run_dir)
    for file in (run / "config.yaml", run / "model/config.yaml"):
        assert read_config(file).data.hub == HubConfig("toy/words", None, OLD)

    published(config, NEW)
    caplog.clear()
    longer = replace(config, training=replace(config.training, max_updates=4))
    assert "4 updates" in train(longer)
    assert "could not be reached" not in caplog.text
    assert read_config(run / "config.yaml").data.hub.revision == OLD
    assert json.loads((run / "results.json").read_text())["data"]["train"]["revision"] == OLD

    def given(revision: str) -> TrainConfig:
        return replace(longer, data=replace(longer.data, hub=HubConfig("toy/words", None, revision)))

    assert "4 updates" in train(given("main"))
    assert "4 updates" in train(given(OLD))
    with pytest.raises(UserError, match=f": started with data.hub.revision={OLD}, not {NEW}. Give the same"):
        train(given(NEW))

    train(replace(config, run_dir="other", prepare_only=True))  # a new run takes the newest commit
    old, new = (json.loads((folder / "data_report.json").read_text()) for folder in (run, Path("other")))
    assert old["fingerprint"] != new["fingerprint"]
    assert f"Using revision {NEW} from the cache" in caplog.text
