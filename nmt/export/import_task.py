"""The task of `nmt-import`: writes a model folder, compares it with the original, and then hands it over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nmt import __version__
from nmt.bundle import Bundle, load_bundle, write_model, write_results
from nmt.config import DataConfig, ImportConfig, TrainConfig
from nmt.errors import UserError
from nmt.export.engine import require_packages
from nmt.export.importer import IMPORTERS, Imported, Importer
from nmt.export.parity import Difference, compare
from nmt.export.sentences import Pairs, bundled_pairs, chosen, given_pairs
from nmt.export.task import require_empty
from nmt.runtime import expanded, fresh_folder, is_hub_name, log, pinned, set_threads
from nmt.runtime.hub import HUB, hub_files, is_repository


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
    require_packages(chosen_format, importer.packages)
    set_threads(config.threads)
    pairs = _pairs(config)
    name, folder = _found(config.model, importer)
    imported = importer.read(folder)
    source_lang, target_lang = _languages(config, imported)
    whole = TrainConfig(
        name="imported",
        data=DataConfig(name="imported", source_lang=source_lang, target_lang=target_lang),
        model=imported.model,
        decoding=imported.decoding,
    )
    facts = {"nmt": __version__, "format": config.format, "model": name}
    with fresh_folder(output) as fresh:
        write_model(fresh, whole, imported.weights, imported.tokenizer)
        facts |= _compare(imported, load_bundle(fresh), pairs, config)
        write_results(fresh, whole, imported.tokenizer, {"import": facts})
    log.info("%s: written, a model folder for model_dir= and start_from=.", output)
    return facts


def _found(model: str, importer: Importer) -> tuple[str, Path]:
    """Returns the name of a model, with its commit if it is on the hub, and its folder."""
    folder = expanded(model)
    if not is_hub_name(model):
        if folder.is_dir():
            return model, folder
        if not is_repository(model):
            raise UserError(
                f"model={model}: there is no such folder (looked for {folder.absolute()}), and this is not a "
                f"name on the hub. Give {HUB}OWNER/NAME."
            )
        model = f"{HUB}{model}"
    name = pinned(model, "model")
    log.info("model=%s", name)
    return name, hub_files(name, "model", importer.files, importer.weights)


def _languages(config: ImportConfig, imported: Imported) -> tuple[str, str]:
    """Returns the codes of the source and target language."""
    found: list[str] = []
    given = config.source_lang, config.target_lang
    for key, code, known in zip(("source_lang", "target_lang"), given, imported.languages, strict=True):
        if not (code or known):
            raise UserError(f"{key}: the model does not say it. Give {key}=en, or the code of its language.")
        found.append(code or known or "")
    return found[0], found[1]


def _pairs(config: ImportConfig) -> Pairs:
    if config.check is not None and config.references is not None:
        return given_pairs(config.check, config.references)
    return bundled_pairs()


def _compare(imported: Imported, bundle: Bundle, pairs: Pairs, config: ImportConfig) -> dict[str, Any]:
    text = chosen(pairs, bundle.tokenizer, imported.longest, config.check_sentences)
    try:
        parity = compare(bundle, imported.engine, text, imported.longest)
    except Difference as difference:
        raise UserError(
            f"format={config.format}: the imported model differs from the original on {text.name}, "
            f"{difference}. It was deleted."
        ) from None
    return {"compared_on": text.name, **parity.as_dict()}
