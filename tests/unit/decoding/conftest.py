"""A tokenizer of lines of few words, for tests with real models."""

from __future__ import annotations

import pytest
from toy_corpus import learnt
from toys import some_lines

from nmt.data.subwords.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return learnt([(line, line) for line in some_lines(1, 100)], vocab_size=300)
