"""Statements of the quickstart corpus: each construction in English and in German."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts"))

from quickstart_corpus import lexicon, verbs
from quickstart_corpus.english import english
from quickstart_corpus.german import german
from quickstart_corpus.meaning import (
    Age,
    Clause,
    Couple,
    Determiner,
    InCity,
    Located,
    Modal,
    NounPhrase,
    Person,
    Polarity,
    Possession,
    Price,
    Quality,
    Sentence,
    Subordinate,
    Subordinator,
    TimeOfDay,
)
from quickstart_corpus.nouns import noun
from quickstart_corpus.times import (
    FREQUENCIES,
    FUTURE_TIMES,
    HABITS,
    PAST_TIMES,
    TODAY,
    WEEKDAYS,
    At,
    Clock,
    Date,
    Direction,
    Span,
    Unit,
)
from quickstart_corpus.words import Tense

V = {verb.name: verb for verb in verbs.ORDINARY + verbs.TIMETABLE}
ANNA, PAUL = lexicon.FIRST_NAMES[0], lexicon.FIRST_NAMES[4]
BECKER = lexicon.TITLED_NAMES[0]
ADJECTIVES = {adjective.english: adjective for adjective in lexicon.ADJECTIVES + lexicon.STATES}
NOT, YET, LONGER, ALREADY = Polarity.NEGATIVE, Polarity.NOT_YET, Polarity.NO_LONGER, Polarity.ALREADY
PERFECT, PAST, FUTURE = Tense.PERFECT, Tense.PAST, Tense.FUTURE
YESTERDAY, TOMORROW = PAST_TIMES[0], FUTURE_TIMES[0]


def the(name: str, plural: bool = False, adjective: str = "") -> NounPhrase:
    return NounPhrase(noun(name), plural=plural, adjective=ADJECTIVES.get(adjective))


def a(name: str, plural: bool = False, adjective: str = "", count: int | None = None) -> NounPhrase:
    plural = plural or count is not None
    return NounPhrase(noun(name), Determiner.INDEFINITE, plural, ADJECTIVES.get(adjective), count=count)


def this(name: str, adjective: str = "") -> NounPhrase:
    return NounPhrase(noun(name), Determiner.DEMONSTRATIVE, adjective=ADJECTIVES.get(adjective))


def of(
    owner: Person | lexicon.Name | NounPhrase, name: str, plural: bool = False, adjective: str = ""
) -> NounPhrase:
    return NounPhrase(
        noun(name), plural=plural, adjective=ADJECTIVES.get(adjective), possession=Possession(owner)
    )


def my(name: str, plural: bool = False, adjective: str = "") -> NounPhrase:
    return of(Person.ME, name, plural, adjective)


def spot(name: str, goal: bool = False) -> Located:
    found = next(spot for spot in lexicon.SPOTS if spot.noun.english == name)
    return Located(found.to if goal else found.at, NounPhrase(found.noun))


STATEMENTS = [
    # Verb second, agreement, adjective endings.
    (Clause(V["read"], ANNA, direct=the("book")), "Anna is reading the book.", "Anna liest das Buch."),
    (
        Clause(
            V["buy"],
            my("brother"),
            PAST,
            direct=a("coat", adjective="expensive"),
            time=YESTERDAY,
            time_first=True,
        ),
        "Yesterday my brother bought an expensive coat.",
        "Gestern hat mein Bruder einen teuren Mantel gekauft.",
    ),
    (
        Clause(V["wear"], the("boy"), direct=the("jacket", adjective="red")),
        "The boy is wearing the red jacket.",
        "Der Junge trägt die rote Jacke.",
    ),
    (
        Clause(V["drink"], Person.WE, direct=a("water", adjective="cold"), time=FREQUENCIES[0]),
        "We often drink cold water.",
        "Wir trinken oft kaltes Wasser.",
    ),
    (
        Clause(V["buy"], Person.THEY, FUTURE, direct=a("apple", adjective="fresh", count=24), time=TOMORROW),
        "They will buy twenty-four fresh apples tomorrow.",
        "Sie werden morgen vierundzwanzig frische Äpfel kaufen.",
    ),
    (
        Clause(V["read"], Person.SHE, direct=of(ANNA, "letter", adjective="long")),
        "She is reading Anna's long letter.",
        "Sie liest Annas langen Brief.",
    ),
    (
        Clause(V["repair"], Person.HE, direct=of(my("sister"), "bicycle", adjective="old")),
        "He is repairing my sister's old bicycle.",
        "Er repariert das alte Fahrrad meiner Schwester.",
    ),
    (
        Clause(V["pay for"], the("guest", True), PAST, direct=the("coffee"), time=WEEKDAYS[0]),
        "The guests paid for the coffee on Monday.",
        "Die Gäste haben am Montag den Kaffee bezahlt.",
    ),
    # n-declension and titles.
    (Clause(V["call"], Person.ME, direct=BECKER), "I am calling Mr Becker.", "Ich rufe Herrn Becker an."),
    (
        Clause(V["help"], the("student"), direct=None, indirect=the("neighbour")),
        "The student is helping the neighbour.",
        "Der Student hilft dem Nachbarn.",
    ),
    # Separable verbs.
    (
        Clause(V["pick up"], Person.SHE, direct=Person.HE, time=TODAY),
        "She is picking him up today.",
        "Sie holt ihn heute ab.",
    ),
    (
        Clause(V["turn off"], PAUL, PERFECT, polarity=ALREADY, direct=the("lamp")),
        "Paul has already turned off the lamp.",
        "Paul hat die Lampe schon ausgeschaltet.",
    ),
    (
        Clause(V["invite"], Person.ME, modal=Modal.WANT, direct=the("colleague", True)),
        "I want to invite the colleagues.",
        "Ich will die Kollegen einladen.",
    ),
    # Perfekt with sein.
    (
        Clause(V["go"], the("child", True), PAST, goal=spot("school", True), time=YESTERDAY),
        "The children went to school yesterday.",
        "Die Kinder sind gestern zur Schule gegangen.",
    ),
    (
        Clause(V["get up"], Person.HE, PERFECT, polarity=YET),
        "He has not got up yet.",
        "Er ist noch nicht aufgestanden.",
    ),
    # Negation.
    (
        Clause(V["read"], Person.ME, PAST, polarity=NOT, direct=the("book"), time=YESTERDAY),
        "I did not read the book yesterday.",
        "Ich habe das Buch gestern nicht gelesen.",
    ),
    (
        Clause(V["buy"], Person.ME, polarity=NOT, direct=a("car")),
        "I am not buying a car.",
        "Ich kaufe kein Auto.",
    ),
    (
        Clause(V["buy"], Person.ME, PERFECT, polarity=YET, direct=a("ticket")),
        "I have not bought a ticket yet.",
        "Ich habe noch keine Fahrkarte gekauft.",
    ),
    (
        Clause(V["have"], Person.WE, polarity=LONGER, direct=a("dog")),
        "We no longer have a dog.",
        "Wir haben keinen Hund mehr.",
    ),
    (
        Clause(V["live"], Person.WE, polarity=LONGER, place=InCity(lexicon.CITIES[4])),
        "We no longer live in Vienna.",
        "Wir wohnen nicht mehr in Wien.",
    ),
    (
        Clause(V["go"], Person.SHE, polarity=NOT, goal=spot("cinema", True)),
        "She is not going to the cinema.",
        "Sie geht nicht ins Kino.",
    ),
    (
        Clause(V["wear"], Person.HE, modal=Modal.LIKE, polarity=NOT, direct=a("hat", True)),
        "He does not like to wear hats.",
        "Er trägt nicht gern Hüte.",
    ),
    # Modal verbs.
    (
        Clause(V["open"], PAUL, modal=Modal.MUST, polarity=NOT, direct=the("window", True)),
        "Paul does not have to open the windows.",
        "Paul muss die Fenster nicht öffnen.",
    ),
    (
        Clause(V["play"], the("girl"), modal=Modal.MAY, polarity=NOT, place=spot("garden")),
        "The girl is not allowed to play in the garden.",
        "Das Mädchen darf nicht im Garten spielen.",
    ),
    (
        Clause(V["find"], ANNA, PAST, Modal.CAN, NOT, direct=a("key"), time=YESTERDAY),
        "Anna was not able to find a key yesterday.",
        "Anna konnte gestern keinen Schlüssel finden.",
    ),
    (
        Clause(V["work"], Person.ME, PAST, Modal.MUST, time=YESTERDAY, time_first=True),
        "Yesterday I had to work.",
        "Gestern musste ich arbeiten.",
    ),
    (
        Clause(V["drink"], Person.SHE, modal=Modal.WOULD_LIKE, direct=a("tea")),
        "She would like to drink tea.",
        "Sie möchte Tee trinken.",
    ),
    # Dative, two objects, prepositions, reflexives.
    (
        Clause(V["give"], my("aunt"), direct=a("book"), indirect=the("child"), time=TODAY),
        "My aunt is giving the child a book today.",
        "Meine Tante gibt heute dem Kind ein Buch.",
    ),
    (
        Clause(V["explain"], the("teacher"), PAST, direct=the("rule"), indirect=Person.ME, time=YESTERDAY),
        "The teacher explained the rule to me yesterday.",
        "Der Lehrer hat mir gestern die Regel erklärt.",
    ),
    (
        Clause(V["wait for"], ANNA, direct=the("train"), place=spot("station")),
        "Anna is waiting for the train at the station.",
        "Anna wartet am Bahnhof auf den Zug.",
    ),
    (
        Clause(V["look forward"], Person.ME, direct=the("concert")),
        "I am looking forward to the concert.",
        "Ich freue mich auf das Konzert.",
    ),
    (
        Clause(verbs.BELONG, this("car", "new"), indirect=my("uncle")),
        "This new car belongs to my uncle.",
        "Dieses neue Auto gehört meinem Onkel.",
    ),
    (
        Clause(verbs.PUT_UPRIGHT, ANNA, direct=the("vase"), goal=Located(lexicon.LAYING[0], the("table"))),
        "Anna is putting the vase on the table.",
        "Anna stellt die Vase auf den Tisch.",
    ),
    (
        Clause(
            verbs.PUT_FLAT, ANNA, PERFECT, direct=the("book"), goal=Located(lexicon.LAYING[1], the("bed"))
        ),
        "Anna has put the book under the bed.",
        "Anna hat das Buch unter das Bett gelegt.",
    ),
    (
        Clause(verbs.LIE, the("letter"), place=Located(lexicon.LYING[3], the("window"))),
        "The letter is lying next to the window.",
        "Der Brief liegt neben dem Fenster.",
    ),
    (
        Clause(V["drive"], Person.HE, PAST, goal=Located(lexicon.TO_PERSON, the("doctor")), time=WEEKDAYS[4]),
        "He drove to the doctor's on Friday.",
        "Er ist am Freitag zum Arzt gefahren.",
    ),
    # Time.
    (
        Clause(
            V["work"], my("father"), time=Span(Direction.SINCE, 3, Unit.YEAR), place=InCity(lexicon.CITIES[0])
        ),
        "My father has been working in Berlin for three years.",
        "Mein Vater arbeitet seit drei Jahren in Berlin.",
    ),
    (
        Clause(V["leave"], the("train"), time=At(Clock(3, 30))),
        "The train leaves at half past three.",
        "Der Zug fährt um halb vier ab.",
    ),
    (
        Clause(V["take place"], the("concert"), time=Date(3, 5)),
        "The concert takes place on the third of May.",
        "Das Konzert findet am dritten Mai statt.",
    ),
    (
        Clause(V["sleep"], the("cat"), time=HABITS[0], place=lexicon.AT_HOME),
        "The cat sleeps at home every day.",
        "Die Katze schläft jeden Tag zu Hause.",
    ),
    # Copula and similar verbs.
    (
        Clause(verbs.BE, the("exercise", True), polarity=NOT, predicate=Quality(ADJECTIVES["difficult"])),
        "The exercises are not difficult.",
        "Die Übungen sind nicht schwierig.",
    ),
    (
        Clause(verbs.BE, my("sister"), predicate=lexicon.PROFESSIONS[0]),
        "My sister is a doctor.",
        "Meine Schwester ist Ärztin.",
    ),
    (
        Clause(verbs.BE, the("house"), predicate=Quality(ADJECTIVES["old"], the("school"))),
        "The house is older than the school.",
        "Das Haus ist älter als die Schule.",
    ),
    (
        Clause(verbs.BE, Person.HE, predicate=Age(24)),
        "He is twenty-four years old.",
        "Er ist vierundzwanzig Jahre alt.",
    ),
    (
        Clause(verbs.COST, the("lamp"), predicate=Price(85)),
        "The lamp costs eighty-five euros.",
        "Die Lampe kostet fünfundachtzig Euro.",
    ),
    (
        Clause(verbs.BE, Person.IT, predicate=TimeOfDay(Clock(3, 15))),
        "It is quarter past three.",
        "Es ist Viertel nach drei.",
    ),
    (
        Clause(verbs.BE, Couple(ANNA, PAUL), PAST, place=lexicon.AT_HOME, time=YESTERDAY),
        "Anna and Paul were at home yesterday.",
        "Anna und Paul waren gestern zu Hause.",
    ),
    (
        Clause(verbs.EXIST, Person.IT, direct=a("museum", adjective="old", count=2), place=spot("city")),
        "There are two old museums in the city.",
        "Es gibt in der Stadt zwei alte Museen.",
    ),
]


@pytest.mark.parametrize(("clause", "source", "target"), STATEMENTS, ids=[row[1] for row in STATEMENTS])
def test_statement(clause: Clause, source: str, target: str) -> None:
    assert (english(Sentence(clause)), german(Sentence(clause))) == (source, target)


@pytest.mark.parametrize(
    ("subordinator", "tense", "modal", "expected"),
    [
        (Subordinator.THAT, Tense.PRESENT, None, "dass Anna das Radio einschaltet"),
        (Subordinator.THAT, PERFECT, None, "dass Anna das Radio eingeschaltet hat"),
        (Subordinator.WHETHER, FUTURE, None, "ob Anna das Radio einschalten wird"),
        (Subordinator.WHETHER, Tense.PRESENT, Modal.CAN, "ob Anna das Radio einschalten kann"),
        (Subordinator.WHETHER, PAST, Modal.MUST, "ob Anna das Radio einschalten musste"),
    ],
)
def test_separable_verb_in_verb_final_clauses(
    subordinator: Subordinator, tense: Tense, modal: Modal | None, expected: str
) -> None:
    inner = Clause(V["turn on"], ANNA, tense, modal, direct=the("radio"))
    outer = Clause(verbs.KNOW_THAT, Person.WE, polarity=NOT, complement=Subordinate(subordinator, inner))
    assert german(Sentence(outer)) == f"Wir wissen nicht, {expected}."


@pytest.mark.parametrize(
    ("tense", "modal", "expected"),
    [
        (Tense.PRESENT, None, "Anna schaltet das Radio ein."),
        (PERFECT, None, "Anna hat das Radio eingeschaltet."),
        (FUTURE, None, "Anna wird das Radio einschalten."),
        (Tense.PRESENT, Modal.SHOULD, "Anna sollte das Radio einschalten."),
    ],
)
def test_separable_verb_in_main_clauses(tense: Tense, modal: Modal | None, expected: str) -> None:
    assert german(Sentence(Clause(V["turn on"], ANNA, tense, modal, direct=the("radio")))) == expected
