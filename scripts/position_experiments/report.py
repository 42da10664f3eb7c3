"""Tables and plots of the study, in both languages. Tables stand between two marks of the guides."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median

import page_tables
from page_tables import Row, Table

from nmt.config.model import ENCODINGS
from position_experiments import comparisons, layers, speed, symbols, tasks
from position_experiments.korean import translated
from position_experiments.results import (
    FILE,
    Record,
    Spread,
    accuracy,
    chosen,
    over,
    read_study,
    score,
    write_results,
)

GUIDES: Mapping[str, Callable[[str], str]] = {
    "positional_encoding.md": str,
    "positional_encoding.ko.md": translated,
}
"""Guide → what translates the labels of its tables."""
TRAINED = (5, 10, 15, 20)
"""Lengths of the tests within the lengths of training."""
LONGER = (22, 25, 30, 40, 80)


def write_report(study: Path, docs: Path) -> None:
    """Writes the results of a study, their plots, and their tables into the guides."""
    records = read_study(study)
    write_results(docs / FILE, records)
    from position_experiments.figures import NO_FONT, korean_font
    from position_experiments.plots import draw_all

    images = docs / "images" / "positions"
    draw_all(records, images)
    if font := korean_font():
        draw_all(records, images / "ko", font)
    else:
        print(f"{images / 'ko'}: {NO_FONT}", file=sys.stderr)
    for guide, label in GUIDES.items():
        path = docs / guide
        if path.exists():
            text = path.read_text(encoding="utf-8")
            path.write_text(with_tables(text, records, label), encoding="utf-8")


def with_tables(text: str, records: Sequence[Record], label: Callable[[str], str] = str) -> str:
    """Returns the text of a guide with the tables of the records, see `page_tables`.

    `label` translates the cells, except those of the head.
    """

    def table(name: str) -> Table:
        return Table([[label(cell) for cell in row] for row in TABLES[name](records)])

    return page_tables.with_tables(text, table)


def task_table(records: Sequence[Record]) -> Sequence[Row]:
    """Sentences that are completely right, by encoding, task and length."""
    return [
        [f"`{encoding}`", *_task_cells(records, symbols.TASKS, part="tasks", encoder=encoding)]
        for encoding in ENCODINGS
    ]


def base_table(records: Sequence[Record]) -> Sequence[Row]:
    """Sentences that are completely right, by base of the sinusoids, task and length."""
    facts = {base: {"part": "bases", "title": f"base {base}"} for base in tasks.BASES}
    facts[10_000] = {"part": "tasks", "encoder": "sinusoidal"}
    return [[f"{base:,}", *_task_cells(records, ("copy", "sort"), **facts[base])] for base in sorted(facts)]


def _task_cells(records: Sequence[Record], names: Iterable[str], **facts: str) -> Row:
    return [
        _text(over(chosen(records, task=task, **facts), accuracy(lengths)))
        for task in names
        for lengths in (TRAINED, (25,), (40,))
    ]


def forced_table(records: Sequence[Record]) -> Sequence[Row]:
    """Symbols that are right at 40, with a free length and that of the reference; ratio of the lengths."""
    rows = []
    for encoding in ENCODINGS:
        row = [f"`{encoding}`"]
        for task in ("copy", "reverse"):
            those = chosen(records, part="tasks", task=task, encoder=encoding)
            row += [
                _text(over(those, accuracy((40,), "symbols"))),
                _text(over(those, accuracy((40,), "symbols", "forced"))),
                _text(over(those, lambda each: accuracy((40,), "length_ratio")(each) / 100), 2),
            ]
        rows.append(row)
    return rows


def mixed_table(records: Sequence[Record]) -> Sequence[Row]:
    """Sentences that are right, for different encodings in encoder and decoder."""
    same = [(name, name) for name in ("sinusoidal", "none", "rotary")]
    rows = []
    for encoder, decoder in [*same, *tasks.MIXED]:
        part = "tasks" if encoder == decoder else "mixed"
        row = [f"`{encoder}`", f"`{decoder}`"]
        for task in ("copy", "reverse"):
            those = chosen(records, part=part, task=task, encoder=encoder, decoder=decoder)
            row += [_text(over(those, accuracy(lengths))) for lengths in (TRAINED, (25,), (40,))]
        rows.append(row)
    return rows


def concatenated_table(records: Sequence[Record]) -> Sequence[Row]:
    """Copied sentences that are right, with and without concatenation in training."""
    names = dict.fromkeys(each["encoder"] for each in chosen(records, part="concatenated"))
    rows = []
    for encoding in sorted(names, key=ENCODINGS.index):
        row = [f"`{encoding}`"]
        for lengths in ((25,), (40,), (60,)):
            for part in ("tasks", "concatenated"):
                those = chosen(records, part=part, task="copy", encoder=encoding)
                row.append(_text(over(those, accuracy(lengths))))
        rows.append(row)
    return rows


def caption_table(records: Sequence[Record]) -> Sequence[Row]:
    """BLEU by the length of the source, and of joined captions."""
    buckets = ("1-8", "9-11", "12-14", "15-17", "18-", "joined 2", "joined 4")
    return [
        [f"`{encoding}`", *(_text(over(those, score(bucket)), 1) for bucket in buckets)]
        for encoding, those in _captions(records)
    ]


def caption_length_table(records: Sequence[Record]) -> Sequence[Row]:
    """Ratio of the lengths, BLEU with the reference's length, and chrF, of long and of joined captions."""
    rows = []
    for encoding, those in _captions(records):
        row = [f"`{encoding}`"]
        for bucket in ("15-", "joined 4"):
            row += [
                _text(over(those, score(bucket, "length_ratio")), 2),
                _text(over(those, score(bucket)), 1),
                _text(over(those, score(bucket, kind="forced")), 1),
                _text(over(those, score(bucket, "chrf")), 1),
            ]
        rows.append(row)
    return rows


def caption_concatenated_table(records: Sequence[Record]) -> Sequence[Row]:
    """BLEU with and without concatenation in training, first seed."""
    rows = []
    for encoding in ENCODINGS:
        both = [
            chosen(records, part="captions", encoder=encoding, seed=1, options=options)
            for options in ([], ["data.concatenate=0.3", "data.cleaning.max_pieces=64"])
        ]
        if both[1]:
            row = [f"`{encoding}`"]
            for bucket in ("12-14", "15-", "joined 2", "joined 4"):
                row += [_text(over(those, score(bucket)), 1) for those in both]
            rows.append(row)
    return rows


def saturation_table(records: Sequence[Record]) -> Sequence[Row]:
    """Saturation of the softmax and ratios of gradients, by the width of the keys."""
    rows = []
    for width in comparisons.KEY_WIDTHS:
        row = [str(width)]
        for name in ("scaled_dot", "dot"):
            for each in chosen(records, part="attention", score=name, key_width=width):
                before, after = each["saturation"]["untrained"], each["saturation"]["trained"]
                row += [
                    f"{before['largest']:.2f}",
                    f"{before['gradient']:.2f}",
                    f"{after['gradient']:.2f}",
                    f"{100 * after['saturated']:.0f}",
                    f"{accuracy(TRAINED)(each):.0f}",
                ]
        rows.append(row + ["–"] * (11 - len(row)))
    return rows


def head_table(records: Sequence[Record]) -> Sequence[Row]:
    """Sentences that are right with other scores and numbers of heads."""
    rows = []
    for title in ("8 heads", "1 head", "additive"):
        row = [title]
        for task in symbols.TASKS:
            those = chosen(records, part="attention", task=task, title=title)
            row += [_text(over(those, accuracy(lengths))) for lengths in (TRAINED, (25,))]
        rows.append(row)
    return rows


def caption_attention_table(records: Sequence[Record]) -> Sequence[Row]:
    """BLEU and chrF of attention variants on Multi30k."""
    return [
        [each["title"], f"{score('all')(each):.1f}", f"{score('all', 'chrf')(each):.1f}"]
        for each in chosen(records, part="captions-attention")
    ]


def recurrence_table(records: Sequence[Record]) -> Sequence[Row]:
    """Recurrence against attention."""
    return [
        [
            each["title"],
            f"{each['training']['parameters'] / 1e6:.2f}",
            f"{each['training']['updates']:,}",
            f"{each['training']['target_tokens_per_second']:,.0f}",
            f"{score('all')(each):.1f}",
            f"{score('15-')(each):.1f}",
        ]
        for each in chosen(records, part="recurrence")
    ]


_PAPER = {"self-attention": "n²·d", "restricted": "r·n·d", "recurrent": "n·d²", "convolutional": "k·n·d²"}
_PAPER_PATH = {
    "self-attention": "1",
    "restricted": "n/r",
    "recurrent": "n",
    "convolutional": "n/k",
    "dilated": "log_k(n)",
}


def slope_table(records: Sequence[Record]) -> Sequence[Row]:
    """Slopes of time and memory against the length, for n of 256 or more."""
    rows = []
    for kind, paper in _PAPER.items():
        row = [kind, paper]
        for key in ("seconds", "memory_bytes"):
            for width in layers.WIDTHS:
                those = chosen(records, part="layers", kind=kind, width=width)
                row += [f"{layers.slope(each['rows'], key):.2f}" for each in those] or ["–"]
        rows.append(row)
    return rows


def score_table(records: Sequence[Record]) -> Sequence[Row]:
    """Milliseconds and megabytes of one head with 512 tokens, forward and backward, by score and width."""
    rows = []
    for kind in layers.SCORES:
        row = [f"`{kind}`"]
        for key, unit in (("seconds", 1e-3), ("memory_bytes", 1e6)):
            for width in layers.KEY_WIDTHS:
                those = chosen(records, part="scores", kind=kind, width=width)
                row += [f"{each['rows'][-1][key] / unit:.1f}" for each in those] or ["–"]
        rows.append(row)
    return rows


def path_table(records: Sequence[Record]) -> Sequence[Row]:
    """Layers between the first token and the last one."""
    rows = []
    for kind, paper in _PAPER_PATH.items():
        row = [kind, paper]
        for record in chosen(records, part="layers", kind="path"):
            row += [str(each["layers"]) for each in record["rows"] if each["kind"] == kind]
        rows.append(row)
    return rows


def probe_table(records: Sequence[Record]) -> Sequence[Row]:
    """Share of tokens whose position a linear probe predicts exactly, by layer."""
    return [
        [
            f"`{each['encoder']}`",
            "yes" if each["residual"] else "no",
            *(f"{100 * layer['exact']:.0f}" for layer in each["probe"]),
            f"{accuracy(TRAINED)(each):.0f}",
        ]
        for each in chosen(records, part="probe")
    ]


def permutation_table(records: Sequence[Record]) -> Sequence[Row]:
    """Difference of the encoder's outputs if the source is permuted, by task, the largest of the seeds."""
    rows = []
    for encoding in ENCODINGS:
        row = [f"`{encoding}`"]
        for task in symbols.TASKS:
            those = chosen(records, part="tasks", task=task, encoder=encoding)
            largest = max((each["permutation"] for each in those), default=math.nan)
            row.append(f"{largest:.1e}" if largest < 1e-3 else f"{largest:.2f}")
        rows.append(row)
    return rows


def speed_table(records: Sequence[Record]) -> Sequence[Row]:
    """Speed of training relative to the sinusoidal encoding: the median of the pairs, lowest and highest."""
    rows = []
    for encoding in ENCODINGS:
        row = [f"`{encoding}`"]
        for shape in speed.SHAPES:
            row += [
                f"{median(each['ratios']):.2f} ({min(each['ratios']):.2f}–{max(each['ratios']):.2f})"
                for each in chosen(records, part="speed", shape=shape, encoder=encoding)
            ]
        if len(row) > 1:
            rows.append(row)
    return rows


def _captions(records: Sequence[Record]) -> list[tuple[str, list[Record]]]:
    found = []
    for encoding in ENCODINGS:
        those = chosen(records, part="captions", encoder=encoding, options=[])
        if those:
            found.append((encoding, those))
    return found


def _text(spread: Spread | None, digits: int = 0) -> str:
    return "–" if spread is None else spread.text(digits)


TABLES: Mapping[str, Callable[[Sequence[Record]], Sequence[Row]]] = {
    "tasks": task_table,
    "bases": base_table,
    "forced": forced_table,
    "mixed": mixed_table,
    "concatenated": concatenated_table,
    "captions": caption_table,
    "caption-lengths": caption_length_table,
    "captions-concatenated": caption_concatenated_table,
    "saturation": saturation_table,
    "heads": head_table,
    "captions-attention": caption_attention_table,
    "recurrence": recurrence_table,
    "slopes": slope_table,
    "paths": path_table,
    "scores": score_table,
    "speed": speed_table,
    "probe": probe_table,
    "permutation": permutation_table,
}
"""The tables by name."""
