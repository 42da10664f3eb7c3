"""Time expressions: their meaning, and their form in English and German."""

from dataclasses import dataclass
from enum import Enum

from quickstart_corpus.numbers import english_number, english_ordinal, german_number, german_ordinal_stem


class Unit(Enum):
    """A unit of time: English singular and plural, German dative plural."""

    DAY = ("day", "days", "Tagen")
    WEEK = ("week", "weeks", "Wochen")
    MONTH = ("month", "months", "Monaten")
    YEAR = ("year", "years", "Jahren")
    HOUR = ("hour", "hours", "Stunden")


class Direction(Enum):
    """Direction of a span from now: English words before and after it, German preposition (with dative)."""

    AGO = ("", " ago", "vor")
    AHEAD = ("in ", "", "in")
    SINCE = ("for ", "", "seit")


@dataclass(frozen=True)
class Adverb:
    """A fixed expression of time, place or manner.

    Attributes:
        english: English phrase.
        german: German phrase.
        middle: Whether English puts it before the main verb ("often").
    """

    english: str
    german: str
    middle: bool = False


@dataclass(frozen=True)
class Clock:
    """A time of day on a twelve-hour clock; the minute is a multiple of five."""

    hour: int
    minute: int


@dataclass(frozen=True)
class At:
    """A clock time as an adverbial, with an optional day: "tomorrow at half past three"."""

    clock: Clock
    day: Adverb | None = None


@dataclass(frozen=True)
class Date:
    """A day and a month, both from 1."""

    day: int
    month: int


@dataclass(frozen=True)
class Span:
    """A counted span from or to now: "three weeks ago", "in two days", "for five years"."""

    direction: Direction
    count: int
    unit: Unit


Time = Adverb | At | Date | Span

MONTHS = (
    ("January", "Januar"), ("February", "Februar"), ("March", "März"), ("April", "April"), ("May", "Mai"),
    ("June", "Juni"), ("July", "Juli"), ("August", "August"), ("September", "September"),
    ("October", "Oktober"), ("November", "November"), ("December", "Dezember"),
)  # fmt: skip


def _adverbs(table: str, middle: bool = False) -> tuple[Adverb, ...]:
    pairs = (line.split("|") for line in table.strip().splitlines())
    return tuple(Adverb(english.strip(), german.strip(), middle) for english, german in pairs)


WEEKDAYS = _adverbs("""
    on Monday | am Montag
    on Tuesday | am Dienstag
    on Wednesday | am Mittwoch
    on Thursday | am Donnerstag
    on Friday | am Freitag
    on Saturday | am Samstag
    on Sunday | am Sonntag
""")
PAST_TIMES = _adverbs("""
    yesterday | gestern
    yesterday evening | gestern Abend
    the day before yesterday | vorgestern
    last week | letzte Woche
    last year | letztes Jahr
    this morning | heute Morgen
""")
FUTURE_TIMES = _adverbs("""
    tomorrow | morgen
    tomorrow evening | morgen Abend
    the day after tomorrow | übermorgen
    next week | nächste Woche
    next year | nächstes Jahr
    this evening | heute Abend
    soon | bald
""")
PRESENT_TIMES = _adverbs("""
    today | heute
    now | jetzt
    at the moment | im Moment
""")
HABITS = _adverbs("""
    every day | jeden Tag
    every week | jede Woche
    every evening | jeden Abend
    on Mondays | montags
    on Sundays | sonntags
    in summer | im Sommer
    in winter | im Winter
""")
FREQUENCIES = _adverbs(
    """
    often | oft
    always | immer
    never | nie
    sometimes | manchmal
    rarely | selten
""",
    middle=True,
)
TODAY = PRESENT_TIMES[0]
NEVER = FREQUENCIES[2]


def is_habitual(time: Time | None) -> bool:
    """Whether the time makes a present tense habitual, so that English uses the simple present."""
    return isinstance(time, Adverb) and (time in HABITS or time in FREQUENCIES)


def is_since(time: Time | None) -> bool:
    """Whether the time is "for three years": present tense in German, present perfect in English."""
    return isinstance(time, Span) and time.direction is Direction.SINCE


def english_time(time: Time) -> str:
    """Returns the English adverbial."""
    if isinstance(time, Adverb):
        return time.english
    if isinstance(time, At):
        at = f"at {english_clock(time.clock)}"
        return f"{time.day.english} {at}" if time.day else at
    if isinstance(time, Date):
        return f"on the {english_ordinal(time.day)} of {MONTHS[time.month - 1][0]}"
    singular, plural, _ = time.unit.value
    before, after, _ = time.direction.value
    return f"{before}{english_number(time.count)} {singular if time.count == 1 else plural}{after}"


def german_time(time: Time) -> str:
    """Returns the German adverbial."""
    if isinstance(time, Adverb):
        return time.german
    if isinstance(time, At):
        at = f"um {german_clock(time.clock)}"
        return f"{time.day.german} {at}" if time.day else at
    if isinstance(time, Date):
        return f"am {german_ordinal_stem(time.day)}en {MONTHS[time.month - 1][1]}"
    return f"{time.direction.value[2]} {german_number(time.count)} {time.unit.value[2]}"


def english_clock(clock: Clock) -> str:
    """Returns a clock time: three o'clock, quarter past three, twenty to four, half past three."""
    if clock.minute == 0:
        return f"{english_number(clock.hour)} o'clock"
    if clock.minute == 30:
        return f"half past {english_number(clock.hour)}"
    minutes = min(clock.minute, 60 - clock.minute)
    amount = "quarter" if minutes == 15 else english_number(minutes)
    if clock.minute < 30:
        return f"{amount} past {english_number(clock.hour)}"
    return f"{amount} to {english_number(_next(clock.hour))}"


def german_clock(clock: Clock) -> str:
    """Returns a clock time: drei Uhr, Viertel nach drei, zwanzig vor vier, halb vier."""
    if clock.minute == 0:
        return "ein Uhr" if clock.hour == 1 else f"{german_number(clock.hour)} Uhr"
    if clock.minute == 30:
        return f"halb {german_number(_next(clock.hour))}"
    minutes = min(clock.minute, 60 - clock.minute)
    amount = "Viertel" if minutes == 15 else german_number(minutes)
    if clock.minute < 30:
        return f"{amount} nach {german_number(clock.hour)}"
    return f"{amount} vor {german_number(_next(clock.hour))}"


def _next(hour: int) -> int:
    return hour % 12 + 1
