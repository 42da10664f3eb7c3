"""The stages of a run: the training corpora that models write, and the order in which they are written."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from math import prod
from pathlib import Path
from typing import Any, NoReturn

from nmt.bundle import read_config
from nmt.config import (
    CorpusConfig,
    DataConfig,
    DecodingConfig,
    PairsConfig,
    SyntheticConfig,
    TrainConfig,
    TrainSplitConfig,
    folders,
)
from nmt.config.storage import to_plain, with_values
from nmt.data.preparation.report import paths_of_cleaned_pairs
from nmt.errors import UserError
from nmt.languages import distance
from nmt.options.compose import changed_decoding
from nmt.runtime.files import locked, make_folder
from nmt.runtime.hub import find_model_folder
from nmt.runtime.machine import release_freed_memory
from nmt.runtime.model_files import config_file
from nmt.training.processes.ranks import Ranks
from nmt.training.stages.reverse import REVERSE, reverse_report, train_reverse
from nmt.training.stages.synthetic import StageFolder, in_words
from nmt.training.stages.text import TrainingText, monolingual_lines
from nmt.training.stages.translating import Job
from nmt.training.state.run_folder import RunFolder, fixed_options
from nmt.training.state.warm_start import weights_fingerprint

ORIGINAL, DISTILLED, BACK_TRANSLATED = "original", "distilled", "back_translated"
"""The names of a single corpus without a name, of its translations, and of the back-translated text."""

_TEXT = re.compile(
    r"data\.((source|target)_(lang|key)|max_malformed|markup|(hub|cleaning|train|valid|test)\..*(?<!weight))"
)
"""The options that change the cleaned training text."""

Train = Callable[[TrainConfig, Ranks], Any]
"""Trains a model, in rank 0; the other ranks help. The result has `results`, as `TrainResult`."""


@dataclass(frozen=True)
class Stage:
    """A training corpus of which models write one side.

    Attributes:
        name: its name.
        key: the option that names the models that translate.
        options: its options.
        corpus: the corpus whose sources are translated; None: the text of `data.monolingual.target`.
        languages: from which language into which the models translate.
    """

    name: str
    key: str
    options: SyntheticConfig
    corpus: str | None
    languages: tuple[str, str]

    def folder(self, config: TrainConfig) -> StageFolder:
        """Returns its folder, in the folder of the run."""
        path = RunFolder(Path(config.run_dir)).stages / self.name
        source, target = paths_of_cleaned_pairs(config.data, str(path / self.name))
        return StageFolder(path, (source, target), self.corpus is not None)


def stages_of(config: TrainConfig) -> list[Stage]:
    """Returns the stages of a run in their order; `config` has the corpora that the user has given."""
    data, stages = config.data, list[Stage]()
    if data.monolingual.target is not None:
        languages, key = (data.target_lang, data.source_lang), "data.monolingual.reverse"
        stages.append(Stage(BACK_TRANSLATED, key, data.monolingual, None, languages))
    if config.teacher is not None:
        for name, corpus in _given_corpora(data).items():
            twin = f"{name}_{DISTILLED}" if data.train.corpora else DISTILLED
            languages = corpus.source_lang or data.source_lang, corpus.target_lang or data.target_lang
            stages.append(Stage(twin, "teacher", config.distillation, name, languages))
    return stages


def with_stages(config: TrainConfig) -> TrainConfig:
    """Returns the options with the corpora of the stages, whose files need not exist yet.

    Raises:
        UserError: a corpus has the name or the tag of such a corpus.
    """
    stages = stages_of(config)
    if not stages:
        return config
    corpora = _given_corpora(config.data)
    for stage in stages:
        key, options = f"data.train.corpora.{stage.name}", stage.options
        if stage.name in corpora:
            raise UserError(f"{key}: is the name of the corpus that {stage.key} adds. Rename yours.")
        given = corpora[stage.corpus] if stage.corpus else CorpusConfig()
        if given.tag and options.tag:
            raise UserError(
                f"{options.options_prefix}tag={options.tag}: the sources of {stage.corpus} have the tag "
                f"{given.tag}, and a source has one tag. Remove one of them."
            )
        weights = [weight for weight in (given.weight, options.weight) if weight is not None]
        source, target = map(str, stage.folder(config).files)
        corpora[stage.name] = CorpusConfig(
            source=source,
            target=target,
            source_lang=given.source_lang,
            target_lang=given.target_lang,
            weight=prod(weights) if weights else None,
            tag=options.tag or given.tag,
            cleaning=given.cleaning,
        )
    return with_values(config, {"data.train": TrainSplitConfig(corpora=corpora)})


def run_stages(config: TrainConfig, given: DataConfig, ranks: Ranks, train: Train) -> dict[str, Any]:
    """Writes the corpora of the stages that are not complete; the other ranks help.

    Args:
        config: the options, with the corpora of the stages.
        given: the options of the data, without these corpora.
        ranks: the ranks; this is rank 0.
        train: trains a reverse model.

    Returns:
        What each stage brought: name → report. Empty without stages.

    Raises:
        UserError: a model is missing, damaged or of other languages, a text is missing or empty, options have
            changed since the stage has begun, or a file can't be written.
    """
    config = replace(config, data=given)
    stages, run = stages_of(config), RunFolder(Path(config.run_dir))
    if not stages:
        return {}
    reports = {stage.name: stage.folder(config).report() for stage in stages}
    if not run.holds_checkpoints() or None in reports.values():  # they know the contents of the files

        def taken() -> NoReturn:
            raise UserError(f"{run.path}: in use by another nmt-train. Give another run_dir.")

        make_folder(run.stages)
        with locked(run.stages / ".lock", taken), run.logging():
            text = TrainingText(given)
            for stage in stages:
                _check_models(stage, config)
            for stage in stages:
                if _trains_reverse(stage, config) and not stage.folder(config).has_begun():
                    train_reverse(config, text, ranks, train)
                reports[stage.name] = _run(stage, config, text, ranks)
                release_freed_memory()
    trained = reverse_report(run) if any(_trains_reverse(stage, config) for stage in stages) else None
    return {REVERSE: trained, **reports} if trained else reports


def reports_in_words(data: Mapping[str, Any]) -> list[str]:
    """Returns a line for each stage in the report about the data."""
    reports = dict(data.get("stages", {}))
    trained = reports.pop(REVERSE, None)
    lines = [f"{name}: {in_words(report)}" for name, report in reports.items()]
    if trained is not None:
        scores = ", ".join(f"{name} {value:.2f}" for name, value in trained["valid"].items())
        minutes = trained["seconds"] / 60
        lines.insert(0, f"{REVERSE}: {trained['updates']:,} updates in {minutes:.1f} minutes, {scores}")
    return lines


def _run(stage: Stage, config: TrainConfig, text: TrainingText, ranks: Ranks) -> dict[str, Any]:
    """Runs a stage, unless it is complete; returns its report."""
    folder, options = stage.folder(config), stage.options
    paths, reverse, tag = _models(stage, config), list[str](), None
    if stage.corpus is None:
        lines = monolingual_lines(config.data)
        facts: dict[str, Any] = {"data.monolingual.target": f"the text {lines.fingerprint}"}
    else:
        lines, tag = text.sources(stage.corpus), _given_corpora(config.data)[stage.corpus].tag
        facts = {key: value for key, value in fixed_options(config).items() if _TEXT.fullmatch(key)}
        facts["cleaned training text"] = lines.fingerprint
        reverse = folders("distillation.reverse", config.distillation.reverse)
    facts |= {f"{options.options_prefix}decoding.{key}": value for key, value in options.decoding.items()}
    for key, names in ((stage.key, paths), ("distillation.reverse", reverse)):
        try:
            found = [find_model_folder(name, key) for name in names]
        except UserError:
            if folder.report() is None:
                raise
        else:
            facts[f"{key}.sha256"] = [weights_fingerprint(one)[:16] for one in found]
    folder.require_same(facts)

    def job() -> Job:
        return Job(stage.key, paths, to_plain(_decoding(stage, config)), tag, reverse)

    return folder.run(facts, options.keep, lines, job, config, ranks)


def _check_models(stage: Stage, config: TrainConfig) -> None:
    """Checks the given models of a stage that is not complete, before hours of work.

    Raises:
        UserError: one is missing or of other languages, or can't have the options of decoding.
    """
    if stage.folder(config).report() is not None:
        return
    if not _trains_reverse(stage, config):
        for path in _models(stage, config):
            _check_languages(path, stage.key, stage.languages)
        _decoding(stage, config)
    if stage.corpus is not None:
        for path in folders("distillation.reverse", config.distillation.reverse):
            _check_languages(path, "distillation.reverse", stage.languages[::-1])


def _check_languages(path: str, key: str, languages: tuple[str, str]) -> None:
    known = read_config(config_file(find_model_folder(path, key))).data.language_pairs()
    if not any(
        all(distance(*codes) is not None for codes in zip(languages, pair, strict=True)) for pair in known
    ):
        words = ", ".join("-".join(pair) for pair in known)
        raise UserError(
            f"{key}={path}: translates {words}, and {'-'.join(languages)} is needed. Give another model."
        )


def _decoding(stage: Stage, config: TrainConfig) -> DecodingConfig:
    """Returns the options of decoding: those of the first model, with the given changes.

    Raises:
        UserError: a change is unknown or has a wrong value.
    """
    key, path = stage.options.options_prefix, _models(stage, config)[0]
    if "mbr" in stage.options.decoding:
        raise UserError(f"{key}decoding.mbr: is not available in training. Remove it.")
    decoding = read_config(config_file(find_model_folder(path, stage.key))).decoding
    try:
        return changed_decoding(decoding, stage.options.decoding) if stage.options.decoding else decoding
    except UserError as error:
        raise UserError(re.sub(r"(?<![\w.])decoding\.", f"{key}decoding.", str(error))) from error


def _models(stage: Stage, config: TrainConfig) -> list[str]:
    """Returns the folders of the models that translate."""
    if _trains_reverse(stage, config):
        return [str(RunFolder(Path(config.run_dir)).stages / REVERSE)]
    given = config.data.monolingual.reverse if stage.corpus is None else config.teacher
    return folders(stage.key, given)


def _trains_reverse(stage: Stage, config: TrainConfig) -> bool:
    return stage.corpus is None and config.data.monolingual.reverse is None


def _given_corpora(data: DataConfig) -> dict[str, CorpusConfig]:
    """Returns the training corpora by name; a single one without a name is `ORIGINAL`."""
    if data.train.corpora:
        return dict(data.train.corpora)
    values = {option.name: getattr(data.train, option.name) for option in fields(PairsConfig)}
    return {ORIGINAL: CorpusConfig(**values, tag=data.train.tag)}
