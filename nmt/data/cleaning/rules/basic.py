"""Rules about characters and words: empty, control, identical, ratio, held-out, long and copied words."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from unicodedata import category, combining, normalize

import numpy as np

from nmt.config import CleaningConfig
from nmt.data.cleaning.rules.rule import Rule, Setting
from nmt.data.corpora.sources import without_tag
from nmt.languages import language_of

_HEAD = 12  # characters, without spaces, that distinguish nearly all texts from the held-out texts


class EmptyRule(Rule):
    """Drops pairs with an empty side: they contain nothing to learn."""

    name = "empty"
    words = "one side is empty"

    def drops(self, source: str, target: str) -> bool:
        """Whether a side is empty."""
        return not source or not target

    def suspects(self, sources: Sequence[str], targets: Sequence[str]) -> Iterable[int]:
        """Returns all pairs if any side is empty, else none."""
        return range(len(sources)) if "" in sources or "" in targets else ()


class ControlRule(Rule):
    """Drops pairs with control characters (Unicode category Cc) except tabs: a sign of faulty conversion."""

    name = "control"
    words = "a side has control characters"
    option = "drop_control"

    def drops(self, source: str, target: str) -> bool:
        """Whether a side has a control character."""
        if source.isprintable() and target.isprintable():  # most are; much faster than a test per character
            return False
        return any(map(_is_control, source)) or any(map(_is_control, target))

    def suspects(self, sources: Sequence[str], targets: Sequence[str]) -> Iterable[int]:
        """Returns all pairs if any side has a control character, else none.

        These are U+0000 to U+001F, U+007F, and U+0080 to U+009F, which take two bytes in UTF-8.
        """
        for lines in (sources, targets):
            codes = np.frombuffer("\t".join(lines).encode(), np.uint8)
            low = (codes < 0x20) & (codes != ord("\t"))
            high = (codes[:-1] == 0xC2) & (codes[1:] < 0xA0)
            if low.any() or (codes == 0x7F).any() or high.any():
                return range(len(lines))
        return ()


class IdenticalRule(Rule):
    """Drops pairs whose source was copied instead of translated."""

    name = "identical"
    words = "both sides are the same text"
    option = "drop_identical"

    def drops(self, source: str, target: str) -> bool:
        """Whether the sides are equal apart from case."""
        return source.casefold() == target.casefold()

    def suspects(self, sources: Sequence[str], targets: Sequence[str]) -> Iterable[int]:
        """Returns the pairs whose sides begin with the same character."""
        firsts = ([line[:1].casefold()[:1] for line in lines] for lines in (sources, targets))
        return [place for place, pair in enumerate(zip(*firsts, strict=True)) if pair[0] == pair[1]]


class RatioRule(Rule):
    """Drops pairs with sides of very different lengths: they are seldom translations of each other."""

    name = "ratio"
    words = "one side is far longer than the other"
    option = "max_ratio"

    def __init__(self, max_ratio: float) -> None:
        self.max_ratio = max_ratio

    @classmethod
    def build(cls, config: CleaningConfig, setting: Setting) -> Rule | None:
        """Enabled unless `max_ratio` is 0."""
        return cls(config.max_ratio) if config.max_ratio else None

    def drops(self, source: str, target: str) -> bool:
        """Whether the longer side exceeds `max_ratio` times the shorter."""
        return len(source) > self.max_ratio * len(target) or len(target) > self.max_ratio * len(source)

    def suspects(self, sources: Sequence[str], targets: Sequence[str]) -> Iterable[int]:
        """Returns exactly the pairs to drop."""
        source, target = (
            np.fromiter(map(len, lines), np.float64, len(lines)) for lines in (sources, targets)
        )
        exceeds = (source > self.max_ratio * target) | (target > self.max_ratio * source)
        places: list[int] = np.flatnonzero(exceeds).tolist()
        return places


class LeakedRule(Rule):
    """Drops pairs with a side that occurs in validation or test, so that the model can't memorise it."""

    name = "leaked"
    words = "a side occurs in validation or test"
    option = "drop_leaked"
    version = 2

    def __init__(self, sources: Iterable[str], targets: Iterable[str], tags: Collection[str] = ()) -> None:
        lines = set(filter(str.strip, sources))
        lines |= {without_tag(line, tags) for line in lines}
        self.sources = frozenset(map(comparison_key, lines))
        self.targets = frozenset(map(comparison_key, filter(str.strip, targets)))
        self.source_heads = frozenset(text[:_HEAD] for text in self.sources)
        self.target_heads = frozenset(text[:_HEAD] for text in self.targets)

    @classmethod
    def build(cls, config: CleaningConfig, setting: Setting) -> Rule | None:
        """Enabled by `drop_leaked` if there is held-out text.

        A corpus of the opposite direction has the references of a held-out set on its source side.
        """
        if not config.drop_leaked or not setting.held_out:
            return None
        sources, targets = list[str](), list[str]()
        for part in setting.held_out:
            languages = part.target_lang, part.source_lang
            is_reverse = languages == (setting.source_lang, setting.target_lang) != languages[::-1]
            first, second = (targets, sources) if is_reverse else (sources, targets)
            first += part.sources
            second += part.references
        return cls(sources, targets, setting.tags)

    def drops(self, source: str, target: str) -> bool:
        """Whether a side equals a held-out text, compared by `comparison_key`."""
        return comparison_key(source) in self.sources or comparison_key(target) in self.targets

    def suspects(self, sources: Sequence[str], targets: Sequence[str]) -> Iterable[int]:
        """Returns the pairs with a side that begins like a held-out text."""
        suspects: set[int] = set()
        for lines, heads in ((sources, self.source_heads), (targets, self.target_heads)):
            begins = [
                begin.casefold().replace(" ", "")
                if (begin := line[: 2 * _HEAD]).isascii() and begin.isprintable()  # `comparison_key`, faster
                else comparison_key(begin)
                for line in lines
            ]
            # Normalisation reorders only combining marks. A head that no mark follows is therefore also the
            # head of the whole text.
            suspects.update(
                place
                for place, begin in enumerate(begins)
                if begin[:_HEAD] in heads or len(begin) <= _HEAD or combining(begin[_HEAD])
            )
        return sorted(suspects)


def comparison_key(text: str) -> str:
    """Returns a key that is equal for texts that look alike.

    Case and white space are removed, and compatibility characters are decomposed. To the model, most texts
    with equal keys are equal after its normalisation: composed or decomposed letters, full-width letters,
    ligatures, and the ellipsis. Invisible format characters (category Cf) are removed. The iota below a Greek
    letter (U+0345) is also removed: it is the only mark that case folding turns into a letter.
    """
    if text.isascii() and text.isprintable():
        return text.casefold().replace(" ", "")
    if not text.isprintable():  # characters of category Cf are not printable
        text = "".join(c for c in text if category(c) != "Cf")
    return "".join(normalize("NFKD", text).replace("\u0345", "").casefold().split())


def _is_control(character: str) -> bool:
    return category(character) == "Cc" and character != "\t"


_WORD = re.compile(r"[^\W\d_]+")
_MIN_WORDS = 5  # all words of a shorter source may be names


class LongWordRule(Rule):
    """Drops pairs with a very long word: it is source code, a table or a broken line."""

    name = "long_word"
    words = "a side has an over-long word"
    option = "max_word"

    def __init__(self, max_word: int, source_spaced: bool = True, target_spaced: bool = True) -> None:
        self.max_word = max_word
        self.spaced = source_spaced, target_spaced

    @classmethod
    def build(cls, config: CleaningConfig, setting: Setting) -> Rule | None:
        """Enabled unless `max_word` is 0."""
        if not config.max_word:
            return None
        languages = language_of(setting.source_lang), language_of(setting.target_lang)
        return cls(config.max_word, *(language.has_spaces for language in languages))

    def drops(self, source: str, target: str) -> bool:
        """Whether a side that separates words by spaces has a longer word."""
        return any(
            spaced and len(text) > self.max_word and max(map(len, text.split())) > self.max_word
            for spaced, text in zip(self.spaced, (source, target), strict=True)
        )


class CopiedRule(Rule):
    """Drops pairs whose source words occur in the target: they are translated only in part, or not at all."""

    name = "copied"
    words = "the source's words occur in the target"
    option = "max_copied"

    def __init__(self, max_copied: float) -> None:
        self.max_copied = max_copied

    @classmethod
    def build(cls, config: CleaningConfig, setting: Setting) -> Rule | None:
        """Enabled unless `max_copied` is 0."""
        return cls(config.max_copied) if config.max_copied else None

    def drops(self, source: str, target: str) -> bool:
        """Whether too many words of a source of at least five words occur in the target, case ignored."""
        words = _WORD.findall(source.casefold())
        if len(words) < _MIN_WORDS:
            return False
        target_words = set(_WORD.findall(target.casefold()))
        return sum(word in target_words for word in words) > self.max_copied * len(words)
