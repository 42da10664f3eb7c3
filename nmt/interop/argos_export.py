"""Export to Argos Translate, the engine of LibreTranslate (github.com/argosopentech/argos-translate).

A package is a zip with a model of CTranslate2, a SentencePiece model for both sides, and the languages. Argos
Translate splits a text into sentences, searches with a beam of 4 and a length penalty of its own, and forbids
no piece. So the pieces that nmt never writes get a bias that forbids them.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import sentencepiece as spm
import torch

from nmt import __version__
from nmt.bundle import Bundle
from nmt.copying.strings import WORD_START
from nmt.data.subwords.tokenizer import one_line
from nmt.data.subwords.vocabulary import FORBIDDEN_IDS, NUM_SPECIAL
from nmt.decoding.facts import TextFacts
from nmt.errors import UserError
from nmt.interop import argos_runner
from nmt.interop.ctranslate2_export import (
    THREADS,
    CTranslate2Exporter,
    LoadedByCTranslate2,
    compute_type,
    stored_vocabularies,
    write_weights,
)
from nmt.interop.marian_model import FORBIDDING_BIAS
from nmt.languages import LIBRETRANSLATE, language_name, language_of
from nmt.model import build_model
from nmt.runtime.commands import run_command
from nmt.runtime.hub import brief
from nmt.runtime.streams import log

ENDING = ".argosmodel"
_MODEL, _PIECES, _METADATA = "model", "sentencepiece.model", "metadata.json"
_LINES = 200  # of the comparison with Argos Translate itself
_SEARCH = {"beam_size": 4, "length_penalty": 0.2, "max_batch_size": 32, "batch_type": "tokens"}
"""The parameters of Argos Translate 1.11."""


class ArgosExporter(CTranslate2Exporter):
    """Writes a file `.argosmodel`, which Argos Translate installs."""

    library: ClassVar[str] = "argos-translate"

    def reason_against(self, bundle: Bundle) -> str | None:
        """See `Exporter.reason_against`."""
        data, tokenizer = bundle.config.data, bundle.tokenizer
        targets = set(TextFacts.of(data, bundle.results).targets.values())
        tags = [name for name in tokenizer.source_symbols if name.startswith(">>")]
        if len(targets) > 1 or len(tags) > 1:
            several = ", ".join(sorted(targets)) if len(targets) > 1 else ", ".join(tags)
            return f"its tags choose the target language ({several}), and Argos Translate has no tags"
        codes = _codes(bundle)
        if codes[0] == codes[1]:
            return f"data.source_lang and data.target_lang are both {codes[0]} for Argos Translate"
        if piece := _other_piece(bundle):
            return (
                "data.tokenizer.joint=false: Argos Translate has one SentencePiece model, the source's, and "
                f"it decodes {piece!a} in another way"
            )
        return super().reason_against(bundle)

    def prepared(self, bundle: Bundle) -> Bundle:
        """See `Exporter.prepared`. The pieces that are never written get a bias."""
        weights = dict(bundle.model.state_dict())
        bias = weights.get("logit_bias", torch.zeros(bundle.tokenizer.target.size)).clone()
        bias[list(FORBIDDEN_IDS)] = FORBIDDING_BIAS
        config = replace(bundle.config.model, output_bias=True)
        tokenizer = bundle.tokenizer
        model = build_model(config, tokenizer.source.size, tokenizer.target.size)
        model.load_state_dict(weights | {"logit_bias": bias})
        return replace(bundle, config=replace(bundle.config, model=config), model=model.eval())

    def write(self, bundle: Bundle, folder: Path, *, quantization: str, max_length: int) -> None:
        """See `Exporter.write`."""
        codes = _codes(bundle)
        name = f"nmt-{codes[0]}_{codes[1]}"
        with TemporaryDirectory(prefix=".argos-", dir=folder) as temporary:
            place = Path(temporary) / name
            (place / _MODEL).mkdir(parents=True)
            write_weights(bundle, place / _MODEL, quantization=quantization, max_length=max_length)
            (place / _PIECES).write_bytes(bundle.tokenizer.source.model)
            metadata = _metadata(bundle)
            (place / _METADATA).write_text(json.dumps(metadata, indent=2, ensure_ascii=True) + "\n", "utf-8")
            with zipfile.ZipFile(folder / f"{name}{ENDING}", "w", zipfile.ZIP_DEFLATED) as archive:
                for path in sorted(place.rglob("*")):
                    if path.is_file():
                        archive.write(path, path.relative_to(temporary))

    def load(self, folder: Path, quantization: str) -> ArgosModel:
        """See `Exporter.load`."""
        return ArgosModel(_package(folder), quantization)

    def finished(self, folder: Path, quantization: str, lines: Sequence[str]) -> dict[str, Any]:
        """See `Exporter.finished`. Argos Translate itself translates, if this interpreter has it."""
        python, lines = argos_python(), [line for line in lines if line.strip()][:_LINES]
        if python is None:
            log.info(
                "Argos Translate is not installed here. The comparison used CTranslate2 and SentencePiece in "
                "its place. To compare with Argos Translate itself, run pip install argostranslate first."
            )
            return {"argos_translate": None}
        answer = translated_by_argos(python, _package(folder), quantization, lines)
        model = self.load(folder, quantization)
        for number, (sentences, theirs) in enumerate(
            zip(answer["sentences"], answer["translations"], strict=True), 1
        ):
            ours = model.searched(sentences)
            if theirs != ours:
                raise UserError(
                    f"format=argos: the export differs from the model on sentence {number}: Argos Translate "
                    f"writes {theirs[:50]!a} in place of {ours[:50]!a}. The export was deleted."
                )
        split = (
            f"split by {answer['splitter']}" if answer["splitter"] else "unsplit: no splitter could be loaded"
        )
        log.info(
            "Argos Translate %s translates %s lines (%s) in the same way",
            answer["version"],
            len(lines),
            split,
        )
        return {
            "argos_translate": answer["version"],
            "argos_lines": len(lines),
            "argos_splitter": answer["splitter"],
        }

    def usage(self, bundle: Bundle, quantization: str) -> str:
        """See `Exporter.usage`."""
        codes = _codes(bundle)
        words = {"SOURCE": codes[0], "TARGET": codes[1], "COMPUTE": quantization}
        return re.sub("|".join(words), lambda match: words[match[0]], _USAGE)


_USAGE = """\
For Argos Translate 1.10 or later (`pip install argostranslate`) and LibreTranslate: `argospm install
nmt-SOURCE_TARGET.argosmodel`, or from Python:

```python
from argostranslate import package, translate

package.install_from_path("nmt-SOURCE_TARGET.argosmodel")
print(translate.translate("A sentence.", "SOURCE", "TARGET"))
```

Argos Translate computes in int8 on a CPU unless `ARGOS_COMPUTE_TYPE=COMPUTE` says otherwise, splits the text
with MiniSBD, whose model of the language it downloads at its first use, and writes `_` as a space.
"""


class ArgosModel(LoadedByCTranslate2):
    """A package, computed as Argos Translate does; see `ForeignModel`.

    `decode` leaves out one step: Argos Translate writes `_` as a space.
    """

    def __init__(self, package: Path, quantization: str) -> None:
        with TemporaryDirectory(prefix="nmt-argos-") as temporary:
            with zipfile.ZipFile(package) as archive:
                archive.extractall(temporary)
            [folder] = Path(temporary).iterdir()
            self._processor = spm.SentencePieceProcessor(model_proto=(folder / _PIECES).read_bytes())
            names = stored_vocabularies(folder / _MODEL)
            ids = range(NUM_SPECIAL, self._processor.vocab_size())
            # The pieces of a `MarianVocabulary`, which encodes whole lines, have another order.
            may_tie = names[0][NUM_SPECIAL:] == [self._processor.id_to_piece(id) for id in ids]
            processors = [self._processor] * 2
            super().__init__(folder / _MODEL, names, processors, quantization, may_tie=may_tie)

    def encode_target(self, lines: Sequence[str]) -> None:
        """See `ForeignModel.encode_target`. Argos Translate has no SentencePiece model of the target."""

    def decode(self, targets: Sequence[Sequence[int]]) -> list[str]:
        """See `ForeignModel.decode`."""
        return [_decoded(self._processor, pieces) for pieces in self._pieces(1, targets)]

    def searched(self, sentences: Sequence[str]) -> str:
        """Returns the translation of the sentences of one line."""
        pieces = [self._processor.encode(sentence, out_type=str) for sentence in sentences]
        results = self._translator.translate_batch(pieces, replace_unknowns=True, **_SEARCH)
        whole = [piece for result in results for piece in result.hypotheses[0]]
        return _decoded(self._processor, whole).replace("_", " ").removeprefix(" ").lstrip("\n")


def _decoded(processor: Any, pieces: Sequence[str]) -> str:
    text: str = processor.decode_pieces(list(pieces))
    return text.replace(WORD_START, " ")


def _package(folder: Path) -> Path:
    [package] = folder.glob(f"*{ENDING}")
    return package


def _metadata(bundle: Bundle) -> dict[str, Any]:
    data, codes = bundle.config.data, _codes(bundle)
    names = [language_name(code) for code in (data.source_lang, data.target_lang)]
    return {
        "package_version": "1.0",
        "argos_version": "1.10",
        "from_code": codes[0],
        "from_name": names[0],
        "to_code": codes[1],
        "to_name": names[1],
        "links": [],
        "nmt": __version__,
    }


def _codes(bundle: Bundle) -> list[str]:
    """Returns the codes of the source and target language in Argos Translate."""
    data = bundle.config.data
    return [argos_code(code) for code in (data.source_lang, data.target_lang)]


def argos_code(code: str) -> str:
    """Returns the code of a language in Argos Translate: that of ISO 639, or one of `LIBRETRANSLATE`."""
    language = language_of(code)
    for own, meaning in LIBRETRANSLATE.items():
        other = language_of(meaning)
        same = (language.language, language.scripts) == (other.language, other.scripts)
        if same and other.region in ("", language.region):
            return own
    return language.language or code


def _other_piece(bundle: Bundle) -> str | None:
    """Returns a target piece that the SentencePiece model of the source decodes in another way."""
    tokenizer = bundle.tokenizer
    if tokenizer.joint:
        return None
    names = tokenizer.target.names
    pairs = list(pairwise(range(NUM_SPECIAL, len(names))))
    for (first, second), ours in zip(pairs, tokenizer.decode_target(pairs), strict=True):
        theirs = _decoded(tokenizer.source.processor, [names[first], names[second]])
        if one_line(theirs).strip() != ours.strip():
            return names[second]
    return None


def argos_python() -> str | None:
    """Returns an interpreter that has Argos Translate; None if this one has not."""
    return sys.executable if importlib.util.find_spec("argostranslate") else None


def translated_by_argos(
    python: str,
    package: Path,
    quantization: str,
    lines: Sequence[str],
    beam_size: int = 4,
) -> dict[str, Any]:
    """Returns what `argos_runner.run` returns, for a package that is installed in a temporary folder.

    `python` is an interpreter with Argos Translate.

    Raises:
        UserError: Argos Translate fails.
    """
    with zipfile.ZipFile(package) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(_METADATA)]
        metadata = json.loads(archive.read(name))
    request = {
        "package": str(package),
        "from": metadata["from_code"],
        "to": metadata["to_code"],
        "lines": list(lines),
    }
    with TemporaryDirectory(prefix="nmt-argos-") as home:
        settings = {
            **{name: value for name, value in os.environ.items() if not name.startswith("ARGOS_")},
            **{f"XDG_{kind}_HOME": home for kind in ("DATA", "CONFIG", "CACHE")},
            "ARGOS_DEVICE_TYPE": "cpu",
            "ARGOS_COMPUTE_TYPE": compute_type(quantization, "cpu"),
            "ARGOS_INTRA_THREADS": str(THREADS),
            "ARGOS_BEAM_SIZE": str(beam_size),
        }
        process = run_command([python, argos_runner.__file__], settings, json.dumps(request))
    if process.returncode:
        reason = brief(RuntimeError((process.stderr.strip().splitlines() or ["no message"])[-1]))
        raise UserError(
            f"format=argos: Argos Translate can't use the export ({reason}). The export was deleted."
        )
    answer: dict[str, Any] = json.loads(process.stdout)
    return answer
