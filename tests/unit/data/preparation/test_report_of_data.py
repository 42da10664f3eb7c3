"""The data report: its numbers against a naive twin, and a self-contained page, valid for any text."""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from dataclasses import fields
from html.parser import HTMLParser
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from toy_corpus import write_pairs

from nmt.config import (
    CleaningConfig,
    CorpusConfig,
    DataConfig,
    SplitConfig,
    TokenizerConfig,
    TrainSplitConfig,
)
from nmt.data.cleaning.cleaner import RULES, option_of
from nmt.data.preparation.prepare import Prepared, prepare
from nmt.data.preparation.report import data_report, write_data_report
from nmt.data.preparation.report_page import page
from nmt.data.subwords import normalization
from nmt.runtime.charts import histogram, logarithmic_lines


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    folder = tmp_path_factory.mktemp("corpus")
    random = Random(5)
    words = ["".join(random.choices("abcdefgh", k=random.randint(1, 6))) for _ in range(100)]
    pairs = [(" ".join(random.choices(words, k=3 + i % 9)), f"z{i} <b>&") for i in range(150)]
    pairs[5] = ("a dog", "<script>alert('x')</script>\x07")
    pairs[90] = pairs[80]
    pairs[91] = (pairs[80][0].upper(), pairs[80][1] + "!")
    pairs[12] = ("HELD", "x")
    return prepare(
        DataConfig(
            name="toy & co",
            source_lang="xx",
            target_lang="yy",
            train=TrainSplitConfig(**write_pairs(folder, "train", pairs)),
            valid=SplitConfig(**write_pairs(folder, "valid", [("held", "out")])),
            tokenizer=TokenizerConfig(vocab_size=330),
            cleaning=CleaningConfig(drop_near_duplicates=True),
            cache_dir=str(folder / "cache"),
            workers=1,
        ),
        shard_pairs=64,
    )


@pytest.fixture(scope="module")
def report(prepared: Prepared) -> dict[str, Any]:
    return data_report(prepared)


def test_counts(report: dict[str, Any]) -> None:
    assert (report["pairs"], report["kept"]) == (150, 146)
    assert (report["duplicates"], report["near_duplicates"], report["leaked"]) == (1, 1, 1)
    assert {rule["name"]: rule["option"] for rule in report["rules"]} == {
        "control": "data.cleaning.drop_control",
        "leaked": "data.cleaning.drop_leaked",
        "duplicate": "data.cleaning.drop_duplicates",
        "near_duplicate": "data.cleaning.drop_near_duplicates",
    }
    assert json.loads(json.dumps(report)) == report


@pytest.mark.parametrize("side", ["source", "target"])
def test_sides_against_naive(prepared: Prepared, report: dict[str, Any], side: str) -> None:
    index = ["source", "target"].index(side)
    sentences = [prepared.train.pair(row)[index].tolist() for row in range(prepared.train.num_pairs)]
    reported = report[side]
    counts = Counter(piece for sentence in sentences for piece in sentence)
    processor = getattr(prepared.tokenizer, side).processor
    lengths = list(map(len, sentences))
    assert reported["tokens"] == sum(lengths)
    assert reported["max_length"] == max(lengths)
    assert reported["mean_length"] == round(sum(lengths) / len(lengths), 2)
    assert reported["pieces_used"] == len(counts)
    assert reported["byte_pieces"] == sum(
        count for piece, count in counts.items() if processor.is_byte(piece)
    )
    edges = reported["lengths"]["edges"]
    assert reported["lengths"]["counts"] == np.histogram(lengths, [*edges[:-1], edges[-1] - 0.5])[0].tolist()
    descending = sorted(counts.values(), reverse=True)
    assert all(count == descending[rank - 1] for rank, count in reported["frequencies"])
    assert [reported["frequencies"][end][0] for end in (0, -1)] == [1, len(counts)]


def test_ratios_against_naive(prepared: Prepared, report: dict[str, Any]) -> None:
    sources, targets = prepared.train.take(np.arange(prepared.train.num_pairs))
    ratios = targets.lengths() / sources.lengths()
    edges = np.array(report["ratios"]["edges"])
    assert (edges[0], edges[-1]) == (0.125, 8.0)
    edges[0], edges[-1] = 0, np.inf
    naive = [
        int(((low <= ratios) & (ratios < high)).sum()) for low, high in zip(edges, edges[1:], strict=False)
    ]
    assert report["ratios"]["counts"] == naive


class Checker(HTMLParser):
    """Checks that every element is closed; records the tags."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.add(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_stands_alone(report: dict[str, Any]) -> None:
    text = page(report)
    checker = Checker()
    checker.feed(text)
    assert checker.open == []
    assert not checker.seen & {"script", "link", "img"}
    assert not re.search(r"(href|src)=|url\(|@import|nan|inf\b", text)
    assert "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;\\x07" in text
    assert "<title>Data: toy &amp; co (xx–yy)</title>" in text
    assert "prefers-color-scheme: dark" in text


def test_what_normalisation_changes(
    prepared: Prepared, report: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    assert report["normalization"] == {
        "source": {"rule": "nmt_nfkc", "lines": 146, "changed": 0, "examples": []},
        "target": {"rule": "identity", "lines": 146, "changed": 0, "examples": []},
    }
    pairs = [("Ｈi  there", "他说：“好”"), ("No, 1\u00a0kg", "x" * 40 + "½"), ("same", " as it is ")]
    facts = normalization.changes(pairs, prepared.tokenizer)
    assert facts["target"]["changed"] == 0
    assert facts["source"] == {
        "rule": "nmt_nfkc",
        "lines": 3,
        "changed": 2,
        "examples": [["Ｈi  there", "Hi there"], ["No, 1\u00a0kg", "No, 1 kg"]],
    }
    assert normalization.summed([facts, facts])["source"]["changed"] == 4
    assert "No, 1\\xa0kg" in page({**report, "normalization": facts})
    one_name = normalization.of_side([target for _, target in pairs], prepared.tokenizer.source)
    assert one_name["examples"] == [["他说：“好”", "他说:“好”"], ["x" * 12 + "½", "x" * 12 + "1⁄2"]]
    with caplog.at_level("WARNING", "nmt"):
        normalization.warn_of_changed_targets(facts["target"], "the target lines")
        normalization.warn_of_changed_targets(one_name, "the target lines")
    assert caplog.messages == [
        "The model can't write 66.7% of the target lines as they are: its target is normalised (nmt_nfkc), "
        "such as '他说：“好”' to '他说:“好”'. A new model with data.tokenizer.normalization.target=identity "
        "retains them."
    ]


def test_every_rule_names_its_option() -> None:
    options = {name: option_of(name) for name in (*RULES, "length", "duplicate", "near_duplicate")}
    assert options.pop("empty") is None
    known = {f"data.cleaning.{field.name}" for field in fields(CleaningConfig)}
    assert set(options.values()) == known  # one option for each rule, and vice versa
    assert options["ratio"] == "data.cleaning.max_ratio" and options["length"] == "data.cleaning.max_pieces"
    assert option_of("my_own_rule") is None


def test_bars_are_scaled_to_all_pairs(report: dict[str, Any]) -> None:
    text = page(report)
    assert text.count('<b style="width:0.67%"></b>') == 4  # four rules each drop one pair of 150
    assert "min-width: 3px" in text and "of all 150 pairs" in text
    rules = [{**report["rules"][0], "dropped": dropped} for dropped in (75, 1, 0)]
    text = page({**report, "pairs": 100_000, "rules": rules})
    assert re.findall(r'<b style="(.*?)">', text) == ["width:0.07%", "width:0.00%", "width:0.00%"]
    assert '<td class="number">&lt;0.01%</td>' in text and "data.cleaning.drop_control</code>" in text


def test_the_sample_is_of_kept_pairs(prepared: Prepared, report: dict[str, Any]) -> None:
    store, tokenizer = prepared.train, prepared.tokenizer
    processors = tokenizer.source.processor, tokenizer.target.processor
    kept = [
        tuple(
            list(map(processor.id_to_piece, ids.tolist()))
            for processor, ids in zip(processors, store.pair(row), strict=True)
        )
        for row in range(store.num_pairs)
    ]
    sample = [(pair["source"], pair["target"]) for pair in report["sample"]]
    places = [kept.index(pair) for pair in sample]
    assert len(places) == 10 and places == sorted(set(places))
    assert max(places) - min(places) > 50  # spread over the whole text
    assert data_report(prepared)["sample"] == report["sample"]


def test_pieces_against_naive(prepared: Prepared, report: dict[str, Any]) -> None:
    store, processor = prepared.train, prepared.tokenizer.source.processor
    sentences = [ids.tolist() for row in range(store.num_pairs) for ids in store.pair(row)]
    counts = Counter(processor.id_to_piece(piece) for sentence in sentences for piece in sentence)
    assert list(report["vocabularies"]) == ["both"]
    found = report["vocabularies"]["both"]
    for kind in ("most_frequent", "middle", "rarest", "longest"):
        assert len(found[kind]) == 24 and all(count == counts[piece] for piece, count in found[kind])
    assert [count for _, count in found["most_frequent"]] == [count for _, count in counts.most_common(24)]
    words = {piece: count for piece, count in counts.items() if not re.fullmatch("<0x..>", piece)}
    assert sorted(count for _, count in found["rarest"]) == sorted(words.values())[:24]
    assert [len(piece) for piece, _ in found["longest"]] == sorted(map(len, words), reverse=True)[:24]
    middle = [count for _, count in found["middle"]]
    assert min(middle) <= sorted(words.values())[len(words) // 2] <= max(middle)
    assert (found["size"], found["unused"]) == (330, 330 - 4 - 256 - len(words))


def test_the_page_shows_the_samples(report: dict[str, Any]) -> None:
    text = page(report)
    assert text.count('<tr class="kept">') == 10
    piece, count = report["vocabularies"]["both"]["most_frequent"][0]
    assert f"<span>{piece}<small>{count:,}</small></span>" in text
    sample = [{"corpus": "a", "source": ["▁a", "<b>", "▁", "c"], "target": ["▁", "\x07", "…"]}]
    text = page({**report, "sample": sample})
    assert "><u>a</u><u>&lt;b&gt;</u> <u>&nbsp;</u><u>c</u></td>" in text
    assert "><u>&nbsp;</u><u>\\x07</u><u>…</u></td>" in text


def test_an_empty_side_of_an_example(report: dict[str, Any]) -> None:
    rules = [{**report["rules"][0], "option": None, "examples": [["", "it's"]]}]
    text = page({**report, "rules": rules})
    assert '<td dir="auto" lang="xx"><code>(empty)</code></td>' in text
    assert '<td dir="auto" lang="yy">it&#39;s</td>' in text
    assert "<code>always</code>" in text
    assert '<div class="table">No pairs were dropped.</div>' in page({**report, "rules": []})


def test_two_corpora_with_a_vocabulary_a_side(tmp_path: Path) -> None:
    texts = {
        "a": [(f"alpha beta {i}", f"gamma delta {i}") for i in range(30)],
        "b": [(f"{'omega ' * 60}{i}", f"{'sigma ' * 60}{i}") for i in range(3)],
    }
    corpora = {name: CorpusConfig(**write_pairs(tmp_path, name, pairs)) for name, pairs in texts.items()}
    report = data_report(
        prepare(
            DataConfig(
                name="two",
                source_lang="xx",
                target_lang="yy",
                train=TrainSplitConfig(corpora=corpora),
                valid=SplitConfig(**write_pairs(tmp_path, "valid", [("held", "out")])),
                tokenizer=TokenizerConfig(vocab_size=300, joint=False),
                cleaning=CleaningConfig(max_pieces=0),
                cache_dir=str(tmp_path / "cache"),
                workers=1,
            )
        )
    )
    assert [pair["corpus"] for pair in report["sample"]] == ["a"] * 5 + ["b"] * 3
    long = report["sample"][-1]["source"]
    assert long[-1] == "…" and 180 < len("".join(long)) <= 200
    assert list(report["vocabularies"]) == ["source", "target"]
    pieces = {side: {p for p, _ in found["most_frequent"]} for side, found in report["vocabularies"].items()}
    assert any("o" in piece for piece in pieces["source"]) and not any("o" in p for p in pieces["target"])
    text = page(report)
    assert '<th colspan="2">a</th>' in text and '<th colspan="2">b</th>' in text
    assert "<h2>Source vocabulary</h2>" in text and "<h2>Target vocabulary</h2>" in text


@pytest.mark.parametrize("count", [1, 3, 7, 99, 12_345_678])
def test_any_count_can_be_drawn(count: int) -> None:
    chart = histogram([0, 1], [count], "source")
    (bar,) = chart.bars
    assert all(map(math.isfinite, (bar.x, bar.y, bar.width, bar.height)))
    assert all(math.isfinite(tick.position) for tick in chart.vertical_ticks)


def test_curves_are_logarithmic() -> None:
    chart = logarithmic_lines({"source": [[1, 1000], [10, 100], [100, 1]]})
    (curve,) = chart.curves
    assert curve.points[0] == (chart.left, chart.top) and curve.points[-1] == (chart.right, chart.bottom)
    middle = ((chart.left + chart.right) / 2, chart.bottom - (chart.bottom - chart.top) * 2 / 3)
    assert curve.points[1] == pytest.approx(middle)
    assert [tick.label for tick in chart.vertical_ticks] == ["1", "10", "100", "1k"]


def test_the_page_draws_the_charts(report: dict[str, Any]) -> None:
    text = page(
        {**report, "source": {**report["source"], "lengths": {"edges": [0, 1, 4], "counts": [5, 10]}}}
    )
    assert text.count("<svg ") == 4
    bars = re.findall(
        r'<rect class="bar source" x="(.*)" y="(.*)"\s+width="(.*)" height="(.*)"><title>(.*)</title>', text
    )
    assert bars == [
        ("52.5", "96.0", "187.0", "86.0", "0 to 0: 5"),
        ("240.5", "10.0", "187.0", "172.0", "1 to 3: 10"),
    ]
    assert (
        len(re.findall(r'<polyline class="curve (?:source|target)" points="(?:[\d.]+,[\d.]+ ?)+"/>', text))
        == 2
    )


def test_written_once(prepared: Prepared, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    write_data_report(prepared, folder)
    assert sorted(path.name for path in folder.iterdir()) == ["data_report.html", "data_report.json"]
    assert json.loads((folder / "data_report.json").read_text(encoding="utf-8")) == data_report(prepared)
    (folder / "data_report.html").write_text("mine")
    write_data_report(prepared, folder)
    assert (folder / "data_report.html").read_text() == "mine"
    before = {**data_report(prepared), "format": 1}  # the format of earlier versions
    for text in (json.dumps(before), "{", "[" * 100_000, "[]", '{"format": ' + "1" * 5000 + "}"):
        (folder / "data_report.html").write_text("mine")
        (folder / "data_report.json").write_text(text)
        write_data_report(prepared, folder)
        assert (folder / "data_report.html").read_text(encoding="utf-8") == page(data_report(prepared))
        assert json.loads((folder / "data_report.json").read_text(encoding="utf-8")) == data_report(prepared)


def test_a_pipe_in_the_place_of_the_report_is_replaced(prepared: Prepared, tmp_path: Path) -> None:
    """Reading a pipe would block."""
    write_data_report(prepared, tmp_path)
    for name in ("data_report.json", "data_report.html"):
        (tmp_path / name).unlink()
        os.mkfifo(tmp_path / name)
        write_data_report(prepared, tmp_path)
        assert (tmp_path / name).is_file() or name == "data_report.html"
    assert json.loads((tmp_path / "data_report.json").read_text(encoding="utf-8")) == data_report(prepared)
