"""Export to transformers' Marian (`MarianMTModel`, `MarianTokenizer`), the format of the OPUS-MT models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import torch

from nmt.bundle import Bundle
from nmt.config import ModelConfig, Norm, Tie
from nmt.data.subwords.vocabulary import BOS_ID, EOS_ID, FORBIDDEN_IDS, PAD_ID
from nmt.interop.interfaces import Exporter, tag_example
from nmt.interop.marian_model import LAYOUT_KEY, MarianModel, halves_order, quiet, theirs_of
from nmt.model.positions import SineOrder, Sinusoidal
from nmt.model.transformer import Transformer


class MarianExporter(Exporter):
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
            if options.layout is SineOrder.tensor2tensor or options.base != 10000:
                return (
                    f"model.positions.{key}={name}, layout={options.layout.value}, base={options.base:g}: "
                    "transformers' Marian has other frequencies"
                )
        if model.encoder_positions.options != model.decoder_positions.options:
            return "model.positions: transformers' Marian has the same layout on both sides"
        if config.d_model % 2:
            return f"model.d_model={config.d_model}: transformers' Marian needs an even width"
        if not config.splits_d_model:
            width, value_width = config.head_widths
            return (
                f"model.key_width={width}, model.value_width={value_width}: transformers' Marian has "
                "d_model / heads alone"
            )
        for key, value, needed in (
            ("attention", config.attention, "scaled_dot"),
            ("attention_window", config.attention_window, None),
            ("residual", config.residual, True),
            ("norm_kind", config.norm_kind.value, "layer"),
            ("query_key_norm", config.query_key_norm, False),
            ("value_skip", config.value_skip, False),
            ("embedding_skip", config.embedding_skip, False),
            ("bigram_rows", config.bigram_rows, 0),
            ("logit_cap", config.logit_cap, None),
            ("gated", config.gated, False),
        ):
            if value != needed:
                return f"model.{key}={str(value).lower()}: transformers' Marian has no such option"
        return None

    def write(self, bundle: Bundle, folder: Path, *, quantization: str, max_length: int) -> None:
        """See `Exporter.write`."""
        from transformers import GenerationConfig, MarianMTModel

        tokenizer = bundle.tokenizer
        sizes = tokenizer.source.size, tokenizer.target.size
        settings = marian_config(bundle.config.model, *sizes, max_length)
        assert isinstance(bundle.model, Transformer)
        setattr(settings, LAYOUT_KEY, bundle.model.encoder_positions.options.layout.value)
        model: Any = MarianMTModel(settings)
        _load_weights(model, bundle)
        options: Any = GenerationConfig  # it has no annotations
        model.generation_config = options(
            bos_token_id=BOS_ID,
            eos_token_id=EOS_ID,
            pad_token_id=PAD_ID,
            decoder_start_token_id=BOS_ID,
            bad_words_ids=[[id] for id in FORBIDDEN_IDS],
            num_beams=bundle.config.decoding.beam_size,
            max_length=max_length,
        )
        with quiet():
            model.to(getattr(torch, quantization)).save_pretrained(folder)
        _write_tokenizer(bundle, folder, max_length)

    def load(self, folder: Path, quantization: str) -> MarianModel:
        """See `Exporter.load`."""
        return MarianModel.load(folder)

    def usage(self, bundle: Bundle, quantization: str) -> str:
        """See `Exporter.usage`."""
        return _USAGE + tag_example(bundle, _TAGGED)


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


_TAGGED = """\
tag = tokenizer.convert_tokens_to_ids("TAG")
tagged = [[tag, *ids] for ids in tokenizer(["A sentence."]).input_ids]
batch = tokenizer.pad({"input_ids": tagged}, return_tensors="pt")
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
        activation_function=config.activation.value,
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


def _load_weights(theirs: Any, bundle: Bundle) -> None:
    """Copies the weights of a model into a `MarianMTModel`."""
    model, config = bundle.model, bundle.config.model
    assert isinstance(model, Transformer)
    encoding: Sinusoidal.Options = model.encoder_positions.options
    order = torch.arange(config.d_model)
    if encoding.layout is SineOrder.interleaved:
        order = halves_order(config.d_model)
    own = {name: weight.detach() for name, weight in model.state_dict().items()}
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
    names = theirs.state_dict().keys()
    state = {name: weight for name, weight in embeddings.items() if name in names}
    others = theirs.load_state_dict(state | dict(theirs_of(config, own, order)), strict=False)
    assert not others.unexpected_keys, others
    assert all("embed_positions" in name for name in others.missing_keys), others


def _write_tokenizer(bundle: Bundle, folder: Path, max_length: int) -> None:
    tokenizer = bundle.tokenizer
    for name, vocabulary in (("source.spm", tokenizer.source), ("target.spm", tokenizer.target)):
        (folder / name).write_bytes(vocabulary.model)
    names = {"vocab.json": list(tokenizer.source.names)}
    separate = names["vocab.json"] != list(tokenizer.target.names)
    if separate:
        names["target_vocab.json"] = list(tokenizer.target.names)
    for name, pieces in names.items():
        ids = {piece: id for id, piece in enumerate(pieces)}
        (folder / name).write_text(json.dumps(ids, ensure_ascii=False), "utf-8")
    data = bundle.config.data
    options = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": data.source_lang,
        "target_lang": data.target_lang,
        "separate_vocabs": separate,
        "clean_up_tokenization_spaces": False,  # earlier versions of transformers would join " ?" to the word
        "unk_token": "<unk>",
        "eos_token": "</s>",
        "pad_token": "<pad>",
        "model_max_length": max_length,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(options, indent=2), "utf-8")
