"""Import of Marian models of transformers (`MarianMTModel`), the format of the OPUS-MT models.

The special pieces get the ids that every model has here; the other pieces keep their order. Marian begins a
translation with the padding id. Here that id has two numbers: PAD, and BOS with the same embedding. Each has
half of its probability (its bias minus log 2), so that the probabilities of all other pieces are the same.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from nmt.config import Activation, DecodingConfig, ModelConfig, PositionsConfig, Tie
from nmt.data.subwords.tokenizer import MarianTokenizer, Tokenizer
from nmt.data.subwords.vocabulary import BOS_ID, NUM_SPECIAL, PAD_ID
from nmt.errors import UserError
from nmt.interop.interfaces import Imported, Importer
from nmt.interop.marian_model import LAYOUT_KEY, MarianModel, Numbering, halves_order, ours_of
from nmt.runtime.files import parse_json
from nmt.runtime.hub import brief
from nmt.runtime.os_errors import read_errors
from nmt.runtime.streams import log

_ACTIVATIONS = {activation.value: activation for activation in Activation} | {"swish": Activation.silu}
_CONFIG, _SOURCE_MODEL, _TARGET_MODEL = "config.json", "source.spm", "target.spm"
_SOURCE_LIST, _TARGET_LIST, _TOKENIZER = "vocab.json", "target_vocab.json", "tokenizer_config.json"
_SPECIAL = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
_BOS = "<s>"


class MarianImporter(Importer):
    """Reads a folder with `config.json`, the weights, `source.spm`, `target.spm` and `vocab.json`."""

    packages: ClassVar[tuple[str, ...]] = ("transformers",)
    files: ClassVar[tuple[str, ...]] = (
        *(_CONFIG, "generation_config.json", _TOKENIZER),
        *(_SOURCE_MODEL, _TARGET_MODEL, _SOURCE_LIST, _TARGET_LIST),
    )
    weights: ClassVar[tuple[str, ...]] = ("model.safetensors", "pytorch_model.bin")

    def read(self, folder: Path) -> Imported:
        """See `Importer.read`."""
        from transformers import MarianConfig

        settings = _json(folder, _CONFIG)
        if settings.get("model_type") != "marian":
            raise UserError(
                f"{folder / _CONFIG}: model_type={settings.get('model_type')}: not a Marian model of "
                "transformers."
            )
        pieces = _Pieces.read(folder)
        with _loading_errors(folder):
            config: Any = MarianConfig.from_pretrained(folder)
            model = _model_config(folder, config)
        numbering = pieces.numbering(folder, config)
        with _loading_errors(folder):
            engine = MarianModel(folder, numbering)
        state = {name: weight.detach() for name, weight in engine.model.state_dict().items()}
        model, weights = _weights(model, state, numbering)
        longest = config.max_position_embeddings
        return Imported(
            model,
            weights,
            pieces.tokenizer(folder, numbering),
            _decoding(engine.model.generation_config, longest),
            pieces.languages,
            longest,
            engine,
        )


@contextmanager
def _loading_errors(folder: Path) -> Iterator[None]:
    """Raises UserErrors; transformers and torch raise errors of many kinds for a damaged model."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{folder}: transformers can't load it: {brief(error)}") from error


def _decoding(options: Any, longest: int) -> DecodingConfig:
    """Returns the options of decoding that a model recommends; values that are not numbers are ignored."""
    beams, penalty = options.num_beams, options.length_penalty
    return DecodingConfig(
        beam_size=max(beams, 1) if isinstance(beams, int) else 1,
        # The exponent of the length by which transformers divides; its default is 1.
        length_penalty=max(float(penalty), 0.0) if isinstance(penalty, int | float) else 1.0,
        max_source_tokens=longest,
    )


def _model_config(folder: Path, config: Any) -> ModelConfig:
    """Returns the options of a model; `tie` and `output_bias` depend on the weights, too.

    Raises:
        UserError: the model has an option that a Transformer lacks here.
    """
    for key, value, needed in (
        ("is_encoder_decoder", config.is_encoder_decoder, True),
        ("scale_embedding", config.scale_embedding, True),
        ("decoder_ffn_dim", config.decoder_ffn_dim, config.encoder_ffn_dim),
        ("decoder_attention_heads", config.decoder_attention_heads, config.encoder_attention_heads),
    ):
        if value != needed:
            raise UserError(f"{folder / _CONFIG}: {key}={json.dumps(value)}: must be {json.dumps(needed)}.")
    if config.activation_function not in _ACTIVATIONS:
        raise UserError(
            f"{folder / _CONFIG}: activation_function={config.activation_function}: must be one of "
            f"{', '.join(_ACTIVATIONS)}."
        )
    if config.attention_dropout:
        log.warning(
            "attention_dropout=%g: nmt has no dropout on attention weights. This matters for training alone.",
            config.attention_dropout,
        )
    interleaved = getattr(config, LAYOUT_KEY, None) == "interleaved"
    return ModelConfig(
        encoder_layers=config.encoder_layers,
        decoder_layers=config.decoder_layers,
        d_model=config.d_model,
        d_ff=config.encoder_ffn_dim,
        heads=config.encoder_attention_heads,
        activation=_ACTIVATIONS[config.activation_function],
        positions=PositionsConfig(options={} if interleaved else {"layout": "halves"}),
        dropout=config.dropout,
        ffn_dropout=config.activation_dropout,
    )


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


@dataclass(frozen=True)
class _Pieces:
    """The files of a `MarianTokenizer`.

    Attributes:
        models: the SentencePiece models of both sides.
        source_list: the id of each piece.
        target_list: the id of each piece of the target side; None: the same.
        special: the names of the special pieces, by the keys of `_SPECIAL`.
        languages: the codes of the source and target language; None: not stated.
    """

    models: tuple[bytes, bytes]
    source_list: Mapping[str, int]
    target_list: Mapping[str, int] | None
    special: Mapping[str, str]
    languages: tuple[str | None, str | None]

    @classmethod
    def read(cls, folder: Path) -> _Pieces:
        """Reads the files. Raises `UserError` if a file is missing, or does not have the right form."""
        settings = _json(folder, _TOKENIZER) if (folder / _TOKENIZER).is_file() else {}
        source_list = _list(folder, _SOURCE_LIST)
        target_list = _list(folder, _TARGET_LIST) if settings.get("separate_vocabs") else None
        models = _read(folder, _SOURCE_MODEL), _read(folder, _TARGET_MODEL)
        special = {key: _token(settings.get(key, default)) for key, default in _SPECIAL.items()}
        added = settings.get("added_tokens_decoder")
        tokens = map(_token, added.values()) if isinstance(added, dict) else ()
        others = [token for token in tokens if token not in special.values()]
        if others:
            raise UserError(f"{folder / _TOKENIZER}: has added pieces, which can't be imported: {others}")
        languages = _text(settings.get("source_lang")), _text(settings.get("target_lang"))
        return cls(models, source_list, target_list, special, languages)

    def numbering(self, folder: Path, config: Any) -> Numbering:
        """Returns the ids of the model by those here.

        Raises:
            UserError: a special piece has no id, or a translation begins with a piece of the text.
        """
        sides: list[tuple[int, int, int, int, int]] = []
        start = config.decoder_start_token_id
        for name, pieces, size in (
            (_SOURCE_LIST, self.source_list, config.vocab_size),
            (_TARGET_LIST, self.target_list, config.decoder_vocab_size),
        ):
            if pieces is None:
                sides.append(sides[0])
                continue
            ids = [
                pieces.get(self.special[key], config.pad_token_id if key == "pad_token" else -1)
                for key in _SPECIAL
            ]
            if not all(0 <= id < size for id in ids) or len(set(ids)) < len(ids):
                raise UserError(f"{folder / name}: lacks one of {', '.join(self.special.values())}")
            if max(pieces.values()) >= size:
                raise UserError(f"{folder / name}: has more pieces than the model, which has {size}")
            pad, end, unknown = ids
            # A model that was exported from one of nmt has the piece that begins translations on both sides.
            begin = start if start == pieces.get(_BOS) else pad
            sides.append((size, pad, begin, end, unknown))
        if sides[1][2] != start:
            raise UserError(f"{folder / _CONFIG}: decoder_start_token_id={start}: must be the id of padding.")
        return Numbering.of(*sides)

    def tokenizer(self, folder: Path, numbering: Numbering) -> Tokenizer:
        """Returns the tokenizer: that of `nmt-train`, if the model was exported from one of its models."""
        names = [self._names(self.source_list, numbering.source)]
        if self.target_list is not None:
            names.append(self._names(self.target_list, numbering.target))
        models = self.models[:1] if self.models[0] == self.models[1] and len(names) == 1 else self.models
        if numbering.is_identity:
            try:
                own = Tokenizer(*models)
            except (ValueError, IndexError):
                pass
            else:
                # One list is for both sides, which may have two normalisers.
                if [list(own.source.names), list(own.target.names)] == [names[0], names[-1]]:
                    return own
        try:
            return MarianTokenizer(self.models, names[0], names[1] if len(names) > 1 else None)
        except (ValueError, IndexError) as error:
            raise UserError(
                f"{folder}: {_SOURCE_MODEL}, {_TARGET_MODEL} or {_SOURCE_LIST}: {error}"
            ) from None

    def _names(self, pieces: Mapping[str, int], numbers: Any) -> list[str]:
        """Returns the piece of each of our ids. An id that has no piece gets a name that no text has."""
        known = {id: piece for piece, id in pieces.items()}
        names = [known.get(number, f"<unused id {number}>") for number in numbers]
        special = [self.special["pad_token"], _BOS, self.special["eos_token"], self.special["unk_token"]]
        return [*special, *names[NUM_SPECIAL:]]


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _token(value: Any) -> str:
    """Returns the text of a special piece, which may be stated with options."""
    return str(value.get("content") if isinstance(value, dict) else value)


def _read(folder: Path, name: str) -> bytes:
    path = folder / name
    with read_errors(path):
        if not path.is_file():
            raise UserError(f"{folder}: lacks {name}, so it is not a Marian model of transformers.")
        return path.read_bytes()


def _list(folder: Path, name: str) -> dict[str, int]:
    pieces = _json(folder, name)
    if not all(isinstance(id, int) for id in pieces.values()):
        raise UserError(f"{folder / name}: must have a number for each piece")
    return pieces


def _json(folder: Path, name: str) -> dict[str, Any]:
    path, content = folder / name, _read(folder, name)
    try:
        values = parse_json(content)
    except ValueError as error:
        raise UserError(f"{path}: is damaged: {error}. Copy the file again.") from None
    if not isinstance(values, dict):
        raise UserError(f"{path}: is damaged: it has no sections")
    return values
