"""Sampling of sentences of all kinds: statements, questions, commands, complex sentences."""

from dataclasses import replace

from quickstart_corpus import verbs
from quickstart_corpus.clauses import ClauseSampler, feminine, is_several
from quickstart_corpus.dice import Dice
from quickstart_corpus.lexicon import Name
from quickstart_corpus.meaning import (
    Address,
    Asked,
    AskedAdverb,
    Clause,
    Determiner,
    Gap,
    Infinitive,
    Modal,
    Mood,
    NounPhrase,
    Participant,
    Person,
    Polarity,
    Quality,
    Sentence,
    Silent,
    Subordinate,
    Subordinator,
    walk,
)
from quickstart_corpus.sampling import ADDRESSES, adjectives, objects
from quickstart_corpus.times import NEVER, Adverb, is_since
from quickstart_corpus.words import Kind, Noun, Tense, Verb

_HEARERS = (Person.DU, Person.IHR, Person.SIE)
_TENSES = (
    (0.34, "present"),
    (0.14, "perfect"),
    (0.2, "past"),
    (0.1, "future"),
    (0.17, "modal"),
    (0.05, "modal past"),
)
_REASON = ((0.3, "present"), (0.22, "perfect"), (0.18, "past"), (0.14, "future"), (0.16, "modal"))
_REPORTS = ((0.28, "present"), (0.22, "perfect"), (0.14, "past"), (0.18, "future"), (0.18, "modal"))
_INNER = {
    Subordinator.BECAUSE: _REASON,
    Subordinator.ALTHOUGH: _REASON,
    Subordinator.IF: ((0.6, "present"), (0.2, "perfect"), (0.2, "modal")),
    Subordinator.BEFORE: ((1.0, "present"),),
    Subordinator.WHEN_ONCE: ((1.0, "past"),),
}
_OUTER = {
    Subordinator.BECAUSE: _TENSES,
    Subordinator.ALTHOUGH: _TENSES,
    Subordinator.IF: ((0.25, "present"), (0.35, "future"), (0.4, "modal")),
    Subordinator.BEFORE: ((0.6, "modal"), (0.4, "future")),
    Subordinator.WHEN_ONCE: ((1.0, "past"),),
}


def sample(dice: Dice) -> Sentence:
    """Returns a random sentence that passes `is_sound`."""
    while True:
        kind = dice.weighted(
            (0.36, _statement),
            (0.10, _question),
            (0.11, _wh_question),
            (0.07, _command),
            (0.13, _report),
            (0.13, _complex),
            (0.05, _infinitive),
            (0.05, _relative),
        )
        spoken_to = 1.0 if kind is _command else 0.45 if kind is _question else 0.16
        address = dice.pick(ADDRESSES) if dice.chance(spoken_to) else None
        sentence = kind(ClauseSampler(dice, address), address)
        if is_sound(sentence):
            return sentence


def is_sound(sentence: Sentence) -> bool:
    """Whether a sentence is unambiguous.

    No noun or name occurs twice, "you" occurs only with an addressee, and there is no odd negation.
    """
    parts = list(walk(sentence))
    nouns = [part.noun for part in parts if isinstance(part, NounPhrase)]
    names = [part.english for part in parts if isinstance(part, Name)]
    address = sentence.address
    if len(nouns) != len(set(nouns)) or len(names) != len(set(names)):
        return False
    hearers = [person for person in _persons(parts) if person in _HEARERS]
    if address:
        if address.person not in hearers or any(name in address.english for name in names):
            return False
        if address.english == "children" and any(noun.english == "child" for noun in nouns):
            return False
    elif hearers:
        return False
    return all(_is_sound_clause(part) for part in parts if isinstance(part, Clause))


def _is_sound_clause(clause: Clause) -> bool:
    direct, subject = clause.direct, clause.subject
    negated = clause.polarity in (Polarity.NEGATIVE, Polarity.NOT_YET, Polarity.NO_LONGER)
    every = any(
        isinstance(part, NounPhrase) and part.determiner is Determiner.EVERY
        for part in (subject, direct, clause.indirect)
    )
    counted = isinstance(direct, NounPhrase) and direct.count is not None
    # "Not every", "not three" and "never every" would need a different word order.
    if (negated or clause.time == NEVER) and (every or counted or is_since(clause.time)):
        return False
    if clause.polarity is not Polarity.POSITIVE and isinstance(clause.time, Adverb) and clause.time.middle:
        return False
    return not (clause.place and clause.goal)


def _persons(parts: list[object]) -> list[Person]:
    """Returns all pronouns, including possessives."""
    found: list[Person] = []
    for part in parts:
        for value in vars(part).values() if not isinstance(part, Noun) else ():
            if isinstance(value, Person) and not isinstance(part, Address):
                found.append(value)
    return found


def _basic(sampler: ClauseSampler) -> Clause:
    """Returns a clause for a statement, of any kind."""
    dice = sampler.dice
    subject = sampler.subject()
    match dice.weighted(
        (0.6, "event"), (0.04, "liking"), (0.04, "state"), (0.055, "quality"), (0.02, "profession"),
        (0.045, "age"), (0.045, "price"), (0.012, "clock"), (0.01, "weather"), (0.025, "existence"),
        (0.02, "belonging"),
        (0.035, "putting"), (0.025, "position"), (0.05, "timetable"), (0.025, "being"),
    ):  # fmt: skip
        case "liking":
            return sampler.liking(subject)
        case "state":
            return sampler.state(subject, dice.weighted((0.6, "present"), (0.3, "past"), (0.1, "future")))
        case "quality":
            return sampler.quality(past=dice.chance(0.15))
        case "profession":
            return sampler.profession()
        case "age":
            return sampler.age()
        case "price":
            return sampler.price()
        case "clock":
            return sampler.time_of_day()
        case "weather":
            return sampler.weather(dice.weighted(*_TENSES))
        case "existence":
            return sampler.existence()
        case "belonging":
            return sampler.belonging()
        case "putting":
            return sampler.putting(subject, dice.weighted(*_TENSES))
        case "position":
            return sampler.position()
        case "timetable":
            return sampler.timetable()
        case "being":
            return sampler.being_somewhere(subject, dice.pick(("present", "past")))
    return sampler.event(subject, dice.weighted(*_TENSES))


def _statement(sampler: ClauseSampler, address: Address | None) -> Sentence:
    clause = _basic(sampler)
    time = clause.time
    if time and not is_since(time) and not (isinstance(time, Adverb) and time.middle):
        clause = replace(clause, time_first=sampler.dice.chance(0.25))
    return Sentence(clause, address=address)


def _asked_about(sampler: ClauseSampler) -> Participant:
    """Returns the subject of a question; speakers rarely ask about themselves."""
    subject = sampler.subject()
    return _asked_about(sampler) if subject in (Person.ME, Person.WE) else subject


def _question(sampler: ClauseSampler, address: Address | None) -> Sentence:
    dice = sampler.dice
    subject = _asked_about(sampler)
    if not address and dice.chance(0.06):
        clause = sampler.event(dice.pick((Person.ME, Person.WE)), "modal", positive=True)
        if clause.modal in (Modal.CAN, Modal.MAY, Modal.SHOULD, Modal.MUST):
            return Sentence(clause, Mood.QUESTION)
    match dice.weighted((0.78, "event"), (0.08, "liking"), (0.08, "state"), (0.06, "timetable")):
        case "liking":
            clause = sampler.liking(subject)
        case "state":
            clause = sampler.state(subject, dice.pick(("present", "past")))
        case "timetable":
            clause = sampler.timetable()
        case _:
            clause = sampler.event(subject, dice.weighted(*_TENSES), positive=True)
    return Sentence(replace(clause, polarity=Polarity.POSITIVE), Mood.QUESTION, address)


def _wh_question(sampler: ClauseSampler, address: Address | None) -> Sentence:
    return Sentence(
        _wh_clause(sampler, sampler.dice.weighted(*_TENSES), _asked_about(sampler)), Mood.QUESTION, address
    )


def _wh_clause(sampler: ClauseSampler, label: str, subject: Participant) -> Clause:
    """Returns a clause that asks for a part, for a question or an indirect question."""
    dice = sampler.dice
    while True:
        clause = sampler.event(subject, label, short=True, positive=True)
        if dice.chance(0.06):
            clause = sampler.timetable({"past": Tense.PAST, "future": Tense.FUTURE}.get(label, Tense.PRESENT))
        verb, direct, indirect = clause.verb, clause.direct, clause.indirect
        clause = replace(clause, manner=None)
        if verb.subjects != (Kind.PERSON,):
            return replace(clause, asked=AskedAdverb.WHEN, time=None)
        match dice.weighted((0.16, "who"), (0.34, "object"), (0.14, "place"), (0.12, "when"), (0.24, "why")):
            case "who" if not isinstance(clause.subject, Person) or clause.subject not in _HEARERS:
                if dice.chance(0.2):
                    which = tuple(n for n in _PEOPLE if Kind.KIN not in n.kinds)
                    return replace(clause, subject=NounPhrase(dice.pick(which), Determiner.WHICH))
                return replace(clause, subject=Asked.WHO)
            case "object" if verb.preposition is None and isinstance(indirect, NounPhrase) and not direct:
                if not verb.english_to:
                    return replace(clause, indirect=Asked.WHO)
            case "object" if verb.preposition is None and isinstance(direct, NounPhrase):
                if Kind.PERSON in direct.noun.kinds:
                    return replace(clause, direct=Asked.WHO)
                asked = dice.weighted((0.4, "what"), (0.35, "which"), (0.25, "how many"))
                if asked == "what":
                    return replace(clause, direct=Asked.WHAT)
                plain = replace(direct, possession=None, count=None)
                if asked == "which" and not direct.noun.mass:
                    return replace(clause, direct=replace(plain, determiner=Determiner.WHICH))
                if asked == "how many" and direct.noun.plural and not verb.definite:
                    how_many = replace(plain, determiner=Determiner.HOW_MANY, plural=True)
                    return replace(clause, direct=how_many)
            case "place" if clause.goal:
                return replace(clause, goal=None, asked=AskedAdverb.WHERE_TO)
            case "place" if verb.places:
                return replace(clause, place=None, asked=AskedAdverb.WHERE)
            case "when" if (
                verb.modal and verb.name not in ("live", "stay", "sleep") and not label.startswith("perfect")
            ):
                return replace(clause, time=None, place=None, asked=AskedAdverb.WHEN)
            case "why":
                return replace(clause, asked=AskedAdverb.WHY)


def _command(sampler: ClauseSampler, address: Address | None) -> Sentence:
    assert address is not None
    verb = _agentive(sampler)
    clause = sampler.participants(verb, address.person)
    if sampler.dice.chance(0.12):
        clause = sampler.putting(address.person, "present")
    if sampler.dice.chance(0.2):
        clause = replace(clause, polarity=Polarity.NEGATIVE)
    elif sampler.dice.chance(0.25):
        clause = replace(clause, time=sampler.future())
    please = clause.polarity is Polarity.POSITIVE and sampler.dice.chance(0.6)
    return Sentence(clause, Mood.COMMAND, address, please)


def _report(sampler: ClauseSampler, address: Address | None) -> Sentence:
    """Returns a sentence with "I know that", "do you know whether", "she asks where"."""
    dice = sampler.dice
    kind = dice.weighted((0.42, Subordinator.THAT), (0.34, Subordinator.WHETHER), (0.24, Subordinator.WH))
    label = dice.weighted(*_REPORTS)
    subject = sampler.subject()
    if subject in _HEARERS and kind is not Subordinator.THAT:
        subject = dice.pick((Person.ME, subject))
    about = _asked_about(sampler)
    while about == subject or (about in _HEARERS and subject is not Person.ME):
        about = _asked_about(sampler)
    if kind is Subordinator.WH:
        inner = _wh_clause(sampler, label, about)
    elif kind is Subordinator.WHETHER:
        inner = _inner(sampler, label, positive=True, subject=about)
    else:
        inner = _inner(sampler, label)
    complement = Subordinate(kind, inner)
    mood = Mood.STATEMENT
    if kind is Subordinator.THAT:
        others = () if subject in (*_HEARERS, Person.ME, Person.WE) else (verbs.SAY,)
        verb = dice.pick((verbs.KNOW_THAT, verbs.BELIEVE, *others))
        if label != "past" and inner.verb is not verbs.BE and dice.chance(0.25):
            verb = verbs.HOPE
        outer = Clause(verb, subject)
    else:
        plain = subject not in _HEARERS
        speaker = subject in (Person.ME, Person.WE)
        match dice.weighted(
            (0.35 * plain, "not know"),
            (0.25 * (plain and not speaker), "ask"),
            (0.2 * plain, "like"),
            (0.2 * (not speaker), "question"),
        ):
            case "ask":
                outer = Clause(verbs.ASK, subject)
            case "like":
                outer = Clause(verbs.KNOW_THAT, subject, modal=Modal.WOULD_LIKE)
            case "question":
                mood = Mood.QUESTION
                outer = Clause(verbs.KNOW_THAT, subject)
                if address and dice.chance(0.5):
                    outer = Clause(verbs.TELL, address.person, modal=Modal.CAN, indirect=Person.ME)
            case _:
                outer = Clause(verbs.KNOW_THAT, subject, polarity=Polarity.NEGATIVE)
    return Sentence(replace(outer, complement=complement), mood, address)


def _inner(
    sampler: ClauseSampler, label: str, positive: bool = False, subject: Participant | None = None
) -> Clause:
    """Returns a subordinate clause."""
    dice = sampler.dice
    who = subject or sampler.subject()
    if label in ("present", "past", "future") and dice.chance(0.22):
        clause = sampler.state(who, label)
    elif label in ("present", "past", "future") and dice.chance(0.1):
        clause = sampler.weather(label)
    else:
        clause = sampler.event(who, label, short=True, positive=positive)
    return replace(clause, polarity=Polarity.POSITIVE) if positive else clause


def _complex(sampler: ClauseSampler, address: Address | None) -> Sentence:
    """Returns a sentence with "because", "although", "if", "before" or "when"."""
    dice = sampler.dice
    kind = dice.weighted(
        (0.36, Subordinator.BECAUSE),
        (0.22, Subordinator.ALTHOUGH),
        (0.26, Subordinator.IF),
        (0.1, Subordinator.BEFORE),
        (0.06, Subordinator.WHEN_ONCE),
    )
    main = sampler.event(sampler.subject(), dice.weighted(*_OUTER[kind]), short=True)
    if kind is Subordinator.WHEN_ONCE:
        main = replace(main, time=None)
        inner = replace(sampler.state(_again(sampler, main.subject), "past"), time=None)
    else:
        label = dice.weighted(*_INNER[kind])
        if main.tense is Tense.PAST:
            label = "past"
        elif label == "past" and main.time:
            label = "perfect"
        who = _again(sampler, main.subject)
        if kind is Subordinator.BEFORE:
            inner = sampler.event(who or sampler.subject(), label, short=True, positive=True)
        else:
            inner = _inner(
                sampler, label, positive=kind is Subordinator.IF and label == "perfect", subject=who
            )
        # Only the time distinguishes the present "I read" from the past "I read".
        if (
            main.time
            and inner.verb.past != inner.verb.english
            or kind in (Subordinator.IF, Subordinator.BEFORE)
        ):
            inner = replace(inner, time=None)
    first = dice.chance(0.4)
    return Sentence(replace(main, adjunct=Subordinate(kind, inner, first)), address=address)


def _again(sampler: ClauseSampler, subject: Participant) -> Participant | None:
    """Returns the same person as a pronoun; None: another subject is chosen."""
    if sampler.dice.chance(0.3):
        return None
    if isinstance(subject, Person):
        return subject
    if is_several(subject):
        return Person.THEY
    sex = feminine(subject)
    return None if sex is None else Person.SHE if sex else Person.HE


def _agentive(sampler: ClauseSampler) -> Verb:
    """Returns a verb for commands and infinitive clauses."""
    while True:
        verb = sampler.verb(Tense.PRESENT, modal=True)
        if verb.name not in ("live", "find", "see", "understand"):
            return verb


def _infinitive(sampler: ClauseSampler, address: Address | None) -> Sentence:
    """Returns a sentence with an infinitive clause: try to, forget to, promise to, in order to."""
    dice = sampler.dice
    subject = sampler.subject()
    verb = _agentive(sampler)
    while not (verb.dative or verb.objects or verb.extra):
        verb = _agentive(sampler)
    inner = replace(sampler.participants(verb, subject), subject=Silent())
    match dice.weighted((0.35, "try"), (0.2, "forget"), (0.2, "promise"), (0.25, "purpose")):
        case "try":
            outer = Clause(verbs.TRY, subject, complement=Infinitive(inner))
        case "forget":
            outer = Clause(verbs.FORGET_TO, subject, Tense.PERFECT, complement=Infinitive(inner))
        case "promise":
            outer = Clause(verbs.PROMISE, subject, Tense.PERFECT, complement=Infinitive(inner))
        case _:
            motion = sampler.participants(dice.pick(verbs.MOTION[:2]), subject)
            label = dice.weighted((0.5, "present"), (0.25, "modal"), (0.25, "past"))
            modal = Modal.MUST if label == "modal" else None
            past = label == "past"
            outer = replace(
                motion,
                modal=modal,
                tense=Tense.PAST if past else Tense.PRESENT,
                time=sampler.past() if past else None,
                adjunct=Infinitive(inner, purpose=True),
            )
    return Sentence(outer, address=address)


def _relative(sampler: ClauseSampler, address: Address | None) -> Sentence:
    """Returns a sentence with a relative clause: "the man who ...", "the book that ..."."""
    dice = sampler.dice
    label = dice.weighted((0.45, "present"), (0.25, "perfect"), (0.3, "modal"))
    if dice.chance(0.6):
        head = dice.pick(tuple(noun for noun in _PEOPLE if Kind.KIN not in noun.kinds))
        plural = dice.chance(0.25)
        relative = sampler.event(Gap(head, plural), label, short=True, positive=True)
        phrase = NounPhrase(
            head, Determiner.DEFINITE, plural, sampler.attribute(head, 0.15), relative=relative
        )
        outer = sampler.state(phrase, "present")
        if dice.chance(0.6):
            outer = sampler.event(phrase, "present", short=True)
        return Sentence(outer, address=address)
    relative = sampler.event(sampler.subject(), label, short=True, positive=True)
    direct = relative.direct
    if not isinstance(direct, NounPhrase) or Kind.PERSON in direct.noun.kinds or relative.verb.preposition:
        return _relative(sampler, address)
    relative = replace(relative, direct=Gap(direct.noun, direct.plural))
    fitting = adjectives(direct.noun)
    if not fitting:
        return _relative(sampler, address)
    phrase = NounPhrase(direct.noun, Determiner.DEFINITE, direct.plural, relative=relative)
    clause = Clause(
        verbs.BE,
        phrase,
        predicate=Quality(dice.pick(fitting)),
        polarity=dice.weighted((0.8, Polarity.POSITIVE), (0.2, Polarity.NEGATIVE)),
    )
    return Sentence(clause, address=address)


_PEOPLE: tuple[Noun, ...] = objects(verbs.PREPOSITIONAL[2])
