"""Folders as the OPUS-MT models have them, built with SentencePiece and transformers alone."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import sentencepiece as spm
import torch
from exported_models import sentences

TAGS = [">>deu<<", ">>nds<<"]


def sentencepiece_model(lines: list[str], size: int, **options: Any) -> bytes:
    model = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=size,
        minloglevel=2,
        hard_vocab_limit=False,
        **options,
    )
    return model.getvalue()


def pieces_of(model: bytes) -> list[str]:
    processor = spm.SentencePieceProcessor(model_proto=model)
    ids = range(processor.vocab_size())
    return [
        processor.id_to_piece(id) for id in ids if not (processor.is_control(id) or processor.is_unknown(id))
    ]


def write_tokenizer(folder: Path, *, separate: bool = False, tags: bool = False, **options: Any) -> None:
    """Writes SentencePiece models with ids of their own, and the list of pieces.

    As in OPUS-MT, `</s>` is 0, `<unk>` is 1 and `<pad>` is last. Some pieces of the SentencePiece models are
    not in the list.
    """
    folder.mkdir(parents=True, exist_ok=True)
    models = [
        sentencepiece_model([*sentences(300, 3), *"Größe größer"], 90, **options),
        sentencepiece_model([*sentences(300, 4), *"ñandú año"], 80, **options),
    ]
    for name, model in zip(("source.spm", "target.spm"), models, strict=True):
        (folder / name).write_bytes(model)
    both = [[piece for number, piece in enumerate(pieces_of(model)) if number % 11 != 7] for model in models]
    lists = both if separate else [list(dict.fromkeys([*both[0], *both[1]]))]
    for name, pieces in zip(("vocab.json", "target_vocab.json"), lists, strict=False):
        listed = ["</s>", "<unk>", *pieces, *(TAGS if tags else []), "<pad>"]
        (folder / name).write_text(json.dumps({piece: id for id, piece in enumerate(listed)}))
    settings = {"source_lang": "en", "target_lang": "de", "separate_vocabs": separate}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def opus_folder(
    folder: Path, *, separate: bool = False, tags: bool = False, seed: int = 1, **options: Any
) -> Path:
    """Writes a random model with its tokenizer; `options` are those of `MarianConfig`."""
    from transformers import GenerationConfig, MarianConfig, MarianMTModel

    write_tokenizer(folder, separate=separate, tags=tags)
    sizes = [
        len(json.loads((folder / name).read_text()))
        for name in ("vocab.json", "target_vocab.json" if separate else "vocab.json")
    ]
    pad = sizes[1] - 1
    settings = {
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": 3,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48,
        "activation_function": "swish",
        "scale_embedding": True,
        "max_position_embeddings": 128,
        "vocab_size": sizes[0],
        "decoder_vocab_size": sizes[1],
        "share_encoder_decoder_embeddings": not separate,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "pad_token_id": pad,
        "decoder_start_token_id": pad,
        "forced_eos_token_id": 0,
    }
    torch.manual_seed(seed)
    model: Any = MarianMTModel(MarianConfig(**(settings | options)))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "embed_positions" not in name:
                weight.mul_(8 if weight.dim() == 2 else 1).add_(
                    torch.randn_like(weight) * 0.1 * (weight.dim() < 2)
                )
        model.final_logits_bias.normal_()
    kind: Any = GenerationConfig
    model.generation_config = kind(
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=pad,
        decoder_start_token_id=pad,
        forced_eos_token_id=0,
        bad_words_ids=[[pad]],
        num_beams=4,
        max_length=64,
    )
    model.save_pretrained(folder)
    return folder
