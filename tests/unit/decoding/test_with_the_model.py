"""Search and translator with a real, untrained Transformer: its scores, independent of the batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import pairs_of, some_lines, translator_of

from nmt.config import DecodingConfig, ModelConfig, Precision, Shift, Tie
from nmt.data.batches.batching import Batch
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.data.subwords.vocabulary import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from nmt.decoding.alignment import AlignmentHeads
from nmt.decoding.candidates import Utility
from nmt.decoding.ensemble import Ensemble
from nmt.decoding.processors import SearchInput
from nmt.decoding.scoring import forced_score
from nmt.decoding.search import Hypothesis, beam_search
from nmt.model import Transformer

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def model(tokenizer: Tokenizer) -> Transformer:
    return untrained(tokenizer, seed=4)


def untrained(tokenizer: Tokenizer, seed: int, decoder_layers: int = 2) -> Transformer:
    """Builds a model with softmax weights three times as large as usual, so that few scores are close."""
    torch.manual_seed(seed)
    config = ModelConfig(
        encoder_layers=1, decoder_layers=decoder_layers, d_model=32, d_ff=64, heads=4, tie=Tie.none
    )
    model = Transformer(config, tokenizer.source.size, tokenizer.target.size)
    with torch.no_grad():
        model.output_weight.mul_(3.0)
        model.output_weight[EOS_ID].mul_(2.0)
    return model.eval()


def search(
    models: Sequence[Transformer],
    sources: Sequence[Sequence[int]],
    config: DecodingConfig,
    *,
    attention: bool = False,
) -> list[list[Hypothesis]]:
    batch = Batch.of(sources, [()] * len(sources))
    ensemble = Ensemble(models)
    with torch.inference_mode():
        limits = [length + 5 for length in batch.source.lengths]
        return beam_search(
            ensemble.step,
            ensemble.start(batch),
            SearchInput(len(sources), sources, limits, BOS_ID, EOS_ID, CPU),
            config,
            forbidden=(PAD_ID, BOS_ID, UNK_ID),
            attention=attention,
        )


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("others", [0, 2], ids=["one model", "three models"])
def test_scores_are_those_of_reading_the_translation_and_of_forced_scoring(
    model: Transformer, tokenizer: Tokenizer, beam: int, others: int
) -> None:
    """With several models, the score uses the mean of their probabilities for each piece."""
    models = [model, *(untrained(tokenizer, seed, decoder_layers=seed) for seed in range(1, 1 + others))]
    sources = tokenizer.encode_source(some_lines(2, 12))
    config = DecodingConfig(beam_size=beam, nbest=beam, length_penalty=0.6)
    found = search(models, sources, config)
    pairs = [(source, one) for source, several in zip(sources, found, strict=True) for one in several]
    assert len(pairs) == 12 * beam
    batch = Batch.of([source for source, _ in pairs], [one.ids for _, one in pairs])
    with torch.inference_mode():
        read_by = [one.logits(one(batch)).softmax(-1) for one in models]
    log_probs = (sum(read_by) / len(models)).log()
    chosen = log_probs.gather(1, batch.target_out[:, None])[:, 0]
    for (_, one), read in zip(pairs, chosen.split(list(batch.target.lengths)), strict=True):
        assert one.log_prob == pytest.approx(read.sum().item(), abs=1e-5 * len(read))
        assert one.score == pytest.approx(one.log_prob / ((5 + len(read)) / 6) ** 0.6, rel=1e-6)
    ensemble, targets = Ensemble(models), [one.ids for _, one in pairs]
    start = Batch.of([source for source, _ in pairs], [()] * len(pairs))
    with torch.inference_mode():
        scores = forced_score(ensemble.step, ensemble.start(start), targets, bos_id=BOS_ID, eos_id=EOS_ID)
    for (_, one), forced in zip(pairs, scores, strict=True):
        assert len(forced) == len(one.ids) + 1
        assert sum(forced) == pytest.approx(one.log_prob, abs=1e-5 * len(forced))


def test_attention_of_an_ensemble_is_the_mean(model: Transformer, tokenizer: Tokenizer) -> None:
    other = untrained(tokenizer, seed=3)
    batch = Batch.of(tokenizer.encode_source(some_lines(10, 4)), [()] * 4)
    ids = torch.full((4, 1), BOS_ID)

    def attention(*models: Transformer) -> torch.Tensor:
        ensemble = Ensemble(models)
        with torch.inference_mode():
            found = ensemble.step(ids, ensemble.start(batch), attention=True).attention
        assert found is not None
        return found

    mean = (attention(model) + attention(other)) / 2
    torch.testing.assert_close(attention(model, other), mean)


Scores = Callable[..., list[tuple[float, ...]]]


@pytest.fixture(scope="module")
def score(model: Transformer, tokenizer: Tokenizer) -> Scores:
    """Returns the log-probabilities of the tokens of pairs."""

    def score(pairs: Sequence[tuple[str, str]], **options: int) -> list[tuple[float, ...]]:
        translator = translator_of([model], tokenizer, DecodingConfig(**options))
        return [one.token_log_probs for one in pairs_of(translator).score(pairs)]

    return score


PAIRS = [*zip(["", *some_lines(11, 12)], [*some_lines(12, 11), "", "cat"], strict=True)]


@pytest.fixture(scope="module")
def scored_together(score: Scores) -> list[tuple[float, ...]]:
    return score(PAIRS)


@settings(max_examples=15)
@given(order=st.permutations(range(13)), max_sentences=st.integers(1, 9), max_tokens=st.integers(1, 200))
def test_scores_are_the_same_in_every_batch(
    score: Scores,
    scored_together: list[tuple[float, ...]],
    order: list[int],
    max_sentences: int,
    max_tokens: int,
) -> None:
    apart = score([PAIRS[i] for i in order], max_sentences=max_sentences, max_tokens=max_tokens)
    for i, log_probs in zip(order, apart, strict=True):
        assert log_probs == pytest.approx(scored_together[i], abs=1e-5)


def test_one_model_alone_keeps_its_scores_to_the_bit(model: Transformer, tokenizer: Tokenizer) -> None:
    batch = Batch.of(tokenizer.encode_source(some_lines(5, 3)), [()] * 3)
    ids = torch.full((3, 1), BOS_ID)
    with torch.inference_mode():
        by_itself, _ = model.step(ids, model.start(batch))
        ensemble = Ensemble([model])
        assert torch.equal(ensemble.step(ids, ensemble.start(batch))[0], by_itself)


def test_models_in_training_go_back_to_it(model: Transformer, tokenizer: Tokenizer) -> None:
    other = untrained(tokenizer, seed=1).train()
    translator = translator_of([model, other], tokenizer, DecodingConfig())
    modes = []
    translator.translate(some_lines(7, 2), lambda _: modes.append((model.training, other.training)))
    assert modes[-1] == (False, False)
    assert (model.training, other.training) == (False, True)


Results = list[tuple[list[str], list[float], int]]
LINES = some_lines(3, 12)


@pytest.fixture(scope="module")
def translate(model: Transformer, tokenizer: Tokenizer) -> Callable[..., Results]:
    """Returns texts, scores and the number of tokens of lines, translated by two models."""
    models = [model, untrained(tokenizer, seed=5)]

    def translate(lines: Sequence[str], **options: int) -> Results:
        config = DecodingConfig(nbest=2, beam_size=3, max_length_offset=5, **options)
        translator = translator_of(models, tokenizer, config, precision=Precision.fp32)
        return [
            ([one.text for one in each.hypotheses], [one.score for one in each.hypotheses], each.num_tokens)
            for each in translator.translate(lines)
        ]

    return translate


@pytest.fixture(scope="module")
def together(translate: Callable[..., Results]) -> Results:
    return translate(LINES)


@settings(max_examples=15)
@given(order=st.permutations(range(12)), max_sentences=st.integers(1, 9), max_tokens=st.integers(1, 200))
def test_the_text_is_the_same_in_every_batch(
    translate: Callable[..., Results],
    together: Results,
    order: list[int],
    max_sentences: int,
    max_tokens: int,
) -> None:
    apart = translate([LINES[i] for i in order], max_sentences=max_sentences, max_tokens=max_tokens)
    for i, (texts, scores, num_tokens) in zip(order, apart, strict=True):
        assert (texts, num_tokens) == (together[i][0], together[i][2])
        assert scores == pytest.approx(together[i][1], abs=1e-5 * num_tokens)


def test_attention_of_a_line_does_not_depend_on_its_batch(model: Transformer, tokenizer: Tokenizer) -> None:
    translator = translator_of([model], tokenizer, DecodingConfig(beam_size=2, nbest=2))
    lines = some_lines(7, 5)
    together = translator.translate(lines, attention=True)
    for line, one in zip(lines, together, strict=True):
        [alone] = translator.translate([line], attention=True)
        [source] = tokenizer.encode_source([line])
        for hypothesis, other in zip(one.hypotheses, alone.hypotheses, strict=True):
            assert hypothesis.text == other.text
            assert hypothesis.attention.shape[1] == len(source) + 1
            torch.testing.assert_close(hypothesis.attention, other.attention)
            torch.testing.assert_close(
                hypothesis.attention.sum(1), torch.ones(len(hypothesis.attention)), atol=1e-5, rtol=0.0
            )
        assert len(one.hypotheses[0].attention) == one.num_tokens


@pytest.mark.parametrize("count", [1, 2])
def test_a_translator_with_other_options_is_that_of_its_constructor(
    count: int, model: Transformer, tokenizer: Tokenizer
) -> None:
    models, lines = [model, untrained(tokenizer, seed=5)][:count], some_lines(8, 4)
    before = DecodingConfig(beam_size=2, max_source_tokens=5)
    heads = [AlignmentHeads(((0, 1),), Shift.reading)] * count
    first = translator_of(models, tokenizer, before, precision=Precision.bf16, heads=heads)
    first.translate(lines, constraints=[["cat"]] * len(lines))
    for changes in (
        {"beam_size": 4, "nbest": 3, "max_source_tokens": 100, "no_repeat_ngram": 1},
        {"samples": 2},
    ):
        config = replace(before, **changes)
        changed = first.with_options(config)
        fresh = translator_of(models, tokenizer, config, precision=Precision.bf16, heads=heads)
        assert changed.searcher.max_source_tokens == fresh.searcher.max_source_tokens
        assert changed.searcher.precision == fresh.searcher.precision == Precision.bf16
        assert changed.translate(lines, alignments=True) == fresh.translate(lines, alignments=True)
        assert changed.searcher.ensemble.models == first.searcher.ensemble.models
    assert first.config == before and first.searcher.max_source_tokens == 5


def test_other_options_retain_the_utility(model: Transformer, tokenizer: Tokenizer) -> None:
    shortest = Utility(lambda hypotheses, references, sources: [-len(one) for one in hypotheses])
    config, lines = DecodingConfig(nbest=4, mbr="shortest"), some_lines(8, 2)
    few = translator_of([model], tokenizer, replace(config, nbest=2), utility=shortest)
    fresh = translator_of([model], tokenizer, config, utility=shortest)
    assert few.with_options(config).translate(lines) == fresh.translate(lines)


def test_attention_has_the_pieces_that_it_joins(model: Transformer, tokenizer: Tokenizer) -> None:
    config = DecodingConfig(beam_size=2, nbest=2, max_source_tokens=6)
    [found, blank] = translator_of([model], tokenizer, config).translate(
        ["the red cat sees the old house", ""], prefixes=["the old cat", ""], attention=True
    )
    pieces = tokenizer.source.pieces_of(tokenizer.encode_source(["the red cat sees the old house"])[0])
    prefix = tokenizer.target.pieces_of(tokenizer.encode_target(["the old cat"])[0])
    assert found.source_pieces == (*pieces[:5], "</s>") and found.truncated
    for one in found.hypotheses:
        assert one.attention.shape == (len(one.pieces), 6)
        assert one.pieces[: len(prefix)] == (*prefix,) and one.pieces[-1] == "</s>"
    assert (blank.source_pieces, blank.hypotheses[0].pieces) == ((), ())
    [plain] = translator_of([model], tokenizer, config).translate(["the cat"])
    assert (plain.source_pieces, plain.hypotheses[0].pieces) == ((), ())
