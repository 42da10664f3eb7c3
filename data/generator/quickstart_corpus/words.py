"""Record types of the lexicon: nouns, adjectives, verbs and their features."""

from dataclasses import dataclass
from enum import Enum


class Gender(Enum):
    """Grammatical gender of a German noun."""

    M = "masculine"
    F = "feminine"
    N = "neuter"


class Case(Enum):
    """The four German cases."""

    NOM = "nominative"
    ACC = "accusative"
    DAT = "dative"
    GEN = "genitive"


class Kind(Enum):
    """The semantic class of a noun; verbs and adjectives select nouns by it."""

    PERSON = "person"
    KIN = "relative or friend, said with a possessive"
    FOOD = "food"
    COOKED = "food one cooks"
    BAKED = "food one bakes"
    DRINK = "drink"
    TEXT = "something to read"
    WRITTEN = "something to write"
    DEVICE = "something to switch on and off"
    VEHICLE = "vehicle of one's own"
    TRANSPORT = "train, bus: leaves and arrives by timetable"
    CLOTHES = "clothing"
    OPENING = "something to open and close"
    ITEM = "small thing one owns, looks for, loses"
    LUGGAGE = "something to carry"
    UPRIGHT = "small thing that stands: stellen, stehen"
    FLAT = "small thing that lies: legen, liegen"
    FURNITURE = "furniture"
    ROOM = "room"
    BUILDING = "building or public place"
    EVENT = "event"
    ANIMAL = "animal"
    TOPIC = "something to understand or explain"


@dataclass(frozen=True)
class Noun:
    """A noun in both languages.

    Attributes:
        english: English singular.
        english_plural: English plural.
        german: German nominative singular.
        gender: German gender.
        plural: German nominative plural; empty for mass nouns.
        kinds: Its semantic classes.
        genitive: German genitive singular.
        weak: Whether it is an n-declension noun (den Jungen, dem Jungen).
        mass: Whether it is a mass noun (no plural, no indefinite article).
    """

    english: str
    english_plural: str
    german: str
    gender: Gender
    plural: str
    kinds: tuple[Kind, ...]
    genitive: str
    weak: bool = False
    mass: bool = False


@dataclass(frozen=True)
class Adjective:
    """An adjective in both languages, with its comparative.

    Attributes:
        english: English positive form.
        german: German predicative form.
        stem: German stem that the declension endings attach to (teuer, but teur-e).
        english_comparative: As in "older than".
        german_comparative: As in "älter als".
        kinds: Kinds of nouns that it fits.
        attributive: Whether the corpus uses it before a noun as well.
    """

    english: str
    german: str
    stem: str
    english_comparative: str
    german_comparative: str
    kinds: tuple[Kind, ...]
    attributive: bool = True


@dataclass(frozen=True)
class Profession:
    """A profession as a predicate noun; German has one form per sex, without article."""

    english: str
    masculine: str
    feminine: str


@dataclass(frozen=True)
class Relation:
    """A preposition in both languages, with the case it governs in German.

    Attributes:
        english: English preposition.
        german: German preposition, uncontracted.
        case: Case of the German noun phrase.
        english_bare: Whether English leaves the article out ("at school").
        english_genitive: Whether English says "at my aunt's".
    """

    english: str
    german: str
    case: Case
    english_bare: bool = False
    english_genitive: bool = False


class Tense(Enum):
    """Tense of a clause.

    English tells PERFECT ("has read") from PAST ("read yesterday"); both are the German Perfekt,
    except that the PAST of sein, haben and the modal verbs is their Präteritum.
    """

    PRESENT = "present"
    PERFECT = "perfect"
    PAST = "past"
    FUTURE = "future"


class Group(Enum):
    """Groups of places for activities."""

    HOME = "home"
    TOWN = "town"
    WORK = "work"
    SHOP = "shop"
    CITY = "city"
    LEISURE = "leisure"


@dataclass(frozen=True)
class Verb:
    """A verb in both languages, with the frame of participants it takes.

    Attributes:
        english: English base form; "be" is the only irregular present.
        past: English past tense.
        participle: English past participle.
        particle: English particle ("turn on"); a pronoun object stands before it.
        german: German infinitive without separable prefix.
        third: German third person singular present, without prefix.
        perfect: German past participle, prefix included.
        prefix: Separable prefix, or empty.
        sein: Whether the Perfekt takes sein.
        reflexive: Whether German uses a reflexive pronoun.
        subjects: Kinds of subject.
        objects: Kinds of accusative object; empty for none.
        extra: English names of further object nouns.
        dative: Whether there is a dative person.
        english_to: English preposition before that person ("explain something to him").
        preposition: Governed preposition of a prepositional object, whose kinds are `objects`.
        places: Groups of places where it may happen.
        needs_place: Whether a place is obligatory.
        goals: Whether it takes a destination.
        simple: Whether English uses no progressive.
        definite: Whether the object must be definite.
        tenses: Tenses it is used in.
        modal: Whether it is used with modal verbs, in commands and in infinitive clauses.
    """

    english: str
    past: str
    participle: str
    german: str
    third: str
    perfect: str
    particle: str = ""
    prefix: str = ""
    sein: bool = False
    reflexive: bool = False
    subjects: tuple[Kind, ...] = (Kind.PERSON,)
    objects: tuple[Kind, ...] = ()
    extra: tuple[str, ...] = ()
    dative: bool = False
    english_to: str = ""
    preposition: Relation | None = None
    places: tuple[Group, ...] = ()
    needs_place: bool = False
    goals: bool = False
    simple: bool = False
    definite: bool = False
    tenses: tuple[Tense, ...] = tuple(Tense)
    modal: bool = True

    @property
    def name(self) -> str:
        """The English verb with its particle or preposition; the split uses it as key."""
        tail = self.particle or (self.preposition.english if self.preposition else "")
        return f"{self.english} {tail}".strip()
