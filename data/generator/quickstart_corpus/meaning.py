"""Typed records of the meaning of sentences, independent of word order. Both grammars realise them."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import Enum

from quickstart_corpus.lexicon import City, Name
from quickstart_corpus.times import Adverb, Clock, Time
from quickstart_corpus.words import Adjective, Noun, Profession, Relation, Tense, Verb


class Person(Enum):
    """First, second or third person; English "you" corresponds to three of them."""

    ME = "I"
    DU = "you, one friend"
    HE = "he"
    SHE = "she"
    IT = "it, of weather and time"
    WE = "we"
    IHR = "you, several friends"
    SIE = "you, formally"
    THEY = "they"


class Determiner(Enum):
    """The determiner of a noun; possessives and numbers are separate fields."""

    DEFINITE = "the"
    INDEFINITE = "a, or nothing before a plural or mass noun"
    DEMONSTRATIVE = "this"
    EVERY = "every"
    WHICH = "which"
    HOW_MANY = "how many"


class Asked(Enum):
    """The participant that a wh-question asks for, unless it is a "which" or "how many" noun phrase."""

    WHO = "who"
    WHAT = "what"


class AskedAdverb(Enum):
    """The adverbial that a wh-question asks for: English, German."""

    WHERE = ("where", "wo")
    WHERE_TO = ("where", "wohin")
    WHEN = ("when", "wann")
    WHY = ("why", "warum")


class Modal(Enum):
    """Modal verbs."""

    CAN = "can"
    MUST = "have to"
    MAY = "be allowed to"
    WANT = "want to"
    SHOULD = "should"
    WOULD_LIKE = "would like to"
    LIKE = "like to: German says it with gern"


class Polarity(Enum):
    """Negation and similar particles."""

    POSITIVE = "yes"
    NEGATIVE = "not"
    NOT_YET = "not yet"
    NO_LONGER = "no longer"
    ALREADY = "already"


class Subordinator(Enum):
    """The conjunction of a subordinate clause: English, German."""

    THAT = ("that", "dass")
    WHETHER = ("whether", "ob")
    BECAUSE = ("because", "weil")
    IF = ("if", "wenn")
    ALTHOUGH = ("although", "obwohl")
    BEFORE = ("before", "bevor")
    WHEN_ONCE = ("when", "als")
    WH = ("", "")


class Mood(Enum):
    """The type of a sentence."""

    STATEMENT = "statement"
    QUESTION = "question"
    COMMAND = "command"


@dataclass(frozen=True)
class Possession:
    """The possessor of a noun phrase: my, Anna's, my brother's."""

    owner: "Person | Name | NounPhrase"


@dataclass(frozen=True)
class NounPhrase:
    """A noun with its determiner and modifiers.

    Attributes:
        noun: The head.
        determiner: Ignored where `possession` or `count` is given.
        plural: Whether it is plural.
        adjective: Attribute.
        possession: Possessor.
        count: Number from two up; the phrase is then plural and indefinite.
        relative: Relative clause, in which the head is a `Gap`.
    """

    noun: Noun
    determiner: Determiner = Determiner.DEFINITE
    plural: bool = False
    adjective: Adjective | None = None
    possession: Possession | None = None
    count: int | None = None
    relative: "Clause | None" = None

    @property
    def definite(self) -> bool:
        """Whether it is definite: German negates it with "nicht", others with "kein"."""
        if self.possession:
            return True
        return self.count is None and self.determiner is not Determiner.INDEFINITE


@dataclass(frozen=True)
class Couple:
    """Two people by name: "Anna and Paul"."""

    first: Name
    second: Name


@dataclass(frozen=True)
class Gap:
    """The head noun of a relative clause, as a participant inside that clause."""

    noun: Noun
    plural: bool = False


@dataclass(frozen=True)
class Silent:
    """The unspoken subject of an infinitive clause."""


Participant = NounPhrase | Name | Couple | Person | Asked | Gap | Silent


@dataclass(frozen=True)
class Located:
    """A place or a destination in relation to a participant."""

    relation: Relation
    participant: NounPhrase | Name


@dataclass(frozen=True)
class InCity:
    """In or to a city."""

    city: City
    goal: bool = False


Place = Located | InCity | Adverb


@dataclass(frozen=True)
class Quality:
    """A predicate adjective; with `than`, a comparison."""

    adjective: Adjective
    than: Participant | None = None


@dataclass(frozen=True)
class Age:
    """An age in years."""

    years: int


@dataclass(frozen=True)
class Price:
    """A price in euros."""

    euros: int


@dataclass(frozen=True)
class TimeOfDay:
    """The time as a predicate: it is half past three."""

    clock: Clock


Predicate = Quality | Profession | Age | Price | TimeOfDay


@dataclass(frozen=True)
class Subordinate:
    """A subordinate clause; `adverbial` ones may stand first."""

    subordinator: Subordinator
    clause: "Clause"
    first: bool = False


@dataclass(frozen=True)
class Infinitive:
    """An infinitive clause: "to call her brother", or with purpose "in order to"."""

    clause: "Clause"
    purpose: bool = False


@dataclass(frozen=True)
class Clause:
    """A verb with its participants and circumstances.

    Attributes:
        verb: The verb.
        subject: Subject.
        tense: Grammatical tense.
        modal: Modal verb.
        polarity: Negation.
        direct: Accusative object, or the object of the verb's preposition.
        indirect: Dative person.
        predicate: Predicate of a copula.
        time: Time adverbial.
        place: Place adverbial.
        goal: Destination.
        manner: Adverbial of manner.
        asked: Adverbial that a question asks for.
        time_first: Whether the time opens a statement.
        complement: Clause that completes the verb.
        adjunct: Adverbial clause.
    """

    verb: Verb
    subject: Participant
    tense: Tense = Tense.PRESENT
    modal: Modal | None = None
    polarity: Polarity = Polarity.POSITIVE
    direct: Participant | None = None
    indirect: Participant | None = None
    predicate: Predicate | None = None
    time: Time | None = None
    place: Place | None = None
    goal: Place | None = None
    manner: Adverb | None = None
    asked: AskedAdverb | None = None
    time_first: bool = False
    complement: Subordinate | Infinitive | None = None
    adjunct: Subordinate | Infinitive | None = None


@dataclass(frozen=True)
class Sentence:
    """A whole sentence.

    Attributes:
        clause: Its main clause.
        mood: Its type.
        address: The addressee; required if a person in it is DU, IHR or SIE.
        please: Whether a command says please.
    """

    clause: Clause
    mood: Mood = Mood.STATEMENT
    address: "Address | None" = None
    please: bool = False


@dataclass(frozen=True)
class Address:
    """An addressee, and the pronoun that German uses for them."""

    english: str
    german: str
    person: Person


def walk(meaning: object) -> Iterator[object]:
    """Yields a record and all records inside it, depth first; words of the lexicon are not records."""
    names = _FIELDS.get(type(meaning))
    if names is None:
        return
    yield meaning
    for name in names:
        value = getattr(meaning, name)
        if type(value) in _FIELDS:
            yield from walk(value)


_RECORDS = (
    Sentence, Address, Clause, Subordinate, Infinitive, NounPhrase, Possession, Couple, Gap, Located, Quality,
    Name,
)  # fmt: skip
_FIELDS: dict[type, tuple[str, ...]] = {
    record: tuple(field.name for field in fields(record)) for record in _RECORDS
}
