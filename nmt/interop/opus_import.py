"""Import of OPUS-MT models in Marian's own format: npz, `decoder.yml`, vocabulary, SentencePiece models.

Marian has neither padding nor a piece that begins a translation: it begins with a zero vector. So both sides
get two more pieces here, whose embeddings are zero and whose probability is zero.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nmt.config import Activation, ModelConfig, Norm, PositionsConfig
from nmt.config.checks import shortened
from nmt.config.plain_yaml import parse_yaml
from nmt.data.subwords.tokenizer import MAX_BYTES, SOURCE_FILE, TARGET_FILE
from nmt.errors import UserError
from nmt.interop.interfaces import Imported
from nmt.interop.marian_folder import (
    COUNT,
    RATE,
    Pieces,
    layer_shapes,
    recommended_decoding,
    shown,
    sound_pieces,
)
from nmt.interop.marian_model import FORBIDDING_BIAS, Numbering, our_weights
from nmt.interop.opus_engine import OpusModel
from nmt.interop.opus_files import DECODER, OPTIONS, OpusFiles
from nmt.interop.opus_vocabulary import parse_vocabulary
from nmt.runtime.streams import log

_LONGEST = 512  # positions, as in the conversions of these models for transformers; Marian has no limit
_END, _UNKNOWN = "</s>", "<unk>"
_ACTIVATIONS = {"relu": Activation.relu, "swish": Activation.silu}
_NORMS = {("", "dan", ""): Norm.post, ("n", "da", "n"): Norm.pre}
_FIXED: dict[str, tuple[Any, ...]] = {
    "type": ("transformer",),
    "transformer-decoder-autoreg": ("self-attention",),
    "transformer-postprocess-emb": ("d", ""),
    "transformer-ffn-depth": (2,),
    "transformer-decoder-ffn-depth": (2, 0),
    "transformer-no-projection": (False,),
    "transformer-no-bias": (False,),
    "transformer-no-affine": (False,),
    "transformer-pool": (False,),
    "transformer-tied-layers": ([],),
    "transformer-train-positions": (False,),
    "transformer-train-position-embeddings": (False,),
    "input-types": ([],),
    "lemma-dim-emb": (0,),
    "right-left": (False,),
    "ulr": (False,),
}
"""Options that must have one of these values: the first is Marian's default. nmt has no place for others."""


def read_opus(path: Path) -> Imported:
    """Reads a zip or a folder.

    Raises:
        UserError: as for `Importer.read`.
    """
    with OpusFiles(path) as files:
        decoder = _yaml(files.text(DECODER, 1 << 20), files.place(DECODER))
        [weights_name] = _names(decoder, "models", (1,), (".npz",), files.place(DECODER))
        names = _names(decoder, "vocabs", (1, 2), (".yml", ".yaml"), files.place(DECODER))
        lists = [_vocabulary(files, name) for name in dict.fromkeys(names)]
        source, target = (
            sound_pieces(files.read(name, MAX_BYTES), files.place(name))
            for name in (SOURCE_FILE, TARGET_FILE)
        )
        arrays = files.arrays(weights_name)
        place = files.place(weights_name)
    weights = _Weights(arrays, place)
    model, options = _model_config(weights.options(), place)
    sizes = [len(weights.embeddings(side, model.d_model)) for side in ("encoder", "decoder")]
    numbering, pieces = _pieces((source, target), lists, names, sizes, str(path))
    state = weights.state(model)
    config, ours = our_weights(model, state, numbering)
    if config.norm is Norm.pre:
        for side in ("encoder", "decoder"):
            for theirs, kind in (("scale", "weight"), ("bias", "bias")):
                ours[f"{side}_norm.{kind}"] = weights.vector(f"{side}_top_ln_{theirs}", config.d_model)
    weights.require_no_others()
    engine = OpusModel(weights.used, options, pieces, numbering, _LONGEST)
    tokenizer = pieces.tokenizer(path, numbering)
    decoding = recommended_decoding(decoder.get("beam-size"), decoder.get("normalize"), 0.0, _LONGEST)
    return Imported(config, ours, tokenizer, decoding, pieces.languages, _LONGEST, engine)


def _yaml(text: str, place: str) -> dict[str, Any]:
    try:
        values = parse_yaml(text)
    except ValueError as error:
        raise UserError(f"{place}: is damaged: {shortened(error, 200)}") from None
    if not isinstance(values, dict):
        raise UserError(f"{place}: is damaged: it has no options by name")
    return values


def _names(
    decoder: Mapping[str, Any], key: str, counts: Sequence[int], endings: tuple[str, ...], place: str
) -> list[str]:
    """Returns the names of files in `decoder.yml`."""
    names = decoder.get(key)
    if not isinstance(names, list) or len(names) not in counts:
        needed = "one file" if counts == (1,) else "one or two files"
        found = f"has {len(names)}" if isinstance(names, list) else f"is {shown(names)}"
        raise UserError(f"{place}: {key}: must be a list of {needed}, but {found}. Import one model.")
    for name in names:
        if (
            not isinstance(name, str)
            or re.search(r"[/\\\x00-\x1f]|^\.*$", name)
            or not name.endswith(endings)
        ):
            raise UserError(
                f"{place}: {key}: {shortened(repr(name))}: must be the name of a file next to it that ends "
                f"in {' or '.join(endings)}."
            )
    return names


def _vocabulary(files: OpusFiles, name: str) -> dict[str, int]:
    try:
        return parse_vocabulary(files.text(name, MAX_BYTES))
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"{files.place(name)}: is damaged: {error}. Copy the file again.") from None


def _model_config(given: Mapping[str, Any], place: str) -> tuple[ModelConfig, dict[str, Any]]:
    """Returns the options of a model, and those that the converter of CTranslate2 reads.

    Raises:
        UserError: an option is missing, or has a value that nmt has no place for.
    """

    def value(key: str, default: Any, is_right: Callable[[Any], bool], needed: str) -> Any:
        found = given.get(key, default)
        if not is_right(found):
            raise UserError(f"{place}: {key}={shown(found)}: must be {needed}.")
        return found

    def one_of(key: str, *values: Any) -> Any:
        needed = " or ".join(map(shown, values))
        return value(key, values[0], lambda found: any(_same(found, one) for one in values), needed)

    fixed = {key: one_of(key, *values) for key, values in _FIXED.items()}
    keys = "transformer-preprocess", "transformer-postprocess", "transformer-postprocess-top"
    steps = tuple(given.get(key, default) for key, default in zip(keys, ("", "dan", ""), strict=True))
    if not all(isinstance(step, str) for step in steps) or steps not in _NORMS:
        found = ", ".join(f"{key}={shown(step)}" for key, step in zip(keys, steps, strict=True))
        raise UserError(f'{place}: {found}: nmt has no such order. It has "", dan, "" and n, da, n.')
    activation = value(
        "transformer-ffn-activation",
        "swish",
        lambda found: isinstance(found, str) and found in _ACTIVATIONS,
        "relu or swish; nmt's gelu is another function than Marian's",
    )
    keys_of_sizes = "dim-emb", "transformer-dim-ffn", "transformer-heads"
    width, inner, heads = (value(key, *COUNT) for key in keys_of_sizes)
    one_of("transformer-decoder-dim-ffn", inner, 0)
    if value("transformer-dropout-attention", *RATE):
        log.warning(
            "transformer-dropout-attention: nmt has no dropout on attention weights. This matters for "
            "training alone."
        )
    config = ModelConfig(
        encoder_layers=value("enc-depth", *COUNT),
        decoder_layers=value("dec-depth", *COUNT),
        d_model=width,
        d_ff=inner,
        heads=heads,
        norm=_NORMS[steps],
        activation=_ACTIVATIONS[activation],
        positions=PositionsConfig(options={"layout": "tensor2tensor"}),
        dropout=float(value("transformer-dropout", *RATE)),
        ffn_dropout=float(value("transformer-dropout-ffn", *RATE)),
    )
    if width % 2:
        raise UserError(f"{place}: dim-emb={width}: must be even.")
    options = {
        **fixed,
        **dict(zip(keys, steps, strict=True)),
        "transformer-ffn-activation": activation,
        "transformer-guided-alignment-layer": "last",
        "dim-emb": width,
        "enc-depth": config.encoder_layers,
        "dec-depth": config.decoder_layers,
        "transformer-heads": heads,
    }
    return config, options


def _same(found: Any, expected: Any) -> bool:
    return type(found) is type(expected) and bool(found == expected)


class _Weights:
    """The arrays of an npz, and which of them have been used.

    Attributes:
        used: the arrays that have a place here, in fp32.
    """

    def __init__(self, arrays: dict[str, np.ndarray[Any, Any]], place: str) -> None:
        self._arrays, self._place = arrays, place
        self.used: dict[str, np.ndarray[Any, Any]] = {}

    def options(self) -> dict[str, Any]:
        """Returns the options that Marian has stored with the weights."""
        stored = self._arrays.pop(OPTIONS, None)
        if stored is None or stored.dtype.itemsize != 1:
            raise UserError(f"{self._place}: lacks {OPTIONS}, so it is not a model of Marian.")
        try:
            text = stored.tobytes().rstrip(b"\0").decode()
        except UnicodeDecodeError:
            raise UserError(f"{self._place}: {OPTIONS} is damaged: not UTF-8. Copy the file again.") from None
        return _yaml(text, f"{self._place}: {OPTIONS}")

    def embeddings(self, side: str, width: int) -> Tensor:
        """Returns the embeddings of `encoder` or `decoder`: (V, D)."""
        name = next((name for name in (f"{side}_Wemb", "Wemb") if name in self._arrays), "Wemb")
        embeddings = self._matrix(name)
        if embeddings.shape[1] != width:
            raise self._wrong_size(name, embeddings, (len(embeddings), width))
        return embeddings

    def state(self, config: ModelConfig) -> dict[str, Tensor]:
        """Returns the weights under the names of transformers, with two more pieces on each side."""
        source, target = (self.embeddings(side, config.d_model) for side in ("encoder", "decoder"))
        output, prefix = target, "decoder_ff_logit_out"
        if f"{prefix}_Wt" in self._arrays:
            output = self._matrix(f"{prefix}_Wt")
        elif f"{prefix}_W" in self._arrays:
            output = self._matrix(f"{prefix}_W").T.contiguous()
        if output.shape != target.shape:
            raise self._wrong_size(prefix, output, tuple(target.shape))
        bias = torch.zeros(len(target))
        if f"{prefix}_b" in self._arrays:
            bias = self.vector(f"{prefix}_b", len(target))
        zeros = torch.zeros(2, config.d_model)
        state = {
            "model.encoder.embed_tokens.weight": torch.cat([source, zeros]),
            "model.decoder.embed_tokens.weight": torch.cat([target, zeros]),
            "lm_head.weight": torch.cat([output, zeros]),
            "final_logits_bias": torch.cat([bias, torch.full((2,), FORBIDDING_BIAS)])[None],
        }
        suffix = "_pre" if config.norm is Norm.pre else ""
        for theirs, shape in layer_shapes(config):
            name = _marian_name(theirs, suffix)
            if len(shape) == 1:
                state[theirs] = self.vector(name, *shape)
            else:
                state[theirs] = self._matrix(name).T.contiguous()
                if state[theirs].shape != shape:
                    raise self._wrong_size(name, self._matrix(name), shape[::-1])
        return state

    def vector(self, name: str, size: int) -> Tensor:
        """Returns a bias or a part of a norm, which Marian stores as one row."""
        array = self._array(name)
        if array.shape not in ((1, size), (size,)):
            raise self._wrong_size(name, array, (1, size))
        return torch.from_numpy(array).reshape(-1).clone()

    def require_no_others(self) -> None:
        """Raises `UserError` if an array has not been used."""
        if others := sorted(self._arrays.keys() - self.used.keys()):
            raise UserError(
                f"{self._place}: nmt has no place for {len(others)} of its weights, such as "
                f"{shown(others[0])}."
            )

    def _matrix(self, name: str) -> Tensor:
        array = self._array(name)
        if array.ndim != 2:
            raise UserError(f"{self._place}: {name}: must be a matrix, but has {array.ndim} dimensions.")
        return torch.from_numpy(array)

    def _array(self, name: str) -> np.ndarray[Any, Any]:
        if name not in self.used:
            if name not in self._arrays:
                raise UserError(f"{self._place}: lacks the weight {name}, which its options need.")
            array = self._arrays[name]
            if array.dtype not in (np.float32, np.float16):
                raise UserError(f"{self._place}: {name}: must hold fp32 or fp16 numbers, not {array.dtype}.")
            self.used[name] = np.array(array, np.float32, order="C")
            if not np.isfinite(self.used[name]).all():
                raise UserError(f"{self._place}: {name}: holds NaN or infinite numbers.")
        return self.used[name]

    def _wrong_size(self, name: str, found: Any, expected: tuple[int, ...]) -> UserError:
        sizes = [" x ".join(map(str, shape)) for shape in (found.shape, expected)]
        return UserError(
            f"{self._place}: {name}: has the size {sizes[0]}. By its options, it has {sizes[1]}."
        )


_PARTS = {"self_attn": "self", "encoder_attn": "context"}
_LINEAR = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "out_proj": "o"}


def _marian_name(theirs: str, suffix: str) -> str:
    """Returns Marian's name of a weight of transformers; `suffix` is that of norms."""
    _, side, _, number, *parts, kind = theirs.split(".")
    layer, name = f"{side}_l{int(number) + 1}", parts[-1]
    if name.endswith("norm"):
        part = "ffn_ffn" if name == "final_layer_norm" else f"{_PARTS[name.removesuffix('_layer_norm')]}_Wo"
        return f"{layer}_{part}_ln_{'scale' if kind == 'weight' else 'bias'}{suffix}"
    part, linear = ("ffn", name[-1]) if len(parts) == 1 else (_PARTS[parts[0]], _LINEAR[name])
    return f"{layer}_{part}_{'W' if kind == 'weight' else 'b'}{linear}"


def _pieces(
    models: tuple[bytes, bytes],
    lists: Sequence[dict[str, int]],
    names: Sequence[str],
    sizes: Sequence[int],
    place: str,
) -> tuple[Numbering, Pieces]:
    """Returns the ids of the model by ours, and its pieces with the two that Marian does not have."""
    sides = []
    for name, ids, size in zip((names[0], names[-1]), (lists[0], lists[-1]), sizes, strict=True):
        if _END not in ids or _UNKNOWN not in ids:
            raise UserError(f"{place}: {name}: lacks {_END} or {_UNKNOWN}.")
        if max(ids.values()) >= size:
            raise UserError(f"{place}: {name}: has more pieces than the model, which has {size:,}.")
        sides.append((size + 2, size, size + 1, ids[_END], ids[_UNKNOWN]))
    # These names are those of the two pieces here. SentencePiece does not write them.
    whole = [
        {piece if piece not in ("<pad>", "<s>") else f"<unused id {id}>": id for piece, id in ids.items()}
        | {"<pad>": size, "<s>": size + 1}
        for ids, (_, size, *_) in zip((lists[0], lists[-1]), sides, strict=True)
    ]
    special = {"pad_token": "<pad>", "eos_token": _END, "unk_token": _UNKNOWN}
    target = None if len(lists) == 1 else whole[1]
    pieces = Pieces(models, whole[0], target, special, (None, None), special_in_text=False)
    return Numbering.of(*sides), pieces
