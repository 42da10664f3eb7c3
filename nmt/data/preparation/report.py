"""The data report as JSON and as a page: lengths, ratios, pieces, dropped pairs, normalisation, samples."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nmt.config import DataConfig
from nmt.data.cleaning.cleaner import DUPLICATE, EXAMPLE_CHARACTERS, NEAR_DUPLICATE, option_of
from nmt.data.cleaning.rules.basic import LeakedRule
from nmt.data.corpora.columns import TextBlock
from nmt.data.preparation.encoding import Counts, ratio_edges
from nmt.data.preparation.prepare import Prepared
from nmt.data.preparation.report_page import page
from nmt.data.shuffle import Shuffle
from nmt.data.store import Store
from nmt.data.subwords.extension import MOST_BYTES
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.data.subwords.vocabulary import NUM_SPECIAL, UNK_ID, Vocabulary
from nmt.runtime.arrays import Array
from nmt.runtime.files import make_folder, parse_json, read_text, write_text, written
from nmt.runtime.run_files import RunFiles
from nmt.runtime.streams import log, progress

FORMAT = 3  # of the report; a report with another number is written again

_LENGTH_BINS = 40
_CURVE_POINTS = 60
_MAX_BYTES = 1 << 26  # of a report


def paths_of_cleaned_pairs(data: DataConfig, prefix: str) -> list[Path]:
    """Returns the two files of `write_cleaned_pairs`."""
    ends = [data.source_lang, data.target_lang]
    return [Path(f"{prefix}.{end}") for end in (ends if len(set(ends)) == 2 else ("source", "target"))]


def write_cleaned_pairs(prepared: Prepared, data: DataConfig, prefix: str) -> None:
    """Writes the text of the training pairs to two files, whose names end in the languages of the data.

    Raises:
        UserError: a file can't be written.
    """
    paths = paths_of_cleaned_pairs(data, prefix)
    description = f"Writing {paths[0].name} and {paths[1].name}"
    with progress(total=prepared.train.num_pairs, unit="pairs", description=description) as bar:
        write_pairs(paths, prepared.cleaned(), bar.update)


def write_pairs(
    paths: Sequence[Path],
    blocks: Iterable[TextBlock],
    advance: Callable[[int], object] = lambda num_pairs: None,
) -> None:
    """Writes pairs to two text files; `advance` is called with the number of pairs of each written block.

    Raises:
        UserError: a file can't be written.
    """
    with written(paths[0]) as source, written(paths[1]) as target:
        for block in blocks:
            for file, lines in zip((source, target), block, strict=True):
                file.write("".join(f"{line}\n" for line in lines).encode())
            advance(len(block[0]))


def write_data_report(prepared: Prepared, folder: Path) -> None:
    """Writes `data_report.json` and `data_report.html`, unless the folder already has those of these data.

    Raises:
        UserError: the folder can't be written.
    """
    make_folder(folder)
    files = RunFiles(folder)
    if files.data_page.exists() and _is_current(files.data_report, prepared.fingerprint):
        return
    report = data_report(prepared)
    write_text(files.data_page, page(report))
    # Last, because it implies that both files exist.
    write_text(files.data_report, json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    for warning in report["warnings"][len(prepared.report.get("warnings", ())) :]:  # the others are logged
        log.warning("%s", warning)
    log.info("data report: %s", files.data_page)


def data_report(prepared: Prepared) -> dict[str, Any]:
    """Returns the report for JSON, computed from the counts in the shards.

    Lengths are in pieces, EOS not counted. A histogram has one more edge than counts.
    """
    facts, tokenizer = prepared.report, prepared.tokenizer
    dropped: dict[str, int] = facts["cleaning"]["dropped"]
    counts = Counts.summed(prepared.train.more())
    source = _side_statistics(counts.source_length_counts, counts.source_piece_counts, tokenizer.source)
    target = _side_statistics(counts.target_length_counts, counts.target_piece_counts, tokenizer.target)
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
        "normalization": facts["normalization"],
        "stages": facts.get("stages", {}),
        "ratios": {"edges": ratio_edges(), "counts": counts.ratio_counts.tolist()},
        "sample": list(kept_pairs(prepared.train, tokenizer, corpora)),
        "vocabularies": _vocabularies(counts, tokenizer),
        "warnings": [
            *facts.get("warnings", ()),
            *_warnings_of_bytes({"source": source, "target": target}, prepared),
        ],
    }


def _warnings_of_bytes(sides: dict[str, dict[str, Any]], prepared: Prepared) -> Iterator[str]:
    """Yields a sentence for each side that has many bytes, with the option that gives it pieces."""
    fix = "raise data.tokenizer.character_coverage"
    if prepared.given is not None and not prepared.is_extended:
        fix = (
            "set data.tokenizer.extend=always" if prepared.given.can_be_extended else "learn a new vocabulary"
        )
    for side, facts in sides.items():
        if facts["byte_share"] > MOST_BYTES:
            yield (
                f"{100 * facts['byte_share']:.1f}% of the {side} pieces are bytes or unknown: the vocabulary "
                f"lacks characters of this text, which is then learnt badly. For pieces of their own, {fix}."
            )


def _vocabularies(counts: Counts, tokenizer: Tokenizer) -> dict[str, Any]:
    """Returns a sample of the pieces under `both`, or under `source` and `target`."""
    source, target = counts.source_piece_counts, counts.target_piece_counts
    if tokenizer.joint:
        return {"both": vocabulary(source + target, tokenizer.source)}
    return {
        "source": vocabulary(source, tokenizer.source),
        "target": vocabulary(target, tokenizer.target),
    }


def _corpus_name(train: dict[str, Any]) -> str:
    """Returns the name of the single corpus, or the names of several corpora as a list for display."""
    if "corpora" not in train:
        return str(train["corpus"])
    return ", ".join(f"{name} ({corpus['corpus']})" for name, corpus in train["corpora"].items())


def _languages(facts: dict[str, Any], key: str) -> str:
    """Returns the language of a side, or the languages of several corpora as a list for display."""
    corpora = facts["train"].get("corpora", {"": facts})
    return ", ".join(dict.fromkeys(corpus[key] for corpus in corpora.values()))


def _side_statistics(lengths: Array, pieces: Array, vocabulary: Vocabulary) -> dict[str, Any]:
    """Returns the statistics of one side from its counts; see `Counts`."""
    tokens = int(pieces.sum())
    # A vocabulary of Marian has no bytes: the unknown piece is in their place.
    is_byte = np.array([i == UNK_ID or vocabulary.is_byte(i) for i in range(len(pieces))])
    num_bytes = int(pieces[is_byte].sum())
    return {
        "tokens": tokens,
        "mean_length": round(tokens / int(lengths.sum()), 2),
        "max_length": len(lengths) - 1,
        "lengths": _length_histogram(lengths),
        "vocab_size": len(pieces),
        "pieces_used": int(np.count_nonzero(pieces)),
        "byte_pieces": num_bytes,
        "byte_share": round(num_bytes / tokens, 6),
        "frequencies": _curve(pieces),
    }


def _length_histogram(counts: Array) -> dict[str, Any]:
    """Returns a histogram of lengths from (L,) counts.

    Bins of equal width hold the shortest 99.9 % of the sentences; one more bin holds the rest.
    """
    covered = np.searchsorted(np.cumsum(counts), 0.999 * counts.sum())
    width = int(covered) // _LENGTH_BINS + 1
    edges = list(range(0, int(covered) + width + 1, width))
    binned = [int(counts[low:high].sum()) for low, high in zip(edges, edges[1:], strict=False)]
    if len(counts) > edges[-1]:
        binned.append(int(counts[edges[-1] :].sum()))
        edges.append(len(counts))
    return {"edges": edges, "counts": binned}


def _curve(counts: Array) -> list[Sequence[int]]:
    """Returns `[rank, count]` from (V,) counts, at ranks that are evenly spaced on a logarithmic scale."""
    descending = np.sort(counts[counts > 0])[::-1]
    ranks = np.unique(np.geomspace(1, len(descending), _CURVE_POINTS).round().astype(np.int64))
    return [[rank, int(descending[rank - 1])] for rank in ranks.tolist()]


def _is_current(path: Path, fingerprint: str) -> bool:
    try:
        report = parse_json(read_text(path, _MAX_BYTES))
        return bool(report["fingerprint"] == fingerprint and report["format"] == FORMAT)
    except (ValueError, KeyError, TypeError):  # UserError is a ValueError
        return False


NUM_PAIRS = 10
"""Number of pairs shown of a single corpus. Of each of several corpora, half as many are shown."""

NUM_PIECES = 24
"""Number of pieces shown of each kind."""

_SEED = 20170612  # fixed, so that the sample does not depend on the seed of the run


def kept_pairs(store: Store, tokenizer: Tokenizer, corpora: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yields a uniform sample of each corpus in corpus order, the same at every call.

    The sample is decoded from ids, so that only these pairs are read.

    Yields:
        `corpus`, the name; `source` and `target`, the pieces of each side, truncated with "…" if it is long.
    """
    number = NUM_PAIRS if len(corpora) == 1 else NUM_PAIRS // 2
    start = 0
    for corpus, size in zip(corpora, store.sizes, strict=True):
        rows = start + np.sort(Shuffle(size, _SEED).rows(0, min(number, size)))
        for source, target in zip(*store.take(rows), strict=True):
            yield {
                "corpus": corpus,
                "source": _shown(source, tokenizer.source),
                "target": _shown(target, tokenizer.target),
            }
        start += size


def vocabulary(counts: Array, side: Vocabulary) -> dict[str, Any]:
    """Returns pieces with their counts: the most frequent, of middle frequency, the rarest and the longest.

    Args:
        counts: (V,) number of occurrences of each piece.
        side: the pieces.

    Returns:
        `size`, the number of pieces, special pieces and bytes included; `unused`, the number of other pieces
        that do not occur; `most_frequent`, `middle`, `rarest` and `longest`, lists of `[piece, count]` of
        pieces that occur. They are in the order of rank, except `longest`. They contain no special
        pieces, and bytes only in `most_frequent`.
    """
    pieces = side.names
    normal = range(NUM_SPECIAL, len(counts))
    used = sorted((i for i in normal if counts[i]), key=lambda i: (-int(counts[i]), i))
    words = [i for i in used if not side.is_byte(i)]
    middle = max(0, (len(words) - NUM_PIECES) // 2)
    chosen = {
        "most_frequent": used[:NUM_PIECES],
        "middle": words[middle : middle + NUM_PIECES],
        "rarest": words[-NUM_PIECES:],
        "longest": sorted(words, key=lambda i: (-len(pieces[i]), i))[:NUM_PIECES],
    }
    return {
        "size": len(counts),
        "unused": sum(not counts[i] and not side.is_byte(i) for i in normal),
        **{kind: [[pieces[i], int(counts[i])] for i in ids] for kind, ids in chosen.items()},
    }


def _shown(ids: Array, side: Vocabulary) -> list[str]:
    """Returns the pieces of a sentence, truncated with "…" to `EXAMPLE_CHARACTERS` characters."""
    shown: list[str] = []
    room = EXAMPLE_CHARACTERS
    for piece in (side.names[id] for id in ids.tolist()):
        room -= len(piece)
        if room < 1:  # one character is reserved for the "…"
            return [*shown, "…"]
        shown.append(piece)
    return shown
