"""Vocabularies of Marian, as the OPUS-MT models have them.

SentencePiece cuts the text into pieces, and a separate list gives each piece its id. Pieces that are not in
the list are unknown. Both sides may have the same list, but each has a SentencePiece model.

The ids are those of transformers' `MarianTokenizer`, in another order: there, the special pieces may have any
ids, and each `nmt` vocabulary begins with four of them. As there, a whole line is encoded at once, the names
of the special pieces in a text become these pieces, and `>>xx<<` at the beginning of a text is one piece,
which selects the target language of some models.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nmt.copying.strings import WORD_START
from nmt.data.subwords.tokenizer import MAX_BYTES, SOURCE_FILE, TARGET_FILE, Tokenizer, segmentation_of
from nmt.data.subwords.vocabulary import (
    EOS_ID,
    NUM_SPECIAL,
    PAD_ID,
    UNK_ID,
    Vocabulary,
    piece_begins,
    words_at,
)
from nmt.errors import UserError
from nmt.runtime import make_folder, parse_json, read_checked, replaced
from nmt.runtime.arrays import Side, smallest_dtype
from nmt.runtime.lazy import cached_property
from nmt.runtime.model_files import PIECE_LIST

_BYTE = re.compile("<0x[0-9A-F]{2}>")
_TAG = re.compile(">>.*<<", re.DOTALL)


class MarianVocabulary(Vocabulary):
    """A SentencePiece model, and a list that gives each piece its id."""

    def __init__(self, model: bytes, names: Sequence[str]) -> None:
        """Takes a SentencePiece model, and the piece of each id; the first four are pad, bos, eos and unk.

        Raises:
            ValueError: the model is damaged, or two ids have the same piece.
        """
        super().__init__(model)
        self._names = list(names)
        # Not the piece bos, which begins a translation: Marian does not have it.
        self._special = {names[id]: id for id in (PAD_ID, EOS_ID, UNK_ID)}
        self._ids = {name: id for id, name in enumerate(names) if id >= NUM_SPECIAL}
        if len(self._ids | self._special) != len(names) - 1:
            raise ValueError("two ids have the same piece")
        processor = self.processor
        self._id_of = [
            self._id(processor.id_to_piece(number)) for number in range(int(processor.vocab_size()))
        ]
        longest_first = sorted(self._special, key=len, reverse=True)
        self._special_names = re.compile(f"({'|'.join(map(re.escape, longest_first))})")

    @property
    def names(self) -> Sequence[str]:
        """See `Vocabulary.names`."""
        return self._names

    @cached_property
    def tags(self) -> dict[str, int]:
        """The pieces `>>xx<<` with their ids."""
        return {name: id for name, id in self._ids.items() if _TAG.fullmatch(name)}

    def is_byte(self, id: int) -> bool:
        """See `Vocabulary.is_byte`."""
        return _BYTE.fullmatch(self._names[id]) is not None

    def encode(self, texts: Side) -> Side:
        """See `Vocabulary.encode`."""
        lines = [list(self._parts(text)) for text in texts.lines()]
        encoded = iter(self._encode([part for parts in lines for _, part, id in parts if id is None]))
        ids = [
            [one for _, _, id in parts for one in (next(encoded) if id is None else [id])] for parts in lines
        ]
        return Side.of(ids, smallest_dtype(self.size - 1))

    def word_numbers(self, text: str) -> list[int]:
        """See `Vocabulary.word_numbers`."""
        begins: list[int] = []
        for start, part, id in self._parts(text):
            before = len(text[:start].encode())
            inside = [0]
            if id is None:
                inside = piece_begins(self.processor.encode(part, out_type="serialized_proto"))
            begins += [before + begin for begin in inside]
        return words_at(text, text, begins)

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """See `Vocabulary.decode`."""
        pieces = [[self._names[id] for id in sequence] for sequence in ids]
        texts: list[str] = self.processor.decode(pieces, num_threads=1) if ids else []
        # A piece of the other side keeps its mark: this side's SentencePiece model does not know it.
        return [text.replace(WORD_START, " ").strip() for text in texts]

    def decoded_begins(self, ids: Sequence[int]) -> tuple[str, list[int]]:
        """See `Vocabulary.decoded_begins`."""
        pieces = [self._names[id] for id in ids]
        message: bytes = self.processor.decode(pieces, out_type="serialized_proto")
        return self.processor.decode(pieces), piece_begins(message)

    def _parts(self, text: str) -> Iterator[tuple[int, str, int | None]]:
        """Yields the parts of a text with their places: special pieces and tags, with ids, and the rest."""
        place = 0
        for part in self._special_names.split(text):
            start, place = place, place + len(part)
            if part in self._special:
                yield start, part, self._special[part]
                continue
            end = part.find("<<") + 2
            if part.startswith(">>") and end >= 2:
                yield start, part[:end], self._id(part[:end])
                start, part = start + end, part[end:]
            if part:
                yield start, part, None

    def _encode(self, parts: list[str]) -> Iterator[list[int]]:
        """Encodes text without tags and special pieces."""
        unknown = self.processor.unk_id()
        for part, numbers in zip(parts, self.processor.encode(parts, num_threads=1), strict=True):
            if unknown in numbers:
                # The list may have a piece that the SentencePiece model does not: one of the other side.
                yield [self._id(piece) for piece in self.processor.encode(part, out_type=str)]
            else:
                yield [self._id_of[number] for number in numbers]

    def _id(self, piece: str) -> int:
        found = self._ids.get(piece)
        return self._special.get(piece, UNK_ID) if found is None else found


class MarianTokenizer(Tokenizer):
    """A tokenizer with a `MarianVocabulary` for each side."""

    def __init__(
        self, models: tuple[bytes, bytes], source_names: Sequence[str], target_names: Sequence[str] | None
    ) -> None:
        """Takes the SentencePiece models of both sides and the pieces by their ids.

        Args:
            models: the SentencePiece models of the source and the target side.
            source_names: the piece of each id; the first four are pad, bos, eos and unk.
            target_names: those of the target side; None: the same.

        Raises:
            ValueError: a model is damaged, or a list has the same piece twice.
        """
        # The SentencePiece models differ even if both sides have the same list.
        self.joint = False
        self._lists = _lists_content(source_names, target_names)
        self.source = MarianVocabulary(models[0], source_names)
        self.target = MarianVocabulary(models[1], source_names if target_names is None else target_names)
        self.segmentation = segmentation_of(models[0])
        self.source_symbols = self.source.tags
        self.placeholders = range(0)
        digest = hashlib.sha256()
        for content in (*models, self._lists):
            digest.update(len(content).to_bytes(8, "little") + content)
        self.fingerprint = digest.hexdigest()

    def save(self, folder: Path) -> None:
        """Writes `source.spm`, `target.spm` and the list of pieces to a folder."""
        make_folder(folder)
        for name, content in (
            (SOURCE_FILE, self.source.model),
            (TARGET_FILE, self.target.model),
            (PIECE_LIST, self._lists),
        ):
            with replaced(folder / name) as temporary:
                temporary.write_bytes(content)

    @classmethod
    def load(cls, folder: Path) -> MarianTokenizer:
        """Reads the files that `save` wrote.

        Raises:
            UserError: a file is missing or damaged.
        """
        names = SOURCE_FILE, TARGET_FILE, PIECE_LIST
        for name in names:
            if not (folder / name).is_file():
                raise UserError(f"{folder}: lacks {name}, which belongs to {PIECE_LIST}")
        source, target, lists = (read_checked(folder / name, MAX_BYTES) for name in names)
        try:
            content = parse_json(lists)
            return cls((source, target), _names(content, "source"), _names(content, "target"))
        except (ValueError, IndexError) as error:
            raise UserError(
                f"{folder}: {', '.join(names[:2])} or {names[2]} is damaged or from another program: {error}"
            ) from None

    def split_tag(self, text: str) -> tuple[list[int], str]:
        """Returns the whole text: its vocabulary knows the tags."""
        return [], text


def _lists_content(source: Sequence[str], target: Sequence[str] | None) -> bytes:
    """Returns the content of the file with both lists."""
    names = {"source": list(source), "target": None if target is None else list(target)}
    return json.dumps(names, ensure_ascii=False).encode()


def _names(content: Any, side: str) -> Any:
    names = content.get(side) if isinstance(content, Mapping) else ()
    if names is None and side == "target":
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{side} is not a list of pieces")
    if len(names) <= NUM_SPECIAL:
        raise ValueError(f"{side} has {len(names)} pieces")
    return names
