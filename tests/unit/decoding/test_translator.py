"""Line accounting, batches and limits of the translator, with a model that copies."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import CopyModel, NanModel, WordTokenizer, translator_of

from nmt.config import DecodingConfig, Precision
from nmt.decoding.search_batches import batches_by_length
from nmt.decoding.translation import BLANK, problems
from nmt.decoding.translator import Translator
from nmt.errors import UserError
from nmt.runtime.streams import log


def translator(model: CopyModel | None = None, nothing: Sequence[str] = (), **options: float) -> Translator:
    return translator_of(
        [model or CopyModel()],
        WordTokenizer(nothing),
        DecodingConfig(**options),
        precision=Precision.fp32,
    )


words = st.sampled_from([f"w{number}" for number in range(20)])
spaces = st.text(st.sampled_from(" \t\x0b\x0c\r\x1c\x85\xa0\u2028\u3000"), max_size=4)
lines = st.lists(st.one_of(spaces, st.lists(words, min_size=1, max_size=12).map(" ".join)), max_size=20)


@given(lines=lines, beam=st.integers(1, 3), max_tokens=st.integers(1, 40), max_sentences=st.integers(1, 5))
def test_every_line_gets_its_own_translation(
    lines: list[str], beam: int, max_tokens: int, max_sentences: int
) -> None:
    found = translator(beam_size=beam, max_tokens=max_tokens, max_sentences=max_sentences).translate(lines)
    assert [one.hypotheses[0].text for one in found] == [" ".join(line.split()) for line in lines]
    assert [one.num_tokens for one in found] == [
        len(line.split()) + 1 if line.split() else 0 for line in lines
    ]


def test_blank_lines_are_not_shown_to_the_model() -> None:
    model = CopyModel()
    blank = ["", " ", "\t", "\x0c", "\r", "\u2028", "\u3000\xa0", "nothing"]
    assert translator(model, nothing=["nothing"]).translate(blank) == [BLANK] * len(blank)
    assert model.batches == []


def test_long_sources_are_cut_and_say_so() -> None:
    long = " ".join(f"w{number % 50}" for number in range(100))
    exact = " ".join(f"w{number}" for number in range(9))
    short, whole, cut = translator(max_source_tokens=10).translate(["w1", exact, long])
    assert (short.truncated, whole.truncated, cut.truncated) == (0, 0, 101)
    assert whole.hypotheses[0].text == exact
    assert cut.hypotheses[0].text == exact  # nine words and EOS


def test_the_message_names_the_limit_of_the_model_if_it_is_lower() -> None:
    class Short(CopyModel):
        max_source_len = 3

    for options, limit in [
        ({}, "the limit of the model; give shorter sentences"),
        ({"max_source_tokens": 3}, "decoding.max_source_tokens"),
    ]:
        (cut,) = translator(Short(), **options).translate(["w1 w2 w3 w4"])
        assert problems(cut, 1) == [f"line 1: cut to 3 of 5 tokens ({limit})"]


def test_translations_are_at_most_as_long_as_the_options_say() -> None:
    class Endless(CopyModel):
        def step(self, ids, state):
            log_probs, state = super().step(ids, state)
            return torch.full_like(log_probs, -9.0).index_fill_(2, torch.tensor([4]), -0.01), state

    found = translator(
        Endless(), beam_size=1, max_length_factor=1.5, max_length_offset=3
    ).translate(["a", "a a a a"])  # fmt: skip
    # 2 * 1.5 + 3 and 5 * 1.5 + 3, including EOS
    assert [one.num_tokens for one in found] == [6, 10]
    assert [one.hypotheses[0].text for one in found] == ["a a a a a", "a a a a a a a a a"]


def test_batches_keep_their_limits_and_finished_ones_are_told() -> None:
    model, reported = CopyModel(), []
    lines = [" ".join(["w"] * length) for length in (3, 1, 9, 2, 30, 1)] + ["", " "]
    translator(model, max_tokens=20, max_sentences=3).translate(lines, reported.append)
    assert model.batches == [(31,), (10, 4), (3, 2, 2)]
    assert reported == [2, 1, 2, 3]


@given(
    lengths=st.lists(st.integers(1, 50), max_size=40),
    max_tokens=st.integers(1, 100),
    max_sentences=st.integers(1, 10),
)
def test_batches_by_length(lengths: list[int], max_tokens: int, max_sentences: int) -> None:
    batches = batches_by_length(lengths, max_tokens, max_sentences)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        longest = max(lengths[index] for index in batch)
        assert len(batch) <= max_sentences
        assert len(batch) == 1 or len(batch) * longest <= max_tokens
    flat = [lengths[index] for batch in batches for index in batch]
    assert flat == sorted(lengths, reverse=True)


def test_nan_is_told_in_words() -> None:
    with pytest.raises(UserError, match="NaN.*precision=fp32"):
        translator(NanModel()).translate(["w1"])


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")]
)
def test_too_little_memory_is_told_in_words(error: Exception) -> None:
    class Large(CopyModel):
        def start(self, batch):
            raise error

    # A batch of one line can't be halved.
    words = r"decoding\.beam_size=\d+: a line of 2 tokens .* Lower it, or decoding\.max_source_tokens=1024\."
    with pytest.raises(UserError, match=words):
        translator(Large()).translate(["w1 w2"])


def test_a_batch_that_does_not_fit_is_translated_in_halves(caplog: pytest.LogCaptureFixture) -> None:
    sizes = []

    class Large(CopyModel):
        def start(self, batch):
            sizes.append(batch.num_sentences)
            if batch.num_sentences > 2:
                raise torch.OutOfMemoryError
            return super().start(batch)

    caplog.set_level("INFO", log.name)
    lines = ["w1 w2", "w3", "w2 w2 w2", "w1", "w4 w1"]
    found = translator(Large(), workers=1).translate(lines, prefixes=["", "", "w2", "", ""])
    assert [one.hypotheses[0].text for one in found] == lines
    assert sizes == [5, 2, 3, 1, 2]
    assert caplog.messages == [
        f"a batch of {n} sentences does not fit into memory, so it is translated in halves" for n in (5, 3)
    ]


@pytest.mark.parametrize("precision", [Precision.fp32, Precision.bf16])
def test_autocast_only_where_it_is_asked_for(precision: Precision) -> None:
    seen = []

    class Watched(CopyModel):
        def start(self, batch):
            seen.append((torch.ones(2, 2) @ torch.ones(2, 2)).dtype)
            return super().start(batch)

    translator_of([Watched()], WordTokenizer(), DecodingConfig(), precision=precision).translate(["w1"])
    assert seen == [{Precision.fp32: torch.float32, Precision.bf16: torch.bfloat16}[precision]]


def test_translations_begin_with_their_prefixes() -> None:
    lines = ["w1 w2 w3", " ", "w4", "w5 w6", "nothing"]
    prefixes = ["w9 w8", "w7", "", "w5", "w1"]
    whole = translator(nothing=["nothing"], max_sentences=2)
    found = whole.translate(lines, prefixes=prefixes)
    assert [one.hypotheses[0].text for one in found] == ["w9 w8 w3", "", "w4", "w5 w6", ""]
    scores = [one.hypotheses[0].score for one in found]
    assert scores[0] == pytest.approx((-9.0 - 9.0 - 0.0625 - 0.0625) / (9 / 6) ** 0.6)
    assert found[2:4] == whole.translate(lines)[2:4]
    assert whole.translate(lines, prefixes=[""] * 5) == whole.translate(lines)


def test_a_prefix_may_be_longer_than_a_translation_and_repeat_itself() -> None:
    limits = {"max_length_factor": 0.0, "max_length_offset": 2, "no_repeat_ngram": 1}
    found = translator(**limits, beam_size=1).translate(
        ["w1", "w1 w2 w3"], prefixes=["w2 w2 w2 w2 w2 w2", ""]
    )
    assert [one.hypotheses[0].text for one in found] == ["w2 w2 w2 w2 w2 w2", "w1"]


def test_a_model_with_a_maximum_length_cuts_a_longer_prefix() -> None:
    class Short(CopyModel):
        max_target_len = 3

    found = translator(Short()).translate(["w1 w2 w3", "w4"], prefixes=["w5 w6 w7 w8", "w9"])
    assert [one.hypotheses[0].text for one in found] == ["w5 w6", "w9"]


def test_attention_is_returned_for_every_piece_where_it_is_asked_for() -> None:
    class Looking(CopyModel):
        def step_with_heads(self, ids, state):
            place, longest = state.position, max(map(len, state.sources))
            attention = torch.zeros(*ids.shape, longest)
            for row, source in enumerate(state.sources):
                attention[row, :, min(place, len(source) - 1)] = 1.0
            return *self.step(ids, state), attention[:, :, None, None]

    lines = ["w1 w2", "", "w3 w4 w5 w6"]
    found = translator(Looking(), beam_size=2, nbest=2).translate(lines, attention=True)
    for one, size in ((found[0], 3), (found[2], 5)):
        assert torch.equal(one.hypotheses[0].attention, torch.eye(size))
        assert one.hypotheses[1].attention.shape[1] == size
    assert found[1].hypotheses[0].attention is None
    assert translator(Looking()).translate(["w1"])[0].hypotheses[0].attention is None


# Constraints


few_words = st.sampled_from([f"w{number}" for number in range(6)])
short_lines = st.lists(st.lists(few_words, max_size=5).map(" ".join), min_size=1, max_size=6)
phrase_lists = st.lists(st.lists(few_words, min_size=1, max_size=2).map(" ".join), max_size=2)


@settings(max_examples=40)
@given(lines=short_lines, beam=st.integers(1, 5), offset=st.integers(1, 9), data=st.data())
def test_every_line_has_its_phrases(lines: list[str], beam: int, offset: int, data: st.DataObject) -> None:
    constraints = [data.draw(phrase_lists) for _ in lines]
    found = translator(
        beam_size=beam, max_length_offset=offset, max_length_factor=0, max_sentences=3
    ).translate(lines, constraints=constraints)
    for line, phrases, one in zip(lines, constraints, found, strict=True):
        text = one.hypotheses[0].text
        if line:
            assert one.unmet == ()
            assert all(f" {phrase} " in f" {text} " for phrase in phrases)
        else:
            assert text == "" and one.unmet == tuple(phrases)
    plain = translator(beam_size=beam, max_length_offset=offset, max_length_factor=0).translate(lines)
    assert [one for one, phrases in zip(found, constraints, strict=True) if not phrases] == [
        one for one, phrases in zip(plain, constraints, strict=True) if not phrases
    ]


def test_a_phrase_follows_a_prefix() -> None:
    [found] = translator().translate(["a b c"], prefixes=["x"], constraints=[["y z", "x"]])
    text = found.hypotheses[0].text
    assert text.startswith("x ") and "y z" in text and found.unmet == ()


def test_all_results_have_the_phrases() -> None:
    [found] = translator(nbest=4).translate(["a b c"], constraints=[["y z"]])
    assert len(found.hypotheses) == 4
    assert all("y z" in one.text for one in found.hypotheses)


def test_phrases_longer_than_the_model_allows_are_reported() -> None:
    model = CopyModel()
    model.max_target_len = 4
    [found] = translator(model).translate(["a b"], constraints=[["u v", "x y"]])
    assert found.unmet in [("u v",), ("x y",)]


def test_wrong_constraints() -> None:
    with pytest.raises(UserError, match="constraints of line 2: ' ' has no pieces. Remove it."):
        translator().translate(["a", "b"], constraints=[["c"], ["d", " "]])
    with pytest.raises(UserError, match="decoding.samples=3: samples can't have constraints."):
        translator(samples=3).translate(["a"], constraints=[["c"]])


def test_a_term_without_pieces_is_unmet() -> None:
    lines = ["a", "b", "", "c"]
    terms = [[], [" ", "x", ""], ["\t"], [" "]]
    found = translator().translate(lines, constraints=[[], [], ["y"], []], terms=terms)
    assert [one.unmet for one in found] == [(), (" ", ""), ("y", "\t"), (" ",)]
    assert "x" in found[1].hypotheses[0].text.split()
    assert found[3].hypotheses == translator().translate(["c"])[0].hypotheses
