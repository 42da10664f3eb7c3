"""The lexicon without nouns and verbs: adjectives, professions, names, places and manners."""

from dataclasses import dataclass

from quickstart_corpus.nouns import noun
from quickstart_corpus.times import Adverb
from quickstart_corpus.words import Adjective, Case, Gender, Group, Kind, Noun, Profession, Relation

_THINGS = "vehicle clothes device furniture item"
# english, comparative ("-": adds er) | German, stem, comparative | kinds
_ADJECTIVES = f"""
old -          | alt alt älter                | person vehicle clothes device furniture item building
new -          | neu neu neuer                | {_THINGS} building
young younger  | jung jung jünger             | person
big bigger     | groß groß größer             | vehicle furniture building room animal luggage
small -        | klein klein kleiner          | vehicle furniture building room animal luggage device
red -          | rot rot -                    | vehicle clothes item
blue -         | blau blau -                  | vehicle clothes
green -        | grün grün -                  | clothes
black -        | schwarz schwarz -            | vehicle clothes animal
expensive +    | teuer teur teurer            | {_THINGS}
cheap -        | billig billig billiger       | {_THINGS}
beautiful +    | schön schön schöner          | clothes building furniture vehicle
long -         | lang lang länger             | text event clothes
short -        | kurz kurz kürzer             | text event
good better    | gut gut besser               | text event food drink
interesting +  | interessant interessant interessanter | text event building topic
boring +       | langweilig langweilig langweiliger | text event
difficult +    | schwierig schwierig schwieriger | topic text
important +    | wichtig wichtig wichtiger    | topic event
cold -         | kalt kalt kälter             | drink room
hot hotter     | heiß heiß heißer             | drink
fresh -        | frisch frisch -              | food
dirty -        | schmutzig schmutzig -        | clothes vehicle room opening
heavy heavier  | schwer schwer schwerer       | luggage furniture
dark -         | dunkel dunkl -               | room
tall - | groß groß größer | person
friendly friendlier | freundlich freundlich freundlicher | person
famous +       | berühmt berühmt berühmter    | person building
quiet -        | ruhig ruhig ruhiger          | room person
"""
_STATES = """
tired + | müde müde müder
sick -  | krank krank -
happy happier | glücklich glücklich glücklicher
sad -   | traurig traurig -
hungry - | hungrig hungrig -
"""


@dataclass(frozen=True)
class Name:
    """A person's name.

    Attributes:
        english: English form.
        german: German nominative.
        gender: M or F.
        title: Whether it has a title, so that it is addressed with Sie.
    """

    english: str
    german: str
    gender: Gender
    title: bool = False


@dataclass(frozen=True)
class Spot:
    """A place one can be at and go to.

    Attributes:
        noun: The place.
        at: Relation for being there.
        to: Relation for going there.
        groups: Groups of activities at this place.
        goal: Whether it occurs as a destination.
    """

    noun: Noun
    at: Relation
    to: Relation
    groups: tuple[Group, ...]
    goal: bool = True


@dataclass(frozen=True)
class City:
    """A city by name: in Wien, nach Wien."""

    english: str
    german: str


def _adjective(line: str) -> Adjective:
    names, forms, *kinds = (part.split() for part in line.split("|"))
    positive, comparative = names
    german, stem, german_comparative = forms
    return Adjective(
        english=positive,
        german=german,
        stem=stem,
        english_comparative={"-": positive + "er", "+": f"more {positive}"}.get(comparative, comparative),
        german_comparative="" if german_comparative == "-" else german_comparative,
        kinds=tuple(Kind[kind.upper()] for kind in kinds[0]) if kinds else (Kind.PERSON,),
        attributive=bool(kinds),
    )


ADJECTIVES = tuple(map(_adjective, _ADJECTIVES.strip().splitlines()))
STATES = tuple(map(_adjective, _STATES.strip().splitlines()))
PROFESSIONS = (
    Profession("doctor", "Arzt", "Ärztin"),
    Profession("teacher", "Lehrer", "Lehrerin"),
    Profession("student", "Student", "Studentin"),
    Profession("baker", "Bäcker", "Bäckerin"),
    Profession("engineer", "Ingenieur", "Ingenieurin"),
    Profession("cook", "Koch", "Köchin"),
)

FIRST_NAMES = tuple(
    Name(name, name, gender)
    for gender, names in ((Gender.F, "Anna Lena Maria Julia"), (Gender.M, "Paul Peter Martin Jan"))
    for name in names.split()
)
TITLED_NAMES = (
    Name("Mr Becker", "Herr Becker", Gender.M, title=True),
    Name("Mr Wagner", "Herr Wagner", Gender.M, title=True),
    Name("Mrs Schulz", "Frau Schulz", Gender.F, title=True),
    Name("Mrs Lange", "Frau Lange", Gender.F, title=True),
)

IN = Relation("in", "in", Case.DAT)
INTO = Relation("into", "in", Case.ACC)
TO_IN = Relation("to", "in", Case.ACC)
AT_IN = Relation("at", "in", Case.DAT)
AT_AN = Relation("at", "an", Case.DAT)
AT_AUF = Relation("at", "auf", Case.DAT)
ON_AN = Relation("on", "an", Case.DAT)
TO_AN = Relation("to", "an", Case.ACC)
TO_ZU = Relation("to", "zu", Case.DAT)
AT_SCHOOL = Relation("at", "in", Case.DAT, english_bare=True)
TO_SCHOOL = Relation("to", "zu", Case.DAT, english_bare=True)
AT_PERSON = Relation("at", "bei", Case.DAT, english_genitive=True)
TO_PERSON = Relation("to", "zu", Case.DAT, english_genitive=True)
TWO_WAY = (
    ("on", "auf"),
    ("under", "unter"),
    ("behind", "hinter"),
    ("next to", "neben"),
    ("in front of", "vor"),
)
LYING = tuple(Relation(english, german, Case.DAT) for english, german in TWO_WAY)
LAYING = tuple(Relation(english, german, Case.ACC) for english, german in TWO_WAY)

_H, _T, _W, _S, _C, _L = Group.HOME, Group.TOWN, Group.WORK, Group.SHOP, Group.CITY, Group.LEISURE
SPOTS = (
    Spot(noun("kitchen"), IN, INTO, (_H,)),
    Spot(noun("garden"), IN, INTO, (_H, _L)),
    Spot(noun("office"), IN, TO_IN, (_W,)),
    Spot(noun("library"), IN, TO_IN, (_W,)),
    Spot(noun("school"), AT_SCHOOL, TO_SCHOOL, (_W, _T)),
    Spot(noun("hospital"), IN, TO_IN, (_T,)),
    Spot(noun("station"), AT_AN, TO_ZU, (_T,)),
    Spot(noun("supermarket"), IN, TO_IN, (_S,)),
    Spot(noun("market"), AT_AUF, TO_ZU, (_S, _T)),
    Spot(noun("cinema"), AT_IN, TO_IN, (_T,)),
    Spot(noun("museum"), IN, TO_IN, (_T,)),
    Spot(noun("restaurant"), IN, TO_IN, (_T,)),
    Spot(noun("park"), IN, TO_IN, (_T, _L)),
    Spot(noun("beach"), ON_AN, TO_AN, (_L,)),
    Spot(noun("hotel"), IN, TO_IN, (_C,)),
    Spot(noun("city"), IN, TO_IN, (_C,)),
    Spot(noun("village"), IN, TO_IN, (_C,)),
)
CITIES = tuple(
    City(*names.split("/"))
    for names in "Berlin/Berlin Bremen/Bremen Leipzig/Leipzig Munich/München Vienna/Wien Cologne/Köln".split()
)
AT_HOME = Adverb("at home", "zu Hause")
HOME = Adverb("home", "nach Hause")
HERE = Adverb("here", "hier")

WELL = Adverb("well", "gut")
QUICKLY = Adverb("quickly", "schnell")
CAREFULLY = Adverb("carefully", "vorsichtig")
SLOWLY = Adverb("slowly", "langsam")
TOGETHER = Adverb("together", "zusammen")
ALONE = Adverb("alone", "allein")
