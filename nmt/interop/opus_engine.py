"""A model of Marian's own format as CTranslate2 converts and computes it, for the comparison of an import."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import sentencepiece as spm

from nmt.copying.strings import WORD_START
from nmt.data.subwords.vocabulary import UNK_ID
from nmt.interop.ctranslate2_export import SPECIAL, LoadedByCTranslate2
from nmt.interop.marian_folder import Pieces
from nmt.interop.marian_model import Numbering
from nmt.interop.opus_files import DECODER, OPTIONS
from nmt.model.positions import SineOrder, sinusoids

_MODEL, _VOCABULARIES = "model.npz", ("source.yml", "target.yml")


class OpusModel(LoadedByCTranslate2):
    """A model that `OpusMTConverter` has converted; see `ForeignModel`.

    Its texts are encoded and decoded as the scripts of OPUS-MT do: by SentencePiece, and by joining pieces.
    The converter gets checked files. It would add the sinusoids of transformers, so they have Marian's.

    Args:
        arrays: the weights under Marian's names, in fp32.
        options: the options in the npz.
        pieces: the SentencePiece models and the ids of their pieces.
        numbering: the ids of the model by ours.
        longest: the number of positions.
    """

    def __init__(
        self,
        arrays: Mapping[str, np.ndarray[Any, Any]],
        options: Mapping[str, Any],
        pieces: Pieces,
        numbering: Numbering,
        longest: int,
    ) -> None:
        from ctranslate2.converters import OpusMTConverter

        processors = [spm.SentencePieceProcessor(model_proto=model) for model in pieces.models]
        lists = pieces.source_list, pieces.target_list or pieces.source_list
        sides = numbering.source, numbering.target
        ours = [{theirs: id for id, theirs in enumerate(side)} for side in sides]
        ids = [{piece: own[id] for piece, id in side.items()} for own, side in zip(ours, lists, strict=True)]
        self._target_pieces = {id: piece for piece, id in ids[1].items()}
        names = [[*SPECIAL.values(), *(f"{id}" for id in side[len(SPECIAL) :])] for side in sides]
        encoding = sinusoids(longest, options["dim-emb"], SineOrder.tensor2tensor).numpy()
        with TemporaryDirectory(prefix="nmt-import-") as name:
            folder = Path(name)
            stored = np.frombuffer(json.dumps(dict(options)).encode() + b"\0", np.int8)
            content: Any = {**arrays, "Wpos": encoding, OPTIONS: stored}
            np.savez(folder / _MODEL, **content)
            for file, side, own in zip(_VOCABULARIES, sides, names, strict=True):
                # Without the two ids that Marian does not have.
                listed = sorted(
                    (id, piece) for id, piece in zip(side, own, strict=True) if id < len(side) - 2
                )
                (folder / file).write_text("".join(f'"{piece}": {id}\n' for id, piece in listed), "utf-8")
            (folder / DECODER).write_text(json.dumps({"models": [_MODEL], "vocabs": _VOCABULARIES}), "utf-8")
            OpusMTConverter(str(folder)).convert(str(folder / "converted"))
            super().__init__(
                *(folder / "converted", names, processors, "float32"),
                may_tie=False,
                ids=ids,
                forbidden=[UNK_ID],
            )

    def decode(self, targets: Sequence[Sequence[int]]) -> list[str]:
        """See `ForeignModel.decode`."""
        texts = ("".join(self._target_pieces.get(id, "") for id in ids) for ids in targets)
        return [text.replace(WORD_START, " ").strip() for text in texts]
