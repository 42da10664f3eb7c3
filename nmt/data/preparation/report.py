"""What the training data are like: lengths, ratios, pieces, samples, what was dropped; as JSON and a page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece as spm

from nmt.data.arrays import Array
from nmt.data.cleaning.cleaner import DUPLICATE, NEAR_DUPLICATE, option_of
from nmt.data.cleaning.rules.basic import LeakedRule
from nmt.data.preparation.counts import Counts, SideCounts, ratio_edges
from nmt.data.preparation.prepare import Prepared
from nmt.data.preparation.report_html import page
from nmt.data.preparation.report_samples import kept_pairs, vocabulary
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.runtime import log, make_folder, parse_json, read_text, replaced

JSON_FILE, HTML_FILE = "data_report.json", "data_report.html"

FORMAT = 2  # of the report: another number makes it anew

_LENGTH_BINS = 40
_CURVE_POINTS = 60
_MOST = 1 << 26  # bytes of a report


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
    """The report as JSON holds it, from counts that the shards keep.

    Lengths are in pieces, EOS not counted. A histogram has one edge more than it has counts.
    """
    facts, tokenizer = prepared.report, prepared.tokenizer
    dropped: dict[str, int] = facts["cleaning"]["dropped"]
    counts = Counts.summed(prepared.train.more())
    source = _told(counts.source, tokenizer.source_processor)
    target = _told(counts.target, tokenizer.target_processor)
    corpora = list(facts["train"].get("corpora", [facts["train"].get("corpus")]))
    return {
        "format": FORMAT,
        "fingerprint": prepared.fingerprint,
        "name": facts["name"],
        "corpus": _corpus_name(facts["train"]),
        "pairs": facts["cleaning"]["pairs"],
        "kept": facts["cleaning"]["kept"],
        "vocab_size": facts["vocab_size"],
        "duplicates": dropped.get(DUPLICATE, 0),
        "near_duplicates": dropped.get(NEAR_DUPLICATE, 0),
        "leaked": dropped.get(LeakedRule.name, 0),
        "rules": [
            {
                "name": name,
                "option": option_of(name),
                "words": facts["cleaning"]["words"][name],
                "dropped": count,
                "examples": facts["cleaning"]["examples"][name],
            }
            for name, count in dropped.items()
        ],
        "source": {"lang": _languages(facts, "source_lang"), **source},
        "target": {"lang": _languages(facts, "target_lang"), **target},
        "ratios": {"edges": ratio_edges(), "counts": counts.ratios.tolist()},
        "sample": list(kept_pairs(prepared.train, tokenizer, corpora)),
        "vocabularies": _vocabularies(counts, tokenizer),
    }


def _vocabularies(counts: Counts, tokenizer: Tokenizer) -> dict[str, Any]:
    """`both`, or `source` and `target` → a sample of the pieces."""
    source, target = counts.source.pieces, counts.target.pieces
    if tokenizer.joint:
        return {"both": vocabulary(source + target, tokenizer.source_processor)}
    return {
        "source": vocabulary(source, tokenizer.source_processor),
        "target": vocabulary(target, tokenizer.target_processor),
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


def _told(side: SideCounts, processor: spm.SentencePieceProcessor) -> dict[str, Any]:
    """What is told of a side."""
    tokens = int(side.pieces.sum())
    is_byte = np.array([processor.is_byte(i) for i in range(len(side.pieces))])
    num_bytes = int(side.pieces[is_byte].sum())
    return {
        "tokens": tokens,
        "mean_length": round(tokens / int(side.lengths.sum()), 2),
        "max_length": len(side.lengths) - 1,
        "lengths": _length_histogram(side.lengths),
        "vocab_size": len(side.pieces),
        "pieces_used": int(np.count_nonzero(side.pieces)),
        "byte_pieces": num_bytes,
        "byte_share": round(num_bytes / tokens, 6),
        "frequencies": _curve(side.pieces),
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
        report = parse_json(read_text(path, _MOST))
        return bool(report["fingerprint"] == fingerprint and report["format"] == FORMAT)
    except (ValueError, KeyError, TypeError):  # a UserError is the first of them
        return False
