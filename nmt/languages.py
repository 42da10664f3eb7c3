"""Languages by their codes: the language, scripts and region of a code of BCP 47 or ISO 639, in any spelling.

No other module interprets codes. Those of FLORES (`zho_Hans`), of mBART (`pt_BR`) and withdrawn ones (`iw`)
are also known. The facts are those of Unicode's CLDR and the IANA registry, in the package langcodes. Other
names of a language, such as `xx` or `src`, are allowed. Of them only a script is known, such as of `xx_Cyrl`.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain
from pathlib import Path

LIBRETRANSLATE = {"zt": "zh-Hant", "pb": "pt-BR"}
"""The codes that only LibreTranslate and Argos Translate have, and their meanings."""

_NOT_CODES = frozenset({"src"})  # a common name of the source side, and the withdrawn code of Logudorese
_SEVERAL_SCRIPTS = {"ku": ("Latn", "Arab"), "sh": ("Latn", "Cyrl"), "sr": ("Cyrl", "Latn")}
_LONGEST = 60  # characters of a code; a client may send any text
_RETAINED = 4096  # entries of each cache
_SERBO_CROATIAN = ("sh", "hbs")  # langcodes would replace them by `sr-Latn`
_NORWEGIAN = frozenset({"nb", "nn"})  # the languages of the code `no`
_HAN = ("Hani", "Hans", "Hant", "Hanb")
_JAPANESE = ("Jpan", "Hira", "Kana", "Hrkt")
_WITHOUT_SPACES = frozenset((*_HAN, *_JAPANESE, "Khmr", "Lana", "Laoo", "Mymr", "Talu", "Thai", "Tibt"))
_NAMES = """
    Adlm ADLAM Arab ARABIC Aran ARABIC Armn ARMENIAN Beng BENGALI Bopo BOPOMOFO Cans CANADIAN Cher CHEROKEE
    Copt COPTIC Cyrl CYRILLIC Deva DEVANAGARI Ethi ETHIOPIC Geor GEORGIAN Grek GREEK Gujr GUJARATI
    Guru GURMUKHI Hang HANGUL Hebr HEBREW Java JAVANESE Khmr KHMER Knda KANNADA Laoo LAO Latn LATIN Lisu LISU
    Mlym MALAYALAM
    Mong MONGOLIAN Mtei MEETEI Mymr MYANMAR Nkoo NKO Olck OL Orya ORIYA Sinh SINHALA Sund SUNDANESE
    Syrc SYRIAC Taml TAMIL Telu TELUGU Tfng TIFINAGH Thaa THAANA Thai THAI Tibt TIBETAN Vaii VAI Yiii YI
""".split()
_UNICODE_NAMES: dict[str, frozenset[str]] = {
    **{script: frozenset({name}) for script, name in zip(_NAMES[::2], _NAMES[1::2], strict=True)},
    **dict.fromkeys(_HAN, frozenset({"CJK", "BOPOMOFO"})),
    **dict.fromkeys(_JAPANESE, frozenset({"CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA"})),
    "Kore": frozenset({"HANGUL", "CJK"}),
}
_LANGUAGES = {"HANGUL": "ko", "THAI": "th", "LAO": "lo", "KHMER": "km", "MYANMAR": "my", "TIBETAN": "bo"}
_KANA = ("HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA")
_KANA_SHARE = (
    0.1  # of the letters of Japanese text, which has four to seven in ten; names in Chinese have fewer
)


@dataclass(frozen=True)
class Language:
    """The facts about a language.

    Attributes:
        tag: the code in its standard form, such as `pt-BR`; of an unknown language the code as it is.
        language: the shortest code of the language alone, such as `zh` for `cmn-Hans`; empty if unknown.
        scripts: codes of ISO 15924, such as `Hans`: the script of the code, or those that are usual for its
            language and region; empty if unknown.
        script: the script in the code; empty if it has none.
        region: the region in the code; empty if it has none.
    """

    tag: str
    language: str = ""
    scripts: tuple[str, ...] = ()
    script: str = ""
    region: str = ""

    @property
    def letters(self) -> frozenset[str] | None:
        """The first words of the Unicode names of its letters, such as `LATIN`; None if unknown."""
        names = [_UNICODE_NAMES.get(script) for script in self.scripts]
        return frozenset[str]().union(*filter(None, names)) if names and all(names) else None

    @property
    def has_spaces(self) -> bool:
        """Whether spaces separate its words; true if its script is not known."""
        return not _WITHOUT_SPACES.intersection(self.scripts)

    @property
    def is_han(self) -> bool:
        """Whether it is written in Chinese characters alone."""
        return bool(self.scripts) and set(self.scripts) <= set(_HAN)

    @property
    def is_japanese(self) -> bool:
        """Whether it is Japanese in Japanese script."""
        return self.language == "ja" and not self.has_spaces

    @property
    def is_korean(self) -> bool:
        """Whether it is Korean in Korean script."""
        return self.language == "ko" and self.scripts in (("Kore",), ("Hang",))


def language_of(code: str) -> Language:
    """Returns the facts about the language of a code. The case does not matter, and `_` is `-`."""
    return _facts(code) if len(code) <= _LONGEST else Language(code)


@lru_cache(maxsize=_RETAINED)
def _facts(code: str) -> Language:
    import langcodes  # takes 50 ms
    from langcodes.data_dicts import LIKELY_SUBTAGS

    _limit_caches()
    subtags = _plain(code).split("-")
    base = subtags[0]
    try:
        parsed = langcodes.Language.get("-".join(subtags), normalize=base not in _SERBO_CROATIAN)
    except ValueError:  # `LanguageTagError`: a part of the code is malformed
        return language_of(base) if len(subtags) > 1 else Language(code)
    script = parsed.script or ""
    if base in _NOT_CODES or not _is_language(parsed.language):
        return Language(code, scripts=(script,) if script else (), script=script)
    language = "sh" if base in _SERBO_CROATIAN else parsed.prefer_macrolanguage().language or ""
    parsed = parsed.update_dict({"language": language})
    scripts: tuple[str, ...] = ()
    if script:
        scripts = (script,)
    elif language in _SEVERAL_SCRIPTS:
        scripts = _SEVERAL_SCRIPTS[language]
    elif language in LIKELY_SUBTAGS:  # `maximize` takes English for the others
        scripts = (parsed.maximize().script or "",)
    region = parsed.territory or ""
    return Language(parsed.to_tag(), language, scripts, script, region)


def _limit_caches() -> None:
    """Limits the caches of langcodes, which clients of a server would fill."""
    from langcodes import Language as Parsed
    from langcodes.language_distance import _DISTANCE_CACHE

    for entries in (Parsed._PARSE_CACHE, Parsed._INSTANCES, _DISTANCE_CACHE):
        if len(entries) > _RETAINED:
            entries.clear()


def _is_language(subtag: str | None) -> bool:
    import langcodes

    return subtag is not None and len(subtag) <= 3 and langcodes.tag_is_valid(subtag)


def _plain(code: str) -> str:
    return code.lower().replace("_", "-")


def country_warning(key: str, code: str) -> str | None:
    """Returns a warning if an option has the code of a country, such as `cz` instead of `cs`; else None."""
    import langcodes

    if language_of(code).language or not (len(code) == 2 and code.isalpha() and code.isascii()):
        return None
    likely = langcodes.Language.make(territory=code.upper()).maximize().language
    if likely in (None, "en"):  # `maximize` takes English for unknown countries
        return None
    return (
        f"{key}={code}: the code of a country, so nothing is known of the language. Its code may be {likely}."
    )


def equivalents(code: str, codes: Iterable[str]) -> frozenset[str]:
    """Returns those of `codes`, each of a language, that a program may give to text in the language `code`.

    They name the same language in the same script. If there are none, they are the parts of a macrolanguage,
    such as `nb` and `nn` for `no`, or else the macrolanguage, such as `zh` for `yue`. Serbian in Latin script
    may be given the code of Bosnian or Croatian.
    """
    from langcodes.data_dicts import MACROLANGUAGES

    expected = language_of(code)
    letters, name = expected.letters or frozenset(), expected.language
    if name == "sr" and "LATIN" in letters:
        name = "sh"
    others = {language_of(other): other for other in codes}
    known = {one.language: other for one, other in others.items() if letters & (one.letters or frozenset())}
    names = [name] if name in known else [one for one in known if MACROLANGUAGES.get(one) == name]
    return frozenset(known[one] for one in names or [MACROLANGUAGES.get(name, "")] if one in known)


def distance(wanted: str, offered: str) -> int | None:
    """Returns the distance of an offered language from the wanted one; None if it is another language.

    It is 0 for equal codes, 1 for codes of the same meaning, and more for other regions, as in CLDR. A code
    without a region is nearer than one of another region. The scripts must agree if `wanted` has a script or
    a region. Otherwise the usual script is the nearest.
    """
    import langcodes

    if wanted == offered:
        return 0
    ours, theirs = language_of(wanted), language_of(offered)
    if not ours.language:
        return 1 if _plain(wanted) == _plain(offered) else None
    languages = {ours.language, theirs.language}
    if len(languages) > 1 and not ("no" in languages and languages <= {"no", *_NORWEGIAN}):
        return None
    scripts = {*ours.scripts}, {*theirs.scripts}
    if (ours.script or ours.region) and all(scripts) and not scripts[0] & scripts[1]:
        return None
    if ours.tag == theirs.tag:
        return 1
    regions_differ = "" not in (ours.region, theirs.region) and ours.region != theirs.region
    return 2 + 2 * langcodes.tag_distance(ours.tag, theirs.tag) + regions_differ


_SCRIPT_NAMES = {
    "Arab": "Arabic",
    "Cyrl": "Cyrillic",
    "Hans": "Simplified",
    "Hant": "Traditional",
    "Latn": "Latin",
}


def language_name(code: str) -> str:
    """Returns the English name of a language, with the script and region of its code; the code if unknown."""
    language = language_of(code)
    name = _english_names().get(language.language)
    if name is None:
        return code
    parts = [_SCRIPT_NAMES.get(language.script, language.script), language.region]
    more = ", ".join(filter(None, parts))
    return f"{name} ({more})" if more else name


@cache
def _english_names() -> dict[str, str]:
    """Returns the English name of each code of ISO 639-1."""
    text = Path(__file__).with_name("language_names.txt").read_text("utf-8")
    return dict(line.split(" ", 1) for line in text.splitlines())


def language_of_text(lines: Iterable[str]) -> str:
    """Returns the code of the language of a text if its script leaves no doubt; else an empty text.

    More than half of the letters must be in the script of Chinese, Japanese, Korean, Thai, Lao, Khmer,
    Burmese or Tibetan.
    """
    scripts = Counter[str]()
    for character, count in Counter(chain.from_iterable(lines)).items():
        scripts[script_of(character)] += count
    del scripts[""]
    half, kana = scripts.total() / 2, sum(scripts[name] for name in _KANA)
    if (japanese := scripts["CJK"] + kana) > half:
        return "ja" if kana > _KANA_SHARE * japanese else "zh"
    return next((code for script, code in _LANGUAGES.items() if scripts[script] > half), "")


@cache
def script_of(character: str) -> str:
    """Returns the script of a letter, the first word of its Unicode name; empty for other characters."""
    if not character.isalpha():
        return ""
    words = unicodedata.name(character, "").replace("FULLWIDTH ", "").replace("HALFWIDTH ", "").split()
    return words[0] if words else ""
