"""The files of a Marian model of transformers, checked before a size is used: options, weights and pieces.

Anybody can have written them. transformers gets the options that are listed here and nothing else of the
folder, because others choose code: kernels, quantisers, adapters and classes of other repositories.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sentencepiece as spm
import torch
from torch import Tensor

from nmt.config import Activation, DecodingConfig, ModelConfig, PositionsConfig
from nmt.config.checks import check_language, shortened
from nmt.config.interop import MOST_POSITIONS
from nmt.data.subwords.tokenizer import MAX_BYTES, MarianTokenizer, Tokenizer
from nmt.data.subwords.vocabulary import NUM_SPECIAL
from nmt.errors import UserError
from nmt.interop.marian_model import LAYOUT_KEY, Numbering, modules
from nmt.runtime.checksums import read_sections
from nmt.runtime.files import read_bytes, require_regular, stat_or_none
from nmt.runtime.hub import brief
from nmt.runtime.os_errors import read_errors
from nmt.runtime.streams import log
from nmt.runtime.tensors import read_tensors

ACTIVATIONS = {activation.value: activation for activation in Activation} | {"swish": Activation.silu}
CONFIG, SOURCE_MODEL, TARGET_MODEL = "config.json", "source.spm", "target.spm"
SOURCE_LIST, TARGET_LIST, TOKENIZER = "vocab.json", "target_vocab.json", "tokenizer_config.json"
ADDED, SPECIAL_MAP, GENERATION = "added_tokens.json", "special_tokens_map.json", "generation_config.json"
WEIGHTS, PICKLED = "model.safetensors", "pytorch_model.bin"
SPECIAL = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
BOS = "<s>"


def _is_count(value: Any) -> bool:
    return type(value) is int and value > 0


def _is_id(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_rate(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < 1


COUNT = None, _is_count, "a whole number from 1 on"
_ID = None, _is_id, "the id of a piece"
_FLAG = True, lambda value: isinstance(value, bool), "true or false"
RATE = 0.0, _is_rate, "at least 0 and below 1"
_OPTIONS: dict[str, tuple[Any, Callable[[Any], bool], str]] = {
    "vocab_size": COUNT,
    "decoder_vocab_size": (None, lambda value: value is None or _is_count(value), COUNT[2]),
    "d_model": COUNT,
    "max_position_embeddings": COUNT,
    "encoder_layers": COUNT,
    "decoder_layers": COUNT,
    "encoder_ffn_dim": COUNT,
    "decoder_ffn_dim": COUNT,
    "encoder_attention_heads": COUNT,
    "decoder_attention_heads": COUNT,
    "eos_token_id": _ID,
    "decoder_start_token_id": _ID,
    "pad_token_id": (None, lambda value: value is None or _is_id(value), _ID[2]),
    "is_encoder_decoder": _FLAG,
    "scale_embedding": (False, *_FLAG[1:]),
    "share_encoder_decoder_embeddings": _FLAG,
    "tie_word_embeddings": _FLAG,
    "dropout": RATE,
    "attention_dropout": RATE,
    "activation_dropout": RATE,
    "activation_function": (
        None,
        lambda value: isinstance(value, str) and value in ACTIVATIONS,
        f"one of {', '.join(ACTIVATIONS)}",
    ),
}
"""The options of a model: default, check, and what it requires."""
_EMBEDDINGS = (
    *("model.shared.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"),
    "lm_head.weight",
)
_MOST_BEAMS, _MOST_PENALTY = 1000, 10
"""Bounds of the options of decoding."""
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def read_settings(folder: Path) -> dict[str, Any]:
    """Returns the options of `config.json` that a Marian model has, each of the right type.

    Raises:
        UserError: the file is missing or damaged, is not that of a Marian model, or an option has a wrong
            value.
    """
    path, given = folder / CONFIG, _sections(folder, CONFIG)
    if given.get("model_type") != "marian":
        raise UserError(f"{path}: model_type={given.get('model_type')}: not a Marian model of transformers.")

    settings: dict[str, Any] = {}
    for key, (default, is_right, needed) in _OPTIONS.items():
        settings[key] = given.get(key, default)
        if not is_right(settings[key]):
            raise UserError(f"{path}: {key}={shown(settings[key])}: must be {needed}.")
    if settings["decoder_vocab_size"] is None:
        settings["decoder_vocab_size"] = settings["vocab_size"]
    for key, value in (
        *(("is_encoder_decoder", True), ("scale_embedding", True)),
        ("decoder_ffn_dim", settings["encoder_ffn_dim"]),
        ("decoder_attention_heads", settings["encoder_attention_heads"]),
    ):
        if settings[key] != value:
            raise UserError(f"{path}: {key}={shown(settings[key])}: must be {shown(value)}.")
    longest = settings["max_position_embeddings"]
    if longest > MOST_POSITIONS:
        raise UserError(
            f"{path}: max_position_embeddings={shown(longest)}: must be at most {MOST_POSITIONS:,}."
        )
    settings[LAYOUT_KEY] = "interleaved" if given.get(LAYOUT_KEY) == "interleaved" else "halves"
    return settings


def model_config(settings: Mapping[str, Any]) -> ModelConfig:
    """Returns the options of a model with these settings; `tie` and `output_bias` depend on the weights, too.

    Raises:
        UserError: an option has a value that nmt does not allow.
    """
    if settings["attention_dropout"]:
        log.warning(
            "attention_dropout=%g: nmt has no dropout on attention weights. This matters for training alone.",
            settings["attention_dropout"],
        )
    return ModelConfig(
        encoder_layers=settings["encoder_layers"],
        decoder_layers=settings["decoder_layers"],
        d_model=settings["d_model"],
        d_ff=settings["encoder_ffn_dim"],
        heads=settings["encoder_attention_heads"],
        activation=ACTIVATIONS[settings["activation_function"]],
        positions=PositionsConfig(
            options={} if settings[LAYOUT_KEY] == "interleaved" else {"layout": "halves"}
        ),
        dropout=settings["dropout"],
        ffn_dropout=settings["activation_dropout"],
    )


def recommended_decoding(beams: Any, exponent: Any, default: float, longest: int) -> DecodingConfig:
    """Returns the options of decoding that a model recommends; values that nmt does not allow are ignored.

    `exponent` is that of the length by which the other program divides, and `default` its default.
    """
    allowed = type(exponent) in (int, float) and 0 <= exponent <= _MOST_PENALTY
    return DecodingConfig(
        beam_size=beams if type(beams) is int and 1 <= beams <= _MOST_BEAMS else 1,
        length_penalty=float(exponent) if allowed else default,
        max_source_tokens=longest,
    )


def read_decoding(folder: Path, longest: int) -> DecodingConfig:
    """Returns the options of decoding that a model of transformers recommends."""
    options = _optional(folder, GENERATION) or _sections(folder, CONFIG)
    return recommended_decoding(options.get("num_beams"), options.get("length_penalty"), 1.0, longest)


def read_weights(folder: Path, settings: Mapping[str, Any], config: ModelConfig) -> dict[str, Tensor]:
    """Returns the weights under their names, whose sizes are those of the settings.

    Raises:
        UserError: the file is missing or damaged, or a weight is missing or has another size.
    """
    path = next((folder / name for name in (WEIGHTS, PICKLED) if (folder / name).exists()), folder / WEIGHTS)
    with read_errors(path):
        if not path.exists():
            raise UserError(
                f"{folder}: lacks {WEIGHTS} or {PICKLED}, so it is not a Marian model of transformers."
            )
        try:
            tensors = read_tensors(path) if path.name == WEIGHTS else _unpickled(path)
        except ValueError as error:
            raise UserError(f"{path}: is damaged: {error}. Copy the file again.") from error
    width = config.d_model
    found = [tuple(tensors[name].shape) for name in _EMBEDDINGS if name in tensors]
    for key in ("vocab_size", "decoder_vocab_size"):
        if (settings[key], width) not in found:
            raise UserError(
                f"{folder / CONFIG}: {key}={settings[key]}, d_model={width}: {path.name} has no embeddings "
                f"of this size. It has {', '.join(map(_size, dict.fromkeys(found))) or 'none'}."
            )
    for name, shape in layer_shapes(config):
        if name not in tensors:
            raise UserError(f"{path}: lacks the weight {name}, which {CONFIG} needs. Copy both files again.")
        if tuple(tensors[name].shape) != shape:
            raise UserError(
                f"{path}: {name} has the size {_size(tensors[name].shape)}. By {CONFIG}, it has "
                f"{_size(shape)}. Copy both files again."
            )
    return tensors


def _size(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "1"


def layer_shapes(config: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yields the name and shape of each weight of the layers."""
    width, inner = config.d_model, config.d_ff
    for module in modules(config):
        for name in module.theirs:
            rows = inner if name.endswith("fc1") else width
            if not name.endswith("norm"):
                yield f"{name}.weight", (rows, inner if name.endswith("fc2") else width)
            else:
                yield f"{name}.weight", (width,)
            yield f"{name}.bias", (rows,)


def _unpickled(path: Path) -> dict[str, Tensor]:
    """Reads the tensors of a pickle, of which nothing is executed.

    Raises:
        ValueError: it is not a pickle of tensors by name, or a tensor does not have all its numbers.
    """
    size = require_regular(path).st_size
    try:
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # pickle and torch raise errors of many kinds
        raise ValueError(f"torch can't read it ({brief(error)})") from error
    if not isinstance(tensors, Mapping):
        raise ValueError("it has no tensors by name")
    for name, tensor in tensors.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise ValueError("it has no tensors by name")
        if tensor.layout is not torch.strided or tensor.dtype not in _FLOATS:
            raise ValueError(f"{name} does not hold fp32, fp16 or bf16 numbers")
        # A view may repeat its numbers without end.
        if tensor.numel() * tensor.element_size() > size:
            raise ValueError(f"{name} is larger than the file")
        if not torch.isfinite(tensor).all():
            raise ValueError(f"{name} holds NaN or infinite numbers")
    return dict(tensors)


@dataclass(frozen=True)
class Pieces:
    """The files of a `MarianTokenizer`.

    Attributes:
        models: the SentencePiece models of both sides.
        source_list: the id of each piece.
        target_list: the id of each piece of the target side; None: the same.
        special: the names of the special pieces, by the keys of `SPECIAL`.
        languages: the codes of the source and target language; None: not stated.
        special_in_text: whether the names of special pieces in a text become these pieces.
    """

    models: tuple[bytes, bytes]
    source_list: Mapping[str, int]
    target_list: Mapping[str, int] | None
    special: Mapping[str, str]
    languages: tuple[str | None, str | None]
    special_in_text: bool = True

    @classmethod
    def read(cls, folder: Path) -> Pieces:
        """Reads the files. Raises `UserError` if a file is missing, or does not have the right form."""
        settings = _optional(folder, TOKENIZER)
        if "added_tokens_decoder" not in settings:  # only then, transformers reads the older files
            settings |= _optional(folder, SPECIAL_MAP)
            settings["added_tokens_decoder"] = list(_optional(folder, ADDED))
        path = folder / TOKENIZER
        separate = settings.get("separate_vocabs", False)
        if not isinstance(separate, bool):
            raise UserError(f"{path}: separate_vocabs={shown(separate)}: must be true or false.")
        source_list = _list(folder, SOURCE_LIST)
        target_list = _list(folder, TARGET_LIST) if separate else None
        models = _model(folder, SOURCE_MODEL), _model(folder, TARGET_MODEL)
        special = {key: _token(path, key, settings.get(key, default)) for key, default in SPECIAL.items()}
        others = sorted({*_added_pieces(path, settings)} - {*special.values()})
        if others:
            raise UserError(f"{path}: has added pieces, which can't be imported: {shown(others)}")
        languages = _language(path, settings, "source_lang"), _language(path, settings, "target_lang")
        return cls(models, source_list, target_list, special, languages)

    def numbering(self, folder: Path, settings: Mapping[str, Any]) -> Numbering:
        """Returns the ids of the model by those here.

        Raises:
            UserError: a special piece has no id, or a translation begins with a piece of the text.
        """
        sides: list[tuple[int, int, int, int, int]] = []
        start = settings["decoder_start_token_id"]
        for name, pieces, size in (
            (SOURCE_LIST, self.source_list, settings["vocab_size"]),
            (TARGET_LIST, self.target_list, settings["decoder_vocab_size"]),
        ):
            if pieces is None:
                sides.append(sides[0])
                continue
            default = {"pad_token": settings["pad_token_id"]}
            ids = [pieces.get(self.special[key], default.get(key)) for key in SPECIAL]
            pad, end, unknown = (-1 if id is None else id for id in ids)
            if not all(0 <= id < size for id in (pad, end, unknown)) or len({pad, end, unknown}) < 3:
                raise UserError(f"{folder / name}: lacks one of {', '.join(self.special.values())}")
            if max(pieces.values()) >= size:
                raise UserError(f"{folder / name}: has more pieces than the model, which has {size}")
            # A model that was exported from one of nmt has the piece that begins translations on both sides.
            begin = start if start == pieces.get(BOS) else pad
            sides.append((size, pad, begin, end, unknown))
        for key, id, what in (
            ("decoder_start_token_id", 2, "padding"),
            ("eos_token_id", 3, self.special["eos_token"]),
        ):
            if sides[1][id] != settings[key]:
                raise UserError(f"{folder / CONFIG}: {key}={settings[key]}: must be the id of {what}.")
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
            target_names = names[1] if len(names) > 1 else None
            return MarianTokenizer(self.models, names[0], target_names, self.special_in_text)
        except (ValueError, IndexError) as error:
            raise UserError(f"{folder}: {SOURCE_MODEL}, {TARGET_MODEL} or {SOURCE_LIST}: {error}") from None

    def _names(self, pieces: Mapping[str, int], numbers: Any) -> list[str]:
        """Returns the piece of each of our ids. An id that has no piece gets a name that no text has."""
        known = {id: piece for piece, id in pieces.items()}
        names = [known.get(number, f"<unused id {number}>") for number in numbers]
        special = [self.special["pad_token"], BOS, self.special["eos_token"], self.special["unk_token"]]
        return [*special, *names[NUM_SPECIAL:]]


def shown(value: Any) -> str:
    """Returns a value of a file as JSON, shortened, for a message."""
    return shortened(json.dumps(value))


def _added_pieces(path: Path, settings: Mapping[str, Any]) -> Iterator[str]:
    """Yields the pieces that transformers finds in a text before SentencePiece does."""
    for key in ("added_tokens_decoder", "extra_special_tokens", "additional_special_tokens"):
        added = settings.get(key) or []
        if not isinstance(added, dict | list):
            raise UserError(f"{path}: {key}={shown(added)}: must be a list of pieces.")
        for token in added.values() if isinstance(added, dict) else added:
            yield _token(path, key, token)


def _language(path: Path, settings: Mapping[str, Any], key: str) -> str | None:
    """Returns the code of a language; None if it is not stated, or is not a code."""
    code = settings.get(key)
    try:
        if isinstance(code, str):
            check_language(key, code)
    except UserError:
        log.warning("%s: %s=%s: not the code of a language", path, key, shown(code))
        return None
    return code if isinstance(code, str) else None


def _token(path: Path, key: str, value: Any) -> str:
    """Returns the text of a special piece, which may be stated with options."""
    text = value.get("content") if isinstance(value, dict) else value
    if not isinstance(text, str) or not text:
        raise UserError(f"{path}: {key}={shown(value)}: must be a piece.")
    return text


def _model(folder: Path, name: str) -> bytes:
    return sound_pieces(read_bytes(_required(folder, name), MAX_BYTES), folder / name)


def sound_pieces(content: bytes, place: object) -> bytes:
    """Returns `content`; raises `UserError` about `place` if it is not a SentencePiece model."""
    try:
        spm.SentencePieceProcessor(model_proto=content)
    except (RuntimeError, OSError):
        raise UserError(f"{place}: is damaged: not a SentencePiece model. Copy the file again.") from None
    return content


def _list(folder: Path, name: str) -> dict[str, int]:
    pieces = _sections(folder, name)
    if not pieces or not all(type(id) is int and id >= 0 for id in pieces.values()):
        raise UserError(f"{folder / name}: must have a number for each piece")
    if len({*pieces.values()}) < len(pieces):
        raise UserError(f"{folder / name}: two pieces have the same number")
    return pieces


def _optional(folder: Path, name: str) -> dict[str, Any]:
    return _sections(folder, name) if stat_or_none(folder / name) is not None else {}


def _sections(folder: Path, name: str) -> dict[str, Any]:
    return read_sections(_required(folder, name), MAX_BYTES)


def _required(folder: Path, name: str) -> Path:
    with read_errors(folder / name):
        if stat_or_none(folder / name) is None:
            raise UserError(f"{folder}: lacks {name}, so it is not a Marian model of transformers.")
    return folder / name
