"""A line, or a part of it, on its way through the steps of the translator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nmt.copying.strings import is_visible
from nmt.copying.translation import Restored
from nmt.decoding.searcher import Sentence

if TYPE_CHECKING:
    from nmt.copying.strings import Bare, Masked
    from nmt.data.subwords.tokenizer import Tokenizer
    from nmt.decoding.alignment import Alignment
    from nmt.decoding.casing import Recasing
    from nmt.decoding.search import Hypothesis


@dataclass
class Line:
    """A line, or a part of it, on its way to its translation.

    Each step sets the attributes that the next steps read.

    Attributes:
        text: the raw line.
        masked: mask: the line with placeholders in place of the strings that are copied.
        prefix: mask: the beginning of the translation, with placeholders; it may be blank.
        phrases: mask: the phrases that the translation must contain, each as it was given and with
            placeholders.
        impossible: mask: terms without pieces, such as a blank, which no translation contains.
        copy: mask: the translation of a line that has nothing to translate, which is the line without its
            tag; None: it has something.
        recasing: mask: the change of its letter case; None: it is translated as it is.
        bare: mask: the line without its tags, which is searched first; place tags: None.
        num_tokens: encode: source tokens before the source is cut, EOS counted; 0: the model does not read
            the line.
        sentence: encode: the ids that are searched; place tags: those of the line with its tags.
        hypotheses: search: one or more, best first; choose: the chosen one alone.
        alignments: search: the links of each hypothesis.
        is_retried: search: whether it was searched again because its translation was a loop.
        restored: restore: the text of each hypothesis, with the strings of the line.
    """

    text: str
    masked: Masked
    prefix: str = ""
    phrases: Sequence[tuple[str, str]] = ()
    impossible: Sequence[str] = ()
    copy: str | None = None
    recasing: Recasing | None = None
    bare: Bare | None = None
    num_tokens: int = 0
    sentence: Sentence = Sentence(())
    hypotheses: list[Hypothesis] = field(default_factory=list)
    alignments: list[Alignment] = field(default_factory=list)
    is_retried: bool = False
    restored: list[Restored] = field(default_factory=list)

    @property
    def searched_text(self) -> str:
        """The text that is searched, with placeholders: without tags until they are placed."""
        text = self.masked.text if self.bare is None else self.bare.text
        return text if self.recasing is None else self.recasing.source(text)

    @property
    def literals(self) -> list[str]:
        """The parts of its translation that are given, with placeholders."""
        return [self.prefix, *(masked for _, masked in self.phrases)]


def encoded_sources(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Returns the ids of each source, uncut and without EOS; none for one that has nothing to see."""
    return tokenizer.encode_source([text if is_visible(text) else "" for text in texts])


def empty_if_blank(text: str) -> str:
    """Returns the text; the empty text if it has only white space."""
    return text if text.strip() else ""
