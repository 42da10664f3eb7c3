"""Hub data sets: local folders with their layout, the commit to read, the cache, and a missing network."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import datasets
import huggingface_hub
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nmt.config import DataConfig, HubConfig
from nmt.data.corpora.hub import HubSplit, commit_of, open_hub
from nmt.errors import UserError

SPLITS = {"train": 3, "validation": 1, "test": 1}
README = "---\nconfigs:\n" + "".join(
    f"- config_name: {name}\n  data_files:\n"
    + "".join(f"  - split: {split}\n    path: {name}/{split}-*\n" for split in SPLITS)
    for name in ("de-en", "fr-en")
)
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "hf"


@pytest.fixture
def wmt(tmp_path: Path) -> Path:
    """A folder with the layout of `wmt/wmt14` on the hub; two pairs in each file."""
    folder = tmp_path / "copies" / "wmt14"
    for lang in ("de", "fr"):
        (folder / f"{lang}-en").mkdir(parents=True)
        for split, count in SPLITS.items():
            for part in range(count):
                rows = [
                    {lang: f"{lang} {split} {part} {row}", "en": f"en {split} {part} {row}"} for row in (0, 1)
                ]
                name = f"{lang}-en/{split}-{part:05d}-of-{count:05d}.parquet"
                pq.write_table(pa.table({"translation": rows}), folder / name)
    (folder / "README.md").write_text(README + "---\n# A card\n")
    return folder


def options(path: Path | str, name: str | None = None, **more: Any) -> DataConfig:
    fields = {"name": "t", "source_lang": "en", "target_lang": "de"} | more
    return DataConfig(hub=HubConfig(str(path), name, fields.pop("revision", None)), **fields)


def opened(path: Path | str, name: str | None = None, split: str = "train", **more: Any) -> HubSplit:
    return open_hub(options(path, name, **more), split, "data.train")


def pairs(split: HubSplit) -> list[tuple[str, str]]:
    return [pair for block in split.blocks() for pair in zip(*block, strict=True)]


TRAIN = [(f"en train {part} {row}", f"de train {part} {row}") for part in range(3) for row in (0, 1)]


MORE = "dataset_info:\n- config_name: de-en\n  splits:\n  - name: train\n    num_examples: 4508785\n"


@pytest.mark.parametrize(
    "readme", [README + "---\n", README + MORE + "---\n", "# A card without configurations\n", None]
)
def test_folder(wmt: Path, readme: str | None) -> None:
    (wmt / "README.md").unlink()
    if readme:
        (wmt / "README.md").write_text(readme)
    train = opened(wmt, "de-en")
    assert pairs(train) == pairs(train) == TRAIN
    assert train.num_pairs == 6
    valid = opened(wmt, "de-en", "validation")
    assert pairs(valid) == [(f"en validation 0 {row}", f"de validation 0 {row}") for row in (0, 1)]


def test_languages_choose_the_direction(wmt: Path) -> None:
    swapped = opened(wmt, "de-en", source_lang="de", target_lang="en")
    assert pairs(swapped) == [(target, source) for source, target in TRAIN]
    french = opened(wmt, "fr-en", "test", target_lang="fr")
    assert pairs(french)[0] == ("en test 0 0", "fr test 0 0")


def test_several_splits(wmt: Path) -> None:
    both = opened(wmt, "de-en", "train[:2]+validation")
    assert pairs(both) == [*TRAIN[:2], ("en validation 0 0", "de validation 0 0"),
                           ("en validation 0 1", "de validation 0 1")]  # fmt: skip
    with pytest.raises(
        UserError, match=r"data.train.split=train\+dev: not a split of .*, which has train, valid"
    ):
        opened(wmt, "de-en", "train+dev")


@pytest.mark.parametrize("readme", [True, False])
def test_a_file_that_was_replaced_is_read_whatever_its_time(wmt: Path, readme: bool) -> None:
    if not readme:
        (wmt / "README.md").unlink()
    first = opened(wmt, "de-en")
    assert pairs(first) == TRAIN
    file = wmt / "de-en/train-00001-of-00003.parquet"
    stat = file.stat()
    rows = [{"de": f"de train 9 {row}", "en": f"en train 9 {row}"} for row in (0, 1)]
    pq.write_table(pa.table({"translation": rows}), file)
    assert file.stat().st_size == stat.st_size
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    second = opened(wmt, "de-en")
    assert pairs(second) == [*TRAIN[:2], ("en train 9 0", "de train 9 0"), ("en train 9 1", "de train 9 1"),
                             *TRAIN[4:]]  # fmt: skip
    assert second.facts != first.facts


def test_facts_of_several_splits_name_the_files_of_each_once(wmt: Path) -> None:
    def files(split: str) -> list[str]:
        return [file["name"] for file in opened(wmt, "de-en", split).facts["files"]]

    train = [f"train-0000{part}-of-00003.parquet" for part in range(3)]
    assert files("train[:50%](closest)") == train
    assert files("train+validation") == [*train, "validation-00000-of-00001.parquet"]
    assert files("train[:2]+train[-2:]") == train

    before = opened(wmt, "de-en", "train+validation").facts
    rows = [{"de": "neu", "en": "new"}] * 2
    pq.write_table(pa.table({"translation": rows}), wmt / "de-en/validation-00000-of-00001.parquet")
    assert opened(wmt, "de-en", "train+validation").facts != before


def test_facts_of_a_folder_do_not_tell_where_it_lies(wmt: Path, tmp_path: Path) -> None:
    facts = opened(wmt, "de-en").facts
    assert facts["folder"] == "wmt14"
    assert [file["name"] for file in facts["files"]] == [
        f"train-0000{part}-of-00003.parquet" for part in range(3)
    ]
    shutil.copytree(wmt, tmp_path / "elsewhere/wmt14")
    assert opened("elsewhere/wmt14", "de-en").facts == facts
    assert str(tmp_path) not in repr(facts)


@pytest.mark.parametrize(
    ("name", "split", "languages", "message"),
    [
        ("cs-en", "train", ("en", "de"), "hub.name=cs-en: not a configuration of .*, which has de-en, fr-en"),
        (None, "train", ("en", "de"), r"data.hub.path=.*Config name is missing.*'de-en', 'fr-en'"),
        (
            "de-en",
            "dev",
            ("en", "de"),
            "train.split=dev: not a split of .*, which has train, validation, test",
        ),
        ("de-en", "train[:x]", ("en", "de"), r"data.train.split=train\[:x\]: "),
        (
            "de-en",
            "train",
            ("en", "cs"),
            r"no column target or translation.cs or cs .*translation.de, transl",
        ),
    ],
)
def test_mistakes(wmt: Path, name: str | None, split: str, languages: tuple[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        opened(wmt, name, split, source_lang=languages[0], target_lang=languages[1])


@pytest.mark.parametrize("name", ["a*b", "a?b", "a[b", "x[1]/y", "a::b"])
def test_a_name_that_datasets_takes_for_a_pattern(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir(parents=True)
    (tmp_path / name / "train.jsonl").write_text('{"en": "a", "de": "b"}\n')
    with pytest.raises(UserError, match=r"^data\.hub\.path=.* in its name, a pattern to .* Rename it\.$"):
        opened(tmp_path / name)
    if name == "a[b":
        with pytest.raises(UserError, match=r"^data\.hub\.name=a\[b: .* Rename it\.$"):
            opened(tmp_path, name)


@pytest.mark.parametrize("name", ["a b", "a:b", "a{b}", "a#b", "a%20b", "a@b", "a]b", "a!b", "é"])
def test_odd_names_that_are_taken_as_they_stand(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "train.jsonl").write_text('{"en": "a\\n", "de": "b"}\n{"en": null, "de": "c"}\n')
    assert pairs(opened(tmp_path / name)) == [("a", "b"), ("", "c")]  # columns named like the languages


def test_folder_without_configurations(wmt: Path, tmp_path: Path) -> None:
    (wmt / "README.md").unlink()
    with pytest.raises(UserError, match="data.hub.name=cs-en: .*which has de-en, fr-en"):
        opened(wmt, "cs-en")
    (tmp_path / "flat").mkdir()
    (tmp_path / "flat/train.jsonl").write_text('{"en": "a", "de": "b"}\n')
    with pytest.raises(UserError, match="data.hub.name=de-en: .*Set data.hub.name=null"):
        opened("flat", "de-en")
    (tmp_path / "nothing").mkdir()
    with pytest.raises(UserError, match="data.hub.path=nothing: .*any data files"):
        opened("nothing")


def test_damaged_file(wmt: Path) -> None:
    file = wmt / "de-en/train-00001-of-00003.parquet"
    file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(UserError, match="data.hub.path=.*could not be read"):
        opened(wmt, "de-en")


class TestRemote:
    """A simulated hub: only its answers are replaced."""

    @pytest.fixture
    def answer(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
        """Sets the commit that the hub returns, or the error that it raises."""
        asked = Mock()
        monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", asked)

        def set_answer(value: Any) -> None:
            error = value if isinstance(value, Exception) else None
            asked.configure_mock(side_effect=error, return_value=SimpleNamespace(sha=value))

        return set_answer

    @pytest.fixture
    def cached(self, wmt: Path, cache: Path) -> Path:
        """The state of the cache after `wmt/wmt14` was loaded from the hub."""
        opened(wmt, "de-en")
        (done,) = cache.glob("by-content/*/wmt14/de-en/0.0.0/*/dataset_info.json")
        shutil.copytree(done.parent, cache / f"wmt___wmt14/de-en/0.0.0/{COMMIT}")
        return cache

    def test_offline_takes_the_cached_revision(self, cached: Path, answer: Any) -> None:
        answer(ConnectionError("no network"))
        train = opened("wmt/wmt14", "de-en")
        assert pairs(train) == TRAIN
        assert train.facts == {"hub": "wmt/wmt14", "revision": COMMIT, "config": "de-en", "split": "train",
                               "num_pairs": 6, "keys": ["translation.en", "translation.de"]}  # fmt: skip
        assert datasets.config.HF_HUB_OFFLINE is False

    def test_offline_never_passes_another_revision_off(self, cached: Path, answer: Any) -> None:
        answer(ConnectionError("no network"))
        assert pairs(opened("wmt/wmt14", "de-en", revision=COMMIT)) == TRAIN
        with pytest.raises(UserError, match=f"data.hub.revision={'f' * 40}: .*the cache has only {COMMIT}"):
            opened("wmt/wmt14", "de-en", revision="f" * 40)

    def test_offline_and_not_cached(self, cache: Path, answer: Any) -> None:
        answer(ConnectionError("no network"))
        with pytest.raises(UserError) as error:
            opened("wmt/wmt14", "de-en")
        message = str(error.value)
        assert "wmt/wmt14 de-en could not be downloaded (no network)" in message
        assert str(cache) in message
        assert "data=local data.train.source=" in message
        assert "\n" not in message

    def test_offline_and_another_configuration_cached(self, cached: Path, answer: Any) -> None:
        answer(ConnectionError("no network"))
        with pytest.raises(
            UserError, match="data.hub.name=cs-en: .*Available configs in the cache: .'de-en'"
        ):
            opened("wmt/wmt14", "cs-en")

    def test_the_commit_found_is_the_one_loaded(
        self, wmt: Path, answer: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked = {}

        def load_dataset_builder(path: str, **arguments: Any) -> Any:
            asked.update(arguments, path=path)
            builder = real(str(wmt), name=arguments["name"])
            builder.hash = arguments["revision"]
            return builder

        real = datasets.load_dataset_builder
        monkeypatch.setattr(datasets, "load_dataset_builder", load_dataset_builder)
        answer(COMMIT)
        assert opened("wmt/wmt14", "de-en", revision="main").facts["revision"] == COMMIT
        assert asked == {"path": "wmt/wmt14", "name": "de-en", "revision": COMMIT}

    def test_a_commit_in_the_cache_needs_no_network_and_no_word(
        self, cached: Path, answer: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        (here,) = cached.glob(f"wmt___wmt14/de-en/0.0.0/{COMMIT}")
        shutil.copytree(here, here.with_name("f" * 40))  # a later commit
        answer(AssertionError("the hub was asked"))
        for commit in (COMMIT, "f" * 40):
            found = opened("wmt/wmt14", "de-en", "train+test", revision=commit)
            assert found.facts["revision"] == commit and found.num_pairs == 8
        assert caplog.text == ""

    def test_a_cached_default_is_found_by_its_name_only(self, cached: Path, answer: Any) -> None:
        (here,) = cached.glob(f"wmt___wmt14/de-en/0.0.0/{COMMIT}")
        answer(KeyError("asked"))  # alone in the cache, `de-en` is still not the default
        with pytest.raises(KeyError):
            opened("wmt/wmt14", revision=COMMIT)
        shutil.copytree(here, cached / f"wmt___wmt14/default/0.0.0/{COMMIT}")
        assert pairs(opened("wmt/wmt14", revision=COMMIT)) == TRAIN

    def test_commit_of(self, cached: Path, answer: Any) -> None:
        answer("e" * 40)
        assert commit_of(HubConfig("wmt/wmt14", "de-en", "main")) == "e" * 40
        assert commit_of(HubConfig("wmt/wmt14", "de-en", COMMIT)) == COMMIT
        answer(ConnectionError("no network"))
        assert commit_of(HubConfig("wmt/wmt14", "de-en")) == COMMIT
        (here,) = cached.glob(f"wmt___wmt14/de-en/0.0.0/{COMMIT}")
        shutil.move(here, here.with_name("a" * 64))  # not a commit: the name for a data set that was a script
        assert commit_of(HubConfig("wmt/wmt14", "de-en", "main")) == "main"
        with pytest.raises(
            UserError, match="gone/gone could not be downloaded .no network. and is not in the"
        ):
            commit_of(HubConfig("gone/gone"))

    def test_the_network_goes_after_the_commit_was_found(
        self, cached: Path, answer: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        answer("e" * 40)
        monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
        with pytest.raises(UserError, match="reached .any longer., and the cache has only 0123456789abcdef"):
            opened("wmt/wmt14", "de-en", revision="e" * 40)

    def test_no_such_set(self) -> None:
        with pytest.raises(UserError, match="data.hub.path=a/b/c: neither a local folder nor a hub data set"):
            opened("a/b/c")

    def test_other_errors_are_bugs(self, answer: Any) -> None:
        answer(KeyError("bug"))
        with pytest.raises(KeyError):
            opened("wmt/wmt14", "de-en")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (
            "script.py",
            "import datasets",
            "scripts are no longer supported.*Convert it to Parquet, or give two",
        ),
        ("README.md", "---\nconfigs: [\n---\n", "its README.md is damaged"),
        ("notes", "", "data.hub.path="),
        ("train.jsonl", '{"en": "a", "de": 1}\n', "script train: column 'de' must contain text, not int64"),
    ],
)
def test_a_folder_that_is_no_data_set_is_one_line(
    tmp_path: Path, name: str, content: str, words: str
) -> None:
    folder = tmp_path / "script"  # `datasets` searches for a script NAME/NAME.py
    folder.mkdir()
    (folder / name).write_text(content)
    with pytest.raises(UserError, match=words):
        pairs(opened(folder))
