"""Import of Marian models: of transformers (`MarianMTModel`), as on the hub, or of Marian itself (OPUS-MT).

The special pieces get the ids that every model has here; the other pieces keep their order. Marian begins a
translation with the padding id. Here that id has two numbers: PAD, and BOS with the same embedding. Each has
half of its probability (its bias minus log 2), so that the probabilities of all other pieces are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from nmt.errors import UserError
from nmt.interop import marian_folder
from nmt.interop.interfaces import Imported, Importer
from nmt.interop.marian_folder import Pieces, model_config, read_decoding, read_settings, read_weights
from nmt.interop.marian_model import MarianModel, Numbering, our_weights, quiet
from nmt.interop.opus_files import is_opus
from nmt.interop.opus_import import read_opus
from nmt.runtime.hub import brief


class MarianImporter(Importer):
    """Reads a folder with `config.json`, the weights, `source.spm`, `target.spm` and `vocab.json`.

    Also a zip or a folder of OPUS-MT, which Marian itself reads; see `nmt.interop.opus_import`.
    """

    archives: ClassVar[tuple[str, ...]] = (".zip",)
    packages: ClassVar[tuple[str, ...]] = ("transformers",)
    files: ClassVar[tuple[str, ...]] = (
        *(marian_folder.CONFIG, marian_folder.GENERATION, marian_folder.TOKENIZER),
        *(marian_folder.ADDED, marian_folder.SPECIAL_MAP),
        *(marian_folder.SOURCE_MODEL, marian_folder.TARGET_MODEL),
        *(marian_folder.SOURCE_LIST, marian_folder.TARGET_LIST),
    )
    weights: ClassVar[tuple[str, ...]] = (marian_folder.WEIGHTS, marian_folder.PICKLED)

    def packages_for(self, model: Path) -> tuple[str, ...]:
        """See `Importer.packages_for`. CTranslate2 computes the models of OPUS-MT."""
        return ("ctranslate2",) if is_opus(model) else self.packages

    def read(self, folder: Path) -> Imported:
        """See `Importer.read`."""
        if is_opus(folder):
            return read_opus(folder)
        settings = read_settings(folder)
        pieces = Pieces.read(folder)
        model = model_config(settings)
        theirs = read_weights(folder, settings, model)  # before its sizes are used
        numbering = pieces.numbering(folder, settings)
        engine = loaded_model(folder, settings, pieces, numbering, theirs)
        state = {name: weight.detach() for name, weight in engine.model.state_dict().items()}
        model, weights = our_weights(model, state, numbering)
        longest = settings["max_position_embeddings"]
        return Imported(
            model,
            weights,
            pieces.tokenizer(folder, numbering),
            read_decoding(folder, longest),
            pieces.languages,
            longest,
            engine,
        )


def loaded_model(
    folder: Path,
    settings: Mapping[str, Any],
    pieces: Pieces,
    numbering: Numbering,
    weights: Mapping[str, Tensor],
) -> MarianModel:
    """Returns the model as transformers computes it, from what was checked.

    Raises:
        UserError: transformers can't load it, or would draw a weight at random, or ignore one.
    """
    from transformers import MarianConfig, MarianMTModel, MarianTokenizer

    separate = pieces.target_list is not None
    of_weights: Any = MarianMTModel.from_pretrained
    paths = {
        "source_spm": folder / marian_folder.SOURCE_MODEL,
        "target_spm": folder / marian_folder.TARGET_MODEL,
        "vocab": folder / marian_folder.SOURCE_LIST,
        "target_vocab_file": folder / marian_folder.TARGET_LIST if separate else None,
    }
    options: Any = {key: path and str(path) for key, path in paths.items()} | dict(pieces.special)
    try:
        with quiet():
            tokenizer = MarianTokenizer(**options, separate_vocabs=separate)
            model, report = of_weights(
                None,
                config=MarianConfig(**settings),
                state_dict=dict(weights),
                dtype=torch.float32,
                attn_implementation="sdpa",
                output_loading_info=True,
            )
        return MarianModel(model, report, tokenizer, pieces.models[0], numbering)
    except UserError:
        raise
    except Exception as error:  # transformers and torch raise errors of many kinds
        raise UserError(f"{folder}: transformers can't load it: {brief(error)}") from error
