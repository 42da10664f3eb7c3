"""Lines in capitals or title case: translated in the case of the training text, and changed back.

A model that has rarely seen such lines reads them letter by letter. Each word gets the form that the
vocabulary knows best, so that names, acronyms and German nouns retain their capitals.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nmt.config import Casing, Segmentation
from nmt.data.letter_case import (
    WORD,
    Case,
    begins_with_capital,
    case_of,
    has_digits,
    in_capitals,
    in_title_case,
    lowered,
    outside,
    with_capital,
)
from nmt.decoding.facts import FEW, TextFacts
from nmt.languages import language_of

if TYPE_CHECKING:
    from nmt.data.subwords.tokenizer import Tokenizer

_MARGIN = 1.5  # by which the logarithm of the frequency of a form exceeds that of lower case
_UNKNOWN = 100  # pieces that a byte or an unknown piece counts as
_PRONOUN = re.compile("i(?:['’]|$)")  # English `I`, which a BPE vocabulary knows less well than `i`
_SENTENCE_END = re.compile(r"[.!?…]['\"”’»)\]]*\s")


@dataclass(frozen=True)
class Recasing:
    """The change of a line before its translation, and of the translation after it.

    Attributes:
        case: the case of the line; None: it is ordinary text for a model without capitals.
        forms: the form of each word that changes; None: all words are in lower case.
        tag: the beginning of the line that is a tag, with the white space after it.
        is_sentence: whether the line begins with a capital when it is translated.
        source_lang: the language of the line.
        target_lang: the language of its translation.
    """

    case: Case | None
    forms: Mapping[str, str] | None
    tag: str
    is_sentence: bool
    source_lang: str
    target_lang: str

    def source(self, text: str) -> str:
        """Returns the line, with placeholders, as it is translated. It has the same number of words."""
        rest = text.removeprefix(self.tag)
        if self.forms is None:
            rest = lowered(rest, self.source_lang)
        else:
            forms = self.forms
            rest = WORD.sub(lambda match: forms.get(match[0], match[0]), rest)
        return self.tag + (_as_sentences(rest, self.source_lang) if self.is_sentence else rest)

    def target(self, text: str, literals: Iterable[str] = ()) -> str:
        """Returns the translation, with placeholders, in the case of the line.

        `literals` are parts that remain as they are, such as constraints.
        """
        if self.case is None:
            return text
        fixed = _spans(text, literals)
        if self.case is Case.title:
            return in_title_case(text, self.target_lang, fixed)
        return outside(text, fixed, lambda part: in_capitals(part, self.target_lang))


class Recaser:
    """Finds the lines whose case a model does not know, and the forms of their words.

    Without facts about the case of the training text, `auto` changes no line, and `always` supposes text in
    sentences.
    """

    def __init__(self, facts: TextFacts, option: Casing, tokenizer: Tokenizer) -> None:
        self._facts, self._tokenizer = facts, tokenizer
        case = facts.case
        self._unknown = {*Case} if option is Casing.always else set[Case]()
        if option is Casing.auto and case is not None:
            shares = {Case.capitals: case.capitals, Case.title: case.title}
            self._unknown = {kind for kind, share in shares.items() if share < FEW}
        self._has_capitals = case is None or case.mixed >= FEW
        self._has_sentences = case is None or case.initial >= 0.5

    def recasing(self, text: str) -> Recasing | None:
        """Returns the change of a line with placeholders; None: it is translated as it is."""
        if not self._unknown:
            return None
        facts, tag = self._facts, ""
        if (words := text.split(None, 1)) and words[0] in self._tokenizer.source_symbols:
            tag = text.removesuffix(words[1]) if len(words) == 2 else text
        rest = text.removeprefix(tag)
        case = case_of(rest, facts.source_lang)
        if case not in self._unknown:
            case = None
        forms = None
        if self._has_capitals:
            forms = None if case is None else self._forms(rest, case)
            if forms is None:
                return None
        elif rest == lowered(rest, facts.source_lang):
            return None
        target_lang = facts.targets.get(tag.strip(), facts.target_lang)
        return Recasing(case, forms, tag, self._has_sentences, facts.source_lang, target_lang)

    def _forms(self, text: str, case: Case) -> dict[str, str] | None:
        """Returns the forms of the words of a line; None if the line should remain.

        It remains if it is an acronym that the vocabulary knows, if no word changes, and if most words of a
        title are names.
        """
        words = [word for word in dict.fromkeys(WORD.findall(text)) if _may_change(word, case)]
        candidates = {word: self._candidates(word) for word in words}
        costs = self._costs([form for forms in candidates.values() for form in forms])
        if len(words) == 1 and costs[words[0]][0] == 1 and case is Case.capitals:
            return None
        chosen = {}
        for word, forms in candidates.items():
            low, *others = forms
            ranked = [(*costs[low], 0), *((costs[form][0], costs[form][1] + _MARGIN, 1) for form in others)]
            chosen[word] = forms[ranked.index(min(ranked))]
        changed = {word: form for word, form in chosen.items() if form != word}
        few = case is Case.title and 2 * len(changed) < len(words)
        return None if few or not changed else changed

    def _candidates(self, word: str) -> list[str]:
        """Returns the forms of a word: in lower case, with a capital, and as it is."""
        language = language_of(self._facts.source_lang)
        low = lowered(word, language.tag)
        forms = [low, with_capital(low, language.tag)]
        if language.language == "en" and _PRONOUN.match(low):
            return forms[1:]
        if language.language == "de" and "SS" in word:  # capitals have no `ß`, except in Swiss German
            forms += [form.replace("ss", "ß") for form in forms]
        return [*dict.fromkeys([*forms, word])]

    def _costs(self, words: Sequence[str]) -> dict[str, tuple[int, float]]:
        """Returns the number of pieces of each word, and the negative logarithm of their frequency."""
        tokenizer = self._tokenizer
        scores, names = tokenizer.source.scores, tokenizer.source.names
        is_bpe = tokenizer.segmentation is Segmentation.bpe
        costs = {}
        for word, ids in zip(words, tokenizer.encode_source(words), strict=True):
            known = [score for id in ids if (score := scores.get(names[id])) is not None]
            # The score of a BPE piece is its negative rank, and its frequency about the inverse of the rank.
            rare = sum(math.log(1 - score) if is_bpe else -score for score in known)
            pieces = len(ids) + _UNKNOWN * (len(ids) - len(known))
            costs[word] = (pieces, rare)
        return costs


def _may_change(word: str, case: Case) -> bool:
    """Returns whether a word gets another form: not one with digits, nor `iPhone` in a title."""
    if has_digits(word) or begins_with_capital(word) is None:
        return False
    return case is Case.capitals or word[1:].islower() and not word.islower() or len(word) == 1


def _as_sentences(text: str, lang: str) -> str:
    """Returns a text in which the first word of each sentence has a capital."""
    parts, place = [], 0
    for match in WORD.finditer(text):
        begins = place == 0 or _SENTENCE_END.search(text, place, match.start()) is not None
        word = match[0]
        capital = with_capital(word, lang) if begins and word.islower() and not has_digits(word) else word
        parts += [text[place : match.start()], capital]
        place = match.end()
    return "".join([*parts, text[place:]])


def _spans(text: str, literals: Iterable[str]) -> list[tuple[int, int]]:
    """Returns where a text has the literals as whole words, in order; the longer one if they overlap."""
    parts = sorted({part.strip() for part in literals} - {""}, key=len, reverse=True)
    if not parts:
        return []
    pattern = "|".join(map(re.escape, parts))
    return [match.span() for match in re.finditer(rf"(?<!\w)(?:{pattern})(?!\w)", text)]
