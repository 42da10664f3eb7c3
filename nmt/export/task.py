"""The task of `nmt-export`: writes an export, compares it with the model, and only then hands it over."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from nmt import __version__
from nmt.bundle import Bundle, load_bundle
from nmt.card import CARD, Subject, export_card
from nmt.config import EvalConfig, ExportConfig
from nmt.config.exporting import COPY
from nmt.errors import UserError
from nmt.evaluation.metrics import metrics_for
from nmt.evaluation.scores import score_of
from nmt.evaluation.task import Task, read_data
from nmt.export import EXPORTERS, Engine, Exporter
from nmt.export.copy import write_copy
from nmt.export.engine import require_packages
from nmt.export.parity import Difference, compare
from nmt.export.push import push, require_token
from nmt.export.record import record_of
from nmt.export.sentences import Pairs, Sentences, bundled_pairs, chosen, given_pairs
from nmt.runtime import (
    EXPORT_REPORT,
    expanded,
    fresh_folder,
    is_hub_name,
    log,
    make_folder,
    pinned,
    set_threads,
    write_errors,
)
from nmt.runtime.checksums import write_sums
from nmt.runtime.hub import HUB


def export(config: ExportConfig, key: str = "format") -> dict[str, Any]:
    """Exports a model as `config` says, and uploads it if it is to be pushed.

    Args:
        config: the options.
        key: the option that has chosen the format, for error messages.

    Returns:
        The content of `export.json`; empty for `format=nmt`.

    Raises:
        UserError: the model can't be read or the engine can't compute it, a package is missing, the folder is
            not empty or not writable, or the export translates differently: nothing is left behind, and
            nothing is uploaded. Or the upload fails: the export stays.
    """
    exporter = None if config.format == COPY else exporter_of(config.format, config.quantization, key)
    output = expanded(config.output)
    require_empty(output, config.output)
    if config.push is not None:
        require_token(config.push)
    set_threads(config.threads)
    config = replace(config, model_dir=pinned(config.model_dir))
    bundle = load_bundle(config.model_dir)
    if config.licence is not None:
        bundle = replace(bundle, config=replace(bundle.config, licence=config.licence))
    if exporter is None:
        with fresh_folder(output) as fresh:
            write_copy(bundle, fresh, "." if config.push is None else f"{HUB}{config.push}")
        result = {}
    else:
        result = _exported(config, exporter, bundle, output, key)
    log.info("%s: written. Its %s shows how to use it.", output, CARD)
    if config.push is not None:
        message = f"nmt {__version__}: {config.format}, {config.quantization}"
        log.info("%s", push(output, config.push, message, config.private))
    return result


def _exported(
    config: ExportConfig, exporter: Exporter, bundle: Bundle, output: Path, key: str
) -> dict[str, Any]:
    """Writes an export with its report and its card; returns the report."""
    if reason := exporter.reason_against(bundle):
        raise UserError(f"{key}={config.format}: {bundle.folder} can't be exported: {reason}.")
    sentences = _sentences(config, bundle)
    with fresh_folder(output) as fresh:
        record = record_of(bundle, config.format, config.quantization, config.max_length)
        compared = _Comparison(config, exporter, bundle, sentences).write(fresh)
        result = {"nmt": __version__, **record.as_dict(), **compared}
        (fresh / EXPORT_REPORT).write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", "utf-8")
        write_sums(fresh)  # before the card, which a person may edit
        usage = exporter.usage(bundle, config.quantization)
        subject = Subject(bundle.config, bundle.tokenizer, bundle.results)
        (fresh / CARD).write_text(export_card(subject, result, exporter.library, usage), "utf-8")
    return result


def exporter_of(format: str, quantization: str, key: str = "format") -> Exporter:
    """Returns the exporter of a format.

    Args:
        format: its name.
        quantization: the number format of the weights.
        key: as for `export`.

    Raises:
        UserError: there is no such format or number format, or a package is missing.
    """
    if format not in EXPORTERS:
        names = ", ".join((*EXPORTERS, COPY))
        raise UserError(f"{key}={format}: there is no export format {format}. Choose from {names}.")
    exporter = EXPORTERS[format]()
    if quantization not in exporter.quantizations:
        raise UserError(f"quantization={quantization}: must be one of {', '.join(exporter.quantizations)}.")
    require_packages(f"{key}={format}", exporter.packages)
    return exporter


def require_empty(output: Path, given: str) -> None:
    """Checks that a folder to write does not exist, or is empty.

    Args:
        output: the folder.
        given: as the option `output` has it.

    Raises:
        UserError: it is not.
    """
    with write_errors(output):
        if output.exists() and (not output.is_dir() or any(output.iterdir())):
            raise UserError(f"output={given}: already exists. Choose another name, or remove it.")


def _sentences(config: ExportConfig, bundle: Bundle) -> Sentences:
    """Returns the text of the comparison: sentences that the export can hold."""
    limits = [config.max_length, bundle.config.decoding.max_source_tokens]
    limits += [one for one in (bundle.model.max_source_len, bundle.model.max_target_len) if one is not None]
    return chosen(_pairs(config, bundle), bundle.tokenizer, min(limits), config.check_sentences)


def _pairs(config: ExportConfig, bundle: Bundle) -> Pairs:
    if config.check is not None and config.references is not None:
        return given_pairs(config.check, config.references)
    task = Task()
    evaluation = EvalConfig(model_dir=config.model_dir, split="valid")
    try:
        read_data(evaluation, bundle, bundle.config.data, task)
    except UserError as error:
        log.warning(
            "The validation data of the model can't be read (%s) The comparison uses the bundled sentences.",
            error,
        )
        return bundled_pairs()
    return Pairs("validation data of the model", task.texts["source"], task.references[0])


class _Comparison:
    """Writes an export and compares it with the model."""

    def __init__(
        self, config: ExportConfig, exporter: Exporter, bundle: Bundle, sentences: Sentences
    ) -> None:
        self._config, self._exporter, self._bundle, self._sentences = config, exporter, bundle, sentences
        limits = [config.max_length, bundle.model.max_source_len, bundle.model.max_target_len]
        self._longest = min(one for one in limits if one is not None)

    def write(self, folder: Path) -> dict[str, Any]:
        """Writes the export into an empty folder; returns the result of the comparison."""
        config, exact = self._config, self._exporter.quantizations[0]
        result: dict[str, Any] = {
            "compared_on": self._sentences.name,
            "sentences": len(self._sentences.lines),
        }
        if is_hub_name(config.model_dir):  # other paths are of this machine alone
            result["model"] = config.model_dir
        # A quantised export begins with an exact one: then quantisation alone can make a difference.
        place = folder if config.quantization == exact else make_folder(folder / exact)
        engine = self._written(place, exact)
        result["exact"] = self._compare(engine)
        if config.quantization != exact:
            before = self._bleu(engine)
            shutil.rmtree(place)
            after = self._bleu(self._written(folder, config.quantization))
            result |= {"bleu_of_the_model": before, "bleu": after}
            log.info(
                "quantization=%s: BLEU %.2f, and %.2f of the model, with greedy search",
                config.quantization, after, before,
            )  # fmt: skip
            if not before - after <= config.max_bleu_loss:
                raise UserError(
                    f"quantization={config.quantization}: loses {before - after:.2f} BLEU "
                    f"({before:.2f} to {after:.2f} on {self._sentences.name}), more than "
                    f"max_bleu_loss={config.max_bleu_loss:g}. The export was deleted. Choose another "
                    "quantization, or allow it with nmt-export max_bleu_loss=N."
                )
        return result

    def _written(self, folder: Path, quantization: str) -> Engine:
        log.info("Writing %s, %s", self._config.format, quantization)
        self._exporter.write(
            self._bundle, folder, quantization=quantization, max_length=self._config.max_length
        )
        return self._exporter.load(folder, quantization)

    def _compare(self, engine: Engine) -> dict[str, Any]:
        try:
            return compare(self._bundle, engine, self._sentences, self._longest).as_dict()
        except Difference as difference:
            raise UserError(
                f"format={self._config.format}: the export differs from the model on "
                f"{self._sentences.name}, {difference}. The export was deleted."
            ) from None

    def _bleu(self, engine: Engine) -> float:
        metrics = metrics_for(self._bundle.config.data.target_lang, keys=["bleu"])
        text = self._sentences
        translations = engine.translate(text.sources, text.limits(self._longest))
        found = self._bundle.tokenizer.decode_target(translations)
        value = score_of(metrics["bleu"], found, [text.references], text.lines)
        return 0.0 if value is None else value
