"""Questions, commands and complex sentences of the quickstart corpus, in English and in German."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts"))

from quickstart_corpus import lexicon, verbs
from quickstart_corpus.english import english
from quickstart_corpus.german import german
from quickstart_corpus.meaning import (
    Address,
    Asked,
    AskedAdverb,
    Clause,
    Determiner,
    Gap,
    InCity,
    Infinitive,
    Located,
    Modal,
    Mood,
    NounPhrase,
    Person,
    Polarity,
    Possession,
    Quality,
    Sentence,
    Silent,
    Subordinate,
    Subordinator,
)
from quickstart_corpus.nouns import noun
from quickstart_corpus.times import (
    FUTURE_TIMES,
    PAST_TIMES,
)
from quickstart_corpus.words import Tense

V = {verb.name: verb for verb in verbs.ORDINARY + verbs.TIMETABLE}
ANNA, PAUL = lexicon.FIRST_NAMES[0], lexicon.FIRST_NAMES[4]
ADJECTIVES = {adjective.english: adjective for adjective in lexicon.ADJECTIVES + lexicon.STATES}
TO_ANNA = Address("Anna", "Anna", Person.DU)
TO_CHILDREN = Address("children", "Kinder", Person.IHR)
TO_BECKER = Address("Mr Becker", "Herr Becker", Person.SIE)
NOT = Polarity.NEGATIVE
PERFECT, PAST, FUTURE = Tense.PERFECT, Tense.PAST, Tense.FUTURE
YESTERDAY, TOMORROW = PAST_TIMES[0], FUTURE_TIMES[0]
QUESTION, COMMAND = Mood.QUESTION, Mood.COMMAND


def the(name: str, plural: bool = False, adjective: str = "") -> NounPhrase:
    return NounPhrase(noun(name), plural=plural, adjective=ADJECTIVES.get(adjective))


def a(name: str, plural: bool = False, adjective: str = "", count: int | None = None) -> NounPhrase:
    plural = plural or count is not None
    return NounPhrase(noun(name), Determiner.INDEFINITE, plural, ADJECTIVES.get(adjective), count=count)


def of(
    owner: Person | lexicon.Name | NounPhrase, name: str, plural: bool = False, adjective: str = ""
) -> NounPhrase:
    return NounPhrase(
        noun(name), plural=plural, adjective=ADJECTIVES.get(adjective), possession=Possession(owner)
    )


def my(name: str, plural: bool = False, adjective: str = "") -> NounPhrase:
    return of(Person.ME, name, plural, adjective)


def say(
    clause: Clause, mood: Mood = Mood.STATEMENT, to: Address | None = None, please: bool = False
) -> Sentence:
    return Sentence(clause, mood, to, please)


def spot(name: str, goal: bool = False) -> Located:
    found = next(spot for spot in lexicon.SPOTS if spot.noun.english == name)
    return Located(found.to if goal else found.at, NounPhrase(found.noun))


CALL = Clause(V["call"], Person.SHE, direct=my("brother"))


def under(subordinator: Subordinator, clause: Clause, first: bool = False) -> Subordinate:
    return Subordinate(subordinator, clause, first)


SENTENCES = [
    # Questions.
    (
        say(Clause(V["read"], Person.DU, direct=the("newspaper")), QUESTION, TO_ANNA),
        "Anna, are you reading the newspaper?",
        "Anna, liest du die Zeitung?",
    ),
    (
        say(
            Clause(V["call"], Person.IHR, PAST, direct=of(Person.IHR, "mother"), time=YESTERDAY),
            QUESTION,
            TO_CHILDREN,
        ),
        "Children, did you call your mother yesterday?",
        "Kinder, habt ihr gestern eure Mutter angerufen?",
    ),
    (
        say(Clause(V["come back"], Person.SIE, FUTURE, time=TOMORROW), QUESTION, TO_BECKER),
        "Mr Becker, will you come back tomorrow?",
        "Herr Becker, werden Sie morgen zurückkommen?",
    ),
    (say(Clause(V["help"], ANNA, indirect=Asked.WHO), QUESTION), "Who is Anna helping?", "Wem hilft Anna?"),
    (say(Clause(V["visit"], PAUL, direct=Asked.WHO), QUESTION), "Who is Paul visiting?", "Wen besucht Paul?"),
    (
        say(Clause(V["visit"], Asked.WHO, PERFECT, direct=PAUL), QUESTION),
        "Who has visited Paul?",
        "Wer hat Paul besucht?",
    ),
    (
        say(Clause(V["read"], Person.SHE, direct=NounPhrase(noun("letter"), Determiner.WHICH)), QUESTION),
        "Which letter is she reading?",
        "Welchen Brief liest sie?",
    ),
    (
        say(
            Clause(
                V["buy"],
                PAUL,
                PAST,
                direct=NounPhrase(noun("egg"), Determiner.HOW_MANY, True),
                time=YESTERDAY,
            ),
            QUESTION,
        ),
        "How many eggs did Paul buy yesterday?",
        "Wie viele Eier hat Paul gestern gekauft?",
    ),
    (
        say(Clause(V["go"], Person.DU, asked=AskedAdverb.WHERE_TO), QUESTION, TO_ANNA),
        "Anna, where are you going?",
        "Anna, wohin gehst du?",
    ),
    (
        say(Clause(V["arrive"], the("train"), asked=AskedAdverb.WHEN), QUESTION),
        "When does the train arrive?",
        "Wann kommt der Zug an?",
    ),
    # Commands.
    (
        say(Clause(V["call"], Person.DU, direct=Person.ME), COMMAND, TO_ANNA, True),
        "Anna, please call me!",
        "Anna, ruf mich bitte an!",
    ),
    (
        say(Clause(V["open"], Person.SIE, direct=the("door")), COMMAND, TO_BECKER, True),
        "Mr Becker, please open the door!",
        "Herr Becker, öffnen Sie bitte die Tür!",
    ),
    (
        say(Clause(V["wash"], Person.IHR, polarity=NOT, direct=the("dog")), COMMAND, TO_CHILDREN),
        "Children, do not wash the dog!",
        "Kinder, wascht den Hund nicht!",
    ),
    (
        say(Clause(V["eat"], Person.DU, polarity=NOT, direct=a("cake")), COMMAND, TO_ANNA),
        "Anna, do not eat a cake!",
        "Anna, iss keinen Kuchen!",
    ),
    # Verb-final clauses.
    (
        say(Clause(verbs.KNOW_THAT, Person.ME, complement=under(Subordinator.THAT, CALL))),
        "I know that she is calling my brother.",
        "Ich weiß, dass sie meinen Bruder anruft.",
    ),
    (
        say(
            Clause(
                verbs.ASK,
                PAUL,
                complement=under(
                    Subordinator.WHETHER, Clause(V["buy"], Person.SHE, PERFECT, direct=the("house"))
                ),
            )
        ),
        "Paul asks whether she has bought the house.",
        "Paul fragt, ob sie das Haus gekauft hat.",
    ),
    (
        say(
            Clause(
                verbs.KNOW_THAT,
                Person.ME,
                polarity=NOT,
                complement=under(Subordinator.WH, Clause(V["live"], ANNA, asked=AskedAdverb.WHERE)),
            )
        ),
        "I do not know where Anna lives.",
        "Ich weiß nicht, wo Anna wohnt.",
    ),
    (
        say(
            Clause(
                verbs.TELL,
                Person.SIE,
                modal=Modal.CAN,
                indirect=Person.ME,
                complement=under(Subordinator.WHETHER, Clause(V["leave"], the("bus"), FUTURE)),
            ),
            QUESTION,
            TO_BECKER,
        ),
        "Mr Becker, can you tell me whether the bus will leave?",
        "Herr Becker, können Sie mir sagen, ob der Bus abfahren wird?",
    ),
    (
        say(
            Clause(
                V["stay"],
                ANNA,
                place=lexicon.AT_HOME,
                adjunct=under(
                    Subordinator.BECAUSE, Clause(verbs.BE, Person.SHE, predicate=Quality(ADJECTIVES["tired"]))
                ),
            )
        ),
        "Anna is staying at home because she is tired.",
        "Anna bleibt zu Hause, weil sie müde ist.",
    ),
    (
        say(
            Clause(
                V["stay"],
                ANNA,
                FUTURE,
                place=lexicon.AT_HOME,
                adjunct=under(Subordinator.IF, Clause(verbs.RAIN, Person.IT), first=True),
            )
        ),
        "If it rains, Anna will stay at home.",
        "Wenn es regnet, wird Anna zu Hause bleiben.",
    ),
    (
        say(
            Clause(
                V["sleep"],
                PAUL,
                adjunct=under(
                    Subordinator.ALTHOUGH,
                    Clause(V["clean"], Person.HE, modal=Modal.MUST, direct=the("kitchen")),
                ),
            )
        ),
        "Paul is sleeping although he has to clean the kitchen.",
        "Paul schläft, obwohl er die Küche putzen muss.",
    ),
    (
        say(
            Clause(
                V["read"],
                PAUL,
                FUTURE,
                direct=a("novel"),
                adjunct=under(Subordinator.BEFORE, Clause(V["fall asleep"], Person.HE)),
            )
        ),
        "Paul will read a novel before he falls asleep.",
        "Paul wird einen Roman lesen, bevor er einschläft.",
    ),
    # Infinitive and relative clauses.
    (
        say(
            Clause(
                verbs.TRY,
                ANNA,
                complement=Infinitive(Clause(V["call"], Silent(), direct=of(Person.SHE, "brother"))),
            )
        ),
        "Anna is trying to call her brother.",
        "Anna versucht, ihren Bruder anzurufen.",
    ),
    (
        say(
            Clause(
                verbs.FORGET_TO,
                Person.ME,
                PERFECT,
                complement=Infinitive(Clause(V["close"], Silent(), direct=the("window"))),
            )
        ),
        "I have forgotten to close the window.",
        "Ich habe vergessen, das Fenster zu schließen.",
    ),
    (
        say(
            Clause(
                V["go"],
                Person.WE,
                goal=spot("market", True),
                adjunct=Infinitive(Clause(V["buy"], Silent(), direct=a("bread")), purpose=True),
            )
        ),
        "We are going to the market in order to buy bread.",
        "Wir gehen zum Markt, um Brot zu kaufen.",
    ),
    (
        say(
            Clause(
                V["live"],
                NounPhrase(
                    noun("woman"), relative=Clause(V["sell"], Gap(noun("woman")), PERFECT, direct=the("car"))
                ),
                place=InCity(lexicon.CITIES[1]),
            )
        ),
        "The woman who has sold the car lives in Bremen.",
        "Die Frau, die das Auto verkauft hat, wohnt in Bremen.",
    ),
    (
        say(
            Clause(
                verbs.BE,
                NounPhrase(noun("report"), relative=Clause(V["read"], ANNA, direct=Gap(noun("report")))),
                predicate=Quality(ADJECTIVES["interesting"]),
            )
        ),
        "The report that Anna is reading is interesting.",
        "Der Bericht, den Anna liest, ist interessant.",
    ),
]


@pytest.mark.parametrize(("sentence", "source", "target"), SENTENCES, ids=[row[1] for row in SENTENCES])
def test_sentence(sentence: Sentence, source: str, target: str) -> None:
    assert (english(sentence), german(sentence)) == (source, target)
