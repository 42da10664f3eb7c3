"""English verb groups: inflection, auxiliaries, modal verbs and do-support."""

from quickstart_corpus.meaning import Clause, Modal, Person
from quickstart_corpus.times import is_habitual, is_since
from quickstart_corpus.words import Tense, Verb

_DOUBLING = {"get", "put", "swim", "forget", "begin"}
_BE = {Person.ME: ("am", "was"), Person.HE: ("is", "was"), Person.THEY: ("are", "were")}


def group(clause: Clause, person: Person, needs_auxiliary: bool, simple: bool) -> tuple[str, list[str]]:
    """Returns the auxiliary (empty if there is none) and the words after it.

    Args:
        clause: The clause whose verb it is.
        person: The person of the verb: ME, HE or THEY.
        needs_auxiliary: Whether negation or inversion requires an auxiliary, "do" if there is no other.
        simple: Whether the type of clause excludes the progressive.
    """
    verb, tense = clause.verb, clause.tense
    past = tense is Tense.PAST
    if clause.modal:
        return _modal_group(clause.modal, verb.english, past, person, needs_auxiliary)
    if tense is Tense.FUTURE:
        return "will", [verb.english]
    if tense is Tense.PERFECT:
        return _have(person), [verb.participle]
    if is_since(clause.time):
        return _have(person), ["been"] if verb.english == "be" else ["been", ing(verb.english)]
    if verb.english == "be":
        return _be(person, past), []
    habitual = simple or verb.simple or is_habitual(clause.time)
    if not past and not habitual:
        return _be(person, False), [ing(verb.english)]
    if needs_auxiliary:
        return _do(person, past), [verb.english]
    if past:
        return "", [verb.past]
    return "", [third(verb.english) if person is Person.HE else verb.english]


def third_person(person: Person) -> bool:
    """Whether a pronoun takes the verb's -s."""
    return person in (Person.HE, Person.SHE, Person.IT)


def third(base: str) -> str:
    """Returns the third person singular present: tries, goes, washes."""
    if base == "have":
        return "has"
    if base.endswith("y") and base[-2] not in "aeiou":
        return base[:-1] + "ies"
    return base + ("es" if base.endswith(("s", "sh", "ch", "x", "z", "o")) else "s")


def ing(base: str) -> str:
    """Returns the present participle: writing, getting, lying."""
    if base.endswith("ie"):
        return base[:-2] + "ying"
    if base in _DOUBLING:
        return base + base[-1] + "ing"
    if base.endswith("e") and not base.endswith("ee"):
        return base[:-1] + "ing"
    return base + "ing"


def forms(verb: Verb) -> tuple[str, ...]:
    """Returns every form of a verb's first word."""
    return (verb.english, third(verb.english), verb.past, verb.participle, ing(verb.english))


def _modal_group(modal: Modal, base: str, past: bool, person: Person, needs: bool) -> tuple[str, list[str]]:
    match modal:
        case Modal.CAN:
            return (_be(person, past), ["able to", base]) if past else ("can", [base])
        case Modal.SHOULD:
            return "should", [base]
        case Modal.WOULD_LIKE:
            return "would", ["like to", base]
        case Modal.MAY:
            return _be(person, past), ["allowed to", base]
    head, head_past = {
        Modal.MUST: ("have", "had"),
        Modal.WANT: ("want", "wanted"),
        Modal.LIKE: ("like", "liked"),
    }[modal]
    if needs:
        return _do(person, past), [head, "to", base]
    if past:
        return "", [head_past, "to", base]
    return "", [third(head) if person is Person.HE else head, "to", base]


def _be(person: Person, past: bool) -> str:
    return _BE[person][past]


def _have(person: Person) -> str:
    return "has" if person is Person.HE else "have"


def _do(person: Person, past: bool) -> str:
    if past:
        return "did"
    return "does" if person is Person.HE else "do"
