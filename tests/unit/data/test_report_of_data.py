"""The data report: its numbers against naive ones, and a page that stands alone and breaks at nothing."""

from __future__ import annotations

import json
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from nmt.config import CleaningConfig, DataConfig, SplitConfig, TokenizerConfig, TrainSplitConfig
from nmt.data.preparation import Prepared, prepare
from nmt.data.report import data_report, write_data_report
from nmt.data.report_html import histogram, page


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    folder = tmp_path_factory.mktemp("corpus")
    random = Random(5)
    words = ["".join(random.choices("abcdefgh", k=random.randint(1, 6))) for _ in range(100)]
    pairs = [(" ".join(random.choices(words, k=3 + i % 9)), f"z{i} <b>&") for i in range(150)]
    pairs[5] = ("a dog", "<script>alert('x')</script>\x07")
    pairs[90] = pairs[80]
    pairs[91] = (pairs[80][0].upper(), pairs[80][1] + "!")
    valid = [("held", "out")]
    pairs[12] = ("HELD", "x")
    for name, rows in (("train", pairs), ("valid", valid)):
        for side in (0, 1):
            text = "".join(f"{row[side]}\n" for row in rows)
            (folder / f"{name}.{side}").write_text(text, encoding="utf-8")
    return prepare(
        DataConfig(
            name="toy & co",
            source_lang="xx",
            target_lang="yy",
            train=TrainSplitConfig(source=str(folder / "train.0"), target=str(folder / "train.1")),
            valid=SplitConfig(source=str(folder / "valid.0"), target=str(folder / "valid.1")),
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
    assert {rule["name"] for rule in report["rules"]} == {"control", "leaked", "duplicate", "near_duplicate"}
    assert json.loads(json.dumps(report)) == report


@pytest.mark.parametrize("side", ["source", "target"])
def test_sides_against_naive(prepared: Prepared, report: dict[str, Any], side: str) -> None:
    sentences = [getattr(prepared.train, side)(row).tolist() for row in range(prepared.train.num_pairs)]
    told = report[side]
    counts = Counter(piece for sentence in sentences for piece in sentence)
    processor = getattr(prepared.tokenizer, f"{side}_processor")
    lengths = list(map(len, sentences))
    assert told["tokens"] == sum(lengths)
    assert told["max_length"] == max(lengths)
    assert told["mean_length"] == round(sum(lengths) / len(lengths), 2)
    assert told["pieces_used"] == len(counts)
    assert told["byte_pieces"] == sum(count for piece, count in counts.items() if processor.is_byte(piece))
    edges = told["lengths"]["edges"]
    assert told["lengths"]["counts"] == np.histogram(lengths, [*edges[:-1], edges[-1] - 0.5])[0].tolist()
    descending = sorted(counts.values(), reverse=True)
    assert all(count == descending[rank - 1] for rank, count in told["frequencies"])
    assert [told["frequencies"][end][0] for end in (0, -1)] == [1, len(counts)]


def test_ratios_against_naive(prepared: Prepared, report: dict[str, Any]) -> None:
    ratios = prepared.train.target_lengths / prepared.train.source_lengths.astype(float)
    edges = np.array(report["ratios"]["edges"])
    assert (edges[0], edges[-1]) == (0.125, 8.0)
    edges[0], edges[-1] = 0, np.inf
    naive = [
        int(((low <= ratios) & (ratios < high)).sum()) for low, high in zip(edges, edges[1:], strict=False)
    ]
    assert report["ratios"]["counts"] == naive


class Checker(HTMLParser):
    """Sees that every element is closed, and which there are."""

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
    assert "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;\\x07" in text
    assert "<title>Data: toy &amp; co (xx–yy)</title>" in text
    assert "prefers-color-scheme: dark" in text


def test_histogram_draws_the_counts() -> None:
    chart = histogram([0, 1, 2, 9], [5, 0, 10], "source")
    heights = [float(height) for height in re.findall(r'height="([\d.]+)"><title>', chart)]
    assert heights[0] * 2 == heights[2] and heights[1] == 0
    assert "<title>2 to 8: 10</title>" in chart


@pytest.mark.parametrize("count", [1, 3, 7, 99, 12_345_678])
def test_any_count_can_be_drawn(count: int) -> None:
    assert "nan" not in histogram([0, 1], [count], "source")


def test_written_once(prepared: Prepared, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    write_data_report(prepared, folder)
    assert sorted(path.name for path in folder.iterdir()) == ["data_report.html", "data_report.json"]
    assert json.loads((folder / "data_report.json").read_text(encoding="utf-8")) == data_report(prepared)
    (folder / "data_report.html").write_text("mine")
    write_data_report(prepared, folder)
    assert (folder / "data_report.html").read_text() == "mine"
    (folder / "data_report.json").write_text("{")
    write_data_report(prepared, folder)
    assert (folder / "data_report.html").read_text(encoding="utf-8") == page(data_report(prepared))
