"""The same weights in programs that translate: nmt with both backends, transformers and CTranslate2.

The others get the model as `nmt-export` writes it. Used by scripts/benchmark_decoding.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import nmt
from nmt.bundle import Bundle, load_bundle
from nmt.cli.translate import load_translator
from nmt.config import DecodingConfig, TranslateConfig
from nmt.data.subwords.vocabulary import BOS_ID, EOS_ID, FORBIDDEN_IDS, PAD_ID
from nmt.interop.ctranslate2_export import CTranslate2Exporter
from nmt.interop.marian_export import MarianExporter
from nmt.runtime.hub import find_model_folder

Translate = Callable[[Sequence[str], int], "list[str]"]
"""Translates lines with a beam size, from text to text."""

LONGEST = 512  # positions of the tables in the other programs
SENTENCES = 64  # of a batch of transformers
CTRANSLATE2_TOKENS = 2048  # of a batch, the fastest of 1,024 to 8,192
LENGTH_PENALTY = 1.0
NUMBER_FORMATS = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
"""Precision → the number format of CTranslate2."""


def require_exportable(bundle: Bundle) -> None:
    """Raises `SystemExit` if the other programs can't compute a model."""
    for exporter in (CTranslate2Exporter(), MarianExporter()):
        if reason := exporter.reason_against(bundle):
            raise SystemExit(f"{bundle.folder}: {reason}.")


def of_nmt(folder: Path, precision: str, threads: int, workers: str) -> Translate:
    """Returns the translation by `nmt.load`."""
    model = nmt.load(folder, precision=precision, threads=threads)

    def translate(lines: Sequence[str], beam: int) -> list[str]:
        return model.translate(lines, beam_size=beam, length_penalty=LENGTH_PENALTY, workers=workers)

    return translate


def of_engine(folder: Path, precision: str, threads: int, workers: str, work: Path) -> Translate:
    """Returns the translation by `nmt-translate backend=ctranslate2`, with an export in `work`."""
    (work / "model").mkdir()
    for path in find_model_folder(folder).iterdir():
        if path.is_file():
            (work / "model" / path.name).symlink_to(path.absolute())
    count: str | int = workers if workers == "auto" else int(workers)
    decoding = DecodingConfig(length_penalty=LENGTH_PENALTY, workers=count)
    config = TranslateConfig(
        str(work / "model"),
        backend="ctranslate2",
        quantization=NUMBER_FORMATS.get(precision, precision),
        threads=threads,
        decoding=decoding,
    )
    translator = load_translator(config)

    def translate(lines: Sequence[str], beam: int) -> list[str]:
        chosen = translator.with_options(replace(decoding, beam_size=beam))
        return [found.hypotheses[0].text for found in chosen.translate(lines, scores=False)]

    return translate


def of_transformers(folder: Path, precision: str, threads: int, work: Path) -> Translate:
    """Returns the translation by `MarianMTModel.generate`, over batches of similar lengths."""
    import torch
    from transformers import MarianMTModel

    torch.set_num_threads(threads)
    bundle = load_bundle(folder)
    MarianExporter().write(bundle, work, quantization="float32", max_length=LONGEST)
    tokenizer = bundle.tokenizer
    model: Any = MarianMTModel.from_pretrained(work)  # in evaluation mode
    # Faster than a list of forbidden words, which a processor reads at every step.
    model.generation_config.bad_words_ids = model.generation_config.max_length = None
    model.final_logits_bias[:, list(FORBIDDEN_IDS)] = -1e4
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)

    def translate(lines: Sequence[str], beam: int) -> list[str]:
        sources = [[*ids, EOS_ID] for ids in tokenizer.encode_source(lines)]
        found: list[list[int]] = [[] for _ in lines]
        autocast = torch.autocast(device.type, dtype, enabled=dtype is not None)
        with torch.inference_mode(), autocast:
            for rows in _by_length(sources, SENTENCES):
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
    CTranslate2Exporter().write(bundle, work, quantization="float32", max_length=LONGEST)
    ids_of = {name: id for id, name in enumerate(tokenizer.target.names)}
    kind = NUMBER_FORMATS.get(precision, precision)
    device = "cuda" if ctranslate2.get_cuda_device_count() else "cpu"
    workers = threads if device == "cpu" else 1
    translator = ctranslate2.Translator(
        str(work), device=device, compute_type=kind, inter_threads=workers, intra_threads=1
    )

    def translate(lines: Sequence[str], beam: int) -> list[str]:
        pieces = [tokenizer.source.pieces_of(ids) for ids in tokenizer.encode_source(lines)]
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


def _by_length(sources: Sequence[Sequence[int]], size: int) -> Iterator[list[int]]:
    order = sorted(range(len(sources)), key=lambda row: -len(sources[row]))
    for start in range(0, len(order), size):
        yield order[start : start + size]
