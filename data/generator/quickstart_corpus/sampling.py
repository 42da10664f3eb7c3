"""Sampling of the parts of sentences: matching people, things, times and places."""

from functools import cache

from quickstart_corpus.dice import Dice
from quickstart_corpus.lexicon import (
    ADJECTIVES,
    AT_HOME,
    AT_PERSON,
    CITIES,
    FIRST_NAMES,
    HOME,
    SPOTS,
    TITLED_NAMES,
    TO_PERSON,
    Name,
    Spot,
)
from quickstart_corpus.meaning import (
    Address,
    Couple,
    Determiner,
    InCity,
    Located,
    NounPhrase,
    Participant,
    Person,
    Place,
    Possession,
)
from quickstart_corpus.nouns import NOUNS, noun, nouns_of
from quickstart_corpus.times import (
    FUTURE_TIMES,
    PAST_TIMES,
    TODAY,
    WEEKDAYS,
    At,
    Clock,
    Date,
    Direction,
    Span,
    Time,
    Unit,
)
from quickstart_corpus.words import Adjective, Group, Kind, Noun, Relation, Tense, Verb

_PERSONS = (Person.ME, Person.HE, Person.SHE, Person.WE, Person.THEY)
_HEARERS = (Person.DU, Person.IHR, Person.SIE)
_DAYS = (TODAY, *FUTURE_TIMES[:1], *FUTURE_TIMES[2:3], *WEEKDAYS)
_UNOWNED = (Kind.PERSON, Kind.FOOD, Kind.DRINK)
_PLAIN_SPOTS = ("school", "city", "market")
ADDRESSES = (
    *(Address(name.english, name.german, Person.DU) for name in FIRST_NAMES),
    Address("children", "Kinder", Person.IHR),
    Address("Anna and Paul", "Anna und Paul", Person.IHR),
    Address("Lena and Jan", "Lena und Jan", Person.IHR),
    *(Address(name.english, name.german, Person.SIE) for name in TITLED_NAMES),
    Address("ladies and gentlemen", "meine Damen und Herren", Person.SIE),
)


class Sampler:
    """Samples parts of a sentence with a given addressee, or with none.

    Attributes:
        dice: Source of all choices.
        address: The addressee; None: there is none.
    """

    def __init__(self, dice: Dice, address: Address | None) -> None:
        """Samples with `dice`, for a sentence with the addressee `address`."""
        self.dice = dice
        self.address = address

    def subject(self) -> Participant:
        """Returns someone who does something."""
        if self.address and self.dice.chance(0.75):
            return self.address.person
        match self.dice.weighted((0.32, "pronoun"), (0.22, "name"), (0.46, "phrase")):
            case "pronoun":
                return self.dice.pick(_PERSONS)
            case "name":
                return self.name()
        return self.person()

    def name(self) -> Name | Couple:
        """Returns one or two people by name."""
        if self.dice.chance(0.12):
            return Couple(self.dice.pick(FIRST_NAMES[:4]), self.dice.pick(FIRST_NAMES[4:]))
        return self.dice.pick(TITLED_NAMES if self.dice.chance(0.2) else FIRST_NAMES)

    def person(self, exclude: tuple[Noun, ...] = (), definite: bool = True) -> NounPhrase:
        """Returns a noun phrase for one or more people."""
        nouns = tuple(noun for noun in nouns_of(Kind.PERSON) if noun not in exclude)
        return self.phrase(self.dice.pick(nouns), definite)

    def someone(self, subject: Participant, nouns: tuple[Noun, ...], definite: bool = True) -> Participant:
        """Returns a person who is acted on by `subject`: a pronoun, a name or one of the nouns."""
        match self.dice.weighted((0.2, "pronoun"), (0.15, "name"), (0.65, "phrase")):
            case "pronoun":
                return self.dice.pick(_others(subject))
            case "name":
                return self.dice.pick(TITLED_NAMES if self.dice.chance(0.35) else FIRST_NAMES)
        return self.phrase(self.dice.pick(nouns), definite)

    def thing(self, verb: Verb, subject: Participant, definite: bool = False) -> Participant:
        """Returns an object of the verb."""
        nouns = objects(verb)
        chosen = self.dice.pick(nouns)
        if Kind.PERSON in chosen.kinds:
            people = tuple(noun for noun in nouns if Kind.PERSON in noun.kinds)
            return self.someone(subject, people, definite=definite or not self.dice.chance(0.2))
        return self.phrase(chosen, definite or verb.definite)

    def phrase(self, noun: Noun, definite: bool = False) -> NounPhrase:
        """Returns a noun phrase around a noun."""
        plural = bool(noun.plural) and self.dice.chance(0.05 if Kind.ROOM in noun.kinds else 0.22)
        adjective = self.attribute(noun, 0.07 if Kind.KIN in noun.kinds else 0.2)
        if Kind.KIN in noun.kinds:
            return NounPhrase(noun, plural=plural, adjective=adjective, possession=self._kin_owner())
        kind = self.dice.weighted(
            (0.40 if definite else 0.30, "definite"),
            (0.0 if definite else 0.36, "indefinite"),
            (0.0 if any(kind in noun.kinds for kind in _UNOWNED) else 0.2, "possessive"),
            (0.08, "demonstrative"),
            (0.0 if definite or not noun.plural else 0.08, "count"),
            (0.04 if definite and Kind.PERSON in noun.kinds else 0.0, "every"),
        )
        match kind:
            case "possessive":
                return NounPhrase(noun, plural=plural, adjective=adjective, possession=self._owner(noun))
            case "demonstrative":
                return NounPhrase(noun, Determiner.DEMONSTRATIVE, plural, adjective)
            case "count":
                return NounPhrase(noun, plural=True, adjective=adjective, count=self.count())
            case "every":
                return NounPhrase(noun, Determiner.EVERY)
            case "indefinite":
                return NounPhrase(noun, Determiner.INDEFINITE, plural, adjective)
        return NounPhrase(noun, plural=plural, adjective=adjective)

    def some(self, noun: Noun) -> NounPhrase:
        """Returns a noun phrase with neither article nor number: "books", "cold water"."""
        return NounPhrase(noun, Determiner.INDEFINITE, bool(noun.plural), self.attribute(noun, 0.2))

    def count(self) -> int:
        """Returns a number of things, mostly small."""
        return self.dice.pick(range(2, 7) if self.dice.chance(0.7) else range(7, 21))

    def attribute(self, noun: Noun, probability: float) -> Adjective | None:
        """Returns an adjective that fits the noun, with this probability, else None."""
        fitting = adjectives(noun)
        if not fitting or not self.dice.chance(probability):
            return None
        return self.dice.pick(fitting)

    def place(self, groups: tuple[Group, ...]) -> Place:
        """Returns a place of one of the groups."""
        group = self.dice.pick(groups)
        if group is Group.CITY:
            if self.dice.chance(0.5):
                return InCity(self.dice.pick(CITIES))
            if self.dice.chance(0.3):
                return Located(AT_PERSON, self._relative(doctor=False))
        if group is Group.HOME and self.dice.chance(0.4):
            return AT_HOME
        spot = self.dice.pick(_spots(group))
        return Located(spot.at, self._spot_phrase(spot))

    def goal(self, verb: Verb) -> Place:
        """Returns the destination of a verb of motion."""
        if verb.english == "fly" or (verb.english == "drive" and self.dice.chance(0.5)):
            return InCity(self.dice.pick(CITIES), goal=True)
        if self.dice.chance(0.2):
            return HOME
        if self.dice.chance(0.15):
            return Located(TO_PERSON, self._relative())
        spot = self.dice.pick(_spots(self.dice.pick(verb.places)))
        return Located(spot.to, self._spot_phrase(spot))

    def by(self, relations: tuple[Relation, ...]) -> Located:
        """Returns a place on, under or beside a piece of furniture."""
        relation = self.dice.pick(relations)
        names: tuple[str, ...] = ("table", "bed", "chair")
        if relation.german not in ("auf", "unter"):
            names = ("door", "window", "cupboard", "bed", "house" if relation.german == "hinter" else "table")
        base = noun(self.dice.pick(names))
        adjective = self.attribute(base, 0.2)
        if self.dice.chance(0.2):
            return Located(relation, NounPhrase(base, Determiner.DEMONSTRATIVE, adjective=adjective))
        return Located(relation, NounPhrase(base, adjective=adjective))

    def past(self) -> Time:
        """Returns a time in the past."""
        match self.dice.weighted(
            (0.55, "adverb"), (0.17, "day"), (0.13, "span"), (0.1, "date"), (0.05, "clock")
        ):
            case "day":
                return self.dice.pick(WEEKDAYS)
            case "span":
                return self.span(Direction.AGO)
            case "date":
                return self.date()
            case "clock":
                return At(self.clock(), PAST_TIMES[0])
        return self.dice.pick(PAST_TIMES)

    def future(self) -> Time:
        """Returns a time in the future."""
        match self.dice.weighted(
            (0.55, "adverb"), (0.16, "day"), (0.11, "span"), (0.08, "date"), (0.1, "clock")
        ):
            case "day":
                return self.dice.pick(WEEKDAYS)
            case "span":
                return self.span(Direction.AHEAD, (Unit.DAY, Unit.WEEK, Unit.MONTH, Unit.YEAR))
            case "date":
                return self.date()
            case "clock":
                return At(self.clock(), self.dice.pick(_DAYS))
        return self.dice.pick(FUTURE_TIMES)

    def clock(self) -> Clock:
        """Returns a time of day."""
        minute = self.dice.weighted(
            (4, 0), (3, 15), (4, 30), (3, 45), (1, 10), (1, 20), (1, 40), (1, 50), (1, 5)
        )
        return Clock(self.dice.pick(range(1, 13)), minute)

    def date(self) -> Date:
        """Returns a date that exists in every year."""
        return Date(self.dice.pick(range(1, 31)) if self.dice.chance(0.4) else self.dice.pick(range(1, 13)),
                    self.dice.pick((1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)))  # fmt: skip

    def span(self, direction: Direction, units: tuple[Unit, ...] = tuple(Unit)) -> Span:
        """Returns a span of time."""
        return Span(direction, self.dice.pick(range(2, 13)), self.dice.pick(units))

    def time_for(self, tense: Tense) -> Time:
        """Returns a time that fits a past or future tense."""
        return self.past() if tense is Tense.PAST else self.future()

    def _relative(self, doctor: bool = True) -> NounPhrase | Name:
        nouns = tuple(noun for noun in nouns_of(Kind.KIN) if noun.english not in ("neighbour", "colleague"))
        if doctor and self.dice.chance(0.2):
            return NounPhrase(noun("doctor"))
        return NounPhrase(self.dice.pick(nouns), possession=Possession(self._any_person()))

    def _kin_owner(self) -> Possession:
        if self.dice.chance(0.1):
            return Possession(self.dice.pick(FIRST_NAMES))
        if self.dice.chance(0.05):
            owner = noun(self.dice.pick(("teacher", "doctor", "boy", "woman", "man", "girl", "student")))
            return Possession(NounPhrase(owner))
        return Possession(self._any_person())

    def _owner(self, owned: Noun) -> Possession:
        if self.dice.chance(0.15):
            return Possession(self.dice.pick(FIRST_NAMES))
        if self.dice.chance(0.12):
            return Possession(
                NounPhrase(self.dice.pick(nouns_of(Kind.KIN)), possession=Possession(Person.ME))
            )
        return Possession(self._any_person())

    def _any_person(self) -> Person:
        if self.address and self.dice.chance(0.4):
            return self.address.person
        return self.dice.weighted((0.4, Person.ME), (0.2, Person.HE), (0.2, Person.SHE), (0.1, Person.WE),
                                  (0.1, Person.THEY))  # fmt: skip

    def _spot_phrase(self, spot: Spot) -> NounPhrase:
        if spot.noun.english in _PLAIN_SPOTS:
            return NounPhrase(spot.noun)
        adjective = self.attribute(spot.noun, 0.1)
        if spot.noun.english in ("office", "garden") and self.dice.chance(0.3):
            return NounPhrase(spot.noun, adjective=adjective, possession=Possession(self._any_person()))
        return NounPhrase(spot.noun, adjective=adjective)


@cache
def objects(verb: Verb) -> tuple[Noun, ...]:
    """Returns the nouns that may be the verb's object."""
    return nouns_of(*verb.objects) + tuple(NOUNS[name] for name in verb.extra)


@cache
def adjectives(noun: Noun) -> tuple[Adjective, ...]:
    """Returns the adjectives that may stand before the noun."""
    age = ("young", "old")
    return tuple(
        adjective
        for adjective in ADJECTIVES
        if any(kind in noun.kinds for kind in adjective.kinds)
        and not (Kind.KIN in noun.kinds and adjective.english in (*age, "famous", "quiet"))
        and not (noun.english.startswith("grand") and adjective.english == "tall")
        and not (noun.english in ("child", "boy", "girl") and adjective.english in age)
        and not (noun.english == "friend" and adjective.english == "friendly")
    )


@cache
def _spots(group: Group) -> tuple[Spot, ...]:
    return tuple(spot for spot in SPOTS if group in spot.groups)


def _others(subject: Participant) -> tuple[Person, ...]:
    """Returns the pronouns that may refer to a person other than the subject."""
    if subject in (Person.ME, Person.WE):
        return (Person.HE, Person.SHE, Person.THEY)
    if subject in _HEARERS:
        return (Person.ME, Person.HE, Person.SHE, Person.WE, Person.THEY)
    return _PERSONS
