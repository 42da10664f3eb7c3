"""Export to transformers' Marian (`MarianMTModel`, `MarianTokenizer`), the format of the OPUS-MT models.

Marian's sinusoids have the sines in the first half of the dimensions and the cosines in the second. Those of
the paper alternate. A permutation of the dimensions of hidden states between sub-layers turns one into the
other: embeddings, norms, and the sides of the matrices that read or write these states are permuted. The sums
of a product have another order then, so results agree up to rounding.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import sentencepiece as spm
import torch
from torch import Tensor

from nmt.bundle import Bundle
from nmt.config import Activation, ModelConfig, Norm, Tie
from nmt.data.subwords.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from nmt.decoding.batches.jobs import batches_by_length
from nmt.export.engine import Exporter
from nmt.export.segmentation import equally_probable
from nmt.model.positions.sinusoidal import Layout, Sinusoidal
from nmt.model.transformer import Transformer

_ACTIVATIONS = {Activation.relu: "relu", Activation.gelu: "gelu", Activation.silu: "silu"}
_BATCH_TOKENS = 2048
_FORBIDDEN = [PAD_ID, BOS_ID, UNK_ID]


class Marian(Exporter):
    """Writes a folder for `MarianMTModel.from_pretrained` and `MarianTokenizer.from_pretrained`."""

    library: ClassVar[str] = "transformers"
    packages: ClassVar[tuple[str, ...]] = ("transformers",)
    quantizations: ClassVar[tuple[str, ...]] = ("float32", "float16", "bfloat16")

    def reason_against(self, bundle: Bundle) -> str | None:
        """See `Exporter.reason_against`."""
        config, model = bundle.config.model, bundle.model
        if not isinstance(model, Transformer):
            return f"model.architecture={config.architecture}: Marian has no such architecture"
        if config.norm is not Norm.post:
            return "model.norm=pre: transformers' Marian has post-norm alone"
        for key, encoding in (("name", model.encoder_positions), ("decoder", model.decoder_positions)):
            name = (
                config.positions.name if key == "name" else config.positions.decoder or config.positions.name
            )
            if not isinstance(encoding, Sinusoidal):
                return f"model.positions.{key}={name}: transformers' Marian has sinusoidal alone"
            options = encoding.options
            if options.layout is Layout.tensor2tensor or options.base != 10000:
                return (
                    f"model.positions.{key}={name}, layout={options.layout.value}, base={options.base:g}: "
                    "transformers' Marian has other frequencies"
                )
        if model.encoder_positions.options != model.decoder_positions.options:
            return "model.positions: transformers' Marian has the same layout on both sides"
        if config.d_model % 2:
            return f"model.d_model={config.d_model}: transformers' Marian needs an even width"
        for key, found, wanted in (
            ("attention", config.attention, "scaled_dot"),
            ("attention_window", config.attention_window, None),
            ("residual", config.residual, True),
        ):
            if found != wanted:
                return f"model.{key}={str(found).lower()}: transformers' Marian has no such option"
        return None

    def write(self, bundle: Bundle, folder: Path, *, quantization: str, max_length: int) -> None:
        """See `Exporter.write`."""
        from transformers import GenerationConfig, MarianMTModel

        tokenizer = bundle.tokenizer
        sizes = tokenizer.source_vocab_size, tokenizer.target_vocab_size
        model: Any = MarianMTModel(marian_config(bundle.config.model, *sizes, max_length))
        model.load_state_dict(_state(bundle, model))
        options: Any = GenerationConfig  # it has no annotations
        model.generation_config = options(
            bos_token_id=BOS_ID,
            eos_token_id=EOS_ID,
            pad_token_id=PAD_ID,
            decoder_start_token_id=BOS_ID,
            bad_words_ids=[[id] for id in _FORBIDDEN],
            num_beams=bundle.config.decoding.beam_size,
            max_length=max_length,
        )
        with _quiet():
            model.to(getattr(torch, quantization)).save_pretrained(folder)
        _write_tokenizer(bundle, folder, max_length)

    def load(self, folder: Path, quantization: str) -> _Loaded:
        """See `Exporter.load`."""
        return _Loaded(folder)

    def usage(self, bundle: Bundle, quantization: str) -> str:
        """See `Exporter.usage`."""
        return _USAGE


_USAGE = """\
For `pip install transformers sentencepiece sacremoses torch`.

```python
from transformers import MarianMTModel, MarianTokenizer

tokenizer = MarianTokenizer.from_pretrained(".")
model = MarianMTModel.from_pretrained(".").eval()
batch = tokenizer(["A sentence."], return_tensors="pt", padding=True)
print(tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True))
```
"""


def marian_config(
    config: ModelConfig, source_vocab_size: int, target_vocab_size: int, max_length: int
) -> Any:
    """Returns the `MarianConfig` of a model; `max_length` is the number of positions."""
    from transformers import MarianConfig

    return MarianConfig(
        vocab_size=source_vocab_size,
        decoder_vocab_size=target_vocab_size,
        max_position_embeddings=max_length,
        d_model=config.d_model,
        encoder_layers=config.encoder_layers,
        decoder_layers=config.decoder_layers,
        encoder_ffn_dim=config.d_ff,
        decoder_ffn_dim=config.d_ff,
        encoder_attention_heads=config.heads,
        decoder_attention_heads=config.heads,
        activation_function=_ACTIVATIONS[config.activation],
        dropout=config.dropout,
        attention_dropout=0.0,
        activation_dropout=config.ffn_dropout,
        scale_embedding=True,
        bos_token_id=BOS_ID,
        pad_token_id=PAD_ID,
        eos_token_id=EOS_ID,
        decoder_start_token_id=BOS_ID,
        forced_eos_token_id=None,
        tie_word_embeddings=config.tie is not Tie.none,
        share_encoder_decoder_embeddings=config.tie is Tie.all,
    )


def halves_order(d_model: int) -> Tensor:
    """Returns for each dimension of Marian's order that of the paper: 0, 2, 4, ..., 1, 3, 5, ...; (D,)."""
    return torch.cat([torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)])


def _state(bundle: Bundle, theirs: Any) -> dict[str, Tensor]:
    """Returns the state of a `MarianMTModel` with the weights of the model."""
    model, config = bundle.model, bundle.config.model
    assert isinstance(model, Transformer)
    encoding: Sinusoidal.Options = model.encoder_positions.options
    order = torch.arange(config.d_model)
    if encoding.layout is Layout.interleaved:
        order = halves_order(config.d_model)
    state = dict(theirs.state_dict())
    known = dict(_layers(model, order))
    target = model.target_embedding.weight.detach()[:, order]
    source = target if model.source_embedding is None else model.source_embedding.weight.detach()[:, order]
    bias = model.output_bias
    embeddings = {
        "model.shared.weight": source,
        "model.encoder.embed_tokens.weight": source,
        "model.decoder.embed_tokens.weight": target,
        "lm_head.weight": model.output_weight.detach()[:, order],
        "final_logits_bias": torch.zeros(1, len(target)) if bias is None else bias.detach()[None],
    }
    for name in state:
        if name in known:
            state[name] = known.pop(name)
        elif name in embeddings:
            state[name] = embeddings[name]
        else:
            assert "embed_positions" in name, name
    assert not known, sorted(known)
    return state


def _layers(model: Transformer, order: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yields the weights of all layers under their names in transformers."""
    own = {name: weight.detach() for name, weight in model.state_dict().items()}

    def reading(theirs: Sequence[str], ours: str) -> Iterator[tuple[str, Tensor]]:
        """Matrices that read hidden states; several of theirs are one of ours."""
        for kind in ("weight", "bias"):
            parts = own[f"{ours}.{kind}"].chunk(len(theirs))
            for name, part in zip(theirs, parts, strict=True):
                yield f"{name}.{kind}", part[:, order] if kind == "weight" else part

    def writing(theirs: str, ours: str) -> Iterator[tuple[str, Tensor]]:
        """A matrix that writes hidden states, or a norm of them."""
        for kind in ("weight", "bias"):
            yield f"{theirs}.{kind}", own[f"{ours}.{kind}"][order]

    for side, layers in (("encoder", model.encoder), ("decoder", model.decoder)):
        for number in range(len(layers)):
            ours, theirs = f"{side}.{number}.", f"model.{side}.layers.{number}."
            names = {"self_attn": "self_attention"}
            yield from reading(
                [f"{theirs}self_attn.{one}_proj" for one in "qkv"], f"{ours}self_attention.qkv"
            )
            if side == "decoder":
                names["encoder_attn"] = "cross_attention"
                yield from reading([f"{theirs}encoder_attn.q_proj"], f"{ours}cross_attention.q")
                yield from reading(
                    [f"{theirs}encoder_attn.{one}_proj" for one in "kv"], f"{ours}cross_attention.kv"
                )
            for name, attention in names.items():
                yield from writing(f"{theirs}{name}.out_proj", f"{ours}{attention}.out")
                yield from writing(f"{theirs}{name}_layer_norm", f"{ours}{attention}_norm")
            yield from reading([f"{theirs}fc1"], f"{ours}feed_forward.inner")
            yield from writing(f"{theirs}fc2", f"{ours}feed_forward.outer")
            yield from writing(f"{theirs}final_layer_norm", f"{ours}feed_forward_norm")


def _write_tokenizer(bundle: Bundle, folder: Path, max_length: int) -> None:
    tokenizer, joint = bundle.tokenizer, bundle.tokenizer.joint
    models = tokenizer.source_processor, tokenizer.target_processor
    for name, model in zip(("source.spm", "target.spm"), models, strict=True):
        (folder / name).write_bytes(model.serialized_model_proto())
    names = {"vocab.json": tokenizer.source_pieces_of(range(tokenizer.source_vocab_size))}
    if not joint:
        names["target_vocab.json"] = tokenizer.target_vocabulary()
    for name, pieces in names.items():
        vocabulary = {piece: id for id, piece in enumerate(pieces)}
        (folder / name).write_text(json.dumps(vocabulary, ensure_ascii=False), "utf-8")
    data = bundle.config.data
    options = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": data.source_lang,
        "target_lang": data.target_lang,
        "separate_vocabs": not joint,
        "unk_token": "<unk>",
        "eos_token": "</s>",
        "pad_token": "<pad>",
        "model_max_length": max_length,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(options, indent=2), "utf-8")


class _Loaded:
    """An export, loaded on the CPU in fp32; see `Engine`."""

    def __init__(self, folder: Path) -> None:
        from transformers import MarianMTModel, MarianTokenizer

        with _quiet():
            self._tokenizer: Any = MarianTokenizer.from_pretrained(folder)
            model: Any = MarianMTModel.from_pretrained(folder)
        self._model = model.float().eval()
        self._source = spm.SentencePieceProcessor(model_file=str(folder / "source.spm"))

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        return [list(map(int, self._tokenizer(line)["input_ids"]))[:-1] for line in lines]

    def encodings_tie(self, line: str, ids: Sequence[int]) -> bool:
        return equally_probable(self._source, line, ids)

    @torch.inference_mode()
    def translate(self, sources: Sequence[Sequence[int]], limits: Sequence[int]) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in sources]
        for rows in batches_by_length(
            [max(len(ids), limit) for ids, limit in zip(sources, limits, strict=True)],
            _BATCH_TOKENS,
            _BATCH_TOKENS,
        ):
            ids, mask = _padded([[*sources[row], EOS_ID] for row in rows])
            longest = max(limits[row] for row in rows)
            output = self._model.generate(
                input_ids=ids, attention_mask=mask, num_beams=1, do_sample=False, max_length=longest + 1
            )
            for row, result in zip(rows, output[:, 1:].tolist(), strict=True):
                end = result.index(EOS_ID) if EOS_ID in result else len(result)
                found[row] = result[: min(end, limits[row])]
        return found

    @torch.inference_mode()
    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        found: list[list[float]] = [[] for _ in sources]
        for rows in batches_by_length(
            [max(len(a), len(b)) + 1 for a, b in zip(sources, targets, strict=True)],
            _BATCH_TOKENS,
            _BATCH_TOKENS,
        ):
            ids, mask = _padded([[*sources[row], EOS_ID] for row in rows])
            read, _ = _padded([[BOS_ID, *targets[row]] for row in rows])
            written, _ = _padded([[*targets[row], EOS_ID] for row in rows])
            logits = self._model(input_ids=ids, attention_mask=mask, decoder_input_ids=read).logits
            own = logits.float().log_softmax(-1).gather(-1, written[..., None])[..., 0]
            for row, values in zip(rows, own.tolist(), strict=True):
                found[row] = values[: len(targets[row]) + 1]
        return found


@contextmanager
def _quiet() -> Iterator[None]:
    """Hides the progress bars and the advice of transformers."""
    from transformers import utils

    logging: Any = utils.logging  # it has no annotations
    was_active, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # sacremoses is not needed: nothing calls the normaliser
            yield
    finally:
        logging.set_verbosity(level)
        if was_active:
            logging.enable_progress_bar()


def _padded(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Returns (B, L) ids and their mask."""
    longest = max(map(len, rows))
    ids = torch.tensor([[*row, *[PAD_ID] * (longest - len(row))] for row in rows])
    lengths = torch.tensor([len(row) for row in rows])
    return ids, (torch.arange(longest) < lengths[:, None]).long()
