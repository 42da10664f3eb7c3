"""German morphology of the quickstart corpus, against tables written by hand."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts"))

from quickstart_corpus import german_nouns, german_verbs, lexicon, nouns, verbs
from quickstart_corpus.meaning import Modal, Person
from quickstart_corpus.numbers import english_number, english_ordinal, german_number, german_ordinal_stem
from quickstart_corpus.times import (
    Adverb,
    At,
    Clock,
    Date,
    Direction,
    Span,
    Unit,
    english_clock,
    english_time,
    german_clock,
    german_time,
)
from quickstart_corpus.words import Case, Gender, Verb

PERSONS = (Person.ME, Person.DU, Person.HE, Person.WE, Person.IHR, Person.SIE)
ALL_VERBS: dict[str, Verb] = {
    verb.prefix + verb.german: verb for verb in vars(verbs).values() if isinstance(verb, Verb)
} | {verb.prefix + verb.german: verb for verb in verbs.ORDINARY + verbs.TIMETABLE}
ADJECTIVES = {adjective.english: adjective for adjective in lexicon.ADJECTIVES}

NOUN_CELLS = {
    # singular: nominative, accusative, dative, genitive; then plural
    "man": "Mann Mann Mann Mannes Männer Männer Männern Männer",
    "woman": "Frau Frau Frau Frau Frauen Frauen Frauen Frauen",
    "child": "Kind Kind Kind Kindes Kinder Kinder Kindern Kinder",
    "boy": "Junge Jungen Jungen Jungen Jungen Jungen Jungen Jungen",
    "neighbour": "Nachbar Nachbarn Nachbarn Nachbarn Nachbarn Nachbarn Nachbarn Nachbarn",
    "student": "Student Studenten Studenten Studenten Studenten Studenten Studenten Studenten",
    "teacher": "Lehrer Lehrer Lehrer Lehrers Lehrer Lehrer Lehrern Lehrer",
    "daughter": "Tochter Tochter Tochter Tochter Töchter Töchter Töchtern Töchter",
    "car": "Auto Auto Auto Autos Autos Autos Autos Autos",
    "garden": "Garten Garten Garten Gartens Gärten Gärten Gärten Gärten",
    "museum": "Museum Museum Museum Museums Museen Museen Museen Museen",
}


@pytest.mark.parametrize("english", NOUN_CELLS)
def test_noun_cells(english: str) -> None:
    noun = nouns.noun(english)
    cells = [german_nouns.decline_noun(noun, case, plural) for plural in (False, True) for case in Case]
    assert " ".join(cells) == NOUN_CELLS[english]


@pytest.mark.parametrize(
    ("gender", "plural", "weak", "mixed", "strong"),
    [
        (
            Gender.M,
            False,
            "der alte den alten dem alten des alten",
            "ein alter einen alten einem alten eines alten",
            "alter alten altem alten",
        ),
        (
            Gender.F,
            False,
            "die alte die alte der alten der alten",
            "eine alte eine alte einer alten einer alten",
            "alte alte alter alter",
        ),
        (
            Gender.N,
            False,
            "das alte das alte dem alten des alten",
            "ein altes ein altes einem alten eines alten",
            "altes altes altem alten",
        ),
        (
            Gender.M,
            True,
            "die alten die alten den alten der alten",
            "keine alten keine alten keinen alten keiner alten",
            "alte alte alten alter",
        ),
    ],
)
def test_adjective_declension(gender: Gender, plural: bool, weak: str, mixed: str, strong: str) -> None:
    old = ADJECTIVES["old"]
    stem = "kein" if plural else "ein"
    cells = [(gender, case, plural) for case in Case]
    after_der = (f"{german_nouns.definite_article(*c)} {german_nouns.weak_adjective(old, *c)}" for c in cells)
    after_ein = (f"{german_nouns.ein_word(stem, *c)} {german_nouns.mixed_adjective(old, *c)}" for c in cells)
    alone = (german_nouns.strong_adjective(old, *c) for c in cells)
    assert " ".join(after_der) == weak
    assert " ".join(after_ein) == mixed
    assert " ".join(alone) == strong


def test_adjective_stems() -> None:
    cell = (Gender.M, Case.ACC)
    assert german_nouns.weak_adjective(ADJECTIVES["expensive"], *cell) == "teuren"
    assert german_nouns.weak_adjective(ADJECTIVES["dark"], *cell) == "dunklen"


def test_determiners() -> None:
    assert german_nouns.ein_word("euer", Gender.M, Case.NOM) == "euer"
    assert german_nouns.ein_word("euer", Gender.F, Case.NOM) == "eure"
    assert german_nouns.ein_word("unser", Gender.N, Case.DAT) == "unserem"
    assert german_nouns.der_word("dies", Gender.N, Case.ACC) == "dieses"
    assert german_nouns.der_word("welch", Gender.M, Case.DAT, plural=True) == "welchen"
    assert german_nouns.relative_pronoun(Gender.F, Case.DAT, plural=True) == "denen"


@pytest.mark.parametrize(
    ("preposition", "phrase", "expected"),
    [
        ("in", "dem Garten", "im Garten"),
        ("in", "das Kino", "ins Kino"),
        ("in", "die Stadt", "in die Stadt"),
        ("an", "dem Strand", "am Strand"),
        ("zu", "dem Bahnhof", "zum Bahnhof"),
        ("zu", "der Schule", "zur Schule"),
        ("bei", "dem Arzt", "beim Arzt"),
        ("von", "dem Arzt", "vom Arzt"),
        ("auf", "das Bett", "auf das Bett"),
    ],
)
def test_contraction(preposition: str, phrase: str, expected: str) -> None:
    assert german_nouns.prepositional_phrase(preposition, phrase, contract=True) == expected
    assert german_nouns.prepositional_phrase(preposition, phrase, contract=False) == f"{preposition} {phrase}"


def test_names() -> None:
    becker = lexicon.TITLED_NAMES[0]
    expected = ["Herr Becker", "Herrn Becker", "Herrn Becker", "Herrn Beckers"]
    assert [german_nouns.decline_name(becker, case) for case in Case] == expected
    assert german_nouns.decline_name(lexicon.FIRST_NAMES[0], Case.GEN) == "Annas"


PRESENT = {
    # ich, du, er, wir, ihr, Sie
    "lesen": "lese liest liest lesen lest lesen",
    "fahren": "fahre fährst fährt fahren fahrt fahren",
    "geben": "gebe gibst gibt geben gebt geben",
    "helfen": "helfe hilfst hilft helfen helft helfen",
    "arbeiten": "arbeite arbeitest arbeitet arbeiten arbeitet arbeiten",
    "öffnen": "öffne öffnest öffnet öffnen öffnet öffnen",
    "schließen": "schließe schließt schließt schließen schließt schließen",
    "tanzen": "tanze tanzt tanzt tanzen tanzt tanzen",
    "essen": "esse isst isst essen esst essen",
    "waschen": "wasche wäschst wäscht waschen wascht waschen",
    "wohnen": "wohne wohnst wohnt wohnen wohnt wohnen",
    "einladen": "lade lädst lädt laden ladet laden",
    "erinnern": "erinnere erinnerst erinnert erinnern erinnert erinnern",
    "antworten": "antworte antwortest antwortet antworten antwortet antworten",
    "wissen": "weiß weißt weiß wissen wisst wissen",
    "haben": "habe hast hat haben habt haben",
    "sein": "bin bist ist sind seid sind",
}


@pytest.mark.parametrize("infinitive", PRESENT)
def test_present(infinitive: str) -> None:
    verb = ALL_VERBS[infinitive]
    assert " ".join(german_verbs.present(verb, person) for person in PERSONS) == PRESENT[infinitive]


@pytest.mark.parametrize(
    ("infinitive", "du", "ihr", "sie"),
    [
        ("lesen", "lies", "lest", "lesen"),
        ("geben", "gib", "gebt", "geben"),
        ("essen", "iss", "esst", "essen"),
        ("helfen", "hilf", "helft", "helfen"),
        ("fahren", "fahr", "fahrt", "fahren"),
        ("waschen", "wasch", "wascht", "waschen"),
        ("öffnen", "öffne", "öffnet", "öffnen"),
        ("warten", "warte", "wartet", "warten"),
        ("kaufen", "kauf", "kauft", "kaufen"),
        ("einladen", "lade", "ladet", "laden"),
        ("anrufen", "ruf", "ruft", "rufen"),
        ("sprechen", "sprich", "sprecht", "sprechen"),
        ("stellen", "stell", "stellt", "stellen"),
    ],
)
def test_imperative(infinitive: str, du: str, ihr: str, sie: str) -> None:
    verb = ALL_VERBS[infinitive]
    forms = [german_verbs.imperative(verb, person) for person in (Person.DU, Person.IHR, Person.SIE)]
    assert forms == [du, ihr, sie]


@pytest.mark.parametrize(
    ("infinitive", "participle", "zu"),
    [
        ("anrufen", "angerufen", "anzurufen"),
        ("abholen", "abgeholt", "abzuholen"),
        ("einladen", "eingeladen", "einzuladen"),
        ("aufräumen", "aufgeräumt", "aufzuräumen"),
        ("anprobieren", "anprobiert", "anzuprobieren"),
        ("mitbringen", "mitgebracht", "mitzubringen"),
        ("besuchen", "besucht", "zu besuchen"),
        ("reparieren", "repariert", "zu reparieren"),
        ("lesen", "gelesen", "zu lesen"),
        ("vergessen", "vergessen", "zu vergessen"),
    ],
)
def test_participles_and_zu(infinitive: str, participle: str, zu: str) -> None:
    verb = ALL_VERBS[infinitive]
    assert (verb.perfect, german_verbs.zu_infinitive(verb), german_verbs.infinitive(verb)) == (
        participle,
        zu,
        infinitive,
    )


def test_modal_verbs() -> None:
    row = [german_verbs.modal_present(Modal.CAN, person) for person in PERSONS]
    assert row == ["kann", "kannst", "kann", "können", "könnt", "können"]
    row = [german_verbs.modal_past(Modal.MUST, person) for person in PERSONS]
    assert row == ["musste", "musstest", "musste", "mussten", "musstet", "mussten"]


GERMAN_TO_TWENTY_ONE = (
    "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn "
    "siebzehn achtzehn neunzehn zwanzig einundzwanzig"
).split()


def test_numbers_to_a_hundred() -> None:
    assert [german_number(number) for number in range(22)] == GERMAN_TO_TWENTY_ONE
    ones = "ein zwei drei vier fünf sechs sieben acht neun".split()
    tens = "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()
    expected = [word for ten in tens for word in (ten, *(f"{one}und{ten}" for one in ones))]
    assert [german_number(number) for number in range(20, 100)] == expected


@pytest.mark.parametrize(
    ("number", "english", "german"),
    [
        (24, "twenty-four", "vierundzwanzig"),
        (17, "seventeen", "siebzehn"),
        (30, "thirty", "dreißig"),
        (66, "sixty-six", "sechsundsechzig"),
        (77, "seventy-seven", "siebenundsiebzig"),
        (100, "one hundred", "einhundert"),
        (101, "one hundred and one", "einhunderteins"),
        (300, "three hundred", "dreihundert"),
        (342, "three hundred and forty-two", "dreihundertzweiundvierzig"),
        (2000, "two thousand", "zweitausend"),
        (21_021, "twenty-one thousand and twenty-one", "einundzwanzigtausendeinundzwanzig"),
    ],
)
def test_numbers(number: int, english: str, german: str) -> None:
    assert (english_number(number), german_number(number)) == (english, german)


def test_numbers_have_bounds() -> None:
    with pytest.raises(ValueError, match="1000000"):
        german_number(1_000_000)


@pytest.mark.parametrize(
    ("number", "english", "german"),
    [
        (1, "first", "erst"),
        (3, "third", "dritt"),
        (7, "seventh", "siebt"),
        (8, "eighth", "acht"),
        (12, "twelfth", "zwölft"),
        (19, "nineteenth", "neunzehnt"),
        (20, "twentieth", "zwanzigst"),
        (21, "twenty-first", "einundzwanzigst"),
        (30, "thirtieth", "dreißigst"),
    ],
)
def test_ordinals(number: int, english: str, german: str) -> None:
    assert (english_ordinal(number), german_ordinal_stem(number)) == (english, german)


@pytest.mark.parametrize(
    ("hour", "minute", "english", "german"),
    [
        (3, 0, "three o'clock", "drei Uhr"),
        (1, 0, "one o'clock", "ein Uhr"),
        (3, 15, "quarter past three", "Viertel nach drei"),
        (3, 30, "half past three", "halb vier"),
        (12, 30, "half past twelve", "halb eins"),
        (3, 45, "quarter to four", "Viertel vor vier"),
        (12, 45, "quarter to one", "Viertel vor eins"),
        (6, 10, "ten past six", "zehn nach sechs"),
        (6, 40, "twenty to seven", "zwanzig vor sieben"),
    ],
)
def test_clock(hour: int, minute: int, english: str, german: str) -> None:
    clock = Clock(hour, minute)
    assert (english_clock(clock), german_clock(clock)) == (english, german)


@pytest.mark.parametrize(
    ("time", "english", "german"),
    [
        (Date(3, 5), "on the third of May", "am dritten Mai"),
        (Date(31, 3), "on the thirty-first of March", "am einunddreißigsten März"),
        (At(Clock(3, 15)), "at quarter past three", "um Viertel nach drei"),
        (
            At(Clock(7, 30), Adverb("tomorrow", "morgen")),
            "tomorrow at half past seven",
            "morgen um halb acht",
        ),
        (Span(Direction.AGO, 3, Unit.DAY), "three days ago", "vor drei Tagen"),
        (Span(Direction.AHEAD, 2, Unit.WEEK), "in two weeks", "in zwei Wochen"),
        (Span(Direction.SINCE, 5, Unit.YEAR), "for five years", "seit fünf Jahren"),
    ],
)
def test_times(time: At | Date | Span, english: str, german: str) -> None:
    assert (english_time(time), german_time(time)) == (english, german)
