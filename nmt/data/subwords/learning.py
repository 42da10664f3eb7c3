"""Learning of a tokenizer from text: the size of its vocabulary, and the training of SentencePiece."""

from __future__ import annotations

import io
import logging
import re
import signal
import sys
import threading
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import accumulate, permutations
from pathlib import Path
from string import ascii_letters
from tempfile import TemporaryDirectory
from typing import Any

import sentencepiece as spm

from nmt.config import Normalization, TokenizerConfig
from nmt.copying.strings import WORD_START
from nmt.data.subwords.model_file import lossless, normalizer_section, with_normalizer
from nmt.data.subwords.tokenizer import Tokenizer, check_symbols
from nmt.data.subwords.vocabulary import BOS_ID, EOS_ID, PAD_ID, UNK_ID, SentencePieceVocabulary
from nmt.errors import UserError
from nmt.runtime.guest import guest
from nmt.runtime.signals import STOP_SIGNALS
from nmt.runtime.streams import log

SIZES = ((0, 2000), (1000, 8000), (100_000, 16_000), (1_000_000, 32_000))
"""Minimum number of cleaned pairs, and the number of pieces of a vocabulary that both languages share.

For 2,000 pairs, 8,000 pieces have a higher chrF than 2,000 on two of three corpora (docs/recipes.md), though
Sennrich and Zhang 2019 ("Revisiting Low-Resource Neural Machine Translation") gain much with 2,000 pieces
instead of 14,000 for 100,000 words. For the 29,000 pairs of Multi30k, 4,000 pieces are too few
(docs/multi30k.md). For the 4.5 million pairs of WMT14, Vaswani et al. 2017 use 37,000. Fewer than 1,000
pairs were not measured.
"""

_MULTIPLE = 1000
# The threads share the sums over sentences, so the number of threads affects their rounding. It must not
# depend on the machine.
_TRAINING_THREADS = 8
# The time for text without spaces is quadratic in its length, and such long texts are dropped anyway.
_MAX_CHARACTERS = 4000
NUM_RESERVED = 4 + 256
"""Pieces of every model: the special pieces and the bytes."""
_FEWEST_PIECES = 400  # of a model of few letters: the special pieces, the bytes, and room for the letters


def train_tokenizer(
    pairs: Callable[[], Iterator[tuple[str, str]]],
    config: TokenizerConfig,
    folder: Path,
    *,
    chosen_size: bool = False,
) -> Tokenizer:
    """Trains a tokenizer and writes it to a folder.

    The same pairs and options give the same pieces on every machine, with any number of cores. `pairs`
    returns a new iterator over the cleaned training pairs, or over a sample of them. `chosen_size`: the user
    has not given the number of pieces, so nobody is warned if the text allows only fewer.

    Raises:
        UserError: there is no text, the vocabulary is too small for the characters, or a user symbol can't be
            a piece.
    """
    check_symbols(config.user_symbols, "data.tokenizer.user_symbols")
    sides = [_normalizer(config, "source"), _normalizer(config, "target")]
    level = logging.INFO if chosen_size else logging.WARNING

    def texts(index: int) -> Iterator[str]:
        return (sides[index][0](pair[index]) for pair in pairs())

    if config.joint:
        both = (side[0](text) for pair in pairs() for side, text in zip(sides, pair, strict=True))
        learnt = [_train(both, config, "both sides", level)] * (1 if config.rule_of_both else 2)
    else:
        names = ("the source side", "the target side")
        learnt = [_train(texts(index), config, name, level) for index, name in enumerate(names)]
    models = [
        model if section is None else with_normalizer(model, section)
        for model, (_, section) in zip(learnt, sides, strict=False)
    ]
    tokenizer = Tokenizer(*models)
    tokenizer.save(folder)
    return tokenizer


def _normalizer(config: TokenizerConfig, side: str) -> tuple[Callable[[str], str], bytes | None]:
    """Returns a function that normalises the text of a side before the pieces are learnt from it.

    SentencePiece normalises all text of a training by one rule. So if each side has its own, its text is
    normalised before, as it will be encoded. The second result is the section of a model that describes the
    normaliser; None: SentencePiece normalises the text.
    """
    if config.rule_of_both is not None:
        return (lambda text: text), None
    rule = config.rule_of(side)
    is_lossless = rule in (Normalization.identity, Normalization.nfc)
    # This model only normalises: it knows the user symbols, which are never changed.
    with _rules_of(rule) as rules:
        base = _fit(
            [ascii_letters],  # whatever the user symbols are, some letters remain
            vocab_size=_FEWEST_PIECES + len(config.user_symbols),
            user_defined_symbols=list(config.user_symbols),
            **rules,
        )
    section = lossless(rule, base) if is_lossless else normalizer_section(base)
    vocabulary = SentencePieceVocabulary(with_normalizer(base, section))
    # The sign for a space has no piece of its own: the vocabulary encodes it as bytes.
    return (lambda text: vocabulary.normalized([text])[0].replace(WORD_START, " ")), section


@contextmanager
def _rules_of(rule: Normalization) -> Iterator[dict[str, str]]:
    """Yields the options of SentencePiece for a rule. It has no table for NFC, so that one is written."""
    if rule is not Normalization.nfc:
        yield {"normalization_rule_name": rule.value}
        return
    with TemporaryDirectory() as folder:
        table = Path(folder, "nfc.tsv")
        lines = (
            "\t".join(" ".join(f"{ord(character):X}" for character in form) for form in pair)
            for pair in sorted(compositions())
        )
        table.write_text("\n".join(lines) + "\n", "ascii")
        yield {"normalization_rule_tsv": str(table)}


def compositions() -> Iterator[tuple[str, str]]:
    """Yields forms of characters that are not in Unicode's composed form (NFC), each with the composed one.

    They are characters that are decomposed in whole or in part, with their marks in any order. NFC has no
    finite table: marks that belong to no composed character are left in their order.
    """
    for character in map(chr, range(sys.maxunicode + 1)):
        parts = unicodedata.normalize("NFD", character)
        if parts == character:
            continue
        composed = unicodedata.normalize("NFC", character)
        orders = [parts[0] + "".join(marks) for marks in permutations(parts[1:])]
        partly = (
            unicodedata.normalize("NFC", form[:end]) + form[end:]
            for form in orders
            for end in range(1, len(form) + 1)
        )
        for form in {character, *partly} - {composed}:
            if unicodedata.normalize("NFC", form) == composed:
                yield form, composed


def _train(texts: Iterable[str], config: TokenizerConfig, side: str, level: int) -> bytes:
    model = train_model(texts, config, side)
    size = SentencePieceVocabulary(model).size
    if size < config.vocab_size:
        log.log(
            level,
            "data.tokenizer.vocab_size=%d: the text of %s allows only %d pieces. The vocabulary size is %d.",
            config.vocab_size, side, size, size,
        )  # fmt: skip
    return model


def train_model(texts: Iterable[str], config: TokenizerConfig, side: str) -> bytes:
    """Returns a SentencePiece model of at most `vocab_size` pieces, learnt from texts.

    `side` is the name of the text in messages. Text without a rule for both sides must be normalised already.

    Raises:
        UserError: there is no text, or the vocabulary is too small for the characters.
    """
    rule = config.rule_of_both
    try:
        with _default_stop_signals():
            return _fit(
                (text[:_MAX_CHARACTERS] for text in texts),
                model_type=config.segmentation.value,
                vocab_size=config.vocab_size,
                character_coverage=config.character_coverage,
                normalization_rule_name=(rule or Normalization.identity).value,
                user_defined_symbols=list(config.user_symbols),
                max_sentence_length=4 * _MAX_CHARACTERS,
                num_threads=_TRAINING_THREADS,
                # An option that is given is stored, so the models of earlier versions would differ.
                **({} if rule else {"remove_extra_whitespaces": False}),
            )
    except RuntimeError as error:
        raise UserError(_training_error(str(error), config, side)) from error


def _fit(texts: Iterable[str], **options: Any) -> bytes:
    """Returns a model that SentencePiece has trained, with the special pieces and byte fallback."""
    model = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=model,
        hard_vocab_limit=False,
        byte_fallback=True,
        pad_id=PAD_ID,
        bos_id=BOS_ID,
        eos_id=EOS_ID,
        unk_id=UNK_ID,
        minloglevel=2,
        **options,
    )
    return model.getvalue()


@contextmanager
def _default_stop_signals() -> Iterator[None]:
    """Lets stop signals end the process at once; Python would handle them only after the training.

    This is safe: all files on the disk are complete at this time, and the training is repeated. In a call
    from another program the signals are not changed, because this must not end that program.
    """
    if guest() is not None or threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers
        return
    import resource  # Windows does not have it

    ours = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    caught = [number for number, handler in ours.items() if callable(handler)]  # without the ignored ones
    core = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, core[1]))  # SIGQUIT would leave a core file
    for number in caught:
        signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        for number in caught:
            signal.signal(number, ours[number])
        resource.setrlimit(resource.RLIMIT_CORE, core)


def _training_error(message: str, config: TokenizerConfig, side: str) -> str:
    too_small = re.search(r"smaller than required_chars\. \d+ vs (\d+)", message)
    if too_small:
        return (
            f"data.tokenizer.vocab_size={config.vocab_size}: the characters of {side} need at least "
            f"{too_small[1]} pieces, and about twice as many for a useful vocabulary. Raise it, or lower "
            "data.tokenizer.character_coverage (0.9995 suits Chinese and Japanese)."
        )
    if "sentences_.empty()" in message or "all_chars_count" in message:
        return f"data.train: {side} of the cleaned training pairs: no text to train the tokenizer on"
    return f"data.tokenizer: SentencePiece could not train on {side}: {' '.join(message.split())}"


def recommended_size(pairs: int, characters: int, *, joint: bool) -> int:
    """Returns the number of pieces of each vocabulary. It never decreases with more pairs or characters.

    The vocabulary has at least twice as many pieces as `num_characters` counts, which matters for Chinese
    with its thousands of characters. If the languages do not share one vocabulary, each has half the size.
    """
    size = SIZES[bisect_right(SIZES, pairs, key=lambda row: row[0]) - 1][1]
    needed = -(-2 * characters // _MULTIPLE) * _MULTIPLE
    return max(size if joint else size // 2, needed)


def num_characters(pairs: Iterable[tuple[str, str]], coverage: float, *, joint: bool) -> int:
    """Counts the most frequent characters that together make up the fraction `coverage` of a text.

    Without `joint`, the two sides do not count as one text, and the larger number of the two is returned.
    """
    counts: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for pair in pairs:
        for side, text in zip(counts, pair, strict=True):
            side.update(text)
    texts = [counts[0] + counts[1]] if joint else list(counts)
    return max(_covering(text, coverage) for text in texts)


def _covering(counts: Counter[str], coverage: float) -> int:
    sums = list(accumulate(count for _, count in counts.most_common()))
    return next((rank + 1 for rank, covered in enumerate(sums) if covered >= coverage * sums[-1]), 0)
