"""Trains Hugging Face's Marian from scratch for scripts/race.py, in an environment that does not have nmt.

    python race_marian.py train WORK EVERY SOURCE TARGET VALID_SOURCE VALID_TARGET
    python race_marian.py translate WORK CHECKPOINT INPUT OUTPUT

WORK has the SentencePiece model `pieces.model`. The model and its training have the numbers of fairseq's
recipe for IWSLT 2014. A batch has a number of pairs, as `Seq2SeqTrainer` counts, not of tokens.
"""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

LONGEST = 256  # pieces of a sentence
PAIRS = 160  # of a batch: about 4,096 tokens of 25-piece sentences


def library() -> Any:
    """Returns transformers, whose types differ between its versions."""
    return importlib.import_module("transformers")


def lines_of(path: str) -> list[str]:
    """Returns the lines of a text."""
    return Path(path).read_text("utf-8").removesuffix("\n").split("\n")


def tokenizer_of(work: Path) -> Any:
    """Returns the tokenizer for the pieces of both languages, and writes the vocabulary that it reads."""
    import sentencepiece

    model = str(work / "pieces.model")
    processor = sentencepiece.SentencePieceProcessor(model_file=model)
    names = [processor.id_to_piece(number) for number in range(processor.get_piece_size())]
    names = ["</s>", "<unk>", *(name for name in names if name not in ("<s>", "</s>", "<unk>")), "<pad>"]
    vocabulary = work / "vocab.json"
    vocabulary.write_text(json.dumps({name: number for number, name in enumerate(names)}), "utf-8")
    return library().MarianTokenizer(
        source_spm=model, target_spm=model, vocab=str(vocabulary), model_max_length=LONGEST
    )


def train(work: Path, every: int, *texts: str) -> None:
    """Trains until it is stopped, with a checkpoint and the validation loss after `every` updates."""
    transformers = library()
    transformers.set_seed(1)
    tokenizer = tokenizer_of(work)
    size, pad = len(tokenizer), tokenizer.pad_token_id
    layers = {"layers": 6, "attention_heads": 4, "ffn_dim": 1024}
    sides = {f"{side}_{key}": value for side in ("encoder", "decoder") for key, value in layers.items()}
    config = transformers.MarianConfig(
        vocab_size=size, d_model=512, dropout=0.3, attention_dropout=0.0, activation_dropout=0.0,
        activation_function="relu", scale_embedding=True, max_position_embeddings=2 * LONGEST,
        pad_token_id=pad, eos_token_id=tokenizer.eos_token_id, decoder_start_token_id=pad,
        forced_eos_token_id=None, init_std=0.02, **sides,
    )  # fmt: skip
    model = transformers.MarianMTModel(config)
    pairs = []
    for source, target in (texts[:2], texts[2:]):
        fields = tokenizer(lines_of(source), text_target=lines_of(target), truncation=True)
        rows = zip(fields["input_ids"], fields["attention_mask"], fields["labels"], strict=True)
        pairs.append([dict(zip(("input_ids", "attention_mask", "labels"), row, strict=True)) for row in rows])
    arguments = transformers.Seq2SeqTrainingArguments(
        output_dir=str(work), use_cpu=True, seed=1, max_steps=1_000_000, report_to=[], disable_tqdm=True,
        learning_rate=5e-4, lr_scheduler_type="inverse_sqrt", warmup_steps=4000, weight_decay=1e-4,
        adam_beta2=0.98, max_grad_norm=0.0, label_smoothing_factor=0.1,
        per_device_train_batch_size=PAIRS, per_device_eval_batch_size=PAIRS,
        save_strategy="steps", save_steps=every, eval_strategy="steps", eval_steps=every,
    )  # fmt: skip
    collator = transformers.DataCollatorForSeq2Seq(tokenizer, model=model)
    trainer = transformers.Seq2SeqTrainer(
        model=model, args=arguments, train_dataset=pairs[0], eval_dataset=pairs[1], data_collator=collator
    )
    trainer.train()


def translate(work: Path, checkpoint: str, source: str, output: str) -> None:
    """Translates a text with beam 5, in batches of similar lengths."""
    import torch

    tokenizer = tokenizer_of(work)
    model = library().MarianMTModel.from_pretrained(checkpoint).eval()
    lines = lines_of(source)
    order = sorted(range(len(lines)), key=lambda number: len(lines[number]))
    found = [""] * len(lines)
    with torch.inference_mode():
        for start in range(0, len(order), 64):
            rows = order[start : start + 64]
            batch = tokenizer(
                [lines[row] for row in rows], return_tensors="pt", padding=True, truncation=True
            )
            limit = min(LONGEST, batch["input_ids"].shape[1] + 50)
            ids = model.generate(**batch, num_beams=5, max_new_tokens=limit)
            for row, text in zip(rows, tokenizer.batch_decode(ids, skip_special_tokens=True), strict=True):
                found[row] = text.replace("\n", " ")
    Path(output).write_text("\n".join(found) + "\n", "utf-8")


if __name__ == "__main__":
    mode, folder, *rest = sys.argv[1:]
    if mode == "train":
        train(Path(folder), int(rest[0]), *rest[1:])
    else:
        translate(Path(folder), *rest)
