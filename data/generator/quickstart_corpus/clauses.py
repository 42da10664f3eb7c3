"""Sampling of clauses: a verb with matching participants, tense, negation and circumstances."""

from dataclasses import replace

from quickstart_corpus import lexicon, verbs
from quickstart_corpus.lexicon import PROFESSIONS, STATES, TITLED_NAMES
from quickstart_corpus.meaning import (
    Age,
    Clause,
    Couple,
    Determiner,
    Located,
    Modal,
    NounPhrase,
    Participant,
    Person,
    Polarity,
    Possession,
    Price,
    Quality,
    TimeOfDay,
)
from quickstart_corpus.nouns import noun, nouns_of
from quickstart_corpus.sampling import Sampler, adjectives, objects
from quickstart_corpus.times import (
    FREQUENCIES,
    HABITS,
    PAST_TIMES,
    PRESENT_TIMES,
    TODAY,
    At,
    Direction,
    Time,
    Unit,
    is_habitual,
)
from quickstart_corpus.words import Gender, Group, Kind, Tense, Verb

_FAMILIES = (
    (0.52, verbs.TRANSITIVE),
    (0.08, verbs.DATIVE),
    (0.09, verbs.DITRANSITIVE),
    (0.09, verbs.PREPOSITIONAL),
    (0.12, verbs.INTRANSITIVE),
    (0.10, verbs.MOTION),
)
_MODALS = ((0.24, Modal.CAN), (0.24, Modal.MUST), (0.14, Modal.MAY), (0.18, Modal.WANT), (0.1, Modal.SHOULD),
           (0.1, Modal.WOULD_LIKE))  # fmt: skip
_PAST_MODALS = (Modal.CAN, Modal.MUST, Modal.MAY, Modal.WANT)
_LIKED = ("read", "write", "eat", "drink", "cook", "bake", "paint", "dance", "play", "sing", "wear")
_LASTING = ("live", "work", "wait for", "sleep")
_CHANGING = ("expensive", "cheap", "dirty", "good", "interesting", "boring", "difficult", "important", "cold",
             "hot", "fresh", "friendly", "quiet", "dark")  # fmt: skip
_BRIEF = ("wait for", "sleep")
_LONG_UNITS = (Unit.YEAR, Unit.MONTH, Unit.WEEK)
_ENDING = ("live", "work", "have", "need", "wear", "love", "know")
_HABITUAL = (
    "read", "write", "eat", "drink", "cook", "bake", "call", "visit", "help", "talk to", "sleep", "work",
    "dance", "play", "go", "drive", "fly", "clean", "tidy up", "wash", "sing", "paint", "wear",
    "think of", "wait for",
)  # fmt: skip
_SEASONAL = ("work", "sleep", "dance", "play", "fly", "drive", "paint", "wear", "go", "read")
_PLANNED = (
    "visit", "invite", "pick up", "buy", "sell", "bring along", "come back", "stay", "go", "drive", "fly",
    "help", "work", "cook", "bake", "clean", "tidy up", "repair", "show", "give", "get up", "dance",
    "play", "call",
)  # fmt: skip
_GENERAL = ("eat", "drink", "cook", "bake", "write", "paint", "sing")
_QUICK, _CARE, _WELL = lexicon.QUICKLY, lexicon.CAREFULLY, lexicon.WELL
_TOGETHER, _ALONE, _SLOWLY = lexicon.TOGETHER, lexicon.ALONE, lexicon.SLOWLY
_MANNERS = {
    "repair": (_QUICK, _CARE), "open": (_CARE, _QUICK, _SLOWLY), "close": (_CARE, _QUICK), "sleep": (_WELL,),
    "drive": (_SLOWLY, _QUICK, _CARE, _ALONE), "write": (_QUICK, _SLOWLY), "eat": (_QUICK, _SLOWLY),
    "drink": (_SLOWLY, _QUICK),
    "dance": (_WELL, _TOGETHER, _ALONE), "play": (_TOGETHER, _ALONE), "work": (_TOGETHER, _ALONE),
    "carry": (_CARE, _SLOWLY), "wash": (_CARE,), "go": (_SLOWLY, _ALONE, _TOGETHER), "cook": (_TOGETHER,),
    "tidy up": (_QUICK, _TOGETHER), "answer": (_QUICK,), "fall asleep": (_QUICK,), "clean": (_CARE, _QUICK),
}  # fmt: skip
_TENSE_OF = {
    "perfect": Tense.PERFECT,
    "past": Tense.PAST,
    "modal past": Tense.PAST,
    "future": Tense.FUTURE,
}


class ClauseSampler(Sampler):
    """Samples clauses."""

    def event(self, subject: Participant, label: str, short: bool = False, positive: bool = False) -> Clause:
        """Returns a clause of a person who does something.

        Args:
            subject: The person.
            label: "present", "perfect", "past", "future", "modal" or "modal past".
            short: Whether to leave most circumstances out.
            positive: Whether to leave negation out.
        """
        tense = _TENSE_OF.get(label, Tense.PRESENT)
        modal = label.startswith("modal")
        verb = self.verb(tense, modal)
        clause = self.participants(verb, subject)
        clause = replace(clause, tense=tense)
        if modal:
            chosen = self.dice.pick(_PAST_MODALS) if tense is Tense.PAST else self.dice.weighted(*_MODALS)
            clause = replace(clause, modal=chosen)
        return self.circumstances(clause, short, positive)

    def verb(self, tense: Tense, modal: bool) -> Verb:
        """Returns an ordinary verb that has the tense, and a modal verb where asked."""
        while True:
            verb = self.dice.pick(self.dice.weighted(*_FAMILIES))
            if modal and verb.modal or not modal and tense in verb.tenses:
                return verb

    def participants(self, verb: Verb, subject: Participant) -> Clause:
        """Returns the bare clause of a verb: subject, objects, obligatory place or goal."""
        clause = Clause(verb, subject)
        if verb.dative:
            clause = replace(clause, indirect=self.someone(subject, nouns_of(Kind.PERSON)))
        if objects(verb):
            clause = replace(clause, direct=self.thing(verb, subject))
        if verb.needs_place:
            clause = replace(clause, place=self.place(verb.places))
        if verb.goals:
            clause = replace(clause, goal=self.goal(verb))
        return clause

    def circumstances(self, clause: Clause, short: bool, positive: bool) -> Clause:
        """Adds negation, time, place and manner that fit the clause."""
        clause = replace(clause, polarity=Polarity.POSITIVE if positive else self._polarity(clause))
        fixed = clause.polarity in (Polarity.ALREADY, Polarity.NOT_YET)
        clause = replace(clause, time=None if fixed else self._time(clause, 0.25 if short else 0.5))
        if (
            is_habitual(clause.time)
            and clause.verb.name in _GENERAL
            and isinstance(clause.direct, NounPhrase)
        ):
            clause = replace(clause, direct=self.some(clause.direct.noun))
        if fixed or clause.goal or clause.place:
            return clause
        verb = clause.verb
        if verb.places and self.dice.chance(0.08 if short else 0.2):
            return replace(clause, place=self.place(verb.places))
        if verb.name in _MANNERS and clause.polarity is Polarity.POSITIVE and self.dice.chance(0.25):
            manner = self.dice.pick(_MANNERS[verb.name])
            if manner is not lexicon.TOGETHER or is_several(clause.subject):
                return replace(clause, manner=manner)
        return clause

    def liking(self, subject: Participant) -> Clause:
        """Returns a clause of an activity that someone likes: gern."""
        while True:
            verb = self.dice.pick(verbs.ORDINARY)
            if verb.name in _LIKED:
                break
        nouns = objects(verb)
        clause = Clause(
            verb, subject, modal=Modal.LIKE, direct=self.some(self.dice.pick(nouns)) if nouns else None
        )
        if self.dice.chance(0.2):
            return replace(clause, polarity=Polarity.NEGATIVE)
        return clause

    def state(self, subject: Participant | None = None, label: str = "present") -> Clause:
        """Returns a clause of a state: tired, hungry; tense as for `event`, without modal verbs."""
        tense = {"past": Tense.PAST, "future": Tense.FUTURE}.get(label, Tense.PRESENT)
        quality = Quality(self.dice.pick(STATES))
        clause = Clause(verbs.BE, subject or self.subject(), tense, predicate=quality)
        if tense is not Tense.PRESENT:
            return replace(clause, time=self.time_for(tense), polarity=self._sometimes_not(clause, 0.15))
        time = self.dice.weighted((0.6, None), (0.2, TODAY), (0.2, self.dice.pick(FREQUENCIES)))
        polarity = Polarity.POSITIVE if is_habitual(time) else self._sometimes_not(clause, 0.2)
        return replace(clause, time=time, polarity=polarity)

    def quality(self, past: bool = False) -> Clause:
        """Returns a clause with a quality of something, or a comparison of two things."""
        nouns = tuple(noun for noun in nouns_of(*Kind) if adjectives(noun) and not noun.mass)
        described = self.dice.pick(nouns)
        adjective = self.dice.pick(adjectives(described))
        phrase = replace(self.phrase(described, definite=True), adjective=None)
        clause = Clause(verbs.BE, phrase, predicate=Quality(adjective))
        if past and adjective.english in _CHANGING:
            clause = replace(clause, tense=Tense.PAST, time=self.past())
        elif adjective.german_comparative and self.dice.chance(0.4):
            other = self.dice.pick(tuple(n for n in nouns_of(*described.kinds[:1]) if not n.mass))
            if adjective in adjectives(other):
                than = replace(self.phrase(other, definite=True), adjective=None)
                return replace(clause, predicate=Quality(adjective, than))
        return replace(clause, polarity=self._sometimes_not(clause, 0.2))

    def profession(self) -> Clause:
        """Returns a clause with a profession."""
        names = ("brother", "father", "uncle", "son", "sister", "mother", "aunt", "daughter")
        relative = NounPhrase(noun(self.dice.pick(names)), possession=Possession(self._any_person()))
        named = self.dice.pick((*lexicon.FIRST_NAMES, *TITLED_NAMES))
        choices: tuple[tuple[float, Participant], ...] = (
            (0.15, Person.HE),
            (0.15, Person.SHE),
            (0.25, named),
            (0.45, relative),
        )
        subject = self.dice.weighted(*choices)
        return Clause(verbs.BE, subject, predicate=self.dice.pick(PROFESSIONS))

    def age(self) -> Clause:
        """Returns a clause with an age."""
        subject = self.subject()
        if isinstance(subject, Couple) or is_several(subject):
            subject = self.dice.pick(lexicon.FIRST_NAMES)
        if isinstance(subject, NounPhrase) and subject.determiner is Determiner.EVERY:
            subject = replace(subject, determiner=Determiner.DEFINITE)
        if isinstance(subject, NounPhrase):
            subject = replace(subject, adjective=None)
        return Clause(verbs.BE, subject, predicate=Age(self.dice.pick(_ages(subject))))

    def price(self) -> Clause:
        """Returns a clause with a price."""
        sold = self.dice.pick(nouns_of(Kind.CLOTHES, Kind.DEVICE, Kind.FURNITURE, Kind.VEHICLE, Kind.ITEM))
        hundreds = 100 * self.dice.pick(range(1, 10))
        euros = self.dice.weighted(
            (0.7, self.dice.pick(range(13, 100))), (0.3, hundreds), (0.1, hundreds * 10)
        )
        subject = NounPhrase(sold, self.dice.pick((Determiner.DEFINITE, Determiner.DEMONSTRATIVE)),
                             adjective=self.attribute(sold, 0.3))  # fmt: skip
        return Clause(verbs.COST, subject, predicate=Price(euros))

    def time_of_day(self) -> Clause:
        """Returns a clause with the time of day."""
        return Clause(verbs.BE, Person.IT, predicate=TimeOfDay(self.clock()))

    def weather(self, label: str = "present") -> Clause:
        """Returns a clause of rain or snow; tense as for `event`, without modal verbs."""
        tense = {"perfect": Tense.PAST, "past": Tense.PAST, "future": Tense.FUTURE}.get(label, Tense.PRESENT)
        clause = Clause(self.dice.pick((verbs.RAIN, verbs.SNOW)), Person.IT, tense)
        if tense is not Tense.PRESENT:
            return replace(clause, time=self.time_for(tense))
        time = self.dice.weighted((0.5, None), (0.3, self.dice.pick(PRESENT_TIMES)), (0.2, FREQUENCIES[0]))
        polarity = Polarity.POSITIVE if is_habitual(time) else self._sometimes_not(None, 0.2)
        place = lexicon.HERE if polarity is Polarity.POSITIVE and self.dice.chance(0.4) else None
        return replace(clause, time=time, place=place, polarity=polarity)

    def existence(self) -> Clause:
        """Returns a clause of existence: there is, es gibt."""
        names = ("cinema", "museum", "library", "hotel", "restaurant", "park", "school", "hospital", "market")
        found = noun(self.dice.pick(names))
        where = noun(self.dice.pick(("city", "village")))
        count = self.count() if self.dice.chance(0.45) else None
        plural = count is not None or self.dice.chance(0.2)
        adjective = self.attribute(found, 0.5)
        phrase = NounPhrase(found, Determiner.INDEFINITE, plural, adjective, count=count)
        determiner = self.dice.pick((Determiner.DEFINITE, Determiner.DEMONSTRATIVE))
        place = NounPhrase(where, determiner, adjective=self.attribute(where, 0.2))
        return Clause(verbs.EXIST, Person.IT, direct=phrase, place=Located(lexicon.IN, place))

    def belonging(self) -> Clause:
        """Returns a clause with the owner of something."""
        kinds = (Kind.ITEM, Kind.VEHICLE, Kind.CLOTHES, Kind.ANIMAL)
        owned = self.dice.pick((*nouns_of(*kinds), noun("house"), noun("book")))
        subject = NounPhrase(owned, self.dice.pick((Determiner.DEFINITE, Determiner.DEMONSTRATIVE)),
                             adjective=self.attribute(owned, 0.4))  # fmt: skip
        owner = self.someone(subject, nouns_of(Kind.PERSON))
        return Clause(verbs.BELONG, subject, indirect=owner)

    def putting(self, subject: Participant, label: str) -> Clause:
        """Returns a clause of a person who puts something somewhere: stellen or legen."""
        verb, nouns = self.dice.pick(((verbs.PUT_UPRIGHT, objects(verbs.PUT_UPRIGHT)),
                                      (verbs.PUT_FLAT, objects(verbs.PUT_FLAT))))  # fmt: skip
        direct = self.phrase(self.dice.pick(nouns), definite=self.dice.chance(0.7))
        clause = Clause(verb, subject, direct=direct, goal=self.by(lexicon.LAYING))
        if label == "past":
            return replace(clause, tense=Tense.PAST, time=self.past())
        if label == "perfect":
            return replace(clause, tense=Tense.PERFECT)
        return replace(clause, modal=self.dice.weighted(*_MODALS)) if label == "modal" else clause

    def position(self) -> Clause:
        """Returns a clause of something that stands or lies somewhere."""
        verb, kind = self.dice.pick(((verbs.STAND, Kind.UPRIGHT), (verbs.LIE, Kind.FLAT)))
        subject = self.phrase(self.dice.pick(nouns_of(kind)), definite=True)
        clause = Clause(verb, subject, place=self.by(lexicon.LYING))
        return replace(clause, polarity=self._sometimes_not(clause, 0.15))

    def timetable(self, tense: Tense | None = None) -> Clause:
        """Returns a clause with the time of a departure, an arrival or an event."""
        verb = self.dice.pick(verbs.TIMETABLE)
        tense = tense or self.dice.weighted((0.5, Tense.PRESENT), (0.3, Tense.PAST), (0.2, Tense.FUTURE))
        heads = nouns_of(*verb.subjects)
        # A film begins and ends, but does not take place.
        head = self.dice.pick(
            tuple(n for n in heads if n.english != "film") if verb.english == "take" else heads
        )
        subject = NounPhrase(head, adjective=self.attribute(head, 0.15))
        time = self.time_for(tense)
        if tense is Tense.PRESENT:
            time = self.dice.weighted((0.6, At(self.clock())), (0.15, self.date()), (0.25, self.future()))
        clause = Clause(verb, subject, tense, time=time)
        if verb.english == "arrive" and self.dice.chance(0.3):
            return replace(clause, place=self.place((Group.CITY,)))
        if verb.english == "take" and self.dice.chance(0.35):
            names = ("school", "library", "hotel", "museum", "park", "garden")
            spot = self.dice.pick(tuple(spot for spot in lexicon.SPOTS if spot.noun.english in names))
            return replace(clause, place=Located(spot.at, NounPhrase(spot.noun)))
        return clause

    def being_somewhere(self, subject: Participant, label: str) -> Clause:
        """Returns a clause with the place of a person."""
        tense = Tense.PAST if label == "past" else Tense.PRESENT
        groups = (Group.HOME, Group.TOWN, Group.WORK, Group.CITY)
        clause = Clause(verbs.BE, subject, tense, place=self.place(groups))
        time = (
            self.past()
            if tense is Tense.PAST
            else self.dice.weighted((0.5, None), (0.5, self.dice.pick(PRESENT_TIMES)))
        )
        return replace(clause, time=time, polarity=self._sometimes_not(clause, 0.2))

    def _time(self, clause: Clause, probability: float) -> Time | None:
        tense, verb = clause.tense, clause.verb
        negative = clause.polarity is not Polarity.POSITIVE
        if tense is Tense.PAST:
            if verb.name == "live":
                long_ago: tuple[Time, ...] = (PAST_TIMES[4], self.span(Direction.AGO, (Unit.YEAR,)))
                return self.dice.pick(long_ago)
            return self.past()
        if not self.dice.chance(probability):
            return None
        if tense is Tense.FUTURE:
            return self.future()
        if clause.modal:
            return self.dice.weighted((0.3, TODAY), (0.7, self.future()))
        if tense is Tense.PERFECT:
            return TODAY if negative or self.dice.chance(0.7) else FREQUENCIES[2]
        if clause.polarity is Polarity.NO_LONGER:
            return None
        if verb.simple:
            return self._simple_time(clause)
        if negative:
            return self.dice.weighted((0.7, TODAY), (0.3, PRESENT_TIMES[2]))
        if verb.name in _LASTING and self.dice.chance(0.4):
            return self.span(Direction.SINCE, (Unit.HOUR,) if verb.name in _BRIEF else _LONG_UNITS)
        if verb.name in _HABITUAL and self.dice.chance(0.5):
            habits = HABITS if verb.name in _SEASONAL else HABITS[:5]
            return self.dice.pick(FREQUENCIES if self.dice.chance(0.55) else habits)
        if verb.name in _PLANNED and self.dice.chance(0.45):
            return self.future()
        return self.dice.pick(PRESENT_TIMES)

    def _simple_time(self, clause: Clause) -> Time | None:
        """Returns a time for the present tense of a verb without progressive."""
        name = clause.verb.name
        if name == "live" and clause.polarity is Polarity.POSITIVE:
            return self.span(Direction.SINCE, _LONG_UNITS)
        if name in ("need", "have") and clause.polarity is Polarity.POSITIVE:
            return TODAY if name == "need" else None
        if name in ("see", "understand", "remember") and clause.polarity is Polarity.POSITIVE:
            return self.dice.pick(FREQUENCIES)
        return None

    def _polarity(self, clause: Clause) -> Polarity:
        if clause.tense is Tense.PERFECT and self.dice.chance(0.35):
            return self.dice.weighted((0.6, Polarity.ALREADY), (0.4, Polarity.NOT_YET))
        if (clause.tense is Tense.PRESENT and not clause.modal and clause.verb.name in _ENDING
                and self.dice.chance(0.2)):  # fmt: skip
            return Polarity.NO_LONGER
        return self._sometimes_not(clause, 0.17)

    def _sometimes_not(self, clause: Clause | None, probability: float) -> Polarity:
        return Polarity.NEGATIVE if self.dice.chance(probability) else Polarity.POSITIVE


def _ages(subject: Participant) -> range:
    """Returns plausible ages of a person."""
    name = subject.noun.english if isinstance(subject, NounPhrase) else ""
    if name in ("child", "boy", "girl"):
        return range(2, 16)
    if name in ("grandfather", "grandmother"):
        return range(60, 100)
    return range(18, 40) if name in ("student", "son", "daughter") else range(20, 90)


def is_several(subject: Participant) -> bool:
    """Whether the subject is more than one person."""
    if isinstance(subject, Person):
        return subject in (Person.WE, Person.IHR, Person.THEY)
    return isinstance(subject, Couple) or (isinstance(subject, NounPhrase) and subject.plural)


def feminine(participant: Participant) -> bool | None:
    """Whether the pronoun for one person is "she"; None if it is ambiguous in German."""
    if isinstance(participant, NounPhrase) and not participant.plural:
        return None if participant.noun.gender is Gender.N else participant.noun.gender is Gender.F
    if isinstance(participant, lexicon.Name):
        return participant.gender is Gender.F
    return None
