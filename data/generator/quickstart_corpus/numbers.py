"""Numbers, ordinals and the units of the calendar, in English and in German words."""

_ENGLISH_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
).split()
_ENGLISH_TENS = "- ten twenty thirty forty fifty sixty seventy eighty ninety".split()
_GERMAN_SMALL = (
    "null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn "
    "siebzehn achtzehn neunzehn"
).split()
_GERMAN_TENS = "- zehn zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()
_ENGLISH_ORDINALS = {
    "one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth", "nine": "ninth",
    "twelve": "twelfth",
}  # fmt: skip
_GERMAN_ORDINALS = {1: "erst", 3: "dritt", 7: "siebt", 8: "acht"}


def english_number(number: int) -> str:
    """Returns an English cardinal, 0 to 999,999: twenty-four, three hundred and five."""
    _check(number)
    if number < 20:
        return _ENGLISH_SMALL[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        return _ENGLISH_TENS[tens] + (f"-{_ENGLISH_SMALL[ones]}" if ones else "")
    if number < 1000:
        hundreds, rest = divmod(number, 100)
        return f"{_ENGLISH_SMALL[hundreds]} hundred" + (f" and {english_number(rest)}" if rest else "")
    thousands, rest = divmod(number, 1000)
    joint = " and " if 0 < rest < 100 else " "
    return f"{english_number(thousands)} thousand" + (f"{joint}{english_number(rest)}" if rest else "")


def german_number(number: int) -> str:
    """Returns a German cardinal, 0 to 999,999, for counting: eins, vierundzwanzig, dreihundertfünf."""
    _check(number)
    stem = _german_stem(number)
    return stem + "s" if number % 100 == 1 else stem


def english_ordinal(number: int) -> str:
    """Returns an English ordinal, 1 to 99: third, twenty-first."""
    head, joint, last = english_number(number).rpartition("-")
    if last in _ENGLISH_ORDINALS:
        last = _ENGLISH_ORDINALS[last]
    else:
        last = last[:-1] + "ieth" if last.endswith("y") else last + "th"
    return head + joint + last


def german_ordinal_stem(number: int) -> str:
    """Returns a German ordinal, 1 to 99, without its adjective ending: dritt-, einundzwanzigst-."""
    if number < 20:
        return _GERMAN_ORDINALS.get(number, german_number(number) + "t")
    return german_number(number) + "st"


def _german_stem(number: int) -> str:
    """Returns the cardinal as part of a longer one: "ein", not "eins"."""
    if number < 20:
        return _GERMAN_SMALL[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        return (f"{_GERMAN_SMALL[ones]}und" if ones else "") + _GERMAN_TENS[tens]
    unit, word = (100, "hundert") if number < 1000 else (1000, "tausend")
    head, rest = divmod(number, unit)
    return _german_stem(head) + word + (_german_stem(rest) if rest else "")


def _check(number: int) -> None:
    if not 0 <= number < 1_000_000:
        raise ValueError(f"{number}: must be from 0 to 999,999")
