"""Evidence of wrong data in the first pairs of each corpus: warnings before hours of training.

Each warning names the data, the evidence, and an option or a command that corrects it. The thresholds lie
between clean and wrong data. Clean are Multi30k, Tatoeba, LibreOffice's help and Python's documentation, in
parts of 2,000 pairs, German, Korean and English.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from nmt.data.corpora.held_out import HeldOut
from nmt.data.corpora.sources import Source
from nmt.data.corpora.text import has_exchanged_names
from nmt.languages import equivalents, language_of, script_of
from nmt.runtime.lazy import cached_property
from nmt.runtime.streams import log

NUM_PAIRS = 10_000
"""Pairs of each corpus that are looked at."""

_MIN_LINES = 100  # fewer lines do not show a share
_SAMPLE = 200  # lines whose language is identified
_FORM_SAMPLE = 2000  # lines whose form is looked at
_MIN_LETTERS = 20  # of such a line

_DETOKENIZE = "sacremoses -l {lang} detokenize < FILE > NEW"
_PYTHON = "python3 -c 'import sys{more}; sys.stdout.writelines({change} for line in sys.stdin)' < FILE > NEW"


@dataclass(frozen=True)
class LineCheck:
    """A trace of wrong processing in single lines of a side.

    Attributes:
        problem: what the lines have, as the end of a sentence.
        has: whether a line has it.
        threshold: the largest share of lines that is not reported.
        fix: a sentence with the command that corrects a file.
    """

    problem: str
    has: Callable[[str], Any]
    threshold: float
    fix: str


# The characters of Windows-1252 that Latin-1 does not have, as those that Latin-1 has for the same bytes.
_LATIN_1 = {
    ord(character): byte
    for byte in range(0x80, 0xA0)
    if (character := bytes([byte]).decode("cp1252", errors="ignore"))
}


def _is_mojibake(line: str) -> bool:
    """Whether the line is UTF-8 that was decoded as Latin-1, Windows-1252 or Windows-1251."""
    if line.isascii():
        return False
    for text, encoding in ((line.translate(_LATIN_1), "latin-1"), (line, "cp1251")):
        try:
            original = {character for character in text.encode(encoding).decode() if character > "\x7f"}
        except UnicodeError:
            continue
        # A few letters may be UTF-8 by chance, such as the Ukrainian word `Ні`. Common characters are not.
        if len(original) > 1 or any(one < "\u0180" or "\u2000" <= one < "\u2c00" for one in original):
            return True
    return False


def _has_entity(line: str) -> bool:
    return "&" in line and any(html.unescape(match) != match for match in _ENTITY.findall(line))


_ENTITY = re.compile(r"&(?:[A-Za-z]\w{1,31}|#\d{1,7}|#[xX][0-9A-Fa-f]{1,6});")
_MOSES = re.compile(r"(?:^|\s)(?:&apos;|(?:&quot;|&lt;|&gt;|&#(?:124|91|93);|@-@)(?=\s|$))")

MOSES = LineCheck(
    "escapes or marks of Moses' tokenizer, such as &apos; and @-@",
    _MOSES.search,
    0.005,  # clean: 0; in tokenised text a twentieth or more
    f"Give the text as it was before, or correct all files: {_DETOKENIZE}",
)
ENTITIES = LineCheck(
    "HTML entities, such as &amp; or &#39;",
    _has_entity,
    0.005,  # clean: at most 0.0015, in captions and texts about HTML
    "Replace them by their characters: "
    + _PYTHON.format(more=", html", change=r'" ".join(html.unescape(line).split()) + "\n"'),
)
LINE_CHECKS = (
    MOSES,
    ENTITIES,
    LineCheck(
        'quotation marks of cells of CSV, such as "a ""b"" c"',
        re.compile(r'"[^"]*+""(?:[^"]++|"")*+"\s*$').match,
        0.001,  # clean: 0; a cell has them only if it has a quotation mark, as one in 200 captions
        "Give a table with quoted cells the name FILE.csv, also if tabs are between its cells",
    ),
    LineCheck(
        "pieces of subword-nmt, which end with @@",
        re.compile(r"\S@@(?:\s|$)").search,
        0.005,  # clean: 0
        r"Give whole words: sed -r 's/(@@ )|(@@ ?$)//g' FILE > NEW",
    ),
    LineCheck(
        "pieces of SentencePiece, which begin with ▁",
        re.compile("▁").search,
        0.005,  # clean: 0
        "Give whole words: sed 's/ //g; s/▁/ /g; s/^ //' FILE > NEW",
    ),
    LineCheck(
        "characters that are UTF-8 decoded in another encoding, such as Ã¼ for ü",
        _is_mojibake,
        0.002,  # clean: 0
        "Decode the original text as UTF-8, or repair the file: pip install ftfy; ftfy FILE -o NEW",
    ),
    LineCheck(
        "the replacement character U+FFFD, where other characters were lost",
        re.compile("\ufffd").search,
        0.002,  # clean: 0
        "Convert the original text again: iconv -f ENCODING -t utf-8 ORIGINAL > NEW",
    ),
)
"""The checks of single lines. Where the first finds escapes, the second is not done."""


@dataclass(frozen=True)
class Form:
    """A form that a whole text has or has not; training and test text must agree.

    Attributes:
        words: what the lines of such a text are.
        share: the share of a text that has the form; None if the text does not show it.
        fix: a sentence with the command that corrects a file.
        target_only: whether it does not matter on the source side, where normalisation removes it.
    """

    words: str
    share: Callable[[Sequence[str]], float | None]
    fix: str
    target_only: bool = False


_POINT = re.compile(r"(\s?)[.,。，、](?=\s|$)")


def _tokenised(lines: Sequence[str]) -> float | None:
    """Returns the share of full stops and commas that have a space before them."""
    spaces = [space for line in lines for space in _POINT.findall(line)]
    return sum(map(bool, spaces)) / len(spaces) if len(spaces) >= _MIN_LINES else None


def _cased(lines: Sequence[str], change: Callable[[str], str]) -> float | None:
    """Returns the share of the lines that a change of case leaves as they are, of those with letters."""
    with_case = [line for line in lines if line.lower() != line.upper() and _is_bicameral(line)]
    if len(with_case) < _MIN_LINES:
        return None
    return sum(line == change(line) for line in with_case) / len(with_case)


def _is_bicameral(line: str) -> bool:
    """Whether at least half of the letters have upper and lower case."""
    if line.isascii():
        return True
    letters = [character for character in line if character.isalpha()]
    return 2 * sum(character.lower() != character.upper() for character in letters) >= len(letters)


def _decomposed(lines: Sequence[str]) -> float | None:
    """Returns the share of the lines that are not in the Unicode form NFC, of those that NFD would change."""
    nfc, nfd = (partial(unicodedata.normalize, form) for form in ("NFC", "NFD"))
    composable = [line for line in lines if not line.isascii() and nfc(line) != nfd(line)]
    if len(composable) < _MIN_LINES:
        return None
    return sum(line != nfc(line) for line in composable) / len(composable)


FORMS = (
    Form(
        "in lower case",
        partial(_cased, change=str.lower),
        "Take the cased originals, or lower-case all files: "
        + _PYTHON.format(more="", change="line.lower()"),
    ),
    Form("in capitals", partial(_cased, change=str.upper), "Take both as they were written."),
    Form(
        "decomposed (Unicode NFD)",
        _decomposed,
        "Compose both: " + _PYTHON.format(more=", unicodedata", change='unicodedata.normalize("NFC", line)'),
        target_only=True,
    ),
)
"""The forms that training and held-out text must share. Clean: their shares differ by at most 0.1."""

_FORM = 0.5  # of the lines: a text has a form, or two texts differ in it
_EQUAL = 0.1  # of the pairs; clean: 0, in texts of programs up to a twentieth
_CORRELATION = 0.3  # of the lengths of the sides; clean: 0.85 or more, shifted by a line about 0
_OTHER_SCRIPT = 0.1  # of the lines that have a letter of their script; clean: nearly all
_OTHER_LANGUAGE = 0.8  # of the lines; clean: at most 0.02


@dataclass(frozen=True)
class _Text:
    """The first pairs of a corpus or of a held-out split.

    Attributes:
        key: the option that names it.
        sides: the lines of both sides.
        languages: their codes.
        files: the names of the text files of both sides; empty for other kinds of data.
    """

    key: str
    sides: tuple[Sequence[str], Sequence[str]]
    languages: tuple[str, str]
    files: tuple[Sequence[str], Sequence[str]]

    @cached_property
    def forms(self) -> list[list[float | None]]:
        """For each side the shares of `FORMS`."""
        return [[form.share(_sample(lines, _FORM_SAMPLE)) for form in FORMS] for lines in self.sides]

    @property
    def is_of_one_language(self) -> bool:
        """Whether both sides are in the same language, such as `en` and `en-GB`."""
        source, target = (language_of(code).language for code in self.languages)
        return source == target != ""

    @property
    def exchange(self) -> str:
        """What to do if the sides are exchanged."""
        return f"Exchange the sides, or {self.language_option(0)} and {self.language_option(1)}."

    def language_option(self, index: int) -> str:
        """Returns the option of the language of a side; a named corpus or set has its own."""
        section = "data" if self.key.count(".") == 1 else self.key
        return f"{section}.{('source', 'target')[index]}_lang"

    def side(self, index: int) -> str:
        """Returns the option of a side, or its name after that of the whole."""
        name = ("source", "target")[index]
        return f"{self.key}.{name}" if self.files[0] else f"{self.key}: {name} side"


def evidence(sources: Sequence[Source], held_out: Mapping[str, HeldOut]) -> list[str]:
    """Returns and logs warnings about the first pairs of the training corpora and of the held-out text.

    Args:
        sources: the training corpora.
        held_out: the text of each set by its key, such as `valid`, without `data.`.

    Raises:
        UserError: a corpus can't be read.
    """
    training = []
    for source in sources:
        pairs = [*islice(source.corpus.pairs(), NUM_PAIRS)]
        both = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        training.append(_Text(source.corpus.key, both, source.languages, _files(source.corpus.facts)))
    splits = [
        _Text(
            f"data.{name}",
            (text.sources[:NUM_PAIRS], text.references[:NUM_PAIRS]),
            (text.source_lang, text.target_lang),
            _files(text.facts),
        )
        for name, text in held_out.items()
    ]
    warnings = [warning for text in (*training, *splits) for warning in _of_text(text)]
    warnings += [warning for text in splits for warning in _of_forms(text, training)]
    for warning in warnings:
        log.warning("%s", warning)
    return warnings


def _files(facts: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    source, target = ([file["name"] for file in facts.get(side, ())] for side in ("source", "target"))
    return source, target


def _of_text(text: _Text) -> Iterator[str]:
    """Yields the warnings about one text; there are none about a short one."""
    count = len(text.sides[0])
    if count < _MIN_LINES:
        return
    for index, lines in enumerate(text.sides):
        lang, found = text.languages[index], list[LineCheck]()
        for check in LINE_CHECKS:
            places = [place for place, line in enumerate(lines, 1) if check.has(line)]
            if len(places) > check.threshold * count and not (check is ENTITIES and MOSES in found):
                found.append(check)
                yield (
                    f"{text.side(index)}: {len(places):,} of {count:,} lines have {check.problem}; line "
                    f"{places[0]:,} is the first. {check.fix.replace('{lang}', lang)}"
                )
        share = None if found else _tokenised(_sample(lines, _FORM_SAMPLE))
        if share is not None and share > _FORM:
            yield (
                f"{text.side(index)}: {share:.0%} of the full stops and commas have a space before them, as "
                "in tokenised text. Give the text as it was before, or correct all files: "
                f"{_DETOKENIZE.format(lang=lang)}"
            )
    yield from _of_pairs(text)


def _of_pairs(text: _Text) -> Iterator[str]:
    """Yields the warnings about the sides together."""
    pairs = list(zip(*text.sides, strict=True))
    # Names are the same in many languages.
    long = [pair for pair in pairs if sum(map(str.isalpha, pair[0])) >= _MIN_LETTERS]
    equal, num_long = sum(source == target for source, target in long), len(long)
    if equal > _EQUAL * num_long and not text.is_of_one_language:
        yield (
            f"{text.key}: {equal:,} of {num_long:,} long pairs have the same text on both sides. Check that "
            "the target is the translation. data.cleaning.max_copied=0.8 drops copied training pairs."
        )
    language = _language_problem(text)
    if language:
        yield language
    lengths = [np.log1p(np.array([len(line) for line in lines])) for lines in text.sides]
    if any(source != target for source, target in pairs) and all(side.std() > 0 for side in lengths):
        correlation = float(np.corrcoef(lengths[0], lengths[1])[0, 1])
        if correlation < _CORRELATION:
            yield (
                f"{text.key}: the lengths of the sides are unrelated (correlation {correlation:.2f}), so the "
                "lines may not be translations of each other, such as after a lost line. Compare them: "
                "paste SOURCE TARGET | less"
            )


def _language_problem(text: _Text) -> str | None:
    """Returns a warning about the languages of the sides; None if there is none."""
    codes = text.languages
    scripts = [language_of(code).letters for code in codes]
    if scripts[0] and scripts[1] and not scripts[0] & scripts[1]:
        # For each side the share of lines with a letter of the source's script, and of the target's.
        shares = [[_share_in(lines, script) for script in scripts if script] for lines in text.sides]
        if (shares[0][1] > 0.5 and shares[1][1] < _OTHER_SCRIPT) or (
            shares[1][0] > 0.5 and shares[0][0] < _OTHER_SCRIPT
        ):
            return f"{text.key}: the sides are exchanged: {_are(text, 'in the script of')}. {text.exchange}"
        for index in (0, 1):
            if shares[index][index] < _OTHER_SCRIPT:
                return (
                    f"{text.side(index)}: {shares[index][index]:.0%} of the lines have letters of the script "
                    f"of {codes[index]}. Set {text.language_option(index)} to the language of the text, or "
                    "give other files. data.cleaning.min_script=0.5 drops single pairs."
                )
        return None
    if text.is_of_one_language:
        return None
    identified = _identified(text)
    if identified is None:
        if has_exchanged_names(*text.files, codes):
            return f"{text.key}: by the names of the files the sides are exchanged. {text.exchange}"
        return None
    if min(identified) > 0.5 and sum(identified) > 2 * 0.7:
        return f"{text.key}: the sides are exchanged: {_are(text, 'in')}. {text.exchange}"
    for index, share in enumerate(identified):
        if share > _OTHER_LANGUAGE:
            return (
                f"{text.side(index)}: {share:.0%} of the lines are in {codes[1 - index]}, not in "
                f"{codes[index]}. Give other files. data.cleaning.langid_confidence=0.95 drops single pairs."
            )
    return None


def _are(text: _Text, words: str) -> str:
    source, target = text.languages
    return f"the source is {words} {target}, the target {words} {source}"


def _share_in(lines: Sequence[str], script: frozenset[str]) -> float:
    sample = _sample([line for line in lines if any(map(str.isalpha, line))])
    return sum(any(script_of(one) in script for one in line) for line in sample) / max(1, len(sample))


def _identified(text: _Text) -> tuple[float, float] | None:
    """Returns for each side the share of lines in the language of the other; None if it can't be known.

    It needs lingua, both languages in it, and enough long lines.
    """
    try:
        from lingua import IsoCode639_1, Language, LanguageDetectorBuilder
    except ImportError:
        return None
    known = [language.iso_code_639_1.name.lower() for language in Language.all()]
    expected = [equivalents(code, known) for code in text.languages]
    samples = [
        _sample([line for line in lines if sum(map(str.isalpha, line)) >= _MIN_LETTERS])
        for lines in text.sides
    ]
    if not all(expected) or expected[0] & expected[1] or min(map(len, samples)) < _SAMPLE // 4:
        return None
    codes = [IsoCode639_1.from_str(code.upper()) for code in sorted(expected[0] | expected[1])]
    detector = LanguageDetectorBuilder.from_iso_codes_639_1(*codes).with_low_accuracy_mode().build()
    shares = []
    for sample, other in zip(samples, reversed(expected), strict=True):
        found = [detector.detect_language_of(line) for line in sample]
        names = [one.iso_code_639_1.name.lower() for one in found if one is not None]
        shares.append(sum(name in other for name in names) / len(sample))
    return shares[0], shares[1]


def _sample(lines: Sequence[str], size: int = _SAMPLE) -> Sequence[str]:
    """Returns at most `size` lines, evenly spaced."""
    return lines[:: max(1, len(lines) // size)][:size]


def _of_forms(text: _Text, training: Sequence[_Text]) -> Iterator[str]:
    """Yields the warnings about held-out text in another form than that of every training corpus."""
    for index in (0, 1):
        for number, form in enumerate(FORMS):
            share = text.forms[index][number]
            others = [corpus.forms[index][number] for corpus in training]
            known = [other for other in others if other is not None]
            if share is None or not known or len(known) < len(others) or (form.target_only and index == 0):
                continue
            nearest = min(known, key=lambda other: abs(share - other))
            if abs(share - nearest) > _FORM:
                yield (
                    f"{text.side(index)}: {share:.0%} of it is {form.words}, and {nearest:.0%} of the "
                    f"training text. {form.fix}"
                )
