"""The attention in some sentence pairs as a self-contained HTML page: maps, lines, and figures of each head.

Shapes: L layers, H heads, Lq queries, Lk keys.
"""

from __future__ import annotations

import json
import string
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from nmt.decoding.pairs import PairAttention
from nmt.runtime.arrays import Array
from nmt.runtime.pages import templates_of

MOST_BYTES = 1_800_000
"""Largest size of the data of a page; pairs that do not fit are left out. A weight is a byte of it."""
TEMPLATE = "attention.html"
KINDS = ("encoder", "decoder", "cross")
"""The three uses of attention (Vaswani et al. 2017, section 3.2.3)."""

_CODES = np.frombuffer((string.ascii_letters + string.digits + "+/").encode(), np.uint8)
_LEVELS = len(_CODES) - 1


def attention_page(pairs: Iterable[PairAttention], title: str = "Attention") -> str | None:
    """Returns the page of the first pairs that fit into `MOST_BYTES`, at least one; None: there are no pairs.

    A weight is written as one of 64 levels of its square root, so that small weights differ too. No pair is
    taken after the first one that does not fit.
    """
    shown: list[PairAttention] = []
    records: list[dict[str, Any]] = []
    size = 0
    for pair in pairs:
        record = _record(pair)
        size += len(json.dumps(record, ensure_ascii=False).encode())
        if shown and size > MOST_BYTES:
            break
        shown.append(pair)
        records.append(record)
    if not shown:
        return None
    # No text of a sentence may end the script: < is escaped in all strings.
    data = {"pairs": records, "figures": figures(shown)}
    content = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return templates_of("nmt.decoding").get_template(TEMPLATE).render(title=title, data=content)


def figures(pairs: Sequence[PairAttention]) -> dict[str, list[list[dict[str, float]]]]:
    """Returns what each head does, as means over all queries of the pairs: kind → layer → head → figures.

    `distance` is that between the places of query and key, `entropy` is in bits, and the others are shares of
    the weight: on the place before that of the query, the same, and the one after it, on the first key (BOS
    of a target) and on the last one (EOS of a source).
    """
    found: dict[str, list[list[dict[str, float]]]] = {}
    for kind in KINDS:
        parts = [part for pair in pairs if (part := getattr(pair, kind)) is not None]
        if not parts:
            continue
        totals: dict[str, Array] = {}
        for weights in parts:
            for name, sums in _sums(weights).items():
                totals[name] = totals.get(name, 0.0) + sums
        queries = sum(weights.shape[2] for weights in parts)
        layers, heads = parts[0].shape[:2]
        found[kind] = [
            [
                {name: round(float(sums[layer, head]) / queries, 3) for name, sums in totals.items()}
                for head in range(heads)
            ]
            for layer in range(layers)
        ]
    return found


def _sums(weights: Array) -> Mapping[str, Array]:
    """Weights (L, H, Lq, Lk) → the sums (L, H) of each figure over the queries."""
    offsets = np.arange(weights.shape[3]) - np.arange(weights.shape[2])[:, None]
    wide = weights.astype(np.float64)
    return {
        "distance": (wide * np.abs(offsets)).sum((2, 3)),
        "entropy": -(wide * np.log2(np.maximum(wide, 1e-30))).sum((2, 3)),
        "previous": (wide * (offsets == -1)).sum((2, 3)),
        "same": (wide * (offsets == 0)).sum((2, 3)),
        "next": (wide * (offsets == 1)).sum((2, 3)),
        "first": wide[..., 0].sum(2),
        "last": wide[..., -1].sum(2),
    }


def _record(pair: PairAttention) -> dict[str, Any]:
    record: dict[str, Any] = {"source": pair.source, "target": pair.target, "predicted": pair.predicted}
    for kind in KINDS:
        weights = getattr(pair, kind)
        if weights is not None:
            rows, columns = weights.shape[2:]
            seen = np.tri(rows, columns, dtype=bool) if kind == "decoder" else np.ones((rows, columns), bool)
            levels = np.rint(_LEVELS * np.sqrt(np.clip(weights[:, :, seen], 0, 1))).astype(np.uint8)
            record[kind] = [[_CODES[head].tobytes().decode() for head in layer] for layer in levels]
    return record
