"""Measures how much models lose on sources in capitals, as titles, without final punctuation, with typos.

    python scripts/robustness.py runs/plain runs/augmented                  the validation text of each model
    python scripts/robustness.py runs/mine --split test beam_size=1 case=never

The sources of the held-out text are changed by the functions of `data.augmentation`, with a fixed seed. The
references are unchanged. Translations and references are compared in lower case, since a source in capitals
has a translation in capitals; `as they are` also has the BLEU with case. `lost` is the difference to it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import nmt
from nmt.data.corpora.held_out import read_sets
from nmt.data.letter_case import lowered
from nmt.data.perturbation import capitals, titled, unpunctuated, with_typos
from nmt.errors import UserError
from nmt.evaluation.metrics import metrics_for
from nmt.evaluation.scores import score
from nmt.runtime.files import replaced
from nmt.runtime.streams import log_to_stderr

Change = Callable[[str, str, int], str]

CHANGES: Mapping[str, Change] = {
    "as they are": lambda text, lang, seed: text,
    "capitals": lambda text, lang, seed: capitals((text, ""), (lang, ""))[0],
    "title": lambda text, lang, seed: titled((text, ""), (lang, ""))[0],
    "no final punctuation": lambda text, lang, seed: unpunctuated(text),
    "two typos": lambda text, lang, seed: with_typos(text, 2, seed),
}
"""Name → the changed source, given a source, its language and a seed."""


@dataclass(frozen=True)
class Row:
    """The scores of a model on sources with one of `CHANGES`.

    Attributes:
        sources: the change.
        changed: the share of sources that differ from the text.
        cased: BLEU with case.
        bleu: BLEU in lower case.
        chrf: chrF2 in lower case.
    """

    sources: str
    changed: float
    cased: float
    bleu: float
    chrf: float


def measured(model: nmt.Model, split: str, seed: int, decoding: Mapping[str, str]) -> list[Row]:
    """Translates the sources of all sets of a split of the model's data, with each of the changes."""
    data, rows = model.config.data, []
    sets = read_sets(getattr(data, split), data, f"data.{split}").values()
    references = [line for text in sets for line in text.references]
    lower = [lowered(line, data.target_lang) for line in references]
    metrics = metrics_for(data.target_lang, keys=["bleu", "chrf"])
    for name, change in CHANGES.items():
        sources, changed = [], 0
        for text in sets:
            lang = text.source_lang or data.source_lang
            for number, source in enumerate(text.sources):
                new = change(source, lang, seed + number)
                changed += new != source
                sources.append(f"{text.tag} {new}" if text.tag and new.strip() else new)
        hypotheses = model.translate(sources, progress=True, **decoding)
        cased = score(hypotheses, [references], metrics).values["bleu"]
        scores = score([lowered(line, data.target_lang) for line in hypotheses], [lower], metrics).values
        values = cased, scores["bleu"], scores["chrf"]
        rows.append(Row(name, changed / len(sources), *(round(value or 0.0, 2) for value in values)))
    return rows


def table(rows: Mapping[str, Sequence[Row]]) -> str:
    """Returns the rows of each model, by its name, side by side."""
    titles = [f"| {name}: BLEU | lost | chrF2 | lost " for name in rows]
    lines = [f"| Sources {''.join(titles)}|", f"|---{'|--:' * 4 * len(rows)}|"]
    for same in zip(*rows.values(), strict=True):
        cells = [
            f"| {row.bleu:.2f} | {first.bleu - row.bleu:.2f} | {row.chrf:.2f} | {first.chrf - row.chrf:.2f} "
            for row, (first, *_) in zip(same, rows.values(), strict=True)
        ]
        lines.append(f"| {same[0].sources} {''.join(cells)}|")
    cased = ", ".join(f"{name} {first.cased:.2f}" for name, (first, *_) in rows.items())
    return "\n".join([*lines, "", f"BLEU with case, sources as they are: {cased}"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", metavar="MODEL or key=value", help="models, options of decoding")
    parser.add_argument("--split", choices=("valid", "test"), default="valid", help="of the models' data")
    parser.add_argument("--seed", type=int, default=1, help="of the typos")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads; 0: one a core")
    parser.add_argument("--json", type=Path, help="file for the rows")
    given = parser.parse_intermixed_args(arguments)
    log_to_stderr()
    decoding = dict(option.split("=", 1) for option in given.models if "=" in option)
    models = [name for name in given.models if "=" not in name]
    if not models:
        parser.error("give a model")
    try:
        rows = {
            name: measured(nmt.load(name, threads=given.threads), given.split, given.seed, decoding)
            for name in models
        }
    except UserError as error:
        parser.error(str(error))
    print(table(rows))
    if given.json is not None:
        content = {name: [asdict(row) for row in each] for name, each in rows.items()}
        with replaced(given.json) as temporary:
            temporary.write_text(json.dumps(content, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
