"""Hub data sets get their current commits when a run starts, and the recorded commits when it resumes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest

from nmt.config import CorpusConfig, DataConfig, HubConfig, SetConfig, SplitConfig, TrainSplitConfig
from nmt.data.corpora.hub import with_commits
from nmt.errors import UserError

OLD, NEW = "0" * 40, "1" * 40


class Hub:
    """A stand-in of the hub that returns commits and records each request."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str | None]] = []
        self.commit = OLD

    def dataset_info(self, path: str, *, revision: str | None = None, timeout: float = 0) -> Any:
        self.asked.append((path, revision))
        if path == "gone/gone":
            response: Any = SimpleNamespace(headers={}, request=None)
            raise huggingface_hub.errors.RepositoryNotFoundError("not found", response=response)
        return SimpleNamespace(sha=self.commit)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Hub:
    hub = Hub()
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda api, *a, **k: hub.dataset_info(*a, **k))
    monkeypatch.chdir(tmp_path)
    return hub


def options(revision: str | None = None, path: str = "wmt/wmt14") -> DataConfig:
    split = SplitConfig(split="validation")
    return DataConfig(
        hub=HubConfig(path, "de-en", revision), train=TrainSplitConfig(split="train"), valid=split, test=split
    )


def mixed(**corpora: CorpusConfig) -> DataConfig:
    valid = SplitConfig(source="valid.en", target="valid.de")
    return DataConfig(
        hub=HubConfig("wmt/wmt14", "de-en"), train=TrainSplitConfig(corpora=corpora), valid=valid
    )


def test_a_name_becomes_a_commit_and_the_hub_is_asked_once(hub: Hub) -> None:
    assert with_commits(options(), None) == options(OLD)
    assert with_commits(options("v1"), None) == options(OLD)
    assert hub.asked == [("wmt/wmt14", None), ("wmt/wmt14", "v1")]
    assert with_commits(options(NEW), None) == options(NEW)
    assert len(hub.asked) == 2


def test_a_run_goes_on_with_its_commit_and_the_hub_is_not_asked(hub: Hub) -> None:
    begun = with_commits(options(), None)
    hub.commit = NEW
    hub.asked.clear()
    for given in (None, "main", "v1", OLD):
        assert with_commits(options(given), begun) == begun
    assert with_commits(options(NEW), begun) == options(NEW)  # `RunFolder.check` refuses this
    assert with_commits(options(), options()) == options()  # started before commits were recorded
    assert with_commits(options("main"), options()) == options("main")
    assert hub.asked == []


def test_only_what_is_read_from_the_hub(hub: Hub, tmp_path: Path) -> None:
    text = SplitConfig(source="a", target="b")
    unused = replace(options(), train=TrainSplitConfig(source="a", target="b"), valid=text, test=text)
    (tmp_path / "copy").mkdir()
    for data in (unused, options(path="copy"), options(path=str(tmp_path / "copy")), DataConfig()):
        assert with_commits(data, None) == data
    assert hub.asked == []
    assert with_commits(replace(unused, test=SplitConfig(split="test")), None).hub.revision == OLD


def test_each_corpus_has_its_own(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    data = mixed(
        same=CorpusConfig(split="train"),
        again=CorpusConfig(split="train[:1%]"),
        other=CorpusConfig(split="train", hub=HubConfig("a/b", revision="v2")),
        older=CorpusConfig(split="train", hub=HubConfig(revision=NEW)),
        local=CorpusConfig(split="train", hub=HubConfig("copy")),
        text=CorpusConfig(source="a", target="b"),
    )
    begun = with_commits(data, None)
    assert hub.asked == [("wmt/wmt14", None), ("a/b", "v2")]
    assert begun.hub.revision is None
    assert {name: corpus.hub for name, corpus in begun.train.corpora.items()} == {
        "same": HubConfig(revision=OLD),
        "again": HubConfig(revision=OLD),
        "other": HubConfig("a/b", revision=OLD),
        "older": HubConfig(revision=NEW),
        "local": HubConfig("copy"),
        "text": HubConfig(),
    }
    assert list(begun.train.corpora) == list(data.train.corpora)
    hub.commit = NEW
    assert with_commits(data, begun) == begun
    more = replace(data.train.corpora["same"])
    assert with_commits(mixed(more=more), begun) == mixed(more=more)  # refused later by the check of options
    assert len(hub.asked) == 2


def test_a_mistake_names_the_option(hub: Hub) -> None:
    with pytest.raises(UserError, match="^data.hub.path=gone/gone: neither a local folder"):
        with_commits(options(path="gone/gone"), None)
    with pytest.raises(UserError, match="^data.train.corpora.a.hub.path=gone/gone: neither a local folder"):
        with_commits(mixed(a=CorpusConfig(split="train", hub=HubConfig("gone/gone"))), None)


def test_each_named_set_has_its_own(hub: Hub) -> None:
    sets = {"news": SetConfig(split="test"), "ted": SetConfig(split="test", hub=HubConfig("ted/ted"))}
    data = mixed()
    data = replace(data, train=TrainSplitConfig(source="a", target="b"), test=SplitConfig(sets=sets))
    found = with_commits(data, None)
    assert (found.hub.revision, found.test.sets["news"].hub.revision) == (None, OLD)
    assert found.test.sets["ted"].hub.revision == OLD
    assert hub.asked == [("wmt/wmt14", None), ("ted/ted", None)]
    hub.commit = NEW
    assert with_commits(data, found) == found  # a resumed run
