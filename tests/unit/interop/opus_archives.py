"""OPUS-MT models as Helsinki-NLP ships them: a zip of an npz in Marian's layout, made of a model of ours.

The layout is written down here again, from Marian's files: nothing of the import is used.
"""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from exported_models import sentences
from opus_models import TAGS, pieces_of, sentencepiece_model
from torch import Tensor

from nmt.config import Activation, ModelConfig, Norm, PositionsConfig, Tie
from nmt.model import build_model

SMALL = ModelConfig(
    encoder_layers=2,
    decoder_layers=3,
    d_model=32,
    d_ff=48,
    heads=4,
    activation=Activation.silu,
    tie=Tie.all,
    output_bias=True,
    positions=PositionsConfig(options={"layout": "tensor2tensor"}),
)
NPZ = "opus.spm32k-spm32k.transformer-align.model1.npz.best-perplexity.npz"


def random_weights(config: ModelConfig, source_size: int, target_size: int) -> dict[str, Tensor]:
    """Returns random weights of a model of ours, whose translations depend on the source."""
    torch.manual_seed(2)
    model = build_model(config, source_size, target_size)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.mul_(2.5 if "cross" in name else 0.7 if "embedding" in name else 1.5)
            if weight.dim() < 2:
                weight.add_(torch.randn_like(weight) * 0.1)
    return {name: weight.detach() for name, weight in model.state_dict().items()}


def marian_arrays(config: ModelConfig, weights: dict[str, Tensor]) -> dict[str, np.ndarray[Any, Any]]:
    """Returns weights of ours under the names and in the shapes of Marian."""
    arrays: dict[str, Any] = {}
    suffix = "_pre" if config.norm is Norm.pre else ""

    def linear(ours: str, *theirs: str) -> None:
        parts = len(theirs)
        for name, weight, bias in zip(
            theirs, weights[f"{ours}.weight"].chunk(parts), weights[f"{ours}.bias"].chunk(parts), strict=True
        ):
            layer, _, kind = name.rpartition("/")
            arrays[f"{layer}_W{kind}"], arrays[f"{layer}_b{kind}"] = weight.T, bias[None]

    def norm(ours: str, theirs: str) -> None:
        for kind, name in (("weight", "scale"), ("bias", "bias")):
            place = theirs.replace("_ln", f"_ln_{name}")
            arrays[place if "_top_" in place else place + suffix] = weights[f"{ours}.{kind}"][None]

    for side, count in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for number in range(count):
            ours, theirs = f"{side}.{number}", f"{side}_l{number + 1}"
            linear(f"{ours}.self_attention.qkv", *(f"{theirs}_self/{part}" for part in "qkv"))
            linear(f"{ours}.self_attention.out", f"{theirs}_self/o")
            norm(f"{ours}.self_attention_norm", f"{theirs}_self_Wo_ln")
            if side == "decoder":
                linear(f"{ours}.cross_attention.q", f"{theirs}_context/q")
                linear(f"{ours}.cross_attention.kv", *(f"{theirs}_context/{part}" for part in "kv"))
                linear(f"{ours}.cross_attention.out", f"{theirs}_context/o")
                norm(f"{ours}.cross_attention_norm", f"{theirs}_context_Wo_ln")
            linear(f"{ours}.feed_forward.inner", f"{theirs}_ffn/1")
            linear(f"{ours}.feed_forward.outer", f"{theirs}_ffn/2")
            norm(f"{ours}.feed_forward_norm", f"{theirs}_ffn_ffn_ln")
        if config.norm is Norm.pre:
            norm(f"{side}_norm", f"{side}_top_ln")
    if config.tie is Tie.all:
        arrays["Wemb"] = weights["target_embedding.weight"]
    else:
        arrays["encoder_Wemb"] = weights["source_embedding.weight"]
        arrays["decoder_Wemb"] = weights["target_embedding.weight"]
    if config.tie is Tie.none:
        arrays["decoder_ff_logit_out_W"] = weights["output.weight"].T
    arrays["decoder_ff_logit_out_b"] = weights["logit_bias"][None]
    return {name: np.ascontiguousarray(array.numpy()) for name, array in arrays.items()}


def marian_options(config: ModelConfig, sizes: tuple[int, int]) -> dict[str, Any]:
    """Returns the options that Marian 1.9 stores in the npz of such a model."""
    pre = config.norm is Norm.pre
    names = {Activation.relu: "relu", Activation.silu: "swish", Activation.gelu: "gelu"}
    return {
        "bert-train-type-embeddings": True,
        "dec-cell": "gru",
        "dec-depth": config.decoder_layers,
        "dim-emb": config.d_model,
        "dim-rnn": 1024,
        "dim-vocabs": list(sizes),
        "enc-depth": config.encoder_layers,
        "enc-type": "bidirectional",
        "input-types": [],
        "layer-normalization": False,
        "right-left": False,
        "skip": False,
        "tied-embeddings": False,
        "tied-embeddings-all": config.tie is Tie.all,
        "tied-embeddings-src": False,
        "transformer-aan-activation": "swish",
        "transformer-decoder-autoreg": "self-attention",
        "transformer-dim-ffn": config.d_ff,
        "transformer-ffn-activation": names[config.activation],
        "transformer-ffn-depth": 2,
        "transformer-guided-alignment-layer": "last",
        "transformer-heads": config.heads,
        "transformer-no-projection": False,
        "transformer-postprocess": "da" if pre else "dan",
        "transformer-postprocess-emb": "d",
        "transformer-postprocess-top": "n" if pre else "",
        "transformer-preprocess": "n" if pre else "",
        "transformer-tied-layers": [],
        "transformer-train-positions": False,
        "type": "transformer",
        "ulr": False,
        "ulr-dim-emb": 0,
        "version": "v1.9.0 ba94c5b9 2020-05-17 10:42:17 +0100",
    }


def stored(options: dict[str, Any]) -> np.ndarray[Any, Any]:
    return np.frombuffer(yaml.safe_dump(options).encode() + b"\0", np.int8)


def opus_parts(config: ModelConfig = SMALL) -> tuple[dict[str, bytes], dict[str, Any], dict[str, Any]]:
    """Returns the files of a model without its npz, the arrays, and the options."""
    models = [
        sentencepiece_model([*sentences(300, 3), *'Größe größer "quoted" it\'s: \\ #1 no'], 100),
        sentencepiece_model([*sentences(300, 4), *'ñandú año "quoted" it\'s: \\ #1 no'], 90),
    ]
    both = [[piece for number, piece in enumerate(pieces_of(model)) if number % 11 != 7] for model in models]
    lists = both if config.tie is not Tie.all else [list(dict.fromkeys([*both[0], *both[1]]))] * 2
    names = ["source.vocab.yml", "target.vocab.yml"] if config.tie is not Tie.all else ["opus.vocab.yml"] * 2
    files = {"source.spm": models[0], "target.spm": models[1], "README.md": b"# opus-2020-02-26.zip\n"}
    sizes = []
    for name, pieces in zip(names, lists, strict=True):
        listed = ["</s>", "<unk>", *pieces, *TAGS]
        sizes.append(len(listed))
        lines = [f"{_quoted(piece)}: {id}" for id, piece in enumerate(listed)]
        files[name] = ("\n".join(lines) + "\n").encode()
    files["decoder.yml"] = yaml.safe_dump(
        {
            "relative-paths": True,
            "models": [NPZ],
            "vocabs": names,
            "beam-size": 6,
            "normalize": 1,
            "word-penalty": 0,
            "mini-batch": 1,
        }
    ).encode()
    arrays = marian_arrays(config, random_weights(config, *sizes))
    return files, arrays, marian_options(config, (sizes[0], sizes[1]))


def _quoted(piece: str) -> str:
    """Marian writes quotes where YAML needs them."""
    return json.dumps(piece, ensure_ascii=False) if set(piece) & set("\"'#:\\>") else piece


def npz(arrays: dict[str, Any], options: dict[str, Any]) -> bytes:
    content = io.BytesIO()
    np.savez(content, **arrays, **{"special:model.yml": stored(options)})
    return content.getvalue()


def opus_zip(path: Path, config: ModelConfig = SMALL) -> Path:
    files, arrays, options = opus_parts(config)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in (files | {NPZ: npz(arrays, options)}).items():
            archive.writestr(name, content)
    return path
