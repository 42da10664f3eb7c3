"""The weights that training begins with: drawn from the seed, or those of a model that was trained before."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import torch

from nmt.bundle import WEIGHTS, find_model_folder, load_weights, read_config, read_model_weights
from nmt.config import TrainConfig
from nmt.data.preparation.prepare import Prepared
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.errors import UserError
from nmt.model import Seq2Seq, build_model
from nmt.runtime import config_file, mix, pieces_folder, read_errors
from nmt.training.state.run_folder import fixed_options

_KEY = "start_from"
# They have no weights, and the same weights do without them.
_FREE = ("model.dropout", "model.ffn_dropout", "model.word_dropout")


def new_model(config: TrainConfig, prepared: Prepared) -> Seq2Seq:
    """The model with random weights, a pure function of the seed."""
    torch.manual_seed(mix(config.seed))
    tokenizer = prepared.tokenizer
    return build_model(config.model, tokenizer.source_vocab_size, tokenizer.target_vocab_size)


def initial_model(config: TrainConfig, prepared: Prepared) -> Seq2Seq:
    """The model as it is before the first update.

    Raises:
        UserError: the weights of `start_from` are missing or damaged, or belong to other pieces.
    """
    model = new_model(config, prepared)
    if config.start_from is not None:
        folder = find_model_folder(config.start_from, _KEY)
        if Tokenizer.load(pieces_folder(folder)).fingerprint != prepared.tokenizer.fingerprint:
            raise UserError(
                f"{_KEY}={config.start_from}: its weights belong to other pieces than those of "
                f"data.tokenizer.path={config.data.tokenizer.path}: leave that option out"
            )
        load_weights(model, read_model_weights(folder), folder / WEIGHTS)
    return model


def with_vocabulary(config: TrainConfig) -> TrainConfig:
    """The options with the pieces of the model that training starts from.

    Raises:
        UserError: `start_from` is no model, or one of another shape.
    """
    if config.start_from is None:
        return config
    folder = find_model_folder(config.start_from, _KEY)
    there, here = map(fixed_options, (read_config(config_file(folder)), config))
    shape = [key for key in there if key.startswith("model.") and key not in _FREE]
    other = [key for key in shape if there[key] != here[key]]
    if other:
        raise UserError(
            f"{_KEY}={config.start_from}: this model has other options: give "
            + " ".join(f"{key}={there[key]}" for key in other)
        )
    path = config.data.tokenizer.path or config.start_from
    return replace(config, data=replace(config.data, tokenizer=replace(config.data.tokenizer, path=path)))


def start_fingerprint(config: TrainConfig) -> str | None:
    """SHA-256 of the weights in `start_from`; None without it.

    Raises:
        UserError: they can't be read.
    """
    if config.start_from is None:
        return None
    path = find_model_folder(config.start_from, _KEY) / WEIGHTS
    with read_errors(path), open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
