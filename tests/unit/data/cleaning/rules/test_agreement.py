"""Numbers and addresses that disagree, on literal pairs."""

from __future__ import annotations

import pytest
from judging import first_rule

from nmt.config import CleaningConfig
from nmt.data.cleaning.cleaner import build_rules

RULES = build_rules(CleaningConfig(drop_unequal_numbers=True, drop_unequal_addresses=True, max_ratio=0))

CASES = [
    ("In 1990 it was new.", "1990 war es neu.", None),
    ("In 1990 it was new.", "1991 war es neu.", "numbers"),
    ("In 1990 it was new.", "Damals war es neu.", "numbers"),
    ("It was new.", "1990 war es neu.", "numbers"),
    ("1990, 1990", "1990", "numbers"),  # counts differ
    ("17 of 45", "45 von 17", None),  # in any order
    ("three dogs", "3 Hunde", None),  # small numbers may be words
    ("13 dogs", "zehn Hunde", "numbers"),
    ("20 dogs", "zwanzig Hunde", None),  # round numbers may be words too
    ("1,234,567 people", "1.234.567 Menschen", None),
    ("1 234 567 people", "1\u202f234\u202f567 Menschen", None),
    ("1,500.75", "1.500,75", None),
    ("15 million", "15.000.000", None),
    ("on 03.05.2010", "am 3. Mai 2010", None),  # leading zeros
    ("a score of 27.5", "27,5 Punkte", None),
    ("a score of 27.5", "28,5 Punkte", "numbers"),
    ("1.5 million people", "1,500,000 Menschen", None),
    ("1.5 million people", "1,5 Mio. Menschen", None),
    ("1.5 million people", "1 500 000 Menschen", None),
    ("1.25 million people", "1,35 Millionen Menschen", "numbers"),
    ("1.25 million people", "1,25 miriad Menschen", None),  # an unknown word
    ("1.5 million people", "anderthalb Millionen Menschen", None),
    ("3 million people", "drei Millionen Menschen", None),
    ("3 million people", "2.000.000 Menschen", "numbers"),
    ("15 million people", "16.000.000 Menschen", "numbers"),
    ("2 billion", "2 Milliarden", None),
    ("1.5 million people", "150万人", None),
    ("1.5 million people", "150만 명", None),
    ("15,000 people", "15k Menschen", None),
    ("1500 millimetres", "15 Millimeter", "numbers"),  # not a million
    ("1500 metres", "15m", "numbers"),
    ("rooms 101,102", "Zimmer 101 und 102", None),  # a list
    ("rooms 101,102", "Zimmer 101 und 103", "numbers"),
    ("rooms 101,102", "Zimmer 101.102", None),
    ("rooms 101,102,103", "Zimmer 101 102, 103", None),
    ("1 100 200", "1, 100, 200", None),
    ("1 100 200", "2, 100, 200", "numbers"),  # small numbers of a list count too
    ("1,100 dogs", "elfhundert Hunde", None),
    ("2,100 people", "100 Menschen", "numbers"),
    ("13,000 people", "13 Menschen", "numbers"),  # neither a list nor a fraction
    ("1,000 people", "1.000.000 Menschen", "numbers"),
    ("100 people", "1000 Menschen", "numbers"),
    ("20 people", "2000 Menschen", "numbers"),
    ("20 people", "30 Menschen", "numbers"),
    ("1000 people", "tausend Menschen", None),
    ("1990 people", "199 Menschen", "numbers"),
    ("2,50 kg", "2.5 kg", None),  # trailing zeros of a fraction
    ("27.250 kg", "27,25 kg", None),
    ("27.2500 kg", "27,25 kg", None),
    ("27.2500 kg", "27,26 kg", "numbers"),
    ("at 10:30", "um halb elf", None),
    ("in ١٩٩٠", "1990", None),  # digits of any script
    ("9" * 5000, "9" * 5000 + "8", "numbers"),  # no limit on the length
    ("a b³", "a b³ c", None),  # a superscript is not a digit
    ("see https://nmt.org/a.", "siehe nmt.org", "addresses"),
    ("see https://nmt.org/a.", "siehe https://nmt.org/a", None),
    ("see https://nmt.org/a/", "siehe http://NMT.org/a!", None),
    ("see (www.nmt.org)", "siehe www.nmt.org.", None),
    ("see www.nmt.org", "siehe www.mt.org", "addresses"),
    ("mail a.b@nmt.org, please", "bitte an a.b@nmt.org", None),
    ("mail a@nmt.org", "bitte an b@nmt.org", "addresses"),
    ("mail me", "bitte an b@nmt.org", "addresses"),
    ("visit www.nmt.org, thanks", "请访问www.nmt.org。谢谢", None),
    ("mail info@nmt.org.", "联系info@nmt.org。", None),
    ("mail info@nmt.org or call", "请联系info@nmt.org，或致电", None),
    ("mail info@nmt.org", "联系inf@nmt.org。", "addresses"),
    ("see https://nmt.org/a?b=1&c=2.", "参见“https://nmt.org/a?b=1&c=2”。", None),
    ("see http://nmt.org/", "http://nmt.org/をご覧ください", None),
    ("see http://nmt.org/a", "http://nmt.org/bをご覧ください", "addresses"),
    ("ask info@nmt.org", "info@nmt.orgまでお問い合わせください", None),
    ("see www.nmt.org, please", "詳細は、www.nmt.org）へ", None),
    ("at www.nmt.org", "www.nmt.org에서", None),  # a particle
    ("at www.nmt.org", "www.nmt.org'da", None),
    ("see www.münchen.de", "siehe www.münchen.de!", None),  # names in other letters
    ("see www.münchen.de", "siehe www.mönchengladbach.de", "addresses"),
    ("see http://правда.рф/о", "siehe http://правда.рф/о.", None),
    ("see http://правда.рф/о", "siehe http://правда.рф/я.", "addresses"),
    ("see http://例え.jp/a", "http://例え.jp/b", None),  # cannot be separated from the text around it
    ("mail jörg@müller.de", "an jörg@müller.de!", None),
    ("mail jörg@müller.de", "an jürg@müller.de", "addresses"),
    ("@home at a dog's", "zu Hause @ Hund", None),
]


@pytest.mark.parametrize(("source", "target", "expected"), CASES)
def test_rules(source: str, target: str, expected: str | None) -> None:
    rule = first_rule(RULES, source, target)
    assert (rule.name if rule else None) == expected
    other = first_rule(RULES, target, source)
    assert (other.name if other else None) == expected


def test_long_runs_without_a_space_take_no_time_by_their_square() -> None:
    # A search from every possible start of an address or a number would take an hour.
    runs = ["." * 300_000, "ü" * 300_000, "a@" * 100_000, "a." * 100_000, "@a" * 100_000 + "."]
    assert RULES[-1].name == "addresses"
    for run in runs:
        assert not RULES[-1].drops(f"{run} a@nmt.org", f"a@nmt.org {run}")
        assert RULES[-1].drops(f"{run} a@nmt.org", f"b@nmt.org {run}")
    for run in ("1" * 200_000, "1," * 20_000, "1 111" * 9_000, "1.1" * 9_000, "1 " * 20_000):
        assert not RULES[-2].drops(f"{run} 1990", f"1990 {run}")
        assert RULES[-2].drops(f"{run} 1990", f"1991 {run}")
