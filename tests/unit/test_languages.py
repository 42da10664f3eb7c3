"""Codes of languages: a table of their facts, for all modules that need them."""

from __future__ import annotations

import unicodedata

import langcodes
import lingua
import pytest
from langcodes.language_distance import _DISTANCE_CACHE

from nmt.evaluation.metrics import metrics_for, tokenizer_for
from nmt.languages import (
    _UNICODE_NAMES,
    country_warning,
    distance,
    equivalents,
    language_of,
    language_of_text,
)

# Of each code: the tag of the card, the letters of the script rule, whether spaces separate words, the
# languages that lingua may identify, BLEU's tokenizer, TER's `asian`, and the model that nmt-serve finds.
TABLE = """
    code      tag      letters         spaces lingua   BLEU      asian model
    en        en       LATIN           yes    en       13a       no    en
    EN        en       LATIN           yes    en       13a       no    en
    eng       en       LATIN           yes    en       13a       no    en
    en-US     en-US    LATIN           yes    en       13a       no    en
    deu       de       LATIN           yes    de       13a       no    de
    de-DE     de-DE    LATIN           yes    de       13a       no    de
    fr-CA     fr-CA    LATIN           yes    fr       13a       no    -
    pt-BR     pt-BR    LATIN           yes    pt       13a       no    pt-BR
    pt-PT     pt-PT    LATIN           yes    pt       13a       no    pt-PT
    pt_AO     pt-AO    LATIN           yes    pt       13a       no    pt-PT
    no        no       LATIN           yes    nb+nn    13a       no    no
    nb        nb       LATIN           yes    nb       13a       no    no
    nn        nn       LATIN           yes    nn       13a       no    no
    nor       no       LATIN           yes    nb+nn    13a       no    no
    iw        he       HEBREW          yes    he       13a       no    he
    in        id       LATIN           yes    id       13a       no    id
    ji        yi       HEBREW          yes    -        13a       no    -
    fil       fil      LATIN           yes    tl       13a       no    -
    tl        fil      LATIN           yes    tl       13a       no    -
    mo        ro       LATIN           yes    ro       13a       no    -
    sh        sh       CYRILLIC+LATIN  yes    bs+hr+sr 13a       no    -
    sr        sr       CYRILLIC+LATIN  yes    bs+hr+sr 13a       no    sr
    sr-Latn   sr-Latn  LATIN           yes    bs+hr+sr 13a       no    sr
    sr_Cyrl   sr-Cyrl  CYRILLIC        yes    sr       13a       no    sr
    uz        uz       LATIN           yes    -        13a       no    -
    uz_Cyrl   uz-Cyrl  CYRILLIC        yes    -        13a       no    -
    uzn_Latn  uz-Latn  LATIN           yes    -        13a       no    -
    zh        zh       CHINESE         no     zh       zh        yes   zh-Hans
    zh-TW     zh-TW    CHINESE         no     zh       zh        yes   zh-Hant
    zh_CN     zh-CN    CHINESE         no     zh       zh        yes   zh-Hans
    zho_Hans  zh-Hans  CHINESE         no     zh       zh        yes   zh-Hans
    zho_Hant  zh-Hant  CHINESE         no     zh       zh        yes   zh-Hant
    cmn       zh       CHINESE         no     zh       zh        yes   zh-Hans
    yue       yue      CHINESE         no     zh       zh        yes   -
    zh-Latn   zh-Latn  LATIN           yes    -        13a       no    -
    wuu       wuu      CHINESE         no     zh       zh        yes   -
    ja        ja       JAPANESE        no     ja       ja-mecab  yes   ja
    jpn_Jpan  ja-Jpan  JAPANESE        no     ja       ja-mecab  yes   ja
    ja-Latn   ja-Latn  LATIN           yes    -        13a       no    -
    ko        ko       CJK+HANGUL      yes    ko       ko-mecab  no    -
    kor_Hang  ko-Hang  HANGUL          yes    ko       ko-mecab  no    -
    th        th       THAI            no     th       13a       no    -
    my        my       MYANMAR         no     -        13a       no    -
    km_KH     km-KH    KHMER           no     -        13a       no    -
    lo        lo       LAO             no     -        13a       no    -
    bo        bo       TIBETAN         no     -        13a       no    -
    ar        ar       ARABIC          yes    ar       13a       no    ar
    arb_Arab  ar-Arab  ARABIC          yes    ar       13a       no    ar
    arz       arz      ARABIC          yes    ar       13a       no    -
    prs       fa-AF    ARABIC          yes    fa       13a       no    -
    fa        fa       ARABIC          yes    fa       13a       no    -
    pa        pa       GURMUKHI        yes    pa       13a       no    -
    pa-PK     pa-PK    ARABIC          yes    -        13a       no    -
    ku        ku       ARABIC+LATIN    yes    -        13a       no    -
    ckb       ckb      ARABIC          yes    -        13a       no    -
    kmr_Latn  ku-Latn  LATIN           yes    -        13a       no    -
    xx        xx       -               yes    -        13a       no    -
    xx_Cyrl   xx_Cyrl  CYRILLIC        yes    -        13a       no    -
    src       src      -               yes    -        13a       no    -
    jp        jp       -               yes    -        13a       no    -
"""
MODELS = ("de", "zh-Hans", "zh-Hant", "pt-BR", "pt-PT", "no", "sr", "he", "id", "ja", "ar", "en")
LETTERS = {"CHINESE": "BOPOMOFO+CJK", "JAPANESE": "CJK+HIRAGANA+KATAKANA+KATAKANA-HIRAGANA"}


@pytest.mark.parametrize("row", TABLE.strip().splitlines()[1:], ids=lambda row: row.split()[0])
def test_the_facts_of_sixty_codes(row: str) -> None:
    code, *expected = row.split()
    language = language_of(code)
    identified = equivalents(code, [one.iso_code_639_1.name.lower() for one in lingua.Language.all()])
    offered = [(far, model) for model in MODELS if (far := distance(code, model)) is not None]
    expected[1] = LETTERS.get(expected[1], expected[1])
    assert expected == [
        language.tag,
        "+".join(sorted(language.letters or "-")),
        "yes" if language.has_spaces else "no",
        "+".join(sorted(identified)) or "-",
        tokenizer_for(code),
        "yes" if "asian:yes" in metrics_for(code, keys=["ter"])["ter"].signature(1) else "no",
        min(offered)[1] if offered else "-",
    ]


def test_every_name_of_a_script_is_one_that_letters_have() -> None:
    names = {unicodedata.name(chr(code), "").split(" ")[0] for code in range(0x20000)}
    assert set().union(*_UNICODE_NAMES.values()) <= names


@pytest.mark.parametrize("code", ["", "xx", "src", "SRC", "qq", "x-foo", "und", "chinese", "ＥＮ", "a", "x"])
def test_other_names_have_no_facts(code: str) -> None:
    language = language_of(code)
    assert (language.tag, language.language, language.letters, language.has_spaces) == (code, "", None, True)


def test_the_script_of_another_name_is_known() -> None:
    assert language_of("xx_Cyrl").letters == frozenset({"CYRILLIC"})


def test_a_malformed_rest_is_ignored() -> None:
    assert language_of("zh_CN.UTF-8") == language_of("zh")


def test_caches_are_limited() -> None:
    """A client of a server may send any number of codes."""
    for number in range(10_000):
        distance(f"de-{number:05}", "de")
    assert len(langcodes.Language._PARSE_CACHE) < 6000
    assert len(langcodes.Language._INSTANCES) < 20_000
    assert len(_DISTANCE_CACHE) < 6000


@pytest.mark.parametrize(
    ("code", "meant"), [("jp", "ja"), ("cz", "cs"), ("UA", "uk"), ("gr", "el"), ("dk", "da")]
)
def test_a_code_of_a_country_is_reported(code: str, meant: str) -> None:
    warning = country_warning("target_lang", code)
    assert warning == (
        f"target_lang={code}: the code of a country, so nothing is known of the language. "
        f"Its code may be {meant}."
    )


@pytest.mark.parametrize("code", ["xx", "src", "de", "se", "pt-BR", "", "gb", "qq"])
def test_other_codes_are_not_reported(code: str) -> None:
    assert country_warning("target_lang", code) is None


@pytest.mark.parametrize(
    ("text", "code"),
    [
        *(
            ("我喜欢猫。", "zh"),
            ("我喜歡貓和狗和其他的動物の", "zh"),
            ("私は猫が好きです", "ja"),
            ("ﾈｺｶﾞｽｷ", "ja"),
        ),
        *(
            ("나는 고양이를 좋아한다", "ko"),
            ("แมวนั่งบนเสื่อ", "th"),
            ("ແມວ", "lo"),
            ("ឆ្មា", "km"),
            ("ကြောင်", "my"),
        ),
        *(("བྱི་ལ", "bo"), ("ein Hund", ""), ("кот", ""), ("猫 cat", ""), ("", ""), ("123 !", "")),
    ],
)
def test_a_script_without_doubt_names_the_language(text: str, code: str) -> None:
    assert language_of_text([text, "12."]) == code
