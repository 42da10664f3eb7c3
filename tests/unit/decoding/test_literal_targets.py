"""Prefixes, constraints, terms and copied strings are in the translation as they are given, in any script."""

from __future__ import annotations

import pytest
import torch
from odd_letters import LINES
from toy_corpus import learnt
from toys import translator_of

from nmt.config import DecodingConfig, ModelConfig
from nmt.copying.strings import PLACEHOLDERS
from nmt.decoding.translator import Translator
from nmt.model import Transformer

LINE = "a sentence of a few words"


@pytest.fixture(scope="module")
def translator() -> Translator:
    """An untrained model: all that it writes apart from the given text is noise."""
    lines = [line for lines in LINES.values() for line in lines]
    pairs = [(f"{LINE} {number}", line) for number, line in enumerate(lines)]
    tokenizer = learnt(pairs, vocab_size=1500, user_symbols=list(PLACEHOLDERS))
    torch.manual_seed(1)
    config = ModelConfig(encoder_layers=1, decoder_layers=1, d_model=16, d_ff=16, heads=2)
    model = Transformer(config, tokenizer.source.size, tokenizer.target.size).eval()
    return translator_of([model], tokenizer, DecodingConfig(beam_size=2, max_length_offset=5))


@pytest.mark.parametrize("language", LINES)
def test_a_prefix_begins_the_translation(translator: Translator, language: str) -> None:
    lines = LINES[language]
    found = translator.translate([LINE] * len(lines), prefixes=lines)
    texts = [translation.hypotheses[0].text for translation in found]
    assert [text[: len(line)] for text, line in zip(texts, lines, strict=True)] == lines


@pytest.mark.parametrize("language", LINES)
def test_constraints_and_terms_are_literal(translator: Translator, language: str) -> None:
    lines = LINES[language][::6]
    for phrases in ({"constraints": [[line] for line in lines]}, {"terms": [[line] for line in lines]}):
        found = translator.translate([LINE] * len(lines), **phrases)
        for translation, line in zip(found, lines, strict=True):
            assert translation.unmet == () and line in translation.hypotheses[0].text


def test_copied_strings_are_literal(translator: Translator) -> None:
    strings = ["https://example.org/ｆｕｌｌ？q=½", "<b title='Ａ…'>", "{नाम\u200c}"]
    found = translator.translate([f"words {string} more" for string in strings])
    copied = ["https://example.org/", "<b title='Ａ…'>", "{नाम\u200c}"]
    for translation, string in zip(found, copied, strict=True):
        assert string in translation.hypotheses[0].text


def test_a_space_at_the_end_of_a_prefix_is_not_written_twice(translator: Translator) -> None:
    one, other = translator.translate([LINE] * 2, prefixes=["«\u00a0Oui", "«\u00a0Oui  "])
    assert one.hypotheses[0].text == other.hypotheses[0].text
