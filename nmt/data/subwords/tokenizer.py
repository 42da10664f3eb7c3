"""The tokenizer: encodes and decodes text with SentencePiece models, of `nmt-train` or of Marian."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import sentencepiece as spm

from nmt.config import Segmentation
from nmt.copying.strings import PLACEHOLDERS, WORD_START
from nmt.data.subwords.model_file import have_same_pieces, segmentation_of, user_symbols
from nmt.data.subwords.vocabulary import (
    NO_WORD,
    NUM_SPECIAL,
    MarianVocabulary,
    SentencePieceVocabulary,
    Vocabulary,
    words_at,
)
from nmt.errors import UserError
from nmt.runtime.arrays import Side, smallest_dtype
from nmt.runtime.checksums import read_checked
from nmt.runtime.files import make_folder, parse_json, replaced
from nmt.runtime.hub import model_folders
from nmt.runtime.model_files import PIECE_LIST, holds_pieces, pieces_folder
from nmt.runtime.os_errors import read_errors

JOINT_FILE, SOURCE_FILE, TARGET_FILE = "joint.spm", "source.spm", "target.spm"

MAX_BYTES = 1 << 26  # of a model; a model of a million pieces has about 25 million
_SPECIAL_PIECES = ("<pad>", "<s>", "</s>", "<unk>")

# Characters that end a line, ring the bell or move the cursor.
_CONTROLS = {code: " " for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029) if code != 0x09}


def one_line(text: str) -> str:
    """Replaces each control character other than a tab by a space: a model may write any of them."""
    return text.translate(_CONTROLS)


class Tokenizer:
    """A joint vocabulary for both sides, or one vocabulary per side. Byte fallback can encode every text.

    Each side has a SentencePiece model with the normaliser of its text. The models of a joint vocabulary have
    the same pieces. They are one model, `joint.spm`, if both sides have one normaliser.

    Words are separated by spaces. Each word is encoded alone; the pieces of a text are those of its words.
    SentencePiece encodes the whole text at once, and yields the same pieces except in ties, because no piece
    crosses a space. It breaks ties by the rounding of sums that depend on the preceding text. It does not
    reuse the pieces of repeated words. Subword regularisation changes ids, not text: see
    `nmt.data.subwords.segmentation`.

    Args:
        source_model: a SentencePiece model as bytes.
        target_model: that of the target side; None: `source_model` is for both sides.

    Raises:
        ValueError: a model is damaged, or `train_tokenizer` did not create it.
    """

    can_be_extended: ClassVar[bool] = True
    """Whether new pieces can be added, since every text has pieces and each of them stands for its text."""
    source: Vocabulary
    """The pieces of the source side."""
    target: Vocabulary
    """The pieces of the target side."""
    joint: bool
    """Whether both sides have the same pieces."""
    segmentation: Segmentation
    """The training method of the pieces, read from the model."""
    fingerprint: str
    """SHA-256 of all files of the vocabulary."""
    source_symbols: dict[str, int]
    """The strings that are always one piece of the source side, with their ids: `data.tokenizer.user_symbols`
    and the tags of the corpora."""
    placeholders: range
    """The ids of the placeholders, the same on both sides. Empty without `data.placeholders`."""

    def __init__(self, source_model: bytes, target_model: bytes | None = None) -> None:
        self.joint = target_model is None or have_same_pieces(source_model, target_model)
        self.source = SentencePieceVocabulary(source_model)
        self.target = self.source if target_model is None else SentencePieceVocabulary(target_model)
        if target_model is None:
            self._hold({JOINT_FILE: source_model})
        else:
            self._hold({SOURCE_FILE: source_model, TARGET_FILE: target_model})
        symbols = user_symbols(source_model)
        ids = {symbol: self.source.processor.piece_to_id(symbol) for symbol in symbols}
        self.source_symbols = {symbol: ids[symbol] for symbol in symbols if symbol not in PLACEHOLDERS}
        self.placeholders = _placeholders(symbols, [self.source.processor, self.target.processor])

    def _hold(self, files: Mapping[str, bytes]) -> None:
        """Sets the files of the vocabulary, and the attributes that they alone determine."""
        self._files, self.segmentation = files, segmentation_of(self.source.model)
        digest = hashlib.sha256()
        for content in files.values():
            digest.update(len(content).to_bytes(8, "little") + content)
        self.fingerprint = digest.hexdigest()

    @property
    def model_files(self) -> tuple[str, str]:
        """The names of the SentencePiece models of the source and the target side, as `save` writes them."""
        return (JOINT_FILE, JOINT_FILE) if JOINT_FILE in self._files else (SOURCE_FILE, TARGET_FILE)

    def encode_source(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each text, without BOS and EOS. An empty text has none.

        The first word of a text may be a user symbol, such as the tag of a corpus. Then the ids begin with
        that piece, and the rest is encoded alone: `<bt> text` is the tag and the pieces of `text`.
        """
        if not self.source_symbols:
            return _lists(self.source.encode(Side.of_lines(texts)))
        cut = [self.split_tag(text) for text in texts]
        ids = _lists(self.source.encode(Side.of_lines([rest for _, rest in cut])))
        return [[*tag, *sentence] for (tag, _), sentence in zip(cut, ids, strict=True)]

    def encode_target(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each text, without BOS and EOS. An empty text has none."""
        return _lists(self.target.encode(Side.of_lines(texts)))

    def source_ids(self, texts: Side) -> Side:
        """Does the same as `encode_source` for texts of `Side.of_lines`. The ids have the smallest dtype."""
        if not self.source_symbols:
            return self.source.encode(texts)
        return Side.of(self.encode_source(texts.lines()), smallest_dtype(self.source.size - 1))

    def decode_target(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Returns the text of each sequence of ids, always one line.

        Special pieces are skipped. Bytes that are not UTF-8 become U+FFFD; `nmt.decoding.utf8` keeps a search
        from them. Control characters other than tabs become spaces.
        """
        normal = [[i for i in map(int, sequence) if i >= NUM_SPECIAL] for sequence in ids]
        return [one_line(text) for text in self.target.decode(normal)]

    def source_word_numbers(self, text: str) -> list[int]:
        """Returns for each id of `encode_source` the number of its word in the text; a tag is a word.

        See `nmt.data.subwords.vocabulary`.
        """
        tag, rest = self.split_tag(text)
        words = self.source.word_numbers(rest)
        return [0] * len(tag) + [word + len(tag) if word != NO_WORD else word for word in words]

    def decoded_word_numbers(self, ids: Sequence[int]) -> list[int]:
        """Returns for each id the number of its word in the text that `decode_target` returns."""
        normal = [i for i in map(int, ids) if i >= NUM_SPECIAL]
        if not normal:
            return [NO_WORD] * len(ids)
        text, begins = self.target.decoded_begins(normal)
        words = iter(words_at(text, one_line(text), begins))
        return [next(words) if i >= NUM_SPECIAL else NO_WORD for i in ids]

    def save(self, folder: Path) -> None:
        """Writes `joint.spm`, or `source.spm` and `target.spm`, to a folder; also a list of pieces.

        Files of another vocabulary that the folder had, in another of these forms, are removed.
        """
        make_folder(folder)
        for name, content in self._files.items():
            with replaced(folder / name) as temporary:
                temporary.write_bytes(content)
        for name in {JOINT_FILE, SOURCE_FILE, TARGET_FILE, PIECE_LIST} - self._files.keys():
            (folder / name).unlink(missing_ok=True)

    def split_tag(self, text: str) -> tuple[list[int], str]:
        """Splits a source into the id of its first word, if that is a user symbol, and the rest."""
        first, *rest = text.split(None, 1) or [""]
        tag = self.source_symbols.get(first)
        return ([], text) if tag is None else ([tag], "".join(rest))

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        """Reads the files that `save` wrote; of an imported model, too.

        Raises:
            UserError: a file is missing or damaged.
        """
        has_list = (folder / PIECE_LIST).is_file()
        is_joint = not has_list and (folder / JOINT_FILE).exists()
        names = [JOINT_FILE] if is_joint else [SOURCE_FILE, TARGET_FILE] + [PIECE_LIST] * has_list
        for name in names:
            if not (folder / name).is_file():
                missing = f"{JOINT_FILE}, or {SOURCE_FILE} and {TARGET_FILE}"
                if has_list:
                    missing = f"{name}, which belongs to {PIECE_LIST}"
                raise UserError(f"{folder}: lacks {missing}")
        contents = [read_checked(folder / name, MAX_BYTES) for name in names]
        try:
            return MarianTokenizer.of(*contents) if has_list else Tokenizer(*contents)
        except (ValueError, IndexError) as error:
            raise UserError(
                f"{folder}: {' or '.join(names)} is damaged or from another program: {error}"
            ) from None


class MarianTokenizer(Tokenizer):
    """A tokenizer with a `MarianVocabulary` for each side.

    Args:
        models: the SentencePiece models of the source and the target side.
        source_names: the piece of each id; the first four are pad, bos, eos and unk.
        target_names: those of the target side; None: the same.
        special_in_text: as for `MarianVocabulary`.

    Raises:
        ValueError: a model is damaged, or a list has the same piece twice.
    """

    can_be_extended: ClassVar[bool] = False

    def __init__(
        self,
        models: tuple[bytes, bytes],
        source_names: Sequence[str],
        target_names: Sequence[str] | None,
        special_in_text: bool = True,
    ) -> None:
        # The SentencePiece models differ even if both sides have the same list.
        self.joint = False
        both = source_names, source_names if target_names is None else target_names
        self.source, self.target = (
            MarianVocabulary(model, names, special_in_text) for model, names in zip(models, both, strict=True)
        )
        self.source_symbols = self.source.tags
        self.placeholders = range(0)
        names: dict[str, Any] = {
            "source": list(source_names),
            "target": None if target_names is None else list(target_names),
        }
        if not special_in_text:
            names["special_in_text"] = False
        lists = json.dumps(names, ensure_ascii=False).encode()
        self._hold({SOURCE_FILE: models[0], TARGET_FILE: models[1], PIECE_LIST: lists})

    @classmethod
    def of(cls, source: bytes, target: bytes, lists: bytes) -> MarianTokenizer:
        """Returns the tokenizer of these files. Raises `ValueError` if one is damaged."""
        content = parse_json(lists)
        sides = _names(content, "source"), _names(content, "target")
        return cls((source, target), *sides, content.get("special_in_text", True) is not False)

    def split_tag(self, text: str) -> tuple[list[int], str]:
        """Returns the whole text: its vocabulary knows the tags."""
        return [], text


def find_tokenizer(path: str) -> Tokenizer:
    """Reads the tokenizer of a trained model: of its folder, run folder, checkpoint, or `hf://owner/name`.

    Raises:
        UserError: there is no tokenizer, or it is damaged.
    """
    folder = tokenizer_folder(path)
    if folder is not None:
        return Tokenizer.load(folder)
    raise UserError(
        f"data.tokenizer.path={path}: neither this folder nor its folder model/ has {JOINT_FILE}, or "
        f"{SOURCE_FILE} and {TARGET_FILE}. Give the folder of a model, a run or a checkpoint."
    )


def tokenizer_folder(path: str) -> Path | None:
    """Returns the folder with the tokenizer that `find_tokenizer` reads; None if there is none."""
    for folder in model_folders(path, "data.tokenizer.path"):
        with read_errors(folder):
            place = pieces_folder(folder)
            if holds_pieces(place):
                return place
    return None


def check_symbols(symbols: Sequence[str], key: str) -> None:
    """Checks that the strings of the option `key` can be pieces.

    Raises:
        UserError: a string can't be a piece, or is given twice.
    """
    for index, symbol in enumerate(symbols):
        reason = ""
        if not symbol or symbol != "".join(symbol.split()):
            reason = "must be text without white space"
        elif symbol in _SPECIAL_PIECES or re.fullmatch("<0x[0-9A-F]{2}>", symbol):
            reason = "is a special piece of the tokenizer. Choose another name."
        elif symbol in symbols[:index]:
            reason = "is given twice"
        if reason:
            raise UserError(f"{key}: {symbol!r} {reason}")


def check_tag(tag: str, key: str) -> None:
    """Checks that the option `key` can be the tag of sources.

    Raises:
        UserError: the tag can't be a piece, or has a character that stands for a space or a placeholder.
    """
    check_symbols([tag], key)
    if not set(tag).isdisjoint([WORD_START, *PLACEHOLDERS]):
        raise UserError(
            f"{key}: {tag!a} has a character that stands for a space or a placeholder. Choose a tag without "
            "U+2581 and U+F0000 to U+F003F."
        )


def _placeholders(symbols: Collection[str], processors: Sequence[spm.SentencePieceProcessor]) -> range:
    """Returns the ids of the placeholders if they are among the user symbols of a vocabulary.

    Without `data.placeholders` the same characters may be ordinary pieces.
    """
    if not set(symbols).issuperset(PLACEHOLDERS):
        return range(0)
    first = processors[0].piece_to_id(PLACEHOLDERS[0])
    ids = range(first, first + len(PLACEHOLDERS))
    if any(
        [processor.piece_to_id(symbol) for symbol in PLACEHOLDERS] != list(ids) for processor in processors
    ):
        raise ValueError("its placeholders are not in order")
    return ids


def _lists(side: Side) -> list[list[int]]:
    return [ids.tolist() for ids in side]


def _names(content: Any, side: str) -> Any:
    names = content.get(side) if isinstance(content, Mapping) else ()
    if names is None and side == "target":
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{side} is not a list of pieces")
    if len(names) <= NUM_SPECIAL:
        raise ValueError(f"{side} has {len(names)} pieces")
    return names
