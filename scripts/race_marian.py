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

from race_programs import lines_of

LONGEST = 256  # pieces of a sentence
PAIRS = 160  # of a batch: about 4,096 tokens of 25-piece sentences

transformers: Any = importlib.import_module("transformers")  # its types differ between its versions


def train(work: Path, every: int, *texts: str) -> None:
    """Trains until SIGINT, with a checkpoint and the validation loss after `every` updates and at the end."""
    transformers.set_seed(1)
    tokenizer = tokenizer_of(work)
    layers = {"layers": 6, "attention_heads": 4, "ffn_dim": 1024}
    config = transformers.MarianConfig(
        vocab_size=len(tokenizer), d_model=512, dropout=0.3, attention_dropout=0.0, activation_dropout=0.0,
        activation_function="relu", scale_embedding=True, max_position_embeddings=2 * LONGEST,
        pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id, init_std=0.02,
        decoder_start_token_id=tokenizer.pad_token_id, forced_eos_token_id=None,
        **{f"{side}_{key}": value for side in ("encoder", "decoder") for key, value in layers.items()},
    )  # fmt: skip
    model = transformers.MarianMTModel(config)
    pairs = []
    for source, target in (texts[:2], texts[2:]):
        fields = tokenizer(lines_of(Path(source)), text_target=lines_of(Path(target)), truncation=True)
        pairs.append([dict(zip(fields, row, strict=True)) for row in zip(*fields.values(), strict=True)])
    arguments = transformers.Seq2SeqTrainingArguments(
        output_dir=str(work), use_cpu=True, seed=1, max_steps=1_000_000, report_to=[], disable_tqdm=True,
        learning_rate=5e-4, lr_scheduler_type="inverse_sqrt", warmup_steps=4000, weight_decay=1e-4,
        adam_beta2=0.98, max_grad_norm=0.0, label_smoothing_factor=0.1,
        per_device_train_batch_size=PAIRS, per_device_eval_batch_size=PAIRS,
        save_strategy="steps", save_steps=every, save_only_model=True,
        eval_strategy="steps", eval_steps=every,
    )  # fmt: skip
    collator = transformers.DataCollatorForSeq2Seq(tokenizer, model=model)
    trainer = transformers.Seq2SeqTrainer(
        model=model, args=arguments, train_dataset=pairs[0], eval_dataset=pairs[1], data_collator=collator
    )
    try:
        trainer.train()
    except KeyboardInterrupt:
        trainer.save_model(str(work / "checkpoint-last"))


def translate(work: Path, checkpoint: str, source: str, output: str) -> None:
    """Translates a text with beam 5."""
    tokenizer = tokenizer_of(work)
    model = transformers.MarianMTModel.from_pretrained(checkpoint).eval()
    lines, found = lines_of(Path(source)), list[str]()
    for start in range(0, len(lines), 64):
        batch = tokenizer(lines[start : start + 64], return_tensors="pt", padding=True, truncation=True)
        limit = min(LONGEST, batch["input_ids"].shape[1] + 50)
        ids = model.generate(**batch, num_beams=5, max_new_tokens=limit)
        found += tokenizer.batch_decode(ids, skip_special_tokens=True)
    Path(output).write_text("".join(text.replace("\n", " ") + "\n" for text in found), "utf-8")


def tokenizer_of(work: Path) -> Any:
    """Returns the tokenizer for the pieces of both languages, and writes the vocabulary that it reads."""
    model, vocabulary = str(work / "pieces.model"), work / "vocab.json"
    pieces = [line.split("\t")[0] for line in lines_of(work / "pieces.vocab")]
    names = dict.fromkeys(["</s>", "<unk>", *pieces, "<pad>"])  # without repetition
    vocabulary.write_text(json.dumps({name: number for number, name in enumerate(names)}), "utf-8")
    return transformers.MarianTokenizer(
        source_spm=model, target_spm=model, vocab=str(vocabulary), model_max_length=LONGEST
    )


if __name__ == "__main__":
    mode, folder, *rest = sys.argv[1:]
    if mode == "train":
        train(Path(folder), int(rest[0]), *rest[1:])
    else:
        translate(Path(folder), *rest)
