"""UTF-8 in a search: the automaton, beam search and samples with it, and its cost."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_with_the_model import untrained
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from toy_corpus import learnt
from toy_search import BOS, EOS, ToyModel, ToyState, constant, random_table, run, search_input
from toys import CPU, some_lines, translator_of

from nmt.config import DecodingConfig
from nmt.copying.strings import PLACEHOLDERS
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.data.subwords.vocabulary import EOS_ID
from nmt.decoding import utf8
from nmt.decoding.constraints import Automaton
from nmt.decoding.processors import Prefix, PrefixOptions, SearchProcessor
from nmt.decoding.sampling import Sampling, sample
from nmt.decoding.scorers import LengthPenalty
from nmt.decoding.search import Hypothesis
from nmt.decoding.searcher import SearchRequest, Sentence
from nmt.decoding.torch_searcher import TorchSearcher
from nmt.decoding.translator import Translator
from nmt.decoding.utf8 import Characters, NewestIds, Utf8
from nmt.model import Transformer

# The automaton

ALL = ["<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁a"]
FIRST, WORD = 2, 258


def ids_of(text: bytes) -> list[int]:
    return [FIRST + byte for byte in text]


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (b"", [(0x00, 0x7F), (0xC2, 0xF4)]),
        (b"A", [(0x00, 0x7F), (0xC2, 0xF4)]),
        (b"\xc2", [(0x80, 0xBF)]),
        (b"\xc3\xa9", [(0x00, 0x7F), (0xC2, 0xF4)]),
        (b"\xe0", [(0xA0, 0xBF)]),
        (b"\xe1", [(0x80, 0xBF)]),
        (b"\xe1\x80", [(0x80, 0xBF)]),
        (b"\xed", [(0x80, 0x9F)]),
        (b"\xef", [(0x80, 0xBF)]),
        (b"\xef\xbf", [(0x80, 0xBC), (0xBE, 0xBF)]),
        (b"\xef\xbe", [(0x80, 0xBF)]),
        (b"\xf0", [(0x90, 0xBF)]),
        (b"\xf0\x9f\x98", [(0x80, 0xBF)]),
        (b"\xf1", [(0x80, 0xBF)]),
        (b"\xf4", [(0x80, 0x8F)]),
        (b"\xf4\x8f\xbf", [(0x80, 0xBF)]),
    ],
)
def test_bytes_that_may_follow(before: bytes, expected: list[tuple[int, int]]) -> None:
    rules = Utf8(ALL)
    state = int(rules.states(np.array([WORD, *ids_of(before)])[None, -3:])[0])
    allowed = np.flatnonzero(~rules.forbidden()[state])
    following = [byte for first, last in expected for byte in range(first, last + 1)]
    others = [0, 1, WORD] if state == 0 else []
    assert sorted([*ids_of(bytes(following)), *others]) == allowed.tolist()


@given(st.data())
def test_allowed_ids_decode_as_strict_utf8(data: st.DataObject) -> None:
    rules, forbidden = Utf8(ALL), Utf8(ALL).forbidden()
    ids: list[int] = [BOS]
    while len(ids) < 12 or int(rules.states(np.array([ids[-3:]]))[0]):
        allowed = np.flatnonzero(~forbidden[int(rules.states(np.array([ids[-3:]]))[0])])
        parts = [int(id) for id in allowed if 0xC2 + FIRST <= id < WORD] or [int(id) for id in allowed]
        ids.append(data.draw(st.sampled_from(parts if data.draw(st.booleans()) else allowed.tolist())))
    text = b"".join(bytes([id - FIRST]) if FIRST <= id < WORD else b"_" for id in ids)
    assert "\ufffd" not in text.decode("utf-8", errors="strict")
    assert rules.whole(ids) == ids and rules.wrong(ids) == () and rules.num_missing(ids) == 0


@given(st.text(st.characters(codec="utf-8", exclude_characters="\ufffd")))
def test_every_text_is_allowed(text: str) -> None:
    ids = ids_of(text.encode())
    assert Utf8(ALL).whole(ids) == ids


@pytest.mark.parametrize(
    ("text", "whole", "wrong"),
    [
        (b"a\xc3\xa9", 3, b""),
        (b"a\xc3", 1, b""),
        (b"a\xc3b", 1, b"\xc3b"),
        (b"\xa9", 0, b"\xa9"),
        (b"ab\xa9", 2, b"b\xa9"),
        (b"a\xe2\x82\xac\xa9", 4, b"\xe2\x82\xac\xa9"),
        (b"a\xe2\x82\xc3\xa9", 1, b"\xe2\x82\xc3"),
        (b"\xed\xa0\x80", 0, b"\xed\xa0"),
        (b"x\xef\xbf\xbd", 1, b"\xef\xbf\xbd"),
        (b"x\xc0\x80", 1, b"x\xc0"),
    ],
)
def test_first_wrong_sequence(text: bytes, whole: int, wrong: bytes) -> None:
    rules, ids = Utf8(ALL), ids_of(text)
    assert rules.whole(ids) == ids[:whole]
    assert [*rules.wrong(ids)] == ids_of(wrong)


def test_bytes_that_lead_to_no_character_are_forbidden() -> None:
    pieces = ["<s>", "</s>", "<0xC3>", "<0xA9>", "<0xE2>", "<0x82>", "<0xF0>", "<0x41>"]
    rules = Utf8(pieces)  # E2 82 needs a third byte: A9 or 82; F0 needs a byte from 90 on: A9
    assert np.flatnonzero(rules.forbidden()[0]).tolist() == [3, 5]
    assert np.flatnonzero(Utf8(pieces[:3]).forbidden()[0]).tolist() == [2]
    assert rules.parts == [2, 3, 4, 5, 6] and Utf8(["<0x41>", "a"]).parts == []


# Search

PIECES = ["<s>", "</s>", "a", "<0xC3>", "<0xA9>", "<0xE2>", "<0x82>", "<0x41>"]
BYTES = {3: 0xC3, 4: 0xA9, 5: 0xE2, 6: 0x82, 7: 0x41}


def written(ids: Sequence[int]) -> bytes:
    return b"".join(bytes([BYTES[id]]) if id in BYTES else b"a" for id in ids if id > EOS)


@cache
def can_be_completed(text: bytes, room: int) -> bool:
    """Whether some bytes of the vocabulary, at most `room`, make a text that decodes."""
    for count in range(max(0, min(room, 3)) + 1):
        for more in itertools.product(BYTES.values(), repeat=count):
            try:
                (text + bytes(more)).decode()
                return True
            except UnicodeDecodeError:
                continue
    return False


class Naive(SearchProcessor):
    """Forbids what can't become text, by trying all continuations; for one sentence."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit

    def __call__(self, log_probs: Tensor, ids: Tensor) -> Tensor:
        for hypothesis, before in enumerate(ids[0].tolist()):
            text, room = written(before), self.limit - len(before)
            if not can_be_completed(text, 3):
                continue  # a complete hypothesis and what follows it
            for new in range(len(PIECES)):
                ends = new == EOS and not can_be_completed(text, 0)
                if ends or not can_be_completed(text + written([new]), room - 1):
                    log_probs[0, hypothesis, new] = -torch.inf
        return log_probs


def rules_for(limits: Sequence[int]) -> Characters:
    rules = Characters.of(PIECES, CPU)
    assert rules is not None
    return rules.start(limits)


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.integers(1, 8), st.sampled_from([1, 2, 4]))
def test_search_is_that_with_a_naive_rule(seed: int, limit: int, beam: int) -> None:
    table = random_table(seed, len(PIECES), 100)
    for sentence in range(3):
        options = {"sentences": [sentence], "beam_size": beam, "nbest": beam, "length_penalty": 0.6}
        [found] = run(table, [limit], characters=rules_for([limit]), **options)
        assert found == run(table, [limit], processors=[Naive(limit)], **options)[0]
        for one in found:
            written(one.ids).decode()


@given(st.integers(0, 10_000), st.lists(st.integers(1, 8), min_size=1, max_size=5))
def test_search_and_samples_do_not_depend_on_the_batch(seed: int, limits: list[int]) -> None:
    table = random_table(seed, len(PIECES), 12)
    together = run(table, limits, characters=rules_for(limits), beam_size=3)
    drawn = samples_of(table, limits, 2)
    for sentence, limit in enumerate(limits):
        [alone] = run(table, [limit], sentences=[sentence], characters=rules_for([limit]), beam_size=3)
        assert together[sentence] == alone
        assert samples_of(table, [limit], 2, sentences=[sentence])[0] == drawn[sentence]
        for one in (*alone, *drawn[sentence]):
            written(one.ids).decode()


def samples_of(
    table: Any, limits: Sequence[int], count: int, *, sentences: Sequence[int] | None = None, **options: Any
) -> list[list[Hypothesis]]:
    sentences = range(len(limits)) if sentences is None else sentences
    return sample(
        ToyModel(table).step,
        ToyState.of(list(sentences)),
        search_input(limits, [[sentence] for sentence in sentences]),
        Sampling(count, **options),
        scorer=LengthPenalty(0.6),
        forbidden=(BOS,),
        characters=rules_for(limits),
    )


def test_samples_have_the_renormalised_distribution() -> None:
    """Shares of EOS, a, C3, A9, E2, 82, 41: the products below divide by the sum of what is allowed."""
    shares = [0.2, 0.2, 0.1, 0.2, 0.1, 0.1, 0.1]
    table = constant(-30.0, *map(math.log, shares))
    [found] = samples_of(table, [4], 20_000, seed=7)
    # At most three ids and EOS. At a boundary EOS, a, C3, E2 (if three ids are left) and 41 are allowed.
    start = {"": 0.2, "a": 0.2, "é": 0.1, "€": 0.0, "A": 0.1}
    counts = Counter(written(one.ids[:1]) for one in found)
    total = 0.2 + 0.2 + 0.1 + 0.1 + 0.1
    expected = {b"": 0.2 / total, b"a": 0.2 / total, b"\xc3": 0.1 / total, b"\xe2": 0.1 / total}
    expected[b"A"] = start["A"] / total
    chi_square = sum((counts[key] / 20_000 - p) ** 2 / p for key, p in expected.items()) * 20_000
    assert set(counts) == set(expected)
    assert chi_square < 18.5  # 4 degrees of freedom: p = 0.001
    seconds = Counter(one.ids[1] for one in found if one.ids[:1] == (5,))
    assert set(seconds) == {4, 6}  # A9 and 82, which have 0.2 and 0.1
    assert seconds[4] / seconds.total() == pytest.approx(2 / 3, abs=0.03)
    assert {len(one.ids) for one in found if 5 in one.ids} == {3}


def test_stuck_processors_do_not_lift_the_rule() -> None:
    """The processors forbid every byte; then they are not used, but the text remains UTF-8."""

    class NoBytes(SearchProcessor):
        def __call__(self, log_probs: Tensor, ids: Tensor) -> Tensor:
            return log_probs.index_fill_(2, torch.tensor([4, 6]), -torch.inf)

    table = constant(-30.0, -3.0, -2.0, -0.2, -5.0, -9.0, -9.0, -9.0)
    [[one]] = run(table, [9], processors=[NoBytes()], characters=rules_for([9]), beam_size=1)
    assert one.ids[:2] == (3, 4)
    written(one.ids).decode()


def test_a_prefix_may_end_within_a_character() -> None:
    table = constant(-30.0, -0.1, -0.2, -9.0, -4.0, -9.0, -3.0, -9.0)
    prefix = Prefix(PrefixOptions(((5, 6),)))
    [[one]] = run(table, [9], processors=[prefix], characters=rules_for([9]), beam_size=2)
    assert one.ids[:4] == (5, 6, 6, 2)
    assert Utf8(PIECES).num_missing([5]) == 2 and Utf8(PIECES).num_missing([5, 6]) == 1


def test_a_prefix_may_have_any_ids() -> None:
    """82 begins no character, and C3 41 is none; the ids after the prefix are UTF-8."""
    table = constant(-30.0, -3.0, -0.2, -9.0, -4.0, -9.0, -0.1, -9.0)
    prefix = Prefix(PrefixOptions(((6, 3, 7), (5,))))
    rules = Characters.of(PIECES, CPU)
    assert rules is not None
    [[one, *_], [other, *_]] = run(
        table, [5, 6], processors=[prefix], characters=rules.start([5, 6], [3, 1]), beam_size=2
    )
    assert one.ids == (6, 3, 7, 2) and other.ids[:4] == (5, 6, 6, 2)


def test_constraints_of_bytes() -> None:
    table = constant(-30.0, -0.1, -0.2, -1.0, -0.05, -1.0, -3.0, -9.0)
    automaton = Automaton([[3, 4], [2]])
    for beam in (1, 4):
        options = {"constraints": [automaton], "characters": rules_for([7]), "beam_size": beam}
        [[one, *_]] = run(table, [7], **options)
        assert one.unmet == () and "é" in written(one.ids).decode()


# Cost


class Counted(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names[str(func)] += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("beam", [1, 4])
def test_a_step_without_bytes_costs_one_operator(beam: int) -> None:
    """The slice is a view; `detach` is how numpy reads a tensor."""
    pieces = [*PIECES, *"bcdefghijk"]

    def table(sentence: int, ids: tuple[int, ...]) -> list[float]:
        words = [-1.0 - (7 * number + len(ids)) % 10 / 8 for number in range(10)]
        return [-30.0, -4.0 + len(ids), -0.5 - sentence / 8, -20.0, -21.0, -22.0, -23.0, -24.0, *words]

    rules = Characters.of(pieces, CPU)
    assert rules is not None
    counts, found, steps = [], [], []
    for characters in (None, rules.start([30, 30])):
        model = ToyModel(table)
        with Counted() as counted:
            found.append(run(model, [30, 30], characters=characters, beam_size=beam))
        counts.append(counted.names)
        steps.append(len(model.widths))
    assert found[0] == found[1] and steps[0] == steps[1]
    more = counts[1] - counts[0]
    assert more.pop("aten.slice.Tensor", 0) + more.pop("aten.detach.default", 0) <= 4 * steps[0]
    assert more == {"aten.index_fill_.int_Scalar": steps[0]}


# The translator


@pytest.fixture(scope="module")
def model(tokenizer: Tokenizer) -> Transformer:
    return untrained(tokenizer, seed=4)


def noisy_lines(count: int) -> list[str]:
    odd = "é 你 😀 \ufffd ‰ ½ ґ".split()
    return [f"{line} {odd[number % 7]}x{odd[number % 5]}" for number, line in enumerate(some_lines(2, count))]


def num_replaced(translator: Translator, lines: Sequence[str], **others: Any) -> int:
    found = translator.translate(lines, **others)
    return sum("\ufffd" in one.text for line in found for one in line.hypotheses)


def without_rules(searcher: TorchSearcher) -> TorchSearcher:
    searcher.__dict__["_characters"] = None
    return searcher


@pytest.mark.parametrize(
    "options",
    [
        {"samples": 40, "temperature": 1.5},
        {"samples": 8, "top_k": 50},
        {"samples": 8, "top_p": 0.9},
        {"beam_size": 1},
        {"beam_size": 4, "nbest": 4},
        {"beam_size": 4, "nbest": 4, "diversity": 0.5},
        {"beam_size": 4, "no_repeat_ngram": 2},
    ],
    ids=str,
)
def test_no_translation_has_other_bytes(
    model: Transformer, tokenizer: Tokenizer, options: dict[str, Any]
) -> None:
    lines = noisy_lines(20)
    config = DecodingConfig(max_length_factor=1.0, max_length_offset=3, **options)
    translator = translator_of([model], tokenizer, config)
    assert num_replaced(translator, lines) == 0
    assert num_replaced(translator, lines, prefixes=["é", "", "x你"] * 6 + ["", "😀"]) == 0
    assert isinstance(translator.searcher, TorchSearcher)
    without_rules(translator.searcher)
    assert num_replaced(translator, lines) >= 5


def test_placeholders_are_copied_beside_characters(model: Transformer) -> None:
    pairs = [(f"some words of {i} to see", f"and (the) others. {i}") for i in range(80)]
    tokenizer = learnt(pairs, vocab_size=420, user_symbols=[*PLACEHOLDERS])
    own = untrained(tokenizer, seed=2)
    lines = [f"see {{x}} {word} <b>{word}</b>" for word in ("some", "words", "others", "and", "to")]
    for options in ({"beam_size": 1}, {"samples": 20, "temperature": 1.5}):
        config = DecodingConfig(max_length_factor=0.5, place_tags=False, retry_loops=False, **options)
        translator = translator_of([own], tokenizer, config)
        found = translator.translate(lines)
        assert [line.appended for line in found] == [0] * 5
        assert not any("\ufffd" in one.text for line in found for one in line.hypotheses)


@pytest.mark.parametrize("options", [{"beam_size": 1}, {"beam_size": 4}, {"samples": 3}])
def test_a_prefix_is_literal(model: Transformer, tokenizer: Tokenizer, options: dict[str, Any]) -> None:
    prefix = tokenizer.decode_target(tokenizer.encode_target(["a\ufffdé"]))[0]
    translator = translator_of([model], tokenizer, DecodingConfig(**options))
    [found] = translator.translate(["cat"], prefixes=["a\ufffdé"])
    assert all(one.text.startswith(prefix) for one in found.hypotheses)
    assert not any("\ufffd" in one.text[len(prefix) :] for one in found.hypotheses)


def test_a_prefix_that_is_cut_ends_between_characters(model: Transformer, tokenizer: Tokenizer) -> None:
    [accent] = tokenizer.encode_target(["éé"])
    searcher = translator_of([model], tokenizer, DecodingConfig(beam_size=2)).searcher
    assert isinstance(searcher, TorchSearcher)
    searcher.max_target_tokens = len(accent)  # one id less, for EOS
    [(_, [one])] = searcher.search([Sentence([5, 6], accent)], SearchRequest())
    assert one.ids[: len(accent) - 2] == tuple(accent[:-2]) and EOS_ID not in one.ids
    assert "\ufffd" not in tokenizer.decode_target([one.ids])[0]


# The device


class Copied:
    """Ids on a device that this machine lacks; `calls` are the copies from it."""

    def __init__(self, device: str, calls: list[object]) -> None:
        self.device, self.is_cuda, self.calls = torch.device(device), device.startswith("cuda"), calls

    def to(self, device: str, *, non_blocking: bool) -> Tensor:
        self.calls.append(("copy", device, non_blocking))
        return torch.tensor([[[4]]])


def test_ids_of_a_gpu_are_read_when_they_have_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []

    class Event:
        def record(self, stream: str) -> None:
            calls.append(("record", stream))

        def synchronize(self) -> None:
            calls.append("synchronize")

    monkeypatch.setattr(utf8, "_event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"stream of {device}")
    newest = NewestIds(Copied("cuda:1", calls))  # type: ignore[arg-type]
    assert calls == [("copy", "cpu", True), ("record", "stream of cuda:1")]
    assert newest.read().tolist() == [[[4]]] and calls[2:] == ["synchronize"]


@pytest.mark.parametrize("device", ["cpu", "mps"])
def test_other_devices_wait_for_the_copy(device: str) -> None:
    calls: list[object] = []
    newest = NewestIds(Copied(device, calls))  # type: ignore[arg-type]
    assert calls == [("copy", "cpu", False)] and newest.read().tolist() == [[[4]]]
