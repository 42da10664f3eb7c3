"""German conjugation: present, imperative, Perfekt, Präteritum of the auxiliaries, modal verbs."""

from quickstart_corpus.meaning import Modal, Person
from quickstart_corpus.words import Verb

_ROW = (Person.ME, Person.DU, Person.HE, Person.WE, Person.IHR, Person.THEY)
_LIKE = {Person.SHE: Person.HE, Person.IT: Person.HE, Person.SIE: Person.THEY}
_PRESENT = {
    "sein": "bin bist ist sind seid sind",
    "haben": "habe hast hat haben habt haben",
    "werden": "werde wirst wird werden werdet werden",
    "wissen": "weiß weißt weiß wissen wisst wissen",
}
_PRETERITE = {
    "sein": "war warst war waren wart waren",
    "haben": "hatte hattest hatte hatten hattet hatten",
}
_MODALS = {
    Modal.CAN: "kann kannst kann können könnt können",
    Modal.MUST: "muss musst muss müssen müsst müssen",
    Modal.MAY: "darf darfst darf dürfen dürft dürfen",
    Modal.WANT: "will willst will wollen wollt wollen",
    Modal.SHOULD: "sollte solltest sollte sollten solltet sollten",
    Modal.WOULD_LIKE: "möchte möchtest möchte möchten möchtet möchten",
}
_MODALS_PAST = {
    Modal.CAN: "konnte konntest konnte konnten konntet konnten",
    Modal.MUST: "musste musstest musste mussten musstet mussten",
    Modal.MAY: "durfte durftest durfte durften durftet durften",
    Modal.WANT: "wollte wolltest wollte wollten wolltet wollten",
}


def present(verb: Verb, person: Person) -> str:
    """Returns the present tense, without separable prefix."""
    if verb.german in _PRESENT:
        return _irregular(_PRESENT[verb.german], person)
    stem = _stem(verb.german)
    match _LIKE.get(person, person):
        case Person.ME:
            return stem + "e"
        case Person.DU:
            changed = verb.third[:-1]
            return changed + ("t" if changed[-1] in "sßzx" else "st")
        case Person.HE:
            return verb.third
        case Person.IHR:
            return stem + ("et" if _needs_e(stem) else "t")
        case _:
            return verb.german


def auxiliary(name: str, person: Person) -> str:
    """Returns the present of sein, haben or werden."""
    return _irregular(_PRESENT[name], person)


def preterite(verb: Verb, person: Person) -> str:
    """Returns the Präteritum, of sein and haben only."""
    return _irregular(_PRETERITE[verb.german], person)


def modal_present(modal: Modal, person: Person) -> str:
    """Returns the present of a modal verb (the subjunctive for sollte and möchte)."""
    return _irregular(_MODALS[modal], person)


def modal_past(modal: Modal, person: Person) -> str:
    """Returns the Präteritum of a modal verb."""
    return _irregular(_MODALS_PAST[modal], person)


def imperative(verb: Verb, person: Person) -> str:
    """Returns the command form for du, ihr or Sie, without prefix: lies, ruft, warten."""
    if verb.german == "sein":
        return {Person.DU: "sei", Person.IHR: "seid", Person.SIE: "seien"}[person]
    if person is not Person.DU:
        return present(verb, person)
    stem = _stem(verb.german)
    changed = verb.third[:-1]
    # e becomes i as in the present (lies, gib, hilf); a does not become ä (fahr, schlaf).
    if changed.rstrip("e") != stem and not any(umlaut in changed and umlaut not in stem for umlaut in "äöü"):
        return changed
    return stem + "e" if _needs_e(stem) or stem.endswith("er") else stem


def infinitive(verb: Verb) -> str:
    """Returns the infinitive with its prefix: anrufen."""
    return verb.prefix + verb.german


def zu_infinitive(verb: Verb) -> str:
    """Returns the infinitive with zu: zu lesen, anzurufen."""
    return f"{verb.prefix}zu{verb.german}" if verb.prefix else f"zu {verb.german}"


def _irregular(forms: str, person: Person) -> str:
    return forms.split()[_ROW.index(_LIKE.get(person, person))]


def _stem(german: str) -> str:
    return german[:-2] if german.endswith("en") else german[:-1]


def _needs_e(stem: str) -> bool:
    """Whether -st and -t need an e before them: arbeit-et, öffn-et, regn-et, zeichn-et."""
    if stem[-1] in "dt":
        return True
    return len(stem) > 2 and stem[-1] in "mn" and (stem[-2] not in "aeiouäöülrmnh" or stem[-3:-1] == "ch")
