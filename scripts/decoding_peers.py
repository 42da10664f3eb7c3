"""The same weights in three programs that translate: nmt, Hugging Face transformers and CTranslate2.

Both others hold a post-norm Transformer with ReLU, sinusoids and one shared embedding matrix; see
`require_paper`. Used by scripts/benchmark_decoding.py; benchmark_training.py uses `marian_config`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nmt
from nmt.bundle import Bundle, load_bundle
from nmt.config import Activation, ModelConfig, Norm, Tie
from nmt.data.subwords.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from nmt.model.positions.sinusoidal import sinusoids

if TYPE_CHECKING:
    from torch import Tensor

Translate = Callable[[Sequence[str], int], "list[str]"]
"""Translates lines with a beam size, from text to text."""

LONGEST = 512  # positions of the tables in the other programs
SENTENCES = 64  # of a batch of transformers
CTRANSLATE2_TOKENS = 2048  # of a batch, the fastest of 1,024 to 8,192
LENGTH_PENALTY = 1.0


def require_paper(bundle: Bundle) -> None:
    """Raises `SystemExit` if a model has another shape than the paper's, which the others can't hold."""
    config = bundle.config.model
    found = config.norm, config.activation, config.tie, config.positions.name, config.attention
    if found != (Norm.post, Activation.relu, Tie.all, "sinusoidal", "scaled_dot"):
        raise SystemExit(f"{bundle.folder}: the other programs need post-norm, ReLU, sinusoids and tie=all.")


def of_nmt(folder: Path, precision: str, threads: int, workers: str) -> Translate:
    """Returns the translation by `nmt.load`."""
    model = nmt.load(folder, precision=precision, threads=threads)

    def translate(lines: Sequence[str], beam: int) -> list[str]:
        return model.translate(lines, beam_size=beam, length_penalty=LENGTH_PENALTY, workers=workers)

    return translate


def of_transformers(folder: Path, precision: str, threads: int, batch: int = SENTENCES) -> Translate:
    """Returns the translation by `MarianMTModel.generate`, over batches of similar lengths."""
    import torch

    torch.set_num_threads(threads)
    bundle = load_bundle(folder)
    tokenizer, model = bundle.tokenizer, marian(bundle)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)

    def translate(lines: Sequence[str], beam: int) -> list[str]:
        sources = [[*ids, EOS_ID] for ids in tokenizer.encode_source(lines)]
        found: list[list[int]] = [[] for _ in lines]
        autocast = torch.autocast(device.type, dtype, enabled=dtype is not None)
        with torch.inference_mode(), autocast:
            for rows in _by_length(sources, batch):
                longest = len(sources[rows[0]])
                ids = torch.full((len(rows), longest), PAD_ID)
                for place, row in enumerate(rows):
                    ids[place, : len(sources[row])] = torch.tensor(sources[row])
                output = model.generate(
                    input_ids=ids.to(device),
                    attention_mask=(ids != PAD_ID).long().to(device),
                    num_beams=beam,
                    max_new_tokens=longest + 50,
                    do_sample=False,
                    early_stopping=False,
                    length_penalty=LENGTH_PENALTY,
                )
                for row, result in zip(rows, output.tolist(), strict=True):
                    found[row] = [id for id in result if id not in (PAD_ID, BOS_ID, EOS_ID)]
        return tokenizer.decode_target(found)

    return translate


def of_ctranslate2(folder: Path, precision: str, threads: int, work: Path) -> Translate:
    """Returns the translation by CTranslate2, with as many workers of one thread as there are threads."""
    import ctranslate2

    bundle = load_bundle(folder)
    tokenizer = bundle.tokenizer
    converted = work / "ctranslate2"
    names = write_ctranslate2(bundle, converted)
    ids_of = {name: id for id, name in enumerate(names)}
    kind = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}.get(precision, precision)
    device = "cuda" if ctranslate2.get_cuda_device_count() else "cpu"
    workers = threads if device == "cpu" else 1
    translator = ctranslate2.Translator(
        str(converted), device=device, compute_type=kind, inter_threads=workers, intra_threads=1
    )

    def translate(lines: Sequence[str], beam: int) -> list[str]:
        pieces = [[names[id] for id in ids] for ids in tokenizer.encode_source(lines)]
        results = translator.translate_batch(
            pieces,
            beam_size=beam,
            batch_type="tokens",
            max_batch_size=CTRANSLATE2_TOKENS,
            max_decoding_length=LONGEST // 2,
            length_penalty=LENGTH_PENALTY,
            suppress_sequences=[["<unk>"], ["<pad>"], ["<s>"]],
        )
        return tokenizer.decode_target([[ids_of[piece] for piece in one.hypotheses[0]] for one in results])

    return translate


def marian(bundle: Bundle) -> Any:
    """Returns Hugging Face's Marian with the weights of a model."""
    import torch
    from transformers import MarianMTModel

    config, size = bundle.config.model, bundle.tokenizer.target_vocab_size
    model: Any = MarianMTModel(
        marian_config(
            config,
            size,
            decoder_vocab_size=size,
            max_position_embeddings=LONGEST,
            bos_token_id=BOS_ID,
            forced_eos_token_id=None,
            tie_word_embeddings=True,
            share_encoder_decoder_embeddings=True,
        )
    )
    model.eval()
    weights = dict(_marian_weights(bundle))
    embedding = bundle.model.output_weight
    forbidden = torch.zeros(1, size)
    forbidden[:, [PAD_ID, BOS_ID, UNK_ID]] = -1e4
    for name in model.state_dict():
        if name.endswith("embed_tokens.weight") or name in ("model.shared.weight", "lm_head.weight"):
            weights[name] = embedding
        elif "embed_positions" in name:
            weights[name] = sinusoids(LONGEST, config.d_model)
        elif name == "final_logits_bias":
            weights[name] = forbidden
    model.load_state_dict(weights)
    return model


def marian_config(config: ModelConfig, vocab_size: int, **others: Any) -> Any:
    """Returns the options of Hugging Face's Marian for a Transformer of the paper.

    Args:
        config: the shape of the model.
        vocab_size: number of pieces.
        **others: further options of `MarianConfig`.
    """
    from transformers import MarianConfig

    return MarianConfig(
        vocab_size=vocab_size,
        d_model=config.d_model,
        encoder_layers=config.encoder_layers,
        decoder_layers=config.decoder_layers,
        encoder_ffn_dim=config.d_ff,
        decoder_ffn_dim=config.d_ff,
        encoder_attention_heads=config.heads,
        decoder_attention_heads=config.heads,
        activation_function="relu",
        scale_embedding=True,
        pad_token_id=PAD_ID,
        eos_token_id=EOS_ID,
        decoder_start_token_id=BOS_ID,
        **others,
    )


_NORMS = {"self_attn": "self_attention", "encoder_attn": "cross_attention"}


def _marian_weights(bundle: Bundle) -> Iterator[tuple[str, Tensor]]:
    """Yields the weights of the layers under their names in transformers."""
    own, config = bundle.model.state_dict(), bundle.config.model

    def both(theirs: str, ours: str, part: slice = slice(None)) -> Iterator[tuple[str, Tensor]]:
        for kind in ("weight", "bias"):
            yield f"{theirs}.{kind}", own[f"{ours}.{kind}"][part]

    width = config.d_model
    parts = [slice(start, start + width) for start in range(0, 3 * width, width)]
    for side, count in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for number in range(count):
            ours, theirs = f"{side}.{number}.", f"model.{side}.layers.{number}."
            for name, part in zip("qkv", parts, strict=True):
                yield from both(f"{theirs}self_attn.{name}_proj", f"{ours}self_attention.qkv", part)
            if side == "decoder":
                yield from both(f"{theirs}encoder_attn.q_proj", f"{ours}cross_attention.q")
                for name, part in zip("kv", parts, strict=False):
                    yield from both(f"{theirs}encoder_attn.{name}_proj", f"{ours}cross_attention.kv", part)
            for name, attention in _NORMS.items():
                if side == "decoder" or name == "self_attn":
                    yield from both(f"{theirs}{name}.out_proj", f"{ours}{attention}.out")
                    yield from both(f"{theirs}{name}_layer_norm", f"{ours}{attention}_norm")
            yield from both(f"{theirs}fc1", f"{ours}feed_forward.inner")
            yield from both(f"{theirs}fc2", f"{ours}feed_forward.outer")
            yield from both(f"{theirs}final_layer_norm", f"{ours}feed_forward_norm")


def write_ctranslate2(bundle: Bundle, folder: Path) -> list[str]:
    """Writes a model in the format of CTranslate2; returns its names of the pieces."""
    import ctranslate2
    from ctranslate2.specs import TransformerSpec

    config = bundle.config.model
    spec = TransformerSpec.from_config(
        (config.encoder_layers, config.decoder_layers),
        config.heads,
        pre_norm=False,
        activation=ctranslate2.specs.Activation.RELU,
    )
    own = {name: weight.numpy() for name, weight in bundle.model.state_dict().items()}
    embedding = bundle.model.output_weight.detach().numpy()
    positions = sinusoids(LONGEST, config.d_model).numpy()

    def linear(their: Any, name: str) -> None:
        their.weight, their.bias = own[f"{name}.weight"], own[f"{name}.bias"]

    def norm(their: Any, name: str) -> None:
        their.gamma, their.beta = own[f"{name}.weight"], own[f"{name}.bias"]

    for side, stack in (("encoder", spec.encoder), ("decoder", spec.decoder)):
        embeddings = stack.embeddings[0] if isinstance(stack.embeddings, list) else stack.embeddings
        embeddings.weight, embeddings.multiply_by_sqrt_depth = embedding, True
        stack.position_encodings.encodings, stack.scale_embeddings = positions, True
        for number, layer in enumerate(stack.layer):
            name = f"{side}.{number}"
            linear(layer.self_attention.linear[0], f"{name}.self_attention.qkv")
            linear(layer.self_attention.linear[1], f"{name}.self_attention.out")
            norm(layer.self_attention.layer_norm, f"{name}.self_attention_norm")
            if side == "decoder":
                for place, part in enumerate(("q", "kv", "out")):
                    linear(layer.attention.linear[place], f"{name}.cross_attention.{part}")
                norm(layer.attention.layer_norm, f"{name}.cross_attention_norm")
            linear(layer.ffn.linear_0, f"{name}.feed_forward.inner")
            linear(layer.ffn.linear_1, f"{name}.feed_forward.outer")
            norm(layer.ffn.layer_norm, f"{name}.feed_forward_norm")
    spec.decoder.projection.weight = embedding
    special = {PAD_ID: "<pad>", BOS_ID: "<s>", EOS_ID: "</s>", UNK_ID: "<unk>"}
    names = [special.get(id, f"p{id}") for id in range(len(embedding))]
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    for key, id in (("bos", BOS_ID), ("eos", EOS_ID), ("unk", UNK_ID)):
        setattr(spec.config, f"{key}_token", special[id])
    spec.config.decoder_start_token, spec.config.add_source_eos = "<s>", True
    spec.validate()
    spec.optimize()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    spec.save(str(folder))
    return names


def _by_length(sources: Sequence[Sequence[int]], size: int) -> Iterator[list[int]]:
    order = sorted(range(len(sources)), key=lambda row: -len(sources[row]))
    for start in range(0, len(order), size):
        yield order[start : start + size]
