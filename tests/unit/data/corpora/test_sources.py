"""Several training corpora: the source of each, and error messages."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from nmt.config import CleaningConfig, CorpusConfig, DataConfig, HubConfig, TrainSplitConfig
from nmt.data.corpora import sources
from nmt.data.corpora.corpus import Corpus, given_options
from nmt.data.corpora.held_out import HeldOut, is_given
from nmt.data.corpora.sources import Source, check_tags, first_words, known_tags, open_sources, without_tag
from nmt.errors import UserError


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.en", "a.de", "b.en", "b.de"):
        Path(name).write_text(f"{name} 1\n{name} 2\n")
    Path("t.jsonl").write_text('{"en": "x", "de": "y"}\n')
    Path("u.jsonl").write_text('{"src": "u", "tgt": "v"}\n')


def options(corpora: dict[str, CorpusConfig], **more: Any) -> DataConfig:
    train = TrainSplitConfig(corpora=corpora, **more.pop("train", {}))
    return DataConfig(source_lang="en", target_lang="de", train=train, **more)


@pytest.mark.parametrize("tag", [None, "<2de>"])
def test_one_corpus_has_no_name(tag: str | None) -> None:
    data = options({}, train={"source": "a.en", "target": "a.de", "tag": tag})
    (source,) = open_sources(data)
    assert (source.name, source.tag, source.corpus.key) == ("", tag, "data.train")
    assert source.cleaning == data.cleaning


def test_files_globs_and_tables_side_by_side() -> None:
    found = open_sources(
        options(
            cleaning=CleaningConfig(max_pieces=7),
            corpora={
                "text": CorpusConfig(source=["b.en", "a.en"], target=["b.de", "a.de"], tag="<2de>"),
                "glob": CorpusConfig(source="?.en", target="?.de", cleaning={"max_ratio": 3}),
                "table": CorpusConfig(path="t.jsonl"),
                "odd": CorpusConfig(path="u.jsonl", source_key="src", target_key="tgt"),
            },
        )
    )
    assert [source.name for source in found] == ["text", "glob", "table", "odd"]
    assert [source.tag for source in found] == ["<2de>", None, None, None]
    assert [source.cleaning.max_ratio for source in found] == [9.0, 3.0, 9.0, 9.0]
    assert [source.cleaning.max_pieces for source in found] == [7] * 4
    assert [next(iter(source.corpus.pairs())) for source in found] == [
        ("b.en 1", "b.de 1"), ("a.en 1", "a.de 1"), ("x", "y"), ("u", "v"),
    ]  # fmt: skip


def test_the_shared_hub_set_and_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(corpus: CorpusConfig, data: DataConfig, key: str) -> Corpus:
        return Corpus(
            f"{data.hub.path} {data.hub.name} {data.hub.revision} {corpus.split} {key}",
            {},
            lambda _: iter(()),
        )

    monkeypatch.setattr(sources, "open_corpus", opened)
    corpora = {
        "a": CorpusConfig(split="train"),
        "b": CorpusConfig(split="dev", hub=HubConfig(name="fr-en")),
        "c": CorpusConfig(split="all", hub=HubConfig(path="other/set")),
    }
    found = open_sources(options(corpora, hub=HubConfig("wmt/wmt14", "de-en", "v1")))
    assert [source.corpus.name for source in found] == [
        "wmt/wmt14 de-en v1 train data.train.corpora.a",
        "wmt/wmt14 fr-en v1 dev data.train.corpora.b",
        "other/set None None all data.train.corpora.c",
    ]


def test_languages_of_its_own() -> None:
    Path("w.jsonl").write_text('{"translation": {"en": "x", "de": "y", "fr": "z"}, "en": "1", "fr": "2"}\n')
    found = open_sources(
        options(
            {
                "plain": CorpusConfig(path="w.jsonl"),
                "french": CorpusConfig(path="w.jsonl", target_lang="fr"),
                "back": CorpusConfig(path="w.jsonl", source_lang="de", target_lang="en"),
                "keyed": CorpusConfig(path="w.jsonl", source_key="en", target_key="fr", target_lang="fr"),
            }
        )
    )
    assert [source.languages for source in found] == [("en", "de"), ("en", "fr"), ("de", "en"), ("en", "fr")]
    assert [next(iter(source.corpus.pairs())) for source in found] == [
        ("x", "y"), ("x", "z"), ("y", "x"), ("1", "2"),
    ]  # fmt: skip
    assert found[0].corpus.facts != found[1].corpus.facts


@pytest.mark.parametrize(
    ("corpora", "more", "message"),
    [
        (
            {"a": CorpusConfig(source="a.en", target="a.de")},
            {"train": {"tag": "<2de>"}},
            "data.train.corpora and data.train.tag are both given. Add data.train.tag=null, or move it",
        ),
        (
            {"a": CorpusConfig(source="a.en", target="a.de")},
            {"train": {"source": "b.en", "target": "b.de"}},
            "data.train.corpora and data.train.source are both given. Add data.train.source=null "
            "data.train.target=null, or move it to a part of data.train.corpora.",
        ),
        ({"a": CorpusConfig()}, {}, "data.train.corpora.a: names no data. Set data.train.corpora.a.source="),
        ({"a": CorpusConfig(source="a.en")}, {}, "data.train.corpora.a.source: given without"),
        ({"a": CorpusConfig(source="no.en", target="a.de")}, {}, "data.train.corpora.a.source=no.en"),
        ({"a": CorpusConfig(split="train")}, {}, "data.train.corpora.a.split=train: .* Set data.hub.path"),
        (
            {"a": CorpusConfig(path="t.jsonl", tag="</s>")},
            {},
            "data.train.corpora.a.tag: '</s>' is a special piece of the tokenizer",
        ),
        *(
            (
                {"a": CorpusConfig(path="t.jsonl", tag=tag)},
                {},
                f"data.train.corpora.a.tag: '{tag}' must be text",
            )
            for tag in ("a b", "")
        ),
    ],
)
def test_mistakes(corpora: dict[str, CorpusConfig], more: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=f"^{message}"):
        open_sources(options(corpora, **more))


def corpora(*tags: str | None) -> list[Source]:
    corpus = Corpus("c", {}, lambda _: iter(()))
    return [Source("c", corpus, CleaningConfig(), ("en", "de"), tag) for tag in tags]


def held_out(*sources: str, tag: str | None = None) -> HeldOut:
    return HeldOut("h", list(sources), [""] * len(sources), None, {}, tag)


def test_known_are_symbols_and_tags_each_once() -> None:
    assert known_tags(["<x>", "<2de>"], corpora("<bt>", None, "<2de>", "<bt>")) == ["<x>", "<2de>", "<bt>"]
    assert known_tags(["<x>", "<x>"], corpora(None)) == ["<x>", "<x>"]  # the tokenizer reports duplicates


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<bt> a b", "a b"),
        ("<bt>\u3000a  b", "a  b"),
        (" <bt> a", "a"),
        ("<bt> <bt> a", "<bt> a"),  # only the first is a tag
        ("<bt>", "<bt>"),
        ("<bt>a b", "<bt>a b"),
        ("<2fr> a b", "<2fr> a b"),
        ("", ""),
    ],
)
def test_without_tag(text: str, expected: str) -> None:
    assert without_tag(text, ["<2de>", "<bt>"]) == expected


def test_first_words() -> None:
    assert first_words(["<bt> a", " <bt>\tb", "a", "", "  ", "<bt>c d"]) == {"<bt>", "a", "<bt>c"}


def test_a_tag_goes_before_every_source_but_blank_ones() -> None:
    assert held_out("a b", "", " ", "c", tag="<2de>").inputs == ["<2de> a b", "", " ", "<2de> c"]
    assert held_out("a b", "").inputs == ["a b", ""]


@pytest.mark.parametrize(
    ("tags", "test", "warned"),
    [
        (["<2de>", "<2fr>"], held_out("a", "b"), True),
        (["<2de>", "<2fr>"], held_out("a", "b", tag="<2fr>"), False),
        (["<2de>", "<2fr>"], held_out("<2de> a", "", "<2fr> b"), False),  # written into the text
        (["<2de>", "<2fr>"], held_out("<2de> a", "b"), True),
        (["<2de>", None], held_out("a", "b"), False),
        ([None], held_out("a", "b"), False),
        (["<2de>"], held_out("a", "b"), True),
    ],
)
def test_a_forgotten_tag_is_told(
    tags: list[str | None], test: HeldOut, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    sources = corpora(*tags)
    with caplog.at_level(logging.WARNING, "nmt"):
        check_tags({"valid": held_out("<2de> a"), "test": test}, sources, known_tags([], sources))
    known = ", ".join(tag for tag in tags if tag)
    assert [record.getMessage() for record in caplog.records] == [
        "data.test has no tag, but every training corpus has one, so the model sees no source without "
        f"a tag in training. Set data.test.tag to one of {known}."
    ] * warned


def test_an_unknown_tag_is_told() -> None:
    sources = corpora("<2de>", "<2fr>")
    for known, rest in ((known_tags([], sources), ", only <2de>, <2fr>"), ([], "")):
        with pytest.raises(UserError) as caught:
            check_tags({"valid": held_out("a", tag="<2ru>")}, sources, known)
        assert str(caught.value) == f"data.valid.tag=<2ru>: no training corpus has this tag{rest}"
    check_tags({"valid": held_out("a", tag="<x>")}, sources, known_tags(["<x>"], sources))


FILES = sorted((Path(__file__).parents[4] / "configs" / "data").glob("*.yaml"))


def test_all_are_here() -> None:
    assert [file.stem for file in FILES] == [
        "local", "multi30k", "quickstart", "wmt14_de_en", "wmt14_fr_en", "wmt16_de_en", "wmt16_ro_en",
        "wmt17_de_en", "wmt17_zh_en", "wmt19_de_en", "wmt19_zh_en",
    ]  # fmt: skip


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_fits_the_options(file: Path) -> None:
    given = OmegaConf.load(file)
    missing = OmegaConf.missing_keys(given)
    assert missing == ({"source_lang", "target_lang"} if file.stem == "local" else set())
    filled = OmegaConf.merge(OmegaConf.structured(DataConfig), given, {key: "xx" for key in missing})
    data = OmegaConf.to_object(filled)
    assert isinstance(data, DataConfig)
    assert data.name == file.stem
    assert data.tokenizer.joint  # the default model ties all embeddings, so it needs a joint vocabulary
    if file.stem != "local":
        assert given_options(data.train) and is_given(data.valid) and is_given(data.test)
        assert data.source_lang == "en"
        assert file.stem in ("quickstart", "multi30k") or data.hub.name == f"{data.target_lang}-en"
