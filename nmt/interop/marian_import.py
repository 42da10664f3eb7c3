"""Import of Marian models of transformers (`MarianMTModel`), the format of the OPUS-MT models.

The special pieces get the ids that every model has here; the other pieces keep their order. Marian begins a
translation with the padding id. Here that id has two numbers: PAD, and BOS with the same embedding. Each has
half of its probability (its bias minus log 2), so that the probabilities of all other pieces are the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from nmt.config import ModelConfig, Tie
from nmt.data.subwords.vocabulary import BOS_ID, PAD_ID
from nmt.errors import UserError
from nmt.interop import marian_folder
from nmt.interop.interfaces import Imported, Importer
from nmt.interop.marian_folder import Pieces, model_config, read_decoding, read_settings, read_weights
from nmt.interop.marian_model import MarianModel, Numbering, halves_order, ours_of, quiet
from nmt.runtime.hub import brief


class MarianImporter(Importer):
    """Reads a folder with `config.json`, the weights, `source.spm`, `target.spm` and `vocab.json`."""

    packages: ClassVar[tuple[str, ...]] = ("transformers",)
    files: ClassVar[tuple[str, ...]] = (
        *(marian_folder.CONFIG, marian_folder.GENERATION, marian_folder.TOKENIZER),
        *(marian_folder.ADDED, marian_folder.SPECIAL_MAP),
        *(marian_folder.SOURCE_MODEL, marian_folder.TARGET_MODEL),
        *(marian_folder.SOURCE_LIST, marian_folder.TARGET_LIST),
    )
    weights: ClassVar[tuple[str, ...]] = (marian_folder.WEIGHTS, marian_folder.PICKLED)

    def read(self, folder: Path) -> Imported:
        """See `Importer.read`."""
        settings = read_settings(folder)
        pieces = Pieces.read(folder)
        model = model_config(settings)
        theirs = read_weights(folder, settings, model)  # before its sizes are used
        numbering = pieces.numbering(folder, settings)
        engine = loaded_model(folder, settings, pieces, numbering, theirs)
        state = {name: weight.detach() for name, weight in engine.model.state_dict().items()}
        model, weights = _weights(model, state, numbering)
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


def _weights(
    config: ModelConfig, state: Mapping[str, Tensor], numbering: Numbering
) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Returns the options and the weights under our names; `state` has them under their names."""
    interleaved = not config.positions.options
    order = halves_order(config.d_model) if interleaved else torch.arange(config.d_model)
    back = torch.argsort(order)
    theirs = {
        "source": state["model.encoder.embed_tokens.weight"],
        "target": state["model.decoder.embed_tokens.weight"],
        "output": state["lm_head.weight"],
    }
    tie = Tie.none
    if torch.equal(theirs["target"], theirs["output"]):
        same = theirs["source"].shape == theirs["target"].shape and torch.equal(
            theirs["source"], theirs["target"]
        )
        tie = Tie.all if same else Tie.target
    rows = {"source": numbering.source, "target": numbering.target, "output": numbering.target}
    ours = {name: weight[torch.tensor(rows[name])][:, back] for name, weight in theirs.items()}
    weights = {"target_embedding.weight": ours["target"]}
    if tie is not Tie.all:
        weights["source_embedding.weight"] = ours["source"]
    if tie is Tie.none:
        weights["output.weight"] = ours["output"]
    bias = state["final_logits_bias"][0][torch.tensor(numbering.target)].clone()
    if numbering.starts_with_padding:
        bias[[PAD_ID, BOS_ID]] -= math.log(2)
    has_bias = bool(bias.any())
    if has_bias:
        weights["logit_bias"] = bias
    weights |= ours_of(config, state, order)
    return replace(config, tie=tie, output_bias=has_bias), weights
