"""German declension: nouns, articles, adjectives, pronouns and contracted prepositions."""

from quickstart_corpus.lexicon import Name
from quickstart_corpus.meaning import Person
from quickstart_corpus.words import Adjective, Case, Gender, Noun

_PLURAL = "plural"
_Table = dict[Gender | str, str]
_CASES = (Case.NOM, Case.ACC, Case.DAT, Case.GEN)
_ARTICLES: _Table = {
    Gender.M: "der den dem des",
    Gender.F: "die die der der",
    Gender.N: "das das dem des",
    _PLURAL: "die die den der",
}
_RELATIVES: _Table = _ARTICLES | {
    Gender.M: "der den dem dessen",
    Gender.F: "die die der deren",
    Gender.N: "das das dem dessen",
    _PLURAL: "die die denen deren",
}
_DER_WORD: _Table = {
    Gender.M: "er en em es",
    Gender.F: "e e er er",
    Gender.N: "es es em es",
    _PLURAL: "e e en er",
}
_EIN_WORD: _Table = _DER_WORD | {Gender.M: "- en em es", Gender.N: "- - em es"}
_WEAK: _Table = {
    Gender.M: "e en en en",
    Gender.F: "e e en en",
    Gender.N: "e e en en",
    _PLURAL: "en en en en",
}
_MIXED: _Table = _WEAK | {Gender.M: "er en en en", Gender.N: "es es en en"}
_STRONG: _Table = _DER_WORD | {Gender.M: "er en em en", Gender.N: "es es em en"}
_PRONOUNS = {
    Person.ME: "ich mich mir",
    Person.DU: "du dich dir",
    Person.HE: "er ihn ihm",
    Person.SHE: "sie sie ihr",
    Person.IT: "es es ihm",
    Person.WE: "wir uns uns",
    Person.IHR: "ihr euch euch",
    Person.SIE: "Sie Sie Ihnen",
    Person.THEY: "sie sie ihnen",
}
_REFLEXIVES = {Person.ME: "mich", Person.DU: "dich", Person.WE: "uns", Person.IHR: "euch"}
_POSSESSIVES = {
    Person.ME: "mein",
    Person.DU: "dein",
    Person.HE: "sein",
    Person.SHE: "ihr",
    Person.WE: "unser",
    Person.IHR: "euer",
    Person.SIE: "Ihr",
    Person.THEY: "ihr",
}
_CONTRACTIONS = {
    ("in", "dem"): "im",
    ("in", "das"): "ins",
    ("an", "dem"): "am",
    ("an", "das"): "ans",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
    ("von", "dem"): "vom",
    ("bei", "dem"): "beim",
}


def decline_noun(noun: Noun, case: Case, plural: bool = False) -> str:
    """Returns the form of a noun: des Mannes, den Männern, dem Jungen."""
    if plural:
        if case is Case.DAT and noun.plural[-1] not in "ns":
            return noun.plural + "n"
        return noun.plural
    if case is Case.GEN:
        return noun.genitive
    if noun.weak and case is not Case.NOM:
        return noun.genitive
    return noun.german


def definite_article(gender: Gender, case: Case, plural: bool = False) -> str:
    """Returns der, die, das."""
    return _cell(_ARTICLES, gender, case, plural)


def relative_pronoun(gender: Gender, case: Case, plural: bool = False) -> str:
    """Returns the relative pronoun der, die, das."""
    return _cell(_RELATIVES, gender, case, plural)


def der_word(stem: str, gender: Gender, case: Case, plural: bool = False) -> str:
    """Returns a determiner declined like der: dies-er, jed-er, welch-er."""
    return stem + _cell(_DER_WORD, gender, case, plural)


def ein_word(stem: str, gender: Gender, case: Case, plural: bool = False) -> str:
    """Returns a determiner declined like ein: kein, mein, unser, euer (which drops an e: eure)."""
    ending = _cell(_EIN_WORD, gender, case, plural)
    return ("eur" if stem == "euer" and ending else stem) + ending


def possessive(owner: Person) -> str:
    """Returns the stem of mein, dein, sein."""
    return _POSSESSIVES[owner]


def weak_adjective(adjective: Adjective, gender: Gender, case: Case, plural: bool = False) -> str:
    """Returns the adjective after der, dieser, jeder, welcher."""
    return adjective.stem + _cell(_WEAK, gender, case, plural)


def mixed_adjective(adjective: Adjective, gender: Gender, case: Case, plural: bool = False) -> str:
    """Returns the adjective after ein, kein, mein."""
    return adjective.stem + _cell(_MIXED, gender, case, plural)


def strong_adjective(adjective: Adjective, gender: Gender, case: Case, plural: bool = False) -> str:
    """Returns the adjective after no determiner, a number or a name's genitive."""
    return adjective.stem + _cell(_STRONG, gender, case, plural)


def pronoun(person: Person, case: Case) -> str:
    """Returns a personal pronoun in the nominative, accusative or dative."""
    return _PRONOUNS[person].split()[_CASES.index(case)]


def reflexive(person: Person) -> str:
    """Returns the accusative reflexive pronoun."""
    return _REFLEXIVES.get(person, "sich")


def decline_name(name: Name, case: Case) -> str:
    """Returns a name; Herr is an n-declension noun, first names take -s in the genitive."""
    if case is Case.GEN:
        return ("Herrn" + name.german[4:] if name.german.startswith("Herr ") else name.german) + "s"
    if case is not Case.NOM and name.german.startswith("Herr "):
        return "Herrn" + name.german[4:]
    return name.german


def prepositional_phrase(preposition: str, noun_phrase: str, contract: bool) -> str:
    """Joins a preposition and a noun phrase, contracted (im, ins, zur) where asked and possible."""
    first, _, rest = noun_phrase.partition(" ")
    contracted = _CONTRACTIONS.get((preposition, first)) if contract else None
    return f"{contracted} {rest}" if contracted else f"{preposition} {noun_phrase}"


def _cell(
    table: dict[Gender | str, str] | dict[object, str], gender: Gender, case: Case, plural: bool
) -> str:
    row = table[_PLURAL if plural else gender]
    form = row.split()[_CASES.index(case)]
    return "" if form == "-" else form
