"""The split into training, validation and test pairs, with combinations that occur only in the test."""

from dataclasses import dataclass

from quickstart_corpus.dice import Dice
from quickstart_corpus.english import english
from quickstart_corpus.german import german
from quickstart_corpus.meaning import Clause, Gap, Modal, NounPhrase, Sentence, Subordinate, walk
from quickstart_corpus.sampling import objects
from quickstart_corpus.sentences import sample
from quickstart_corpus.verbs import DITRANSITIVE, TRANSITIVE
from quickstart_corpus.words import Tense

SEED = 20170612
TRAIN, VALID, TEST = 25_000, 500, 500
UNSEEN_OBJECT, UNSEEN_CLAUSE = 130, 120
LONGEST = 13  # German words
SEEN = "seen"
OBJECT_GROUP = "unseen-object"
CLAUSE_GROUP = "unseen-clause"

# Verb and object that never occur in the same training or validation sentence, in any form or role.
HELD_OUT_OBJECTS = frozenset({
    ("read", "novel"), ("write", "poem"), ("buy", "motorcycle"), ("buy", "hat"), ("buy", "bread"),
    ("sell", "boat"), ("sell", "clock"), ("sell", "radio"), ("look for", "umbrella"), ("look for", "jacket"),
    ("find", "camera"), ("find", "dress"), ("need", "bicycle"), ("need", "shirt"), ("have", "horse"),
    ("eat", "pear"), ("drink", "juice"), ("order", "soup"), ("bake", "cake"), ("open", "suitcase"),
    ("close", "cupboard"), ("turn on", "heater"), ("turn off", "television"), ("invite", "colleague"),
    ("call", "uncle"), ("pick up", "daughter"), ("visit", "museum"), ("repair", "car"), ("wash", "coat"),
    ("clean", "kitchen"), ("wear", "coat"), ("try on", "dress"), ("bring along", "ball"),
    ("pay for", "coffee"), ("understand", "question"), ("give", "key"), ("show", "picture"),
    ("send", "letter"),
})  # fmt: skip
# Clause type and tense that no training or validation sentence combines.
HELD_OUT_CLAUSES = frozenset({
    ("WHETHER", "perfect"), ("BECAUSE", "modal"), ("THAT", "future"), ("IF", "perfect"),
})  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """A sentence in both languages, with its meaning and its test group."""

    english: str
    german: str
    meaning: Sentence
    group: str = SEEN


@dataclass(frozen=True)
class Corpus:
    """The three parts of the corpus."""

    train: list[Pair]
    valid: list[Pair]
    test: list[Pair]


def make_corpus(seed: int = SEED) -> Corpus:
    """Samples sentences until every part has its size.

    No English or German sentence occurs twice in the corpus. So each English sentence has one German
    translation, and no side of a test or validation pair occurs in training.
    """
    dice = Dice(seed)
    pools: dict[str, list[Pair]] = {SEEN: [], OBJECT_GROUP: [], CLAUSE_GROUP: []}
    # More unseen sentences than needed, so that they include rare combinations.
    wanted = {SEEN: TRAIN + VALID + TEST, OBJECT_GROUP: 6 * UNSEEN_OBJECT, CLAUSE_GROUP: 3 * UNSEEN_CLAUSE}
    sources: set[str] = set()
    targets: set[str] = set()
    while any(len(pools[group]) < size for group, size in wanted.items()):
        meaning = sample(dice)
        group = group_of(meaning)
        if group is None or len(pools[group]) >= wanted[group]:
            continue
        source, target = english(meaning), german(meaning)
        if len(target.split()) > LONGEST or source in sources or target in targets:
            continue
        sources.add(source)
        targets.add(target)
        pools[group].append(Pair(source, target, meaning, group))
    seen = pools[SEEN]
    train, valid, spare = seen[:TRAIN], seen[TRAIN : TRAIN + VALID], seen[TRAIN + VALID :]
    known = combinations(train)
    num_seen = TEST - UNSEEN_OBJECT - UNSEEN_CLAUSE
    test = [pair for pair in spare if combinations([pair]) <= known][:num_seen]
    test += _spread(dice, pools[OBJECT_GROUP], UNSEEN_OBJECT, HELD_OUT_OBJECTS, known)
    test += _spread(dice, pools[CLAUSE_GROUP], UNSEEN_CLAUSE, HELD_OUT_CLAUSES, known)
    assert len(test) == TEST, "too few sentences of known combinations were sampled for the test"
    return Corpus(train, valid, dice.shuffled(test))


def group_of(meaning: Sentence) -> str | None:
    """Returns the test group of a sentence; None if a held-out combination makes it unusable.

    It is unusable if it contains a held-out verb and noun that are not verb and object in it, or held-out
    combinations of both kinds.
    """
    verbs = {part.verb.name for part in walk(meaning) if isinstance(part, Clause)}
    nouns = {part.noun.english for part in walk(meaning) if isinstance(part, NounPhrase | Gap)}
    meeting = {(verb, noun) for verb, noun in HELD_OUT_OBJECTS if verb in verbs and noun in nouns}
    clauses = clause_tenses(meaning) & HELD_OUT_CLAUSES
    if clauses:
        return None if meeting else CLAUSE_GROUP
    if meeting:
        return OBJECT_GROUP if meeting <= verb_objects(meaning) else None
    return SEEN


def verb_objects(meaning: Sentence) -> set[tuple[str, str]]:
    """Returns every verb with its accusative or prepositional object noun."""
    return {
        (clause.verb.name, clause.direct.noun.english)
        for clause in walk(meaning)
        if isinstance(clause, Clause) and isinstance(clause.direct, NounPhrase | Gap)
    }


def clause_tenses(meaning: Sentence) -> set[tuple[str, str]]:
    """Returns every type of subordinate clause with its German tense."""
    found = set()
    for part in walk(meaning):
        if isinstance(part, Subordinate):
            found.add((part.subordinator.name, german_tense(part.clause)))
        if isinstance(part, NounPhrase) and part.relative:
            found.add(("RELATIVE", german_tense(part.relative)))
    return found


def german_tense(clause: Clause) -> str:
    """Returns the German form of a clause's tense: present, perfect, preterite, future or modal."""
    if clause.modal and clause.modal is not Modal.LIKE:
        return "modal"
    if clause.tense is Tense.PRESENT:
        return "present"
    if clause.tense is Tense.FUTURE:
        return "future"
    return (
        "preterite" if clause.tense is Tense.PAST and clause.verb.german in ("sein", "haben") else "perfect"
    )


def combinations(pairs: list[Pair]) -> set[tuple[str, str]]:
    """Returns the verb-object and clause-tense combinations of the pairs."""
    found: set[tuple[str, str]] = set()
    for pair in pairs:
        found |= verb_objects(pair.meaning) | clause_tenses(pair.meaning)
    return found


def _spread(
    dice: Dice,
    pool: list[Pair],
    size: int,
    held_out: frozenset[tuple[str, str]],
    known: set[tuple[str, str]],
) -> list[Pair]:
    """Chooses pairs evenly over the held-out combinations; all their other combinations are in `known`."""
    queues: dict[tuple[str, str], list[Pair]] = {combination: [] for combination in sorted(held_out)}
    for pair in dice.shuffled(pool):
        unseen = combinations([pair]) - known
        if len(unseen) == 1:
            queues[unseen.pop()].append(pair)
    chosen: list[Pair] = []
    while len(chosen) < size:
        assert any(queues.values()), "too few sentences with held-out combinations were sampled"
        for queue in queues.values():
            if queue and len(chosen) < size:
                chosen.append(queue.pop())
    return chosen


_OBJECTS_OF = {verb.name: {noun.english for noun in objects(verb)} for verb in TRANSITIVE + DITRANSITIVE}
assert all(noun in _OBJECTS_OF[verb] for verb, noun in HELD_OUT_OBJECTS), "a held-out object fits no verb"
