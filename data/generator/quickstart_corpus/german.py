"""The German grammar: noun phrases, the verbal bracket and the order of the middle field."""

from dataclasses import dataclass, field
from enum import Enum

from quickstart_corpus import german_nouns as nouns
from quickstart_corpus import german_verbs as verbs
from quickstart_corpus.lexicon import Name
from quickstart_corpus.meaning import (
    Age,
    Asked,
    Clause,
    Couple,
    Determiner,
    Gap,
    InCity,
    Infinitive,
    Located,
    Modal,
    Mood,
    NounPhrase,
    Participant,
    Person,
    Place,
    Polarity,
    Predicate,
    Price,
    Quality,
    Sentence,
    Silent,
    Subordinate,
    Subordinator,
)
from quickstart_corpus.numbers import german_number
from quickstart_corpus.punctuation import finish
from quickstart_corpus.times import Adverb, german_clock, german_time
from quickstart_corpus.verbs import EXIST
from quickstart_corpus.words import Case, Gender, Profession, Relation, Tense


class Order(Enum):
    """The position of the finite verb."""

    SECOND = "statement, wh-question"
    FIRST = "yes/no question, command"
    LAST = "subordinate clause"
    INFINITIVE = "no finite verb, zu"


def german(sentence: Sentence) -> str:
    """Returns the German sentence for a meaning."""
    clause = sentence.clause
    if sentence.mood is Mood.COMMAND:
        text = _command(clause, sentence.please)
    elif sentence.mood is Mood.QUESTION:
        asks = clause.asked or any(map(_is_wh, (clause.subject, clause.direct, clause.indirect)))
        text = _clause(clause, Order.SECOND if asks else Order.FIRST)
    else:
        text = _clause(clause, Order.SECOND)
    if sentence.address:
        text = f"{sentence.address.german}, {text}"
    return finish(text, sentence.mood)


def noun_phrase(phrase: NounPhrase, case: Case, negative: bool = False) -> str:
    """Returns a declined noun phrase; `negative` negates an indefinite one with kein."""
    noun, plural = phrase.noun, phrase.plural
    cell = (noun.gender, case, plural)
    owner = phrase.possession.owner if phrase.possession else None
    decline = nouns.weak_adjective
    after = ""
    if isinstance(owner, Person):
        article, decline = nouns.ein_word(nouns.possessive(owner), *cell), nouns.mixed_adjective
    elif isinstance(owner, Name):
        article, decline = nouns.decline_name(owner, Case.GEN), nouns.strong_adjective
    elif isinstance(owner, NounPhrase):
        article, after = nouns.definite_article(*cell), noun_phrase(owner, Case.GEN)
    elif phrase.count is not None:
        article, decline = german_number(phrase.count), nouns.strong_adjective
    elif phrase.determiner is Determiner.INDEFINITE:
        if negative:
            article, decline = nouns.ein_word("kein", *cell), nouns.mixed_adjective
        elif plural or noun.mass:
            article, decline = "", nouns.strong_adjective
        else:
            article, decline = nouns.ein_word("ein", *cell), nouns.mixed_adjective
    elif phrase.determiner is Determiner.HOW_MANY:
        article, decline = "wie viele", nouns.strong_adjective
    elif phrase.determiner is Determiner.DEFINITE:
        article = nouns.definite_article(*cell)
    else:
        stems = {Determiner.DEMONSTRATIVE: "dies", Determiner.EVERY: "jed", Determiner.WHICH: "welch"}
        article = nouns.der_word(stems[phrase.determiner], *cell)
    adjective = decline(phrase.adjective, *cell) if phrase.adjective else ""
    relative = f", {_clause(phrase.relative, Order.LAST)}," if phrase.relative else ""
    words = (article, adjective, nouns.decline_noun(noun, case, plural), after)
    return " ".join(word for word in words if word) + relative


@dataclass
class _Field:
    """The parts of a clause before they are ordered."""

    fronted: str = ""
    subject: str = ""
    pronouns: list[str] = field(default_factory=list)
    please: str = ""
    time: str = ""
    indirect: str = ""
    direct: str = ""
    particle: str = ""
    after_object: str = ""
    place: str = ""
    late: list[str] = field(default_factory=list)
    definite: bool = True

    def middle(self) -> list[str]:
        """Returns the middle field after subject and pronouns.

        Definite objects come before the negation, and in a negated clause before the time. Indefinite objects
        come after time, negation and place.
        """
        objects = [self.indirect, self.direct if self.definite else ""]
        known = [*objects, self.time] if self.particle else [self.time, *objects]
        new = [] if self.definite else [self.direct, self.after_object]
        return [*known, self.particle, *self.late[:1], self.place, *new, *self.late[1:]]


def _clause(clause: Clause, order: Order) -> str:
    parts = _parts(clause)
    person = _agreement(clause.subject)
    finite, bracket = _verb(clause, person, order)
    before, after = _around(clause)
    front = parts.fronted
    time, subject = parts.time, parts.subject
    if order is Order.SECOND:
        if before:
            front = before
        elif not front and clause.time_first:
            front, parts.time = time, ""
        elif not front:
            front, subject = subject, ""
        words = [front, finite, subject, *parts.pronouns, *parts.middle(), *bracket]
    elif order is Order.FIRST:
        words = [finite, subject, *parts.pronouns, *parts.middle(), *bracket]
    else:
        words = [front, subject, *parts.pronouns, *parts.middle(), *bracket, finite]
    return " ".join(word for word in words if word) + after


def _command(clause: Clause, please: bool) -> str:
    assert isinstance(clause.subject, Person)
    parts = _parts(clause)
    subject = "Sie" if clause.subject is Person.SIE else ""
    finite = verbs.imperative(clause.verb, clause.subject)
    words = [finite, subject, *parts.pronouns, "bitte" if please else "", *parts.middle(), clause.verb.prefix]
    return " ".join(word for word in words if word)


def _parts(clause: Clause) -> _Field:
    """Realises every participant and circumstance, and assigns them to the parts of the clause."""
    parts = _Field()
    verb = clause.verb
    negative = clause.polarity in (Polarity.NEGATIVE, Polarity.NOT_YET, Polarity.NO_LONGER)
    direct = clause.direct
    plain_object = verb.preposition is None
    new = isinstance(direct, NounPhrase) and not direct.definite
    no_object = plain_object and new and negative and clause.modal is not Modal.LIKE
    parts.definite = not new
    if clause.verb is EXIST:
        parts.subject = "es"
    elif not isinstance(clause.subject, Silent):
        _put(parts, "subject", clause.subject, Case.NOM)
    if verb.reflexive:
        parts.pronouns.append(nouns.reflexive(_agreement(clause.subject)))
    if plain_object and direct is not None:
        if no_object:
            assert isinstance(direct, NounPhrase)
            parts.direct = noun_phrase(direct, Case.ACC, negative=True)
        else:
            _put(parts, "direct", direct, Case.ACC)
    if clause.indirect is not None:
        _put(parts, "indirect", clause.indirect, Case.DAT)
    parts.time = german_time(clause.time) if clause.time else ""
    parts.particle, parts.after_object = _particle(clause.polarity, no_object)
    if clause.asked:
        parts.fronted = clause.asked.value[1]
    manner = [clause.manner.german] if clause.manner else []
    if clause.modal is Modal.LIKE:
        manner = ["gern", *manner]
    parts.late = [" ".join(manner)]
    parts.place = _place(clause.place) if clause.place else ""
    if verb.preposition and direct is not None:
        parts.late.append(_prepositional(verb.preposition, direct))
        parts.definite = True
    if clause.goal:
        parts.late.append(_place(clause.goal))
    if clause.predicate:
        parts.late.append(_predicate(clause.predicate, clause.subject))
    return parts


def _put(parts: _Field, role: str, participant: Participant, case: Case) -> None:
    """Assigns a participant to its role; question words go to the front, pronouns to the pronouns."""
    text = _participant(participant, case)
    if _is_wh(participant) or isinstance(participant, Gap):
        parts.fronted = text
    elif isinstance(participant, Person) and role != "subject":
        parts.pronouns.append(text)
    else:
        setattr(parts, role, text)


def _particle(polarity: Polarity, no_object: bool) -> tuple[str, str]:
    """Returns the negation before new parts, and the one after an object that kein negates."""
    if no_object:
        return {Polarity.NOT_YET: ("noch", ""), Polarity.NO_LONGER: ("", "mehr")}.get(polarity, ("", ""))
    words = {
        Polarity.POSITIVE: "",
        Polarity.NEGATIVE: "nicht",
        Polarity.NOT_YET: "noch nicht",
        Polarity.NO_LONGER: "nicht mehr",
        Polarity.ALREADY: "schon",
    }
    return words[polarity], ""


def _verb(clause: Clause, person: Person, order: Order) -> tuple[str, list[str]]:
    """Returns the finite verb and the right bracket."""
    verb = clause.verb
    if order is Order.INFINITIVE:
        return "", [verbs.zu_infinitive(verb)]
    if clause.modal and clause.modal is not Modal.LIKE:
        conjugate = verbs.modal_past if clause.tense is Tense.PAST else verbs.modal_present
        return conjugate(clause.modal, person), [verbs.infinitive(verb)]
    if clause.tense is Tense.FUTURE:
        return verbs.auxiliary("werden", person), [verbs.infinitive(verb)]
    if clause.tense is Tense.PAST and verb.german in ("sein", "haben"):
        return verbs.preterite(verb, person), []
    if clause.tense in (Tense.PERFECT, Tense.PAST):
        return verbs.auxiliary("sein" if verb.sein else "haben", person), [verb.perfect]
    finite = verbs.present(verb, person)
    if order is Order.LAST:
        return verb.prefix + finite, []
    return finite, [verb.prefix]


def _around(clause: Clause) -> tuple[str, str]:
    """Returns the clauses before and after the main clause, with commas."""
    before, after = "", ""
    for part in (clause.complement, clause.adjunct):
        if isinstance(part, Infinitive):
            infinitive = _clause(part.clause, Order.INFINITIVE)
            after += f", {'um ' if part.purpose else ''}{infinitive}"
        elif isinstance(part, Subordinate):
            word = part.subordinator.value[1] if part.subordinator is not Subordinator.WH else ""
            text = f"{word} {_clause(part.clause, Order.LAST)}".strip()
            if part.first:
                before = f"{text},"
            else:
                after += f", {text}"
    return before, after


def _participant(participant: Participant, case: Case) -> str:
    match participant:
        case NounPhrase():
            return noun_phrase(participant, case)
        case Name():
            return nouns.decline_name(participant, case)
        case Couple(first, second):
            return f"{nouns.decline_name(first, case)} und {nouns.decline_name(second, case)}"
        case Person():
            return nouns.pronoun(participant, case)
        case Gap(noun, plural):
            return nouns.relative_pronoun(noun.gender, case, plural)
        case Asked.WHO:
            return {Case.NOM: "wer", Case.ACC: "wen", Case.DAT: "wem"}[case]
        case Asked.WHAT:
            return "was"
    raise AssertionError(f"{participant} is never spoken")


def _agreement(subject: Participant) -> Person:
    """Returns the person of the verb."""
    if isinstance(subject, Person):
        return subject
    plural = isinstance(subject, Couple) or (isinstance(subject, NounPhrase | Gap) and subject.plural)
    return Person.THEY if plural else Person.HE


def _is_wh(participant: Participant | None) -> bool:
    if isinstance(participant, NounPhrase):
        return participant.determiner in (Determiner.WHICH, Determiner.HOW_MANY)
    return isinstance(participant, Asked)


def _prepositional(relation: Relation, participant: Participant) -> str:
    text = _participant(participant, relation.case)
    contract = (
        isinstance(participant, NounPhrase)
        and participant.determiner is Determiner.DEFINITE
        and not isinstance(participant.possession and participant.possession.owner, Person | Name)
        and participant.count is None
    )
    return nouns.prepositional_phrase(relation.german, text, contract)


def _place(place: Place) -> str:
    if isinstance(place, Adverb):
        return place.german
    if isinstance(place, InCity):
        return f"{'nach' if place.goal else 'in'} {place.city.german}"
    assert isinstance(place, Located)
    return _prepositional(place.relation, place.participant)


def _predicate(predicate: Predicate, subject: Participant) -> str:
    match predicate:
        case Quality(adjective, None):
            return adjective.german
        case Quality(adjective, than):
            assert than is not None
            return f"{adjective.german_comparative} als {_participant(than, Case.NOM)}"
        case Profession():
            return predicate.feminine if _is_female(subject) else predicate.masculine
        case Age(years):
            return f"{german_number(years)} Jahre alt"
        case Price(euros):
            return f"{german_number(euros)} Euro"
    return german_clock(predicate.clock)


def _is_female(subject: Participant) -> bool:
    match subject:
        case Person():
            return subject is Person.SHE
        case NounPhrase():
            return subject.noun.gender is Gender.F
        case Name():
            return subject.gender is Gender.F
    raise AssertionError(f"{subject} has no profession")
