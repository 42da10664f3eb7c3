"""Sources of the pairs of a split, and the errors for unusable sources."""

from __future__ import annotations

import gzip
import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sacrebleu.utils
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.dataset import DATASETS

from nmt.config import CorpusConfig, DataConfig, HubConfig, SetConfig, SplitConfig, TrainSplitConfig
from nmt.data.corpora import corpus as corpus_module
from nmt.data.corpora import text
from nmt.data.corpora.corpus import Corpus, open_corpus
from nmt.data.corpora.held_out import is_given, read_held_out, read_sets
from nmt.errors import UserError

DATA = DataConfig(name="t", source_lang="en", target_lang="de")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, content in {
        "a.en": "one\n\n three \n",
        "a.de": "eins\nzwei\ndrei\n",
        "b.en": "four\n",
        "b.de": "vier\n",
        "short.de": "eins\nzwei\n",
        "empty": "",
        "t.tsv": "source\ttarget\nfive\tfünf\n",
        "u.jsonl": '{"en": "six", "de": "sechs"}\n',
        "groups": "x\ny\nx\n",
    }.items():
        (tmp_path / name).write_text(content, "utf-8")
    (tmp_path / "c.en.gz").write_bytes(gzip.compress(b"seven\neight\n"))
    return tmp_path


def pairs(**options: Any) -> list[tuple[str, str]]:
    return list(open_corpus(SplitConfig(**options), DATA, "data.train").pairs())


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"source": "b.en", "target": "b.de"}, [("four", "vier")]),
        ({"source": "c.en.gz", "target": "short.de"}, [("seven", "eins"), ("eight", "zwei")]),
        ({"source": "a.en", "target": "a.de"}, [("one", "eins"), ("", "zwei"), (" three ", "drei")]),
        ({"source": ["b.en", "c.en.gz"], "target": ["b.de", "short.de"]},
         [("four", "vier"), ("seven", "eins"), ("eight", "zwei")]),
        ({"source": "[ab].en", "target": "[ab].de"},
         [("one", "eins"), ("", "zwei"), (" three ", "drei"), ("four", "vier")]),
        ({"path": "t.tsv"}, [("five", "fünf")]),
        ({"path": ["t.tsv", "u.jsonl"]}, [("five", "fünf"), ("six", "sechs")]),
        ({"path": "u.jsonl", "sacrebleu": ""}, [("six", "sechs")]),
    ],
)  # fmt: skip
def test_pairs(options: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert pairs(**options) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "names no data. Set data.train.source=train.en data.train.target=train.de .*data.train.path="),
        ({"source": "???", "target": None}, "data.train: names no data"),
        ({"source": "a.en"}, "data.train.source: given without data.train.target. .*target=train.de"),
        ({"target": "a.de"}, "data.train.target: given without data.train.source. .*source=train.en"),
        ({"split": "train", "source": "a.en", "target": "a.de"},
         "data.train: split and source are both given. Add data.train.split=null"),
        ({"split": "train", "target": "a.de"}, "data.train: split and target are both given"),
        ({"path": "t.tsv", "sacrebleu": "wmt14"}, "path and sacrebleu are both given"),
        ({"split": "train"}, "data.train.split=train: .*Set data.hub.path too"),
        ({"source": "gone.en", "target": "a.de"}, "train.source=gone.en: there is no such file .looked at /"),
        ({"source": "a.en", "target": "gone.de"}, "data.train.target=gone.de: there is no such file"),
        ({"path": "gone.tsv"}, "data.train.path=gone.tsv: there is no such file"),
        ({"path": "a.en"}, "a.en: is neither .*, by its name and by its content. Give two plain text files"),
        ({"source": ["a.en", "b.en"], "target": "a.de"}, "data.train: 2 source files but 1 target files"),
    ],
)  # fmt: skip
def test_mistakes_seen_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        open_corpus(SplitConfig(**options), DATA, "data.train")
    hub = replace(DATA, hub=HubConfig(path="wmt/wmt14"))
    if not options:  # a missing split is not one of the hub
        with pytest.raises(
            UserError, match="data.valid: names no data. .* data.valid.split=valid of wmt/wmt14"
        ):
            open_corpus(SplitConfig(), hub, "data.valid")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": "a.en", "target": "short.de"}, "data.train: a.en has 3 lines but short.de has 2"),
        ({"source": "b.en", "target": "a.de"}, "data.train: b.en has 1 lines but a.de has 3"),
        ({"source": "empty", "target": "b.de"}, "data.train: empty has 0 lines but b.de has 1"),
        # The totals agree; the files differ.
        ({"source": ["a.en", "b.en"], "target": ["b.de", "a.de"]}, "a.en has 3 lines but b.de has 1"),
        ({"source": "empty", "target": "empty"}, r"data.train: empty \+ empty has no sentence pairs"),
    ],
)  # fmt: skip
def test_mistakes_seen_on_reading(options: dict[str, Any], message: str) -> None:
    corpus = open_corpus(SplitConfig(**options), DATA, "data.train")
    with pytest.raises(UserError, match=message):
        list(corpus.pairs())


def test_pairs_come_before_the_end_is_known(folder: Path) -> None:
    stream = open_corpus(SplitConfig(source="a.en", target="short.de"), DATA, "data.train").pairs()
    assert next(stream) == ("one", "eins")


@pytest.mark.parametrize("chunk", [1, 50, 1 << 20])
@pytest.mark.parametrize("count", [1, 7, 40])
def test_sides_stay_in_step(folder: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, count: int) -> None:
    """Each side in turn has far longer lines; files are read in small chunks."""
    monkeypatch.setattr(text, "CHUNK", chunk)
    expected = []
    for name in "pq":
        part = [(f"{name}{i}" * (i if name == "p" else 1), f"{name}{i}" * (80 - 2 * i)) for i in range(count)]
        (folder / f"{name}.en").write_text("".join(f"{source}\n" for source, _ in part))
        (folder / f"{name}.de").write_text("\n".join(target for _, target in part))
        expected += part
    files = {side: [f"p.{side}", f"q.{side}"] for side in ("en", "de")}
    corpus = open_corpus(SplitConfig(source=files["en"], target=files["de"]), DATA, "data.train")
    assert list(corpus.pairs()) == expected
    for size in (1, 3, 100):
        blocks = [list(zip(*block, strict=True)) for block in corpus.blocks(size)]
        assert blocks == [expected[begin : begin + size] for begin in range(0, len(expected), size)]


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9))),
    st.lists(st.integers(0, 40)),
    st.integers(1, 9),
    st.integers(1, 60),
)
def test_blocks_are_bounded_whatever_is_read_at_once(
    lengths: list[tuple[int, int]], cuts: list[int], size: int, most: int
) -> None:
    pairs = [("a" * source, "ß" * target) for source, target in lengths]
    places = sorted({0, len(pairs), *(cut for cut in cuts if cut < len(pairs))})
    parts = [pairs[low:high] for low, high in zip(places, places[1:], strict=False)]
    read = [([source for source, _ in part], [target for _, target in part]) for part in [[], *parts]]
    expected: list[list[tuple[str, str]]] = [[]]
    for pair in pairs:  # the naive twin
        if len(expected[-1]) == size or sum(map(len, sum(expected[-1], ()))) >= most:
            expected.append([])
        expected[-1].append(pair)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus_module, "_BLOCK_CHARACTERS", most)
        blocks = Corpus("c", {}, lambda _: iter(read)).blocks(size)
        if pairs:
            assert [list(zip(*block, strict=True)) for block in blocks] == expected


def test_corpus_travels_to_another_process() -> None:
    corpus = open_corpus(SplitConfig(path="t.tsv"), DATA, "data.train")
    again: Corpus = pickle.loads(pickle.dumps(corpus))
    assert list(again.pairs()) == list(again.pairs()) == [("five", "fünf")]


def test_facts_are_the_same_wherever_the_files_lie(folder: Path) -> None:
    here = open_corpus(SplitConfig(source="b.en", target="b.de"), DATA, "data.train").facts
    (folder / "elsewhere").mkdir()
    for name in ("b.en", "b.de"):
        (folder / "elsewhere" / name).write_bytes((folder / name).read_bytes())
    there = open_corpus(
        SplitConfig(source=str(folder / "elsewhere/b.en"), target="elsewhere/b.de"), DATA, "data.train"
    ).facts
    assert here == there
    assert json.loads(json.dumps(here)) == here
    (folder / "b.de").write_text("fier\n")
    assert open_corpus(SplitConfig(source="b.en", target="b.de"), DATA, "data.train").facts != here


def test_held_out_keeps_every_line() -> None:
    held_out = read_held_out(SplitConfig(source="a.en", target="a.de", groups="groups"), DATA, "data.test")
    assert held_out.sources == ["one", "", " three "]
    assert held_out.references == ["eins", "zwei", "drei"]
    assert held_out.groups == ["x", "y", "x"]
    assert held_out.facts["groups"][0]["name"] == "groups"


def test_held_out_has_its_tag_beside_the_text() -> None:
    held_out = read_held_out(SplitConfig(source="a.en", target="a.de", tag="<2de>"), DATA, "data.test")
    assert held_out.sources == ["one", "", " three "]
    assert held_out.inputs == ["<2de> one", "", "<2de>  three "]
    plain = read_held_out(SplitConfig(source="a.en", target="a.de"), DATA, "data.test")
    assert held_out.facts == plain.facts and plain.inputs == plain.sources
    with pytest.raises(UserError, match=r"data\.valid\.tag: '2 de' must be text without white space"):
        read_held_out(SplitConfig(source="a.en", target="a.de", tag="2 de"), DATA, "data.valid")
    for tag in ("<\U000f0000>", "\u2581"):
        with pytest.raises(
            UserError, match=r"data\.valid\.tag: '.*' has a character that stands for a space or"
        ):
            read_held_out(SplitConfig(source="a.en", target="a.de", tag=tag), DATA, "data.valid")


def test_a_tag_names_the_language_of_the_references() -> None:
    zh, de = CorpusConfig(target_lang="zh", tag="<2zh>"), CorpusConfig(tag="<2de>")
    data = replace(DATA, train=TrainSplitConfig(corpora={"a": zh, "b": de}))
    Path("m.en").write_text("<2zh> a\n\n<2de> b\nc\n")
    Path("m.xx").write_text("1\n2\n3\n4\n")
    mixed = read_held_out(SplitConfig(source="m.en", target="m.xx"), data, "data.test")
    assert (mixed.target_lang, list(mixed.target_langs)) == ("de", ["zh", "zh", "de", "de"])
    tagged = read_held_out(SplitConfig(source="a.en", target="a.de", tag="<2zh>"), data, "data.test")
    assert (tagged.target_lang, list(tagged.target_langs)) == ("zh", [])
    plain = read_held_out(SplitConfig(source="a.en", target="a.de"), data, "data.test")
    assert (plain.target_lang, list(plain.target_langs)) == ("de", [])


def test_groups_must_be_one_a_line() -> None:
    with pytest.raises(UserError, match="data.test.groups=groups: has 3 labels for 1 pairs"):
        read_held_out(SplitConfig(source="b.en", target="b.de", groups="groups"), DATA, "data.test")


@pytest.mark.parametrize(
    ("split", "expected"),
    [(SplitConfig(), False), (SplitConfig(source="???"), False), (SplitConfig(groups="g"), False),
     (SplitConfig(split="test"), True), (SplitConfig(target="a.de"), True),
     (SplitConfig(path=["a.tsv"]), True)],
)  # fmt: skip
def test_is_given(split: SplitConfig, expected: bool) -> None:
    assert is_given(split) is expected


class TestSacrebleu:
    def test_reads_what_sacrebleu_has(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        asked = []
        monkeypatch.setattr(sacrebleu.utils, "get_source_file", lambda *name: asked.append(name) or "b.en")
        monkeypatch.setattr(sacrebleu.utils, "get_reference_files", lambda *name: ["b.de", "a.de"])
        held_out = read_held_out(SplitConfig(sacrebleu="wmt14/full"), DATA, "data.test")
        assert asked == [("wmt14/full", "en-de")]
        assert (held_out.sources, held_out.references) == (["four"], ["vier"])
        assert held_out.name == "wmt14/full en-de"
        assert held_out.facts["sacrebleu"] == "wmt14/full"

    @pytest.mark.parametrize(
        ("source", "target", "pair"),
        [("eng", "deu_Latn", "en-de"), ("EN", "de-AT", "en-de"), ("fr-CA", "en", "fr-en")],
    )
    def test_codes_in_other_spellings(
        self, source: str, target: str, pair: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sacrebleu.utils, "get_source_file", lambda *name: "b.en")
        monkeypatch.setattr(sacrebleu.utils, "get_reference_files", lambda *name: ["b.de"])
        data = replace(DATA, source_lang=source, target_lang=target)
        held_out = read_held_out(SplitConfig(sacrebleu="wmt14/full"), data, "data.test")
        assert held_out.name == f"wmt14/full {pair}"

    def test_unknown_name_gets_near_ones(self) -> None:
        with pytest.raises(UserError, match="data.test.sacrebleu=wmt14/ful: .*Did you mean wmt14/full"):
            open_corpus(SplitConfig(sacrebleu="wmt14/ful"), DATA, "data.test")

    def test_unknown_languages_get_those_there_are(self) -> None:
        data = DataConfig(name="t", source_lang="en", target_lang="tlh")
        with pytest.raises(UserError, match=r"wmt14/full: does not have en-tlh, only cs-en, de-en, en-cs"):
            open_corpus(SplitConfig(sacrebleu="wmt14/full"), data, "data.test")

    @pytest.mark.parametrize("failure", [OSError("no network"), SystemExit(1)])
    def test_no_network(self, monkeypatch: pytest.MonkeyPatch, failure: BaseException) -> None:
        def fail(*_: str) -> str:
            raise failure

        monkeypatch.setattr(type(DATASETS["wmt14/full"]), "get_source_file", fail)
        with pytest.raises(
            UserError, match="wmt14/full: could not be downloaded to /.* and remove /.*/wmt14 if .*source="
        ):
            open_corpus(SplitConfig(sacrebleu="wmt14/full"), DATA, "data.test")


@pytest.mark.parametrize(
    ("options", "names", "expected"),
    [
        ({"source": ["b.en", "a.en"], "target": ["b.de", "a.de"]}, "xy", "xyyy"),
        ({"source": ["b.en", "a.en"], "target": ["b.de", "a.de"]}, "xx", "xxxx"),
        ({"source": "[ab].en", "target": "[ab].de"}, "xy", "xxxy"),
        ({"path": ["t.tsv", "u.jsonl"]}, "xy", "xy"),
    ],
)
def test_names_label_the_lines_of_each_file(options: dict[str, Any], names: str, expected: str) -> None:
    held_out = read_held_out(SplitConfig(**options, names=[*names]), DATA, "data.test")
    assert held_out.groups == [*expected] and len(held_out.sources) == len(expected)
    assert held_out.facts["names"] == [*names]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": "a.en", "target": "a.de"}, "2 names for 1 file. Give one name per file."),
        ({"source": "a.en", "target": "a.de", "groups": "groups"}, "data.test.groups is also given. Remove"),
        ({"source": ["a.en"] * 3, "target": ["a.de"] * 3}, "2 names for 3 files"),
    ],
)
def test_names_must_fit_the_files(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as refused:
        read_held_out(SplitConfig(**options, names=["x", "y"]), DATA, "data.test")
    assert str(refused.value).startswith(f"data.test.names=[x,y]: {message}")


def test_named_sets_have_the_language_of_their_options_or_of_their_tag() -> None:
    corpora = {"zh": CorpusConfig(target_lang="zh", tag="<2zh>"), "de": CorpusConfig(tag="<2de>")}
    data = replace(DATA, train=TrainSplitConfig(corpora=corpora))
    text = {"source": "a.en", "target": "a.de"}
    sets = {
        "plain": SetConfig(**text),
        "tagged": SetConfig(**text, tag="<2zh>"),
        "given": SetConfig(**text, tag="<2zh>", source_lang="fr", target_lang="zh-TW"),
        "table": SetConfig(path="u.jsonl", source_lang="de", target_lang="en"),
        "keys": SetConfig(path="u.jsonl", source_key="de", target_key="en", names=["six"]),
    }
    found = read_sets(SplitConfig(sets=sets), data, "data.test")
    assert [(name, text.source_lang, text.target_lang, text.tag) for name, text in found.items()] == [
        ("plain", "en", "de", None),
        ("tagged", "en", "zh", "<2zh>"),
        ("given", "fr", "zh-TW", "<2zh>"),
        ("table", "de", "en", None),
        ("keys", "en", "de", None),
    ]
    assert found["table"].sources == found["keys"].sources == ["sechs"]
    assert (found["keys"].groups, found["tagged"].inputs[0]) == (["six"], "<2zh> one")


def test_tags_of_the_model_name_the_languages_of_sets_in_other_data() -> None:
    corpora = {"zh": CorpusConfig(target_lang="zh", tag="<2zh>"), "de": CorpusConfig(tag="<2de>")}
    trained_on = replace(DATA, train=TrainSplitConfig(corpora=corpora))
    text = {"source": "a.en", "target": "a.de"}
    sets = {"a": SetConfig(**text, tag="<2zh>"), "b": SetConfig(**text, tag="<2de>"), "c": SetConfig(**text)}
    other = replace(DATA, target_lang="fr")
    found = read_sets(SplitConfig(sets=sets), other, "data.test", trained_on)
    assert [text.target_lang for text in found.values()] == ["zh", "de", "fr"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"source": "a.en", "target": "a.de", "names": ["x"], "sets": {"s": SetConfig(path="t.tsv")}},
            "data.test.sets and data.test.source are both given. Add data.test.source=null "
            "data.test.target=null data.test.names=[], or move it to a part of data.test.sets.",
        ),
        (
            {"tag": "<2de>", "groups": "groups", "sets": {"s": SetConfig(path="t.tsv")}},
            "data.test.sets and data.test.tag are both given. Add data.test.tag=null data.test.groups=null, "
            "or move it to a part of data.test.sets.",
        ),
        (
            {"sets": {"s": SetConfig()}},
            "data.test.sets.s: names no data. Set data.test.sets.s.source=s.en data.test.sets.s.target=s.de "
            "(two text files), or data.test.sets.s.path=s.tsv (TSV, JSONL or Parquet)",
        ),
        (
            {"sets": {"s": SetConfig(source="a.en", target="short.de")}},
            "data.test.sets.s: a.en has 3 lines but short.de has 2. They must correspond line by line.",
        ),
        (
            {"sets": {"s": SetConfig(split="test", hub=HubConfig("nowhere/at/all"))}},
            "data.test.sets.s.hub.path=nowhere/at/all: ",
        ),
    ],
)
def test_mistakes_in_named_sets(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        read_sets(SplitConfig(**options), DATA, "data.test")
    assert str(caught.value).startswith(message)
