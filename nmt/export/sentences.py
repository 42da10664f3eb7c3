"""The text of a comparison: pairs of sentences that both sides of it can hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nmt.data.corpora.text import bundled_folder, read_lines
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.errors import UserError
from nmt.evaluation.scores import require_equal_counts
from nmt.runtime import expanded


@dataclass(frozen=True)
class Pairs:
    """Pairs of sentences.

    Attributes:
        name: where they are from.
        lines: the sources.
        references: their translations.
    """

    name: str
    lines: Sequence[str]
    references: Sequence[str]


@dataclass(frozen=True)
class Sentences:
    """The text of the comparison.

    Attributes:
        name: where it is from.
        lines: the sources, without tags.
        references: their translations.
        untagged: the ids of `lines`.
        sources: the ids that the model reads: those of `untagged`, after that of the tag if there is one.
        targets: the ids of `references`.
    """

    name: str
    lines: Sequence[str]
    references: Sequence[str]
    untagged: Sequence[list[int]]
    sources: Sequence[list[int]]
    targets: Sequence[list[int]]

    def limits(self, longest: int) -> list[int]:
        """Returns the maximum number of tokens of each translation, EOS counted.

        As in the paper, a translation has at most 50 tokens more than its source.

        Args:
            longest: the maximum number of tokens of a sentence.
        """
        return [min(len(ids) + 1 + 50, longest - 1) for ids in self.sources]


def given_pairs(check: str, references: str) -> Pairs:
    """Reads the files of the options `check` and `references`.

    Raises:
        UserError: a file can't be read, or they have different numbers of lines.
    """
    sides = [list(read_lines(expanded(one))) for one in (check, references)]
    require_equal_counts({f"check={check}": len(sides[0]), f"references={references}": len(sides[1])})
    return Pairs(" and ".join(Path(one).name for one in (check, references)), *sides)


def bundled_pairs() -> Pairs:
    """Returns sentences of the bundled corpus, English and German."""
    folder = bundled_folder() / "quickstart"
    return Pairs(
        "bundled sentences", *(list(read_lines(folder / f"valid.{side}.gz")) for side in ("en", "de"))
    )


def chosen(pairs: Pairs, tokenizer: Tokenizer, longest: int, count: int) -> Sentences:
    """Returns the first sentences that are short enough, without those of an imported model that have tags.

    Args:
        pairs: the text.
        tokenizer: of the model.
        longest: the maximum number of tokens of a sentence, EOS counted.
        count: the maximum number of sentences.

    Raises:
        UserError: there is no such sentence.
    """
    sides = tokenizer.encode_source(pairs.lines), tokenizer.encode_target(pairs.references)
    cut = [tokenizer.split_tag(line) for line in pairs.lines]
    kept = [
        (line, reference, source[len(tag) :], source, target)
        for (tag, line), reference, source, target in zip(cut, pairs.references, *sides, strict=True)
        if len(source) > len(tag)
        and max(len(source), len(target)) < longest
        and (tag or line.split(maxsplit=1)[0] not in tokenizer.source_symbols)
    ][:count]
    if not kept:
        raise UserError(
            f"{pairs.name}: has no sentence that can be compared, of 1 to {longest - 1} pieces. Give "
            "nmt-export check=FILE and references=FILE."
        )
    return Sentences(pairs.name, *(list(one) for one in zip(*kept, strict=True)))
