"""The English grammar: noun phrases, verb groups with do-support, and word order."""

from quickstart_corpus.english_verbs import group, third_person
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
from quickstart_corpus.numbers import english_number
from quickstart_corpus.punctuation import finish
from quickstart_corpus.times import Adverb, english_clock, english_time
from quickstart_corpus.verbs import EXIST
from quickstart_corpus.words import Kind, Profession

_SUBJECTS = {
    Person.ME: "I",
    Person.HE: "he",
    Person.SHE: "she",
    Person.IT: "it",
    Person.WE: "we",
    Person.THEY: "they",
}
_OBJECTS = _SUBJECTS | {
    Person.ME: "me",
    Person.HE: "him",
    Person.SHE: "her",
    Person.WE: "us",
    Person.THEY: "them",
}
_POSSESSIVES = {
    Person.ME: "my",
    Person.HE: "his",
    Person.SHE: "her",
    Person.WE: "our",
    Person.THEY: "their",
}
# These clauses do not refer to a particular event, so English does not use the progressive in them.
_SIMPLE_AFTER = (Subordinator.IF, Subordinator.BEFORE)


def english(sentence: Sentence) -> str:
    """Returns the English sentence for a meaning."""
    clause = sentence.clause
    if sentence.mood is Mood.COMMAND:
        negation = "do not " if clause.polarity is Polarity.NEGATIVE else ""
        please = "please " if sentence.please else ""
        text = please + negation + _join([clause.verb.english, *_rest(clause)])
    else:
        text = _clause(clause, inverted=sentence.mood is Mood.QUESTION)
    if sentence.address:
        text = f"{sentence.address.english}, {text}"
    return finish(text, sentence.mood)


def noun_phrase(phrase: NounPhrase) -> str:
    """Returns an English noun phrase."""
    noun = phrase.noun
    words = [phrase.adjective.english] if phrase.adjective else []
    words.append(noun.english_plural if phrase.plural else noun.english)
    determiner = _determiner(phrase, words[0])
    text = " ".join([determiner, *words] if determiner else words)
    return f"{text} {_clause(phrase.relative)}" if phrase.relative else text


def _determiner(phrase: NounPhrase, following: str) -> str:
    if phrase.possession:
        owner = phrase.possession.owner
        if isinstance(owner, Person):
            return _POSSESSIVES.get(owner, "your")
        return _genitive(_participant(owner))
    if phrase.count is not None:
        return english_number(phrase.count)
    match phrase.determiner:
        case Determiner.INDEFINITE:
            if phrase.plural or phrase.noun.mass:
                return ""
            return "an" if following[0] in "aeiou" else "a"
        case Determiner.DEMONSTRATIVE:
            return "these" if phrase.plural else "this"
        case Determiner.HOW_MANY:
            return "how many"
    return str(phrase.determiner.value)


def _clause(clause: Clause, inverted: bool = False, simple: bool = False) -> str:
    """Realises a clause; `inverted` puts the auxiliary before the subject, as questions do."""
    if isinstance(clause.subject, Silent):
        words = ["to", clause.verb.english, *_rest(clause)]
        return _join(words)
    front = _front(clause)
    subject = _participant(clause.subject, subject=True)
    if clause.verb is EXIST:
        subject = "there"
    if _is_fronted(clause.subject):
        subject, inverted = front, False
        front = ""
    negated = clause.polarity in (Polarity.NEGATIVE, Polarity.NOT_YET)
    agrees = clause.direct if clause.verb is EXIST else clause.subject
    assert agrees is not None
    aux, main = group(clause, _agreement(agrees), inverted or negated, simple)
    negation = "not" if negated else ""
    middle = _middle(clause)
    if not aux:
        words = [front, subject, middle, *main]
    elif inverted:
        words = [front, aux, subject, negation, middle, *main]
    else:
        words = [front, subject, aux, negation, middle, *main]
    before, after = _around(clause)
    if clause.time_first and clause.time:
        before = f"{before} {english_time(clause.time)}".strip()
    text = _join([before, *words, *_rest(clause)])
    return text.replace("can not ", "cannot ") + after


def _front(clause: Clause) -> str:
    """Returns the question word, relative pronoun or questioned noun phrase at the start of the clause."""
    if clause.asked:
        return clause.asked.value[0]
    for participant in (clause.subject, clause.direct, clause.indirect):
        if participant is not None and _is_fronted(participant):
            return _participant(participant, subject=participant is clause.subject)
    return ""


def _is_fronted(participant: Participant) -> bool:
    if isinstance(participant, NounPhrase):
        return participant.determiner in (Determiner.WHICH, Determiner.HOW_MANY)
    return isinstance(participant, Asked | Gap)


def _middle(clause: Clause) -> str:
    """Returns the adverb between auxiliary and main verb."""
    if clause.polarity is Polarity.ALREADY:
        return "already"
    if clause.polarity is Polarity.NO_LONGER:
        return "no longer"
    return clause.time.english if isinstance(clause.time, Adverb) and clause.time.middle else ""


def _rest(clause: Clause) -> list[str]:
    """Returns the words after the main verb."""
    verb = clause.verb
    direct = "" if clause.direct is None or _is_fronted(clause.direct) else _participant(clause.direct)
    indirect = (
        "" if clause.indirect is None or _is_fronted(clause.indirect) else _participant(clause.indirect)
    )
    relation = verb.preposition.english if verb.preposition else ""
    words = [relation, direct]
    if verb.particle:
        late = isinstance(clause.direct, Person) and verb.particle != "for" and not relation
        words = [direct, verb.particle] if late else [verb.particle, *words]
    if verb.english_to and clause.indirect is not None:
        words += [verb.english_to, indirect]
    else:
        words = [indirect, *words]
    if clause.predicate:
        words.append(_predicate(clause.predicate))
    words.append(_place(clause.goal) if clause.goal else "")
    words.append(clause.manner.english if clause.manner else "")
    words.append(_place(clause.place) if clause.place else "")
    if clause.polarity is Polarity.NOT_YET:
        words.append("yet")
    if clause.time and not clause.time_first and not (isinstance(clause.time, Adverb) and clause.time.middle):
        words.append(english_time(clause.time))
    return words


def _around(clause: Clause) -> tuple[str, str]:
    before, after = "", ""
    for part in (clause.complement, clause.adjunct):
        if isinstance(part, Infinitive):
            after += f"{' in order' if part.purpose else ''} {_clause(part.clause)}"
        elif isinstance(part, Subordinate):
            inner = _clause(part.clause, simple=part.subordinator in _SIMPLE_AFTER)
            text = f"{part.subordinator.value[0]} {inner}".strip()
            if part.first:
                before = f"{text},"
            else:
                after += f" {text}"
    return before, after


def _participant(participant: Participant, subject: bool = False) -> str:
    match participant:
        case NounPhrase():
            return noun_phrase(participant)
        case Name():
            return participant.english
        case Couple(first, second):
            return f"{first.english} and {second.english}"
        case Person():
            return (_SUBJECTS if subject else _OBJECTS).get(participant, "you")
        case Gap(noun, _):
            if Kind.PERSON not in noun.kinds:
                return "that"
            return "who" if subject else "whom"
        case Asked():
            return participant.value
    raise AssertionError(f"{participant} is never spoken")


def _agreement(subject: Participant) -> Person:
    """Returns the person of the verb: I, he or they."""
    if isinstance(subject, Person):
        if subject is Person.ME:
            return Person.ME
        return Person.HE if third_person(subject) else Person.THEY
    plural = isinstance(subject, Couple) or (isinstance(subject, NounPhrase | Gap) and subject.plural)
    return Person.THEY if plural else Person.HE


def _join(words: list[str]) -> str:
    return " ".join(word for word in words if word)


def _genitive(text: str) -> str:
    return text + ("'" if text.endswith("s") else "'s")


def _place(place: Place) -> str:
    if isinstance(place, Adverb):
        return place.english
    if isinstance(place, InCity):
        return f"{'to' if place.goal else 'in'} {place.city.english}"
    assert isinstance(place, Located)
    text = _participant(place.participant)
    if place.relation.english_bare:
        text = text.removeprefix("the ")
    if place.relation.english_genitive:
        text = _genitive(text)
    return f"{place.relation.english} {text}"


def _predicate(predicate: Predicate) -> str:
    match predicate:
        case Quality(adjective, None):
            return adjective.english
        case Quality(adjective, than):
            assert than is not None
            return f"{adjective.english_comparative} than {_participant(than)}"
        case Profession(name, _, _):
            return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
        case Age(years):
            return f"{english_number(years)} years old"
        case Price(euros):
            return f"{english_number(euros)} euros"
    return english_clock(predicate.clock)
