"""What the training data are like: lengths, ratios, pieces, what was dropped; as JSON and as a page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece as spm

from nmt.data.arrays import Array
from nmt.data.cleaning import DUPLICATE, NEAR_DUPLICATE
from nmt.data.preparation import Prepared
from nmt.data.report_html import page
from nmt.data.rules.basic import LeakedRule
from nmt.runtime import log, make_folder, replaced

JSON_FILE, HTML_FILE = "data_report.json", "data_report.html"

FORMAT = 1  # of the report: another number makes it anew

_LENGTH_BINS = 40
_RATIO_BINS_PER_OCTAVE = 4
_RATIO_OCTAVES = 3  # from an eighth to eight times as long; what is beyond goes into the bins at the ends
_CURVE_POINTS = 60


def write_data_report(prepared: Prepared, folder: Path) -> None:
    """Writes `data_report.json` and `data_report.html` into a folder, unless they tell of these data already.

    Args:
        prepared: the data.
        folder: made if it isn't there.

    Raises:
        UserError: the folder can't be written.
    """
    make_folder(folder)
    if (folder / HTML_FILE).exists() and _told_before(folder / JSON_FILE, prepared.fingerprint):
        return
    report = data_report(prepared)
    with replaced(folder / HTML_FILE) as temporary:
        temporary.write_text(page(report), encoding="utf-8", newline="\n")
    with replaced(folder / JSON_FILE) as temporary:  # last: it says that both are there
        temporary.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    log.info("what the data are like: %s", folder / HTML_FILE)


def data_report(prepared: Prepared) -> dict[str, Any]:
    """The report as JSON holds it, computed a shard at a time.

    Lengths are in pieces, EOS not counted. A histogram has one edge more than it has counts.
    """
    facts, tokenizer = prepared.report, prepared.tokenizer
    dropped: dict[str, int] = facts["cleaning"]["dropped"]
    source = _SideCounts(tokenizer.source_processor)
    target = _SideCounts(tokenizer.target_processor)
    ratios = _Ratios()
    for source_side, target_side in prepared.train.sides():
        lengths = source_side.lengths(), target_side.lengths()
        source.add(source_side.flat(), lengths[0])
        target.add(target_side.flat(), lengths[1])
        ratios.add(*lengths)
    return {
        "format": FORMAT,
        "fingerprint": prepared.fingerprint,
        "name": facts["name"],
        "corpus": _corpus_name(facts["train"]),
        "pairs": facts["cleaning"]["pairs"],
        "kept": facts["cleaning"]["kept"],
        "duplicates": dropped.get(DUPLICATE, 0),
        "near_duplicates": dropped.get(NEAR_DUPLICATE, 0),
        "leaked": dropped.get(LeakedRule.name, 0),
        "rules": [
            {
                "name": name,
                "words": facts["cleaning"]["words"][name],
                "dropped": count,
                "examples": facts["cleaning"]["examples"][name],
            }
            for name, count in dropped.items()
        ],
        "source": {"lang": _languages(facts, "source_lang"), **source.report()},
        "target": {"lang": _languages(facts, "target_lang"), **target.report()},
        "ratios": ratios.histogram(),
    }


def _corpus_name(train: dict[str, Any]) -> str:
    """What the training pairs are called: the one corpus, or each of several under its name."""
    if "corpora" not in train:
        return str(train["corpus"])
    return ", ".join(f"{name} ({corpus['corpus']})" for name, corpus in train["corpora"].items())


def _languages(facts: dict[str, Any], key: str) -> str:
    """The languages of a side: one, or each that a corpus has."""
    corpora = facts["train"].get("corpora", {"": facts})
    return ", ".join(dict.fromkeys(corpus[key] for corpus in corpora.values()))


class _SideCounts:
    """How often each length and each piece of one side occurs."""

    def __init__(self, processor: spm.SentencePieceProcessor) -> None:
        self._processor = processor
        self._lengths = np.zeros(0, np.int64)
        self._pieces = np.zeros(processor.vocab_size(), np.int64)

    def add(self, ids: Array, lengths: Array) -> None:
        """Counts a shard: (N,) ids and (n,) lengths."""
        self._pieces += np.bincount(ids, minlength=len(self._pieces))
        counts = np.bincount(lengths, minlength=len(self._lengths))
        counts[: len(self._lengths)] += self._lengths
        self._lengths = counts

    def report(self) -> dict[str, Any]:
        """What is told of a side."""
        tokens = int(self._pieces.sum())
        is_byte = np.array([self._processor.is_byte(i) for i in range(len(self._pieces))])
        num_bytes = int(self._pieces[is_byte].sum())
        return {
            "tokens": tokens,
            "mean_length": round(tokens / int(self._lengths.sum()), 2),
            "max_length": len(self._lengths) - 1,
            "lengths": _length_histogram(self._lengths),
            "vocab_size": len(self._pieces),
            "pieces_used": int(np.count_nonzero(self._pieces)),
            "byte_pieces": num_bytes,
            "byte_share": round(num_bytes / tokens, 6),
            "frequencies": _curve(self._pieces),
        }


class _Ratios:
    """How often the target is how many times as long as the source, in bins of a quarter of an octave."""

    def __init__(self) -> None:
        self._counts = np.zeros(2 * _RATIO_OCTAVES * _RATIO_BINS_PER_OCTAVE, np.int64)

    def add(self, source: Array, target: Array) -> None:
        """Counts a shard: (n,) and (n,) lengths, none of them 0."""
        place = (np.log2(target / source) + _RATIO_OCTAVES) * _RATIO_BINS_PER_OCTAVE
        bins = np.clip(np.floor(place).astype(np.int64), 0, len(self._counts) - 1)
        self._counts += np.bincount(bins, minlength=len(self._counts))

    def histogram(self) -> dict[str, Any]:
        """The bins; the first and the last hold what is beyond them too."""
        edges = np.arange(len(self._counts) + 1) / _RATIO_BINS_PER_OCTAVE - _RATIO_OCTAVES
        return {
            "edges": [round(edge, 4) for edge in np.exp2(edges).tolist()],
            "counts": self._counts.tolist(),
        }


def _length_histogram(counts: Array) -> dict[str, Any]:
    """(L,) counts by length to bins of equal width that hold all but the longest thousandth, and one more."""
    covered = np.searchsorted(np.cumsum(counts), 0.999 * counts.sum())
    width = int(covered) // _LENGTH_BINS + 1
    edges = list(range(0, int(covered) + width + 1, width))
    binned = [int(counts[low:high].sum()) for low, high in zip(edges, edges[1:], strict=False)]
    if len(counts) > edges[-1]:
        binned.append(int(counts[edges[-1] :].sum()))
        edges.append(len(counts))
    return {"edges": edges, "counts": binned}


def _curve(counts: Array) -> list[Sequence[int]]:
    """(V,) counts to `[rank, count]` at ranks that are evenly spread on a logarithmic scale."""
    descending = np.sort(counts[counts > 0])[::-1]
    ranks = np.unique(np.geomspace(1, len(descending), _CURVE_POINTS).round().astype(np.int64))
    return [[rank, int(descending[rank - 1])] for rank in ranks.tolist()]


def _told_before(path: Path, fingerprint: str) -> bool:
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        return bool(report["fingerprint"] == fingerprint and report["format"] == FORMAT)
    except (OSError, ValueError, KeyError, TypeError):
        return False
