"""Word alignments: links from weights, the choice of heads, and the translator that aligns."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor
from toys import CopyModel, CopyState, WordTokenizer, pairs_of, translator_of

from nmt.config import DecodingConfig, ModelConfig, Shift
from nmt.decoding.alignment import AlignmentHeads, word_links
from nmt.decoding.ensemble import Ensemble
from nmt.decoding.head_choice import choose_heads, reliable_links
from nmt.decoding.translation import pharaoh
from nmt.decoding.translator import Translator
from nmt.errors import UserError
from nmt.model import MODELS, Seq2Seq, Transformer

PREDICTING, READING = Shift.predicting, Shift.reading


def test_links_by_hand() -> None:
    weights = torch.tensor(
        [
            # word 0: pieces 0, 1; word 1: piece 2; then EOS
            [0.30, 0.30, 0.40, 9.0],  # target word 0: the sum of two pieces exceeds 0.40
            [0.10, 0.10, 0.80, 9.0],  # target word 1, with the next row: 0.2 + 0.9 and 0.8 + 0.0
            [0.50, 0.40, 0.00, 9.0],
            [0.25, 0.25, 0.50, 9.0],  # target word 2: equal
            [0.00, 0.00, 0.00, 9.0],  # target word 3: all weight is on EOS
            [0.00, 0.00, 1.00, 9.0],  # no word
            [1.00, 1.00, 1.00, 9.0],  # EOS
        ]
    )
    links = word_links(weights, [0, 0, 1], [0, 1, 1, 2, 3, -1])
    assert links == ((0, 0), (0, 1), (0, 2))
    assert pharaoh(links) == "0-0 0-1 0-2"
    assert word_links(weights, [0, 0, 1], [0, 1, 1, 2, 3, -1], threshold=0.55) == ((0, 0), (0, 1))
    assert word_links(weights, [-1, -1, 0], [0, 1, 1, 2]) == ((0, 0), (0, 1), (0, 2))
    assert (
        word_links(weights, [], [0]) == word_links(weights, [0], []) == word_links(weights, [-1], [0]) == ()
    )
    assert pharaoh(()) == ""


class AttentiveCopy(CopyModel):
    """Copies its source; head 1 of layer 0 attends to the word that it predicts, or that it reads."""

    config = ModelConfig()
    attention_shape: tuple[int, int] | None = (2, 3)

    def __init__(self, shift: Shift = PREDICTING) -> None:
        super().__init__()
        self.delay = shift is READING

    def step_with_heads(self, ids: Tensor, state: CopyState) -> tuple[Tensor, CopyState, Tensor]:
        position = state.position
        log_probs, state = self.step(ids, state)
        weights = torch.zeros(*ids.shape, 2, 3, max(self.batches[-1]))
        for row, source in enumerate(state.sources):
            weights[row, ..., : len(source)] = 1 / len(source)
            place = min(max(position - self.delay, 0), len(source) - 1)
            weights[row, :, 0, 1] = torch.nn.functional.one_hot(
                torch.tensor(place), weights.shape[-1]
            ).float()
        return log_probs, state, weights


def copier(
    models: Sequence[AttentiveCopy], heads: Sequence[AlignmentHeads | None] | None = None, **options: object
) -> Translator:
    tokenizer = Words(nothing=["nothing"])
    config = DecodingConfig(**options)  # type: ignore[arg-type]
    return translator_of(models, tokenizer, config, heads=heads)  # type: ignore


class Words(WordTokenizer):
    """Each word is one piece, or none."""

    def source_word_numbers(self, text: str) -> list[int]:
        return [number for number, word in enumerate(text.split()) if word not in self.nothing]

    word_numbers = source_word_numbers

    def decoded_word_numbers(self, ids: Sequence[int]) -> list[int]:
        return list(range(len(ids)))


LINES = ["w1 w2 w3 w4", "", "w5", "w6 nothing w7 w8", "nothing", "w1 w2"]
EXPECTED = [((0, 0), (1, 1), (2, 2), (3, 3)), (), ((0, 0),), ((0, 0), (2, 1), (3, 2)), (), ((0, 0), (1, 1))]


@pytest.mark.parametrize(
    "shifts", [[PREDICTING], [READING], [PREDICTING, READING], [READING, READING]], ids=str
)
@pytest.mark.parametrize(
    "options",
    [{}, {"beam_size": 1}, {"beam_size": 3, "nbest": 3}, {"samples": 2, "temperature": 0.2}, {"workers": 2}],
    ids=str,
)
def test_known_attention(shifts: list[Shift], options: dict[str, object]) -> None:
    """Each model has the shift of its heads; an ensemble may have both."""
    heads = [AlignmentHeads(((0, 1),), shift) for shift in shifts]
    translator = copier([AttentiveCopy(shift) for shift in shifts], heads, max_sentences=2, **options)
    found = translator.translate(LINES, alignments=True)
    assert [one.hypotheses[0].alignment for one in found] == EXPECTED
    for line, one in zip(LINES, found, strict=True):
        for hypothesis in one.hypotheses:
            assert len(hypothesis.alignment) <= len(hypothesis.text.split())
            assert all(source < len(line.split()) for source, _ in hypothesis.alignment)
            assert hypothesis.attention is None
    plain = copier([AttentiveCopy(shift) for shift in shifts], **options).translate(LINES)
    texts = [[one.text for one in translation.hypotheses] for translation in found]
    assert texts == [[one.text for one in translation.hypotheses] for translation in plain]
    assert all(one.hypotheses[0].alignment == () for one in plain)


def test_options_override_what_is_stored() -> None:
    stored = AlignmentHeads(((1, 0),), READING)
    for heads in ([[0, 1]], [[0, 1], [1, 2]]):
        options = {"alignment_heads": heads, "alignment_shift": PREDICTING}
        found = copier([AttentiveCopy()], [stored], **options).translate(LINES, alignments=True)
        assert [one.hypotheses[0].alignment for one in found] == EXPECTED


def test_prefixes_and_cut_lines() -> None:
    translator = copier([AttentiveCopy()], [AlignmentHeads(((0, 1),))], max_source_tokens=3)
    found = translator.translate(["w1 w2", "w1 w2 w3 w4"], prefixes=["w1", "w9"], alignments=True)
    assert found[1].truncated == 5
    assert [one.hypotheses[0].alignment for one in found] == [((0, 0), (1, 1)), ((0, 0), (1, 1))]


def test_given_pairs() -> None:
    for shift in (PREDICTING, READING):
        translator = copier([AttentiveCopy(shift)], [AlignmentHeads(((0, 1),), shift)], max_sentences=2)
        pairs = [*zip(LINES, LINES, strict=True), ("w1 w2", ""), ("", "w1"), ("w1 w2 w3", "w9 w8 w7")]
        done: list[int] = []
        found = pairs_of(translator).align(pairs, done.append)
        aligned = [tuple((a, a) for a, _ in links) for links in EXPECTED]
        assert found == [*aligned, (), (), ((0, 0), (1, 1), (2, 2))]
        assert sum(done) == len(pairs)


def test_without_a_choice_the_last_layer_is_used(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "nmt")
    translator = copier([AttentiveCopy()])
    translator.translate(LINES, alignments=True)
    pairs_of(translator).align([("w1", "w1")])
    assert [record.getMessage() for record in caplog.records] == [
        "alignments: no heads were chosen for this model, so all of layer 1 are used; "
        "nmt.load(DIR).choose_alignment_heads(pairs) chooses better ones, for decoding.alignment_heads"
    ]


@pytest.mark.parametrize("value", [[[2, 0]], [[0, 3]], [[0, 1], [0, 9]]], ids=str)
def test_heads_that_the_model_lacks(value: list[list[int]]) -> None:
    with pytest.raises(UserError, match=r"the model has the layers 0 to 1 with the heads 0 to 2\. Choose"):
        copier([AttentiveCopy()], alignment_heads=value).translate(["w"], alignments=True)


@pytest.mark.parametrize("value", ["best", [], [1], [[1]], [[1, -1]], [[1, True]], [["a", 0]], 3], ids=str)
def test_malformed_heads(value: object) -> None:
    with pytest.raises(UserError, match=r"decoding\.alignment_heads=.* must be auto, or a list of layers"):
        DecodingConfig(alignment_heads=value)


def test_a_model_without_attention_is_refused() -> None:
    class Blind(AttentiveCopy):
        attention_shape = None

    message = r"model\.architecture=transformer: this model has no attention to the source"
    for call in (
        lambda one: one.translate(["w"], alignments=True),
        lambda one: pairs_of(one).align([("w", "w")]),
    ):
        with pytest.raises(UserError, match=message):
            call(copier([Blind()]))


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ({"heads": [[1, 2], [0, 0]], "shift": "reading"}, AlignmentHeads(((1, 2), (0, 0)), READING)),
        ({}, None),
        ({"heads": [[1]], "shift": "reading"}, None),
        ({"heads": 3, "shift": "reading"}, None),
        ({"heads": [], "shift": "backwards"}, None),
        (None, None),
    ],
    ids=str,
)
def test_what_is_stored(section: object, expected: AlignmentHeads | None) -> None:
    assert AlignmentHeads.from_results({"alignment": section}) == expected
    assert AlignmentHeads.from_results({}) is None


# The choice of heads


def reversed_pairs(count: int = 150) -> list[tuple[list[int], list[int]]]:
    chance = random.Random(3)
    sources = [[chance.randint(4, 40) for _ in range(chance.randint(1, 9))] for _ in range(count)]
    return [(source, [one + 100 for one in reversed(source)]) for source in sources]


def test_reliable_links_are_right() -> None:
    """They know no order; a piece that occurs twice has none."""
    pairs = [*reversed_pairs(), ([4, 4, 5], [105, 104, 104]), ([], [104]), ([5], [])]
    links = reliable_links(pairs)
    for (source, target), found in zip(pairs, links, strict=True):
        for i, j in found:
            assert target[j] == source[i] + 100
            assert source.count(source[i]) == 1
    assert links[-3:] == [[(2, 0)], [], []]
    single = sum(source.count(one) == 1 for source, _ in pairs for one in source)
    assert sum(map(len, links)) > 0.9 * single
    assert links == reliable_links(pairs)


@pytest.mark.parametrize("shift", [PREDICTING, READING])
def test_the_best_heads_are_chosen(shift: Shift) -> None:
    """Layer 1: head 0 aligns the first half of a source, head 2 the second half; the others are noise."""

    def attention(pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[Tensor]:
        found = []
        for source, target in pairs:
            weights = torch.rand(len(target) + 1, 3, 4, 12).softmax(-1)
            for place in range(len(target)):
                wanted = len(source) - 1 - place
                row = weights[place + (shift is READING)]
                row[1, 0 if wanted < len(source) / 2 else 2, wanted] = 1.0
            found.append(weights)
        return found

    choice = choose_heads(attention, reversed_pairs())
    assert choice is not None
    assert set(choice.heads.heads) == {(1, 0), (1, 2)}
    assert choice.heads.shift is shift
    assert choice.agreement > 0.97 > 0.5 > choice.default_agreement
    assert choice.as_dict()["shift"] == shift.value
    assert AlignmentHeads.from_results({"alignment": choice.as_dict()}) == choice.heads


def test_a_whole_layer_is_chosen_if_it_is_better() -> None:
    """Each of ten heads aligns a tenth of the sources, so four heads align less than half of them."""

    def attention(pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[Tensor]:
        found = []
        for number, (source, target) in enumerate(pairs):
            weights = torch.full((len(target) + 1, 2, 10, 12), 1 / 12)
            weights[..., 0] += 0.01
            for place in range(len(target)):
                weights[place, 1, number % 10, len(source) - 1 - place] = 1.0
            found.append(weights)
        return found

    choice = choose_heads(attention, reversed_pairs())
    assert choice is not None
    assert set(choice.heads.heads) == {(1, head) for head in range(10)}
    assert choice.agreement == choice.default_agreement == 1.0


def test_too_few_pairs_give_no_choice() -> None:
    assert choose_heads(lambda pairs: [], reversed_pairs(1)) is None
    assert choose_heads(lambda pairs: [], []) is None


# Real models


def real(name: str) -> Seq2Seq:
    torch.manual_seed(4)
    config = ModelConfig(encoder_layers=1, decoder_layers=2, d_model=16, d_ff=20, heads=2, architecture=name)
    model = MODELS[name](config, 40, 40).eval()  # type: ignore[call-arg, arg-type]
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.6)
    return model


@pytest.mark.parametrize("name", ["transformer", "rnn_attention"])
@pytest.mark.parametrize("shift", [PREDICTING, READING])
def test_alignments_do_not_depend_on_the_batch(name: str, shift: Shift) -> None:
    model = real(name)
    lines = ["w1 w2 w3", "w4", "w5 w6 w7 w8 w1", "w2 w2", "w9 w1 w3 w4 w5 w6 w7"]
    heads = AlignmentHeads(((0, 0),) if name == "rnn_attention" else ((1, 1), (0, 0)), shift)
    options = {"beam_size": 3, "nbest": 2, "max_length_offset": 3}

    def translator() -> Translator:
        tokenizer = Words()
        tokenizer.words = [f"w{number}" for number in range(1, 37)]  # all ids have words
        return translator_of([model], tokenizer, DecodingConfig(**options), heads=[heads])  # type: ignore

    together = translator().translate(lines, alignments=True)
    alone = [translator().translate([line], alignments=True)[0] for line in lines]
    assert [[one.alignment for one in found.hypotheses] for found in together] == [
        [one.alignment for one in found.hypotheses] for found in alone
    ]
    assert all(one.alignment for found in together for one in found.hypotheses if one.text)
    forced = pairs_of(translator()).align(
        [(line, found.hypotheses[0].text) for line, found in zip(lines, together, strict=True)]
    )
    assert forced == [found.hypotheses[0].alignment for found in together]


def test_the_attention_of_an_ensemble_is_the_mean_of_the_chosen_heads() -> None:
    models = [real("transformer"), real("rnn_attention")]
    assert isinstance(models[0], Transformer)
    heads = [AlignmentHeads(((0, 1), (1, 0)), PREDICTING), AlignmentHeads(((0, 0),), READING)]
    from nmt.data.batches.batching import Batch

    batch = Batch.of([[5, 6, 7], [8]], [(), ()])
    ensemble = Ensemble(models, heads)
    state, states = ensemble.start(batch), [model.start(batch) for model in models]
    ids = torch.ones(2, 1, dtype=torch.int64)
    before = torch.zeros(2, 1, 4)
    with torch.inference_mode():
        for _ in range(3):
            output = ensemble.step(ids, state, attention=True)
            state = output.state
            _, states[0], first = models[0].step_with_heads(ids, states[0])
            _, states[1], second = models[1].step_with_heads(ids, states[1])
            expected = (before + second[:, :, 0, 0]) / 2
            assert output.attention is not None
            torch.testing.assert_close(output.attention, expected)
            before = (first[:, :, 0, 1] + first[:, :, 1, 0]) / 2
            rows = torch.tensor([[0, 0], [1, 1]]) if ids.shape[1] == 1 else torch.tensor([[1, 0], [3, 2]])
            state, states = state.select(rows), [one.select(rows) for one in states]
            before = before.flatten(0, 1)[rows]
            ids = torch.tensor([[5, 6], [7, 8]])
