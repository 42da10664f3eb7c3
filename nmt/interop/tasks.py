"""The tasks of `nmt-export` and `nmt-import`: each writes a model, compares it, and then hands it over."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from nmt import __version__
from nmt.bundle import Bundle, load_bundle, write_model, write_results
from nmt.card import CARD, Subject, export_card
from nmt.config import DataConfig, EvalConfig, ExportConfig, ImportConfig, TrainConfig
from nmt.config.interop import COPY
from nmt.config.storage import to_plain
from nmt.errors import UserError
from nmt.evaluation.metrics import metrics_for
from nmt.evaluation.model_data import read_data
from nmt.evaluation.scores import score_of
from nmt.interop.interfaces import (
    EXPORTERS,
    IMPORTERS,
    Exporter,
    ForeignModel,
    Importer,
    require_packages,
)
from nmt.interop.parity import (
    ComparedText,
    Pairs,
    Parity,
    ParityError,
    bundled_pairs,
    comparable_text,
    compare,
    pairs_of_files,
)
from nmt.interop.record import record_of
from nmt.runtime.checksums import write_sums
from nmt.runtime.files import expanded, fresh_folder, make_folder
from nmt.runtime.hub import (
    HUB,
    brief,
    hub_files,
    is_hub_name,
    is_network_error,
    is_repository,
    is_unreachable,
    pinned,
    quiet_hub,
    require_repository,
    unreachable,
)
from nmt.runtime.machine import set_threads
from nmt.runtime.model_files import BUNDLE_FILES, EXPORT_REPORT
from nmt.runtime.os_errors import write_errors
from nmt.runtime.streams import log


def export(config: ExportConfig, key: str = "format") -> dict[str, Any]:
    """Exports a model as `config` says, and uploads it if it is to be pushed.

    `key` is the option that has chosen the format, for error messages.

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
    limits = config.max_length, bundle.model.max_source_len, bundle.model.max_target_len
    longest = min(limit for limit in limits if limit is not None)
    text = comparable_text(_pairs(config, bundle), bundle, longest, config.check_sentences)
    with fresh_folder(output) as fresh:
        record = record_of(bundle, config.format, config.quantization, config.max_length)
        compared = _written_and_compared(config, exporter, exporter.prepared(bundle), text, fresh)
        result = {"nmt": __version__, **to_plain(record), **compared}
        (fresh / EXPORT_REPORT).write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", "utf-8")
        write_sums(fresh)  # before the card, which a person may edit
        usage = exporter.usage(bundle, config.quantization)
        subject = Subject(bundle.config, bundle.tokenizer, bundle.results)
        (fresh / CARD).write_text(export_card(subject, result, exporter.library, usage), "utf-8")
    return result


_ONNX = (
    "there is no export for ONNX. Export for transformers with format=marian; the package optimum-onnx "
    "converts that folder, with optimum-cli export onnx --model FOLDER ONNX_FOLDER."
)
_BERGAMOT = (
    "Bergamot reads models that Marian has trained. For small and fast models without PyTorch, use "
    "format=ctranslate2 quantization=int8; or train Marian with translations of nmt-translate."
)
_NPZ = (
    "Marian's npz are imported (nmt-import), not written. Use format=marian for transformers, or "
    "format=nmt: numpy reads its model.safetensors with safetensors.numpy.load_file."
)
_OTHER_FORMATS = (
    dict.fromkeys(("onnx", "onnxruntime", "optimum"), _ONNX)
    | dict.fromkeys(("bergamot", "firefox", "translatelocally", "slimt", "browsermt"), _BERGAMOT)
    | dict.fromkeys(("npz", "marian-npz", "marian_npz", "numpy"), _NPZ)
    | dict.fromkeys(("hf", "huggingface", "transformers"), "transformers has Marian. Use format=marian.")
    | dict.fromkeys(("argosmodel", "argos-translate", "libretranslate"), "Use format=argos.")
    | dict.fromkeys(("ct2", "ctranslate"), "Use format=ctranslate2.")
)
"""Formats that users look for → what to do."""


def exporter_of(format: str, quantization: str, key: str = "format") -> Exporter:
    """Returns the exporter of a format; `key` is the option that has chosen it.

    Raises:
        UserError: there is no such format or number format, or a package is missing.
    """
    if format not in EXPORTERS:
        names = ", ".join((*EXPORTERS, COPY))
        unknown = f"there is no export format {format}. Choose from {names}."
        raise UserError(f"{key}={format}: {_OTHER_FORMATS.get(format.lower(), unknown)}")
    exporter = EXPORTERS[format]()
    if quantization not in exporter.quantizations:
        raise UserError(f"quantization={quantization}: must be one of {', '.join(exporter.quantizations)}.")
    require_packages(f"{key}={format}", exporter.packages)
    return exporter


def require_empty(output: Path, value: str) -> None:
    """Raises `UserError` unless a folder to write, named by the option `output`, is missing or empty.

    It must not be the current folder, which would be replaced.
    """
    with write_errors(output):
        if output.is_dir() and output.samefile("."):
            raise UserError(f"output={value}: is the current folder. Name a folder to create in it.")
        if output.exists() and (not output.is_dir() or any(output.iterdir())):
            raise UserError(f"output={value}: already exists. Choose another name, or remove it.")


def _written_and_compared(
    config: ExportConfig, exporter: Exporter, bundle: Bundle, text: ComparedText, folder: Path
) -> dict[str, Any]:
    """Writes an export into an empty folder; returns the result of its comparison with the model.

    Raises:
        UserError: the export translates differently, or the quantised one loses too much BLEU.
    """
    exact, quantization = exporter.quantizations[0], config.quantization

    def written(place: Path, quantization: str) -> ForeignModel:
        log.info("Writing %s, %s", config.format, quantization)
        exporter.write(bundle, place, quantization=quantization, max_length=config.max_length)
        return exporter.load(place, quantization)

    result: dict[str, Any] = {"compared_on": text.name, "sentences": len(text.lines)}
    if is_hub_name(config.model_dir):  # other paths are of this machine alone
        result["model"] = config.model_dir
    # A quantised export begins with an exact one: then quantisation alone can make a difference.
    place = folder if quantization == exact else make_folder(folder / exact)
    model = written(place, exact)
    failure = f"format={config.format}: the export differs from the model", "The export was deleted."
    result["exact"] = asdict(_compared(bundle, model, text, failure))
    if quantization != exact:
        before = _greedy_bleu(bundle, model, text)
        shutil.rmtree(place)
        after = _greedy_bleu(bundle, written(folder, quantization), text)
        result |= {"bleu_of_the_model": before, "bleu": after}
        bleu = f"BLEU {after:.2f}, and {before:.2f} of the model, with greedy search"
        log.info(f"quantization={quantization}: {bleu}")
        if not before - after <= config.max_bleu_loss:
            raise UserError(
                f"quantization={quantization}: loses {before - after:.2f} BLEU "
                f"({before:.2f} to {after:.2f} on {text.name}), more than "
                f"max_bleu_loss={config.max_bleu_loss:g}. The export was deleted. Choose another "
                "quantization, or allow it with nmt-export max_bleu_loss=N."
            )
    return result | exporter.finished(folder, quantization, text.lines)


def _compared(bundle: Bundle, model: ForeignModel, text: ComparedText, failure: tuple[str, str]) -> Parity:
    """Compares as `compare` does; `failure` is the message before and after the difference."""
    try:
        return compare(bundle, model, text)
    except ParityError as difference:
        raise UserError(f"{failure[0]} on {text.name}, {difference}. {failure[1]}") from None


def _greedy_bleu(bundle: Bundle, model: ForeignModel, text: ComparedText) -> float:
    metrics = metrics_for(bundle.config.data.target_lang, keys=["bleu"])
    hypotheses = bundle.tokenizer.decode_target(model.translate(text.sources, text.limits))
    return score_of(metrics["bleu"], hypotheses, [text.references], text.lines) or 0.0


def _pairs(config: ExportConfig | ImportConfig, bundle: Bundle | None = None) -> Pairs:
    """Returns the text of a comparison: given files, the validation data of the model, or bundled text."""
    if config.check is not None and config.references is not None:
        return pairs_of_files(config.check, config.references)
    if bundle is None or isinstance(config, ImportConfig):
        return bundled_pairs()
    try:
        valid = EvalConfig(model_dir=config.model_dir, split="valid")
        sets = read_data(valid, bundle, bundle.tokenizer.source_symbols).values()
    except UserError as error:
        log.warning(
            "The validation data of the model can't be read (%s) The comparison uses the bundled sentences.",
            error,
        )
        return bundled_pairs()
    lines = [line for text in sets for line in text.inputs]
    return Pairs("validation data of the model", lines, [line for text in sets for line in text.references])


def write_copy(bundle: Bundle, folder: Path, place: str) -> None:
    """Writes a model into an empty folder, reads it back, and compares each weight, bit for bit.

    `place` is as for `nmt.card.bundle_card`.

    Raises:
        UserError: the copy differs; this is an error of the disk or of nmt.
    """
    weights = bundle.model.state_dict()
    write_model(folder, bundle.config, weights, bundle.tokenizer)
    write_results(folder, bundle.config, bundle.tokenizer, bundle.results, place)
    copy = load_bundle(folder)
    copied = copy.model.state_dict()
    same = (
        copy.config == bundle.config
        and copy.tokenizer.fingerprint == bundle.tokenizer.fingerprint
        and all(torch.equal(_bits(weights[name]), _bits(copied[name])) for name in weights)
    )
    if not same:
        raise UserError(f"format=nmt: {folder} differs from the model in {bundle.folder}. It was deleted.")


def _bits(weight: torch.Tensor) -> torch.Tensor:
    return weight.contiguous().view(torch.uint8)


def require_token(repository: str) -> None:
    """Requires a valid name and a token, before hours of work; the hub is not asked.

    Raises:
        UserError: the name is not valid, or there is no token.
    """
    from huggingface_hub import get_token

    require_repository(repository, "push")
    if get_token() is None:
        raise UserError(f"push={repository}: no token for the hub. Run hf auth login, or set HF_TOKEN.")


def push(folder: Path, repository: str, message: str, private: bool | None) -> str:
    """Uploads a folder as one commit, and creates the repository `owner/name` if it does not exist.

    Other files of the repository stay there, except files of an earlier model that this one does not have:
    nmt would read them. `message` is the title of the commit, whose address is returned.

    Raises:
        UserError: the hub refuses it or can't be reached. The folder stays where it is.
    """
    from huggingface_hub import HfApi

    quiet_hub()
    api = HfApi(library_name="nmt", library_version=__version__)
    try:
        api.create_repo(repository, private=private, exist_ok=True)
        commit = api.upload_folder(
            repo_id=repository,
            folder_path=folder,
            commit_message=message,
            delete_patterns=list(BUNDLE_FILES),
        )
    except Exception as error:
        reason = _reason(error, repository)
        if reason is None:
            raise
        raise UserError(
            f"push={repository}: {reason} {folder} is complete; to upload it later: "
            f"hf upload {repository} {folder}"
        ) from error
    return str(commit.commit_url)


def _reason(error: Exception, repository: str) -> str | None:
    """Returns the reason of a failed upload and a fix; None for a bug."""
    owner = repository.partition("/")[0]
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status == 401:
        return "the hub does not accept the token. Run hf auth login, or set HF_TOKEN."
    if status == 403:
        return f"the token may not write there ({brief(error)}). Use one with write access to {owner}."
    if status == 404:
        return f"the hub has no such owner or repository ({brief(error)}). Check the name."
    # Its plain ValueError is the check of the card's header.
    if type(error) is ValueError or status is not None and is_network_error(error):
        return f"the hub refuses it ({brief(error)})."
    return f"{unreachable(error)}." if is_unreachable(error) else None


def import_model(config: ImportConfig) -> dict[str, Any]:
    """Imports a model as `config` says; returns the result of the comparison.

    Raises:
        UserError: the model can't be read or has an option that `nmt` lacks, a package is missing, the folder
            is not empty or not writable, or the imported model translates differently. Nothing is left
            behind.
    """
    chosen_format = f"format={config.format}"
    importer = IMPORTERS.find(config.format, chosen_format)()
    output = expanded(config.output)
    require_empty(output, config.output)
    require_packages(chosen_format, importer.packages_for(expanded(config.model)))
    set_threads(config.threads)
    pairs = _pairs(config)
    name, folder = _name_and_folder(config.model, importer)
    imported = importer.read(folder)
    source_lang = _language("source_lang", config.source_lang or imported.languages[0])
    target_lang = _language("target_lang", config.target_lang or imported.languages[1])
    whole = TrainConfig(
        name="imported",
        data=DataConfig(name="imported", source_lang=source_lang, target_lang=target_lang),
        model=imported.model,
        decoding=imported.decoding,
    )
    facts = {"nmt": __version__, "format": config.format, "model": name}
    failure = f"{chosen_format}: the imported model differs from the original", "It was deleted."
    with fresh_folder(output) as fresh:
        write_model(fresh, whole, imported.weights, imported.tokenizer)
        bundle = load_bundle(fresh)
        text = comparable_text(pairs, bundle, imported.longest, config.check_sentences)
        parity = _compared(bundle, imported.engine, text, failure)
        facts |= {"compared_on": text.name, **asdict(parity)}
        write_results(fresh, whole, imported.tokenizer, {"import": facts})
    log.info("%s: written, a model folder for model_dir= and start_from=.", output)
    return facts


def _name_and_folder(model: str, importer: Importer) -> tuple[str, Path]:
    """Returns the name of a model, with its commit if it is on the hub, and its folder or archive."""
    folder = expanded(model)
    if not is_hub_name(model):
        if folder.is_dir() or folder.name.endswith(importer.archives) and folder.is_file():
            return model, folder
        if folder.exists():
            kinds = " or ".join(("a folder", *(f"a file *{ending}" for ending in importer.archives)))
            raise UserError(f"model={model}: must be {kinds}.")
        if not is_repository(model):
            raise UserError(
                f"model={model}: there is no such folder (looked for {folder.absolute()}), and this is not a "
                f"name on the hub. Give {HUB}OWNER/NAME."
            )
        model = f"{HUB}{model}"
    name = pinned(model, "model")
    log.info("model=%s", name)
    return name, hub_files(name, "model", importer.files, importer.weights)


def _language(key: str, code: str | None) -> str:
    if not code:
        raise UserError(f"{key}: the model does not say it. Give {key}=en, or the code of its language.")
    return code
