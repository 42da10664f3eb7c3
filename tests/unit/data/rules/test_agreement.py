"""Numbers and addresses that disagree, on literal pairs."""

from __future__ import annotations

import pytest
from judging import first_rule

from nmt.config import CleaningConfig
from nmt.data.cleaning import build_rules

RULES = build_rules(CleaningConfig(drop_unequal_numbers=True, drop_unequal_addresses=True, max_ratio=0))

CASES = [
    ("In 1990 it was new.", "1990 war es neu.", None),
    ("In 1990 it was new.", "1991 war es neu.", "numbers"),
    ("In 1990 it was new.", "Damals war es neu.", "numbers"),
    ("It was new.", "1990 war es neu.", "numbers"),
    ("1990, 1990", "1990", "numbers"),  # as often
    ("17 of 45", "45 von 17", None),  # in any order
    ("three dogs", "3 Hunde", None),  # small numbers may be words
    ("13 dogs", "zehn Hunde", "numbers"),
    ("20 dogs", "zwanzig Hunde", None),  # as may round ones
    ("1,234,567 people", "1.234.567 Menschen", None),
    ("1 234 567 people", "1\u202f234\u202f567 Menschen", None),
    ("1,500.75", "1.500,75", None),
    ("15 million", "15.000.000", None),
    ("on 03.05.2010", "am 3. Mai 2010", None),  # leading zeros
    ("a score of 27.5", "27,5 Punkte", None),
    ("a score of 27.5", "28,5 Punkte", "numbers"),
    ("in ١٩٩٠", "1990", None),  # digits of any script
    ("9" * 5000, "9" * 5000 + "8", "numbers"),  # no limit to their length
    ("a b³", "a b³ c", None),  # a superscript is no digit
    ("see https://nmt.org/a.", "siehe nmt.org", "addresses"),
    ("see https://nmt.org/a.", "siehe https://nmt.org/a", None),
    ("see https://nmt.org/a/", "siehe http://NMT.org/a!", None),
    ("see (www.nmt.org)", "siehe www.nmt.org.", None),
    ("see www.nmt.org", "siehe www.mt.org", "addresses"),
    ("mail a.b@nmt.org, please", "bitte an a.b@nmt.org", None),
    ("mail a@nmt.org", "bitte an b@nmt.org", "addresses"),
    ("mail me", "bitte an b@nmt.org", "addresses"),
    ("@home at a dog's", "zu Hause @ Hund", None),
]


@pytest.mark.parametrize(("source", "target", "expected"), CASES)
def test_rules(source: str, target: str, expected: str | None) -> None:
    rule = first_rule(RULES, source, target)
    assert (rule.name if rule else None) == expected
    other = first_rule(RULES, target, source)
    assert (other.name if other else None) == expected


def test_long_runs_without_a_space_take_no_time_by_their_square() -> None:
    run = "." * 1_000_000  # from every place of which an address might begin: some hours
    assert RULES[-1].name == "addresses"
    assert not RULES[-1].drops(f"{run} a@nmt.org", f"a@nmt.org {run}")
    assert RULES[-1].drops(f"{run} a@nmt.org", f"b@nmt.org {run}")
