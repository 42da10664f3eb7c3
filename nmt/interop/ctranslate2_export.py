"""Export to CTranslate2, an engine for CPUs and GPUs (github.com/OpenNMT/CTranslate2)."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import sentencepiece as spm
import torch
from torch import Tensor

from nmt.bundle import Bundle
from nmt.config import Activation, ModelConfig, Norm, NormKind
from nmt.data.subwords.tokenizer import JOINT_FILE, SOURCE_FILE, TARGET_FILE, Tokenizer
from nmt.data.subwords.vocabulary import BOS_ID, EOS_ID, FORBIDDEN_IDS, PAD_ID, UNK_ID
from nmt.interop.interfaces import Exporter, ForeignModel, tag_example
from nmt.interop.parity import equally_probable
from nmt.model.positions import Places, Positions
from nmt.model.transformer import Transformer
from nmt.runtime.model_files import PIECE_LIST

_TABLES = ("sinusoidal", "learned", "none", "integer", "binary")
_ENCODINGS = (*_TABLES, "rotary", "relative", "t5")
SPECIAL = {PAD_ID: "<pad>", BOS_ID: "<s>", EOS_ID: "</s>", UNK_ID: "<unk>"}
"""The names of the special pieces in the engine, by id."""
_ACTIVATIONS = {Activation.relu: "RELU", Activation.gelu: "GELU", Activation.silu: "SWISH"}
_BATCH_TOKENS = 2048
THREADS = 4
"""Of one operation; the sums in fp32 depend on it slightly."""


class CTranslate2Exporter(Exporter):
    """Writes `model.bin` and its vocabulary for `ctranslate2.Translator`, next to the SentencePiece models.

    The pieces keep their names. So the pieces of SentencePiece can be given to the engine as they are.
    """

    library: ClassVar[str] = "ctranslate2"
    packages: ClassVar[tuple[str, ...]] = ("ctranslate2",)
    quantizations: ClassVar[tuple[str, ...]] = (
        *("float32", "int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16"),
        *("float16", "bfloat16"),
    )

    def reason_against(self, bundle: Bundle) -> str | None:
        """See `Exporter.reason_against`."""
        config, positions = bundle.config.model, bundle.config.model.positions
        if not isinstance(bundle.model, Transformer):
            return f"model.architecture={config.architecture}: CTranslate2 has no such architecture"
        for key, name in (("name", positions.name), ("decoder", positions.decoder or positions.name)):
            if name not in _ENCODINGS:
                return (
                    f"model.positions.{key}={name}: CTranslate2 has no such encoding; it has "
                    f"{', '.join(_ENCODINGS)}"
                )
        if config.attention not in ("scaled_dot", "dot"):
            return f"model.attention={config.attention}: CTranslate2 has scaled_dot and dot alone"
        if config.attention_window is not None:
            return f"model.attention_window={config.attention_window}: CTranslate2 has no such window"
        width, value_width = config.head_widths
        if width != value_width:
            return (
                f"model.key_width={width}, model.value_width={value_width}: CTranslate2 has one "
                "width for keys and values"
            )
        if not config.residual:
            return "model.residual=false: CTranslate2 always has residual connections"
        for key in ("query_key_norm", "value_skip", "embedding_skip"):
            if getattr(config, key):
                return f"model.{key}=true: CTranslate2 can't compute such layers"
        if config.bigram_rows:
            return f"model.bigram_rows={config.bigram_rows}: CTranslate2 embeds each piece by itself"
        if config.activation not in _ACTIVATIONS:
            return f"model.activation={config.activation.value}: CTranslate2 has no such activation"
        return None

    def write(self, bundle: Bundle, folder: Path, *, quantization: str, max_length: int) -> None:
        """See `Exporter.write`."""
        write_weights(bundle, folder, quantization=quantization, max_length=max_length)
        bundle.tokenizer.save(folder)

    def load(self, folder: Path, quantization: str) -> ForeignModel:
        """See `Exporter.load`."""
        return _ForeignModel(folder, quantization)

    def usage(self, bundle: Bundle, quantization: str) -> str:
        """See `Exporter.usage`."""
        names = bundle.tokenizer.model_files
        text = _USAGE.replace("SOURCE_MODEL", names[0]).replace("TARGET_MODEL", names[1])
        return text.replace("QUANTIZATION", quantization) + tag_example(bundle, _TAGGED)


def write_weights(bundle: Bundle, folder: Path, *, quantization: str, max_length: int) -> None:
    """Writes a model and its vocabularies into an empty folder, without the SentencePiece models."""
    model = bundle.model
    assert isinstance(model, Transformer)
    spec = _specification(model, bundle.config.model, max_length)
    source, target = vocabularies(bundle.tokenizer)
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    spec.config.bos_token, spec.config.eos_token = SPECIAL[BOS_ID], SPECIAL[EOS_ID]
    spec.config.unk_token, spec.config.decoder_start_token = SPECIAL[UNK_ID], SPECIAL[BOS_ID]
    spec.config.add_source_eos, spec.config.layer_norm_epsilon = True, 1e-5
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(folder))


_USAGE = """\
For `pip install ctranslate2 sentencepiece`. The maximum length, the pieces that must not be written and the
search are options of the call; without them, other translations may result.

```python
import ctranslate2
import sentencepiece

source = sentencepiece.SentencePieceProcessor(model_file="SOURCE_MODEL")
target = sentencepiece.SentencePieceProcessor(model_file="TARGET_MODEL")
translator = ctranslate2.Translator(".", compute_type="QUANTIZATION")
pieces = source.encode(["A sentence."], out_type=str)
results = translator.translate_batch(
    pieces, beam_size=4, max_input_length=0, min_decoding_length=0, max_decoding_length=256,
    suppress_sequences=[["<pad>"], ["<s>"], ["<unk>"]],
)
print([target.decode(result.hypotheses[0]) for result in results])
```
"""


_TAGGED = """\
pieces = [["TAG", *sentence] for sentence in source.encode(["A sentence."], out_type=str)]
"""


class LoadedByCTranslate2(ABC):
    """A model on the CPU that encodes texts with SentencePiece; see `ForeignModel`.

    Args:
        folder: a folder of CTranslate2.
        names: the pieces of the source and of the target in the engine, by our ids.
        processors: the SentencePiece models of the source and of the target.
        quantization: the number format of its weights.
        may_tie: whether nmt encodes a line word by word. Otherwise both encode whole lines: no ties.
        ids: our ids by the pieces of the SentencePiece models; None: the engine has the same pieces.
        forbidden: the ids that a translation must not have, among those that the engine has.
    """

    def __init__(
        self,
        folder: Path,
        names: Sequence[Sequence[str]],
        processors: Sequence[Any],
        quantization: str,
        *,
        may_tie: bool,
        ids: Sequence[Mapping[str, int]] | None = None,
        forbidden: Sequence[int] = FORBIDDEN_IDS,
    ) -> None:
        import ctranslate2

        self._names, self._suppressed = names, [[names[1][id]] for id in forbidden]
        self._processors, self._may_tie = processors, may_tie
        self._ids = [{piece: id for id, piece in enumerate(pieces)} for pieces in names]
        self._ids_of_pieces = ids or self._ids
        self._translator = ctranslate2.Translator(
            str(folder),
            device="cpu",
            compute_type=compute_type(quantization, "cpu"),
            intra_threads=THREADS,
        )

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """See `ForeignModel.encode`."""
        return self._encoded(0, lines)

    def encodings_tie(self, line: str, ids: Sequence[int]) -> bool:
        """See `ForeignModel.encodings_tie`."""
        return self._may_tie and equally_probable(self._processors[0], line, ids)

    def encode_target(self, lines: Sequence[str]) -> list[list[int]] | None:
        """See `ForeignModel.encode_target`."""
        return self._encoded(1, lines)

    @abstractmethod
    def decode(self, targets: Sequence[Sequence[int]]) -> list[str]:
        """See `ForeignModel.decode`."""

    def translate(self, sources: Sequence[Sequence[int]], limits: Sequence[int]) -> list[list[int]]:
        """See `ForeignModel.translate`."""
        pieces = self._pieces(0, sources)
        translations: list[list[int]] = [[] for _ in sources]
        for limit in sorted(set(limits)):  # the engine has one limit for a call
            rows = [row for row, own_limit in enumerate(limits) if own_limit == limit]
            results = self._translator.translate_batch(
                [pieces[row] for row in rows],
                beam_size=1,
                max_input_length=0,
                min_decoding_length=0,  # 1 would forbid EOS as the first token
                max_decoding_length=limit,
                max_batch_size=_BATCH_TOKENS,
                batch_type="tokens",
                suppress_sequences=self._suppressed,
            )
            for row, result in zip(rows, results, strict=True):
                translations[row] = [self._ids[1][piece] for piece in result.hypotheses[0]]
        return translations

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        """See `ForeignModel.score`."""
        results = self._translator.score_batch(
            self._pieces(0, sources),
            self._pieces(1, targets),
            max_batch_size=_BATCH_TOKENS,
            batch_type="tokens",
            max_input_length=0,
        )
        return [list(result.log_probs) for result in results]

    def _encoded(self, side: int, lines: Sequence[str]) -> list[list[int]]:
        pieces, ids = self._processors[side].encode(list(lines), out_type=str), self._ids_of_pieces[side]
        return [[ids.get(piece, UNK_ID) for piece in sentence] for sentence in pieces]

    def _pieces(self, side: int, ids: Sequence[Sequence[int]]) -> list[list[str]]:
        return [[self._names[side][id] for id in sentence] for sentence in ids]


class _ForeignModel(LoadedByCTranslate2):
    """An export with its SentencePiece models; see `ForeignModel`."""

    def __init__(self, folder: Path, quantization: str) -> None:
        files = [JOINT_FILE] * 2 if (folder / JOINT_FILE).exists() else [SOURCE_FILE, TARGET_FILE]
        processors = [spm.SentencePieceProcessor(model_file=str(folder / name)) for name in files]
        # A `MarianVocabulary` encodes whole lines.
        may_tie = not (folder / PIECE_LIST).exists()
        super().__init__(folder, stored_vocabularies(folder), processors, quantization, may_tie=may_tie)

    def decode(self, targets: Sequence[Sequence[int]]) -> list[str]:
        pieces = self._pieces(1, targets)
        return self._processors[1].decode(pieces, num_threads=1) if pieces else []


def stored_vocabularies(folder: Path) -> list[list[str]]:
    """Returns the pieces of the source and of the target, as the engine reads them."""
    joint = folder / "shared_vocabulary.json"
    sides = [folder / f"{side}_vocabulary.json" for side in ("source", "target")]
    return [json.loads(path.read_text("utf-8")) for path in ([joint] * 2 if joint.exists() else sides)]


def vocabularies(tokenizer: Tokenizer) -> tuple[list[str], list[str]]:
    """Returns the names of the source and target pieces in the engine, in the order of their ids."""
    source = tokenizer.source.names
    return _names(source), _names(tokenizer.target.names)


def compute_type(quantization: str, device: str, index: int = 0) -> str:
    """Returns the number format in which the engine computes with an export, on `cpu` or `cuda`."""
    import ctranslate2

    # A CPU computes 16-bit formats in fp32; `auto` chooses what it has.
    return quantization if quantization in ctranslate2.get_supported_compute_types(device, index) else "auto"


def _names(pieces: Sequence[str]) -> list[str]:
    return [SPECIAL.get(id, piece) for id, piece in enumerate(pieces)]


def _specification(model: Transformer, config: ModelConfig, max_length: int) -> Any:
    """Returns the `TransformerSpec` of a model, with its weights in fp32."""
    from ctranslate2 import specs
    from ctranslate2.specs import transformer_spec

    options = {
        "pre_norm": config.norm is Norm.pre,
        "activation": getattr(specs.common_spec.Activation, _ACTIVATIONS[config.activation]),
    }
    if config.gated:
        options["ffn_glu"] = True
    if config.norm_kind is NormKind.rms:
        options["rms_norm"] = True
    if not config.splits_d_model:
        options["head_dim"] = config.head_widths[0]
    encoding, decoder_encoding = config.positions.name, config.positions.decoder or config.positions.name
    encoder = transformer_spec.TransformerEncoderSpec(
        config.encoder_layers, config.heads, **options, **_encoding_options(encoding, model.encoder_positions)
    )
    decoder = transformer_spec.TransformerDecoderSpec(
        config.decoder_layers,
        config.heads,
        **options,
        **_encoding_options(decoder_encoding, model.decoder_positions),
    )
    fill = _Filler(model, config)
    target = model.target_embedding.weight
    source = target if model.source_embedding is None else model.source_embedding.weight
    for stack, positions, embeddings, weight in (
        (encoder, model.encoder_positions, encoder.embeddings[0], source),
        (decoder, model.decoder_positions, decoder.embeddings, target),
    ):
        embeddings.weight, embeddings.multiply_by_sqrt_depth = _array(weight), True
        side = "encoder" if stack is encoder else "decoder"
        name = encoding if stack is encoder else decoder_encoding
        for number, layer in enumerate(stack.layer):
            fill.layer(layer, f"{side}.{number}", cross=stack is decoder)
            _fill_encoding(layer.self_attention, name, positions, number)
        if name in _TABLES:
            stack.position_encodings.encodings = _array(_table(positions, config.d_model, max_length))
        if config.norm is Norm.pre:
            fill.norm(stack.layer_norm, f"{side}_norm")
    if config.logit_cap is not None:
        decoder.final_logit_softcapping = np.float32(config.logit_cap)
    decoder.projection.weight = _array(model.output_weight)
    if model.output_bias is not None:
        decoder.projection.bias = _array(model.output_bias)
    return transformer_spec.TransformerSpec(encoder, decoder)


class _Filler:
    """Copies the weights of layers into a specification."""

    def __init__(self, model: Transformer, config: ModelConfig) -> None:
        self._own = {name: _array(weight) for name, weight in model.state_dict().items()}
        self._unscaled, self._gated = config.attention == "dot", config.gated

    def layer(self, layer: Any, name: str, *, cross: bool) -> None:
        """Copies the layer `name`; `cross`: it has cross-attention."""
        self._attention(layer.self_attention, f"{name}.self_attention", ("qkv", "out"))
        if cross:
            self._attention(layer.attention, f"{name}.cross_attention", ("q", "kv", "out"))
        gate = [layer.ffn.linear_0_noact] if self._gated else []
        self._linear(f"{name}.feed_forward.inner", layer.ffn.linear_0, *gate)
        self._linear(f"{name}.feed_forward.outer", layer.ffn.linear_1)
        self.norm(layer.ffn.layer_norm, f"{name}.feed_forward_norm")

    def norm(self, norm: Any, name: str) -> None:
        """Copies the norm `name`."""
        norm.gamma = self._own[f"{name}.weight"]
        if (beta := self._own.get(f"{name}.bias")) is not None:
            norm.beta = beta

    def _attention(self, attention: Any, name: str, parts: Sequence[str]) -> None:
        for linear, part in zip(attention.linear, parts, strict=True):
            self._linear(f"{name}.{part}", linear)
        self.norm(attention.layer_norm, f"{name}_norm")
        if self._unscaled:
            attention.queries_scale = np.float32(1)

    def _linear(self, name: str, *linears: Any) -> None:
        """Copies a layer; its weight stacks those of several layers of the engine."""
        weights, biases = (np.split(self._own[f"{name}.{part}"], len(linears)) for part in ("weight", "bias"))
        for linear, weight, bias in zip(linears, weights, biases, strict=True):
            linear.weight, linear.bias = weight, bias


def _encoding_options(name: str, positions: Positions) -> dict[str, Any]:
    """Returns the options of an encoder or decoder specification for an encoding."""
    if name == "relative":
        return {"relative_position": True}
    if name == "t5":
        return {"relative_attention_bias": True}
    if name == "rotary":
        # Dimensions i and i + E/2 form a pair.
        return {"rotary_dim": 0, "rotary_interleave": False, "rotary_base": positions.options.base}
    return {}


def _fill_encoding(attention: Any, name: str, positions: Any, layer: int) -> None:
    """Copies the weights of an encoding that belong to the self-attention of a layer."""
    if name == "relative":
        attention.relative_position_keys = _array(positions.keys[layer])
        outputs = positions.outputs
        # The engine always has vectors for the values.
        values = torch.zeros_like(positions.keys[layer]) if outputs is None else outputs[layer]
        attention.relative_position_values = _array(values)
    elif name == "t5":
        attention.relative_attention_bias = _array(positions.table)
        attention.relative_attention_max_distance = np.int32(positions.options.max_distance)


def _table(positions: Positions, d_model: int, max_length: int) -> Tensor:
    """Returns what an absolute encoding adds at each position: (max_length, D), or fewer if it has fewer."""
    length = min(max_length, getattr(positions, "max_len", None) or max_length)
    places = Places(torch.arange(length), length, lambda: torch.full((length,), length))
    with torch.no_grad():
        return positions.embed(torch.zeros(length, d_model), places)


def _array(tensor: Tensor) -> np.ndarray[Any, Any]:
    return tensor.detach().float().contiguous().numpy()
