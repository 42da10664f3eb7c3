"""A whole run of `nmt-train`, from its options to the scored model."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from nmt.config import DataConfig, Extension, Precision, Recipe, TrainConfig
from nmt.config.checks import check_language
from nmt.config.disabled import chooses
from nmt.config.storage import from_yaml, to_yaml, with_values
from nmt.data.batches.blocks import check_reversed
from nmt.data.corpora.corpus import files_of
from nmt.data.corpora.hub import with_commits
from nmt.data.preparation.drawn import with_drawn, write_drawn
from nmt.data.preparation.given_vocabulary import check_given_symbols, has_joint_vocabulary
from nmt.data.preparation.prepare import Prepared, prepare
from nmt.data.preparation.report import paths_of_cleaned_pairs, write_cleaned_pairs, write_data_report
from nmt.decoding.processors import configured_processors
from nmt.errors import UserError
from nmt.evaluation.metrics import metric_kinds, metrics_for
from nmt.evaluation.scores import warn_of_words
from nmt.languages import country_warning
from nmt.model import check_model, check_tie, ignored_options
from nmt.model.gpu.graphs import check_capture
from nmt.runtime.files import remove, require_writable
from nmt.runtime.fp32_products import speed_up_fp32_products
from nmt.runtime.machine import (
    available_cores,
    choose_device,
    choose_precision,
    expandable_segments,
    keep_freed_memory,
    release_freed_memory,
    set_threads,
)
from nmt.runtime.plugins import naming_plugins
from nmt.runtime.streams import log, mark_line
from nmt.training.batch_size import require_room, with_fitting_batches, with_former_split
from nmt.training.figures.validated import validation_metrics
from nmt.training.finish import finish, finished_results, results_text
from nmt.training.loggers import Loggers, check_loggers, loggers_of
from nmt.training.processes.environments import launched
from nmt.training.processes.launcher import (
    launch,
    log_idle_gpus,
    num_processes,
    require_work,
    warn_of_crowded_cores,
)
from nmt.training.processes.ranks import Ranks
from nmt.training.processes.requirements import require_threads
from nmt.training.processes.stopping import Stopped, StopRequest
from nmt.training.processes.watchdog import watched
from nmt.training.rate_finder import find_rate
from nmt.training.recipe import before_preparation, with_recipe
from nmt.training.stages.plan import reports_in_words, run_stages, with_stages
from nmt.training.stages.translating import help_to_translate
from nmt.training.state.progress import TIMES, falls
from nmt.training.state.recovery import rewind_target
from nmt.training.state.run_folder import RunFolder, fixed_options
from nmt.training.state.warm_start import (
    check_frozen,
    data_to_prepare,
    log_new_pieces,
    start_fingerprint,
    start_plugins,
    with_vocabulary,
)
from nmt.training.trainer import Judge, Trainer, open_checkpoints
from nmt.training.update.objective import build_objective
from nmt.training.update.optimizer import check_optimizer
from nmt.training.update.schedule import build_schedule


@dataclass(frozen=True)
class TrainResult:
    """The result of a run.

    Attributes:
        run_dir: the folder of the run.
        model_dir: the folder of the model; None if there was no training.
        results: the content of `results.json`; if there was no training, the report of the data under `data`.
        text: the text that `nmt-train` prints: tables of the scores, or the suggested learning rate.
    """

    run_dir: Path
    model_dir: Path | None
    results: Mapping[str, Any] = field(repr=False)
    text: str = field(repr=False)


def train(config: TrainConfig, judge: Judge | None = None) -> str:
    """Calls `run`, and returns only the text to print.

    Returns:
        Tables of the scores. Empty in all processes of a launcher except the first.

    Raises:
        UserError: as `run`.
        Stopped: as `run`.
    """
    result = run(config, judge)
    return "" if result is None else result.text


def run(config: TrainConfig, judge: Judge | None = None) -> TrainResult | None:
    """Prepares the data, trains or resumes, averages, tests, and writes the model folder.

    `judge` may stop the training after a validation. A process of its own may call it.

    Returns:
        The result; None in all processes of a launcher except the first.

    Raises:
        UserError: the options, the data, the folder or the machine do not allow the run.
        Stopped: a signal arrived; the state is saved and the same command resumes.
    """
    if launched():
        if config.find_rate:
            raise UserError("find_rate=true: has one process. Start it without a launcher.")
        return _run_joined(config, judge, parent_reports=False)
    folder = RunFolder(Path(config.run_dir))
    config = with_former_split(before_preparation(config, folder), folder)
    processes = num_processes(config.training)
    require_threads(processes)
    log_idle_gpus(config.training, config.data.max_tokens)
    warn_of_crowded_cores(config.training, processes)
    alone = config.prepare_only or config.find_rate
    if alone or (processes == 1 and not config.training.max_restarts):
        return run_rank(config, Ranks.join(0, 1, 0, choose_device("auto")), judge)
    stop, restarts = StopRequest(), config.training.max_restarts
    result: TrainResult | None
    with folder.logging(later=True):  # of the failures of ranks
        work = partial(run_launched, judge=judge)
        result = launch(work, to_yaml(config), processes, stop, max_restarts=restarts)
    if result is None:
        raise Stopped(stop.signum)
    return result


def run_launched(config_text: str, judge: Judge | None = None) -> TrainResult | None:
    """Runs in each rank that `run` has started; returns None after a stop, and in all ranks but the first."""
    try:
        config = from_yaml(TrainConfig, config_text, "the options of the run")
        return _run_joined(config, judge, parent_reports=True)
    except Stopped:
        return None


def _run_joined(config: TrainConfig, judge: Judge | None, *, parent_reports: bool) -> TrainResult | None:
    """Joins the other ranks, and runs with them; all end together.

    The options of rank 0 hold. Failures are reported by rank 0, or with `parent_reports` by the parent of all
    ranks.
    """
    try:
        ranks = Ranks.from_environment(choose_device("auto"))
    except UserError as error:  # reported once a machine, as rank 0 may be the missing one
        raise (
            error if os.environ.get("LOCAL_RANK", "0") == "0" or parent_reports else SystemExit(2)
        ) from None
    if not ranks.is_main:
        log.setLevel(logging.CRITICAL)
    try:
        with watched(ranks, logs=not parent_reports):
            result = run_rank(config, ranks, judge)
            ranks.leave()
            return result
    except UserError as error:
        raise (error if ranks.is_main or parent_reports else SystemExit(2)) from None


def run_rank(config: TrainConfig, ranks: Ranks, judge: Judge | None = None) -> TrainResult | None:
    """Runs in one rank. Rank 0 does everything that is done once: it prepares the data, saves and logs.

    The options of rank 0 hold. The other ranks do the tasks that it shares, until there is none left.

    Returns:
        The result; None in all ranks but the first.

    Raises:
        UserError: as `run`.
        Stopped: as `run`.
    """
    if ranks.is_main:
        result = _run_main(config, ranks, judge)
        ranks.share(None)
        return result
    while (task := ranks.share(None)) is not None:
        config_text, *arguments = task
        config = from_yaml(TrainConfig, config_text, "the first process's options")
        set_up_machine(config, ranks.on_this_machine)
        if len(arguments) == 1:
            help_to_translate(ranks, *arguments)
        else:
            _follow(ranks, config, *arguments)
    return None


def _run_main(config: TrainConfig, ranks: Ranks, judge: Judge | None = None) -> TrainResult:
    """Runs in rank 0, with all ranks."""
    started, folder = time.perf_counter(), RunFolder(Path(config.run_dir))
    config = with_former_split(before_preparation(config, folder), folder)
    processes = num_processes(config.training) if config.find_rate else ranks.world
    config = with_choices(config, folder, processes)
    set_up_machine(config, ranks.on_this_machine)
    config, prepared = _checked_and_prepared(config, folder, ranks, started)
    if config.prepare_only:
        return _prepared_only(config, prepared, folder)
    if config.find_rate:
        text = find_rate(config, prepared, folder, ranks)
        if not folder.holds_checkpoints():
            remove(folder.held_out)  # of `from_train`
        return TrainResult(folder.path, None, {"data": prepared.report}, text)
    start = start_fingerprint(config)  # now: the training may take longer than the folder exists
    with folder.claimed(config, open_checkpoints(config, prepared, folder, start).require_same):
        write_data_report(prepared, folder.path)
        results = finished_results(config, folder) if rewind_target(config, folder) is None else None
        if results is None:
            ranks.share((to_yaml(config), prepared.fingerprint, start))
            results = _train_and_finish(config, prepared, ranks, start, started, judge)
        else:
            option, condition = results["training"]["ended"].split("=")[0], ""
            if not option.startswith("training."):  # by a request, so that any of the limits will do
                option = "training.budget" if config.training.budget else "training.max_updates"
            elif option.removeprefix("training.") in TIMES and falls(config.training):
                condition = " if it adds more time than the fall of the learning rate took"
            more = "" if option in fixed_options(config) else f"; a larger {option} resumes it{condition}"
            log.info("%s: training is done already%s", folder.path, more)
        text = "\n".join([*reports_in_words(results["data"]), results_text(config, results, folder)])
        return TrainResult(folder.path, folder.model, results, text)


def _follow(ranks: Ranks, config: TrainConfig, fingerprint: str, start: str | None) -> None:
    """Trains and finishes with rank 0, with its options.

    The data are prepared again if this machine does not share the cache of rank 0.
    """
    prepared = prepare(
        data_to_prepare(config), checked=os.environ.get("GROUP_RANK") == "0"
    )  # as rank 0, on its machine
    if prepared.fingerprint != fingerprint:
        raise UserError(
            "data.train: the prepared data differ from those of the first process. Give all machines "
            "the same files and the same versions of nmt and sentencepiece."
        )
    _train_and_finish(config, prepared, ranks, start)


def _train_and_finish(
    config: TrainConfig,
    prepared: Prepared,
    ranks: Ranks,
    start: str | None,
    started: float | None = None,
    judge: Judge | None = None,
) -> dict[str, Any]:
    """Trains to the end, and evaluates the final model; returns the results, in rank 0.

    Raises:
        Stopped: a stop was requested; the state is saved.
    """
    stop = StopRequest()
    folder = RunFolder(Path(config.run_dir))
    with closing(loggers_of(config) if ranks.is_main else Loggers()) as loggers:
        with stop.listening(_log_stopping, launched="RANK" in os.environ):
            done = Trainer(config, prepared, folder, ranks, stop, started, loggers, judge).train()
        if ranks.share(not done or stop()):
            if judge is None or stop():
                log.info("stopped; the same command resumes from here")
            loggers.close()  # before the other ranks end
            ranks.leave()
            raise Stopped(stop.signum)
        release_freed_memory()  # that training used, before the final model needs memory
        results = finish(config, prepared, folder, ranks, start)
        if ranks.is_main:
            loggers.finish(results)
        return results


def with_choices(config: TrainConfig, folder: RunFolder, processes: int) -> TrainConfig:
    """Returns the options with each `auto` resolved for this machine, and hub data sets pinned to commits.

    `data.max_tokens` and `data.tokenizer.vocab_size` depend on the data and are resolved later.
    `data.loaders` stays `auto`, because all its values give the same batches.

    Raises:
        UserError: there are more processes than micro-batches, `start_from` is not a model of this shape, or
            a hub data set can't be found.
    """
    folder.require_sound()
    require_work(config.training, config.data.max_tokens, processes)
    begun = folder.resumable_config()
    config = with_vocabulary(config, begun)
    device, precision = choose_device("auto"), config.training.precision
    if begun is not None and device.type == "cpu" and precision is Precision.auto:
        precision = begun.training.precision  # what was the faster one then
    training = replace(config.training, precision=choose_precision(precision, device), devices=str(processes))
    if training.half_residual is None:
        training = replace(training, half_residual=begun is not None and bool(begun.training.half_residual))
    data = with_commits(config.data, None if begun is None else begun.data)
    return replace(config, data=data, training=training)


def set_up_machine(config: TrainConfig, processes: int) -> None:
    """Sets memory, threads and determinism of this process, one of `processes` on this machine."""
    keep_freed_memory()
    expandable_segments()  # for callers from Python, whose process no command has set up
    set_threads(config.training.threads or max(1, available_cores() // processes))
    # In a sweep, one process does several runs: the next run may need a setting of this one switched off.
    speed_up_fp32_products(config.training.precision is Precision.fp32 and config.training.onednn_fp32)
    # Set in every run, because cuBLAS reads it only once. It is 32 MiB, the default on new GPUs.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if torch.are_deterministic_algorithms_enabled() != config.training.deterministic:  # slow import
        torch.use_deterministic_algorithms(config.training.deterministic)


def _checked_and_prepared(
    config: TrainConfig, folder: RunFolder, ranks: Ranks, started: float
) -> tuple[TrainConfig, Prepared]:
    """Checks the options, prepares the data, and resolves each `auto` that depends on the data.

    `started` is the `time.perf_counter` of the start of the session.
    """
    processes, options = ranks.on_this_machine, config.data
    given = with_drawn(options, folder.held_out)
    config = with_stages(replace(config, data=given))
    plugins, origin = folder.plugins(), f"The run in {folder.path} was started"
    if not plugins and config.start_from is not None:
        plugins, origin = start_plugins(config), f"The model in {config.start_from} was trained"
    with naming_plugins(plugins, origin):
        check_names(config)
    if not folder.holds_checkpoints():  # a run that began earlier keeps its names
        check_languages(config.data)
        check_given_symbols(config.data)
        if not (config.start_from or config.prepare_only):
            joint = has_joint_vocabulary(config.data)
            check_reversed(config.data, joint=joint)
            if not chooses(config, "model.tie"):
                check_tie(config.model, joint=joint)
    keys = [*validation_metrics(config), *config.evaluation.metrics]
    config = folder.with_choices(config)
    folder.check(config)
    rewind_target(config, folder)  # reports a wrong name before the data are prepared
    write_drawn(options, folder.held_out, again=not folder.holds_checkpoints())
    if config.cleaned_pairs is not None:
        for path in paths_of_cleaned_pairs(config.data, config.cleaned_pairs):
            require_writable(path, "cleaned_pairs")
            if path.exists() and any(path.samefile(file) for file in files_of(given)):
                raise UserError(f"cleaned_pairs: {path} is a file of the data. Give another name.")
    if not config.prepare_only:
        # Checked before the data are prepared, which may take long, and before the first validation.
        if config.training.cuda_graphs and choose_device("auto").type == "cuda":
            check_capture(config.training)
        require_room(config, processes)
        check_frozen(config)
        metrics_for(config.data.target_lang, config.evaluation, keys)
        warn_of_words("data.target_lang", config.data.target_lang, keys)
    reports = run_stages(config, given, ranks, _run_main)
    prepared = prepare(data_to_prepare(config))
    if reports:
        prepared = replace(prepared, report={**prepared.report, "stages": reports})
    config = with_values(config, {"data.tokenizer.vocab_size": prepared.vocab_size})
    if config.data.tokenizer.path is not None and config.data.tokenizer.extend is Extension.auto:
        chosen = Extension.always if prepared.is_extended else Extension.never
        config = with_values(config, {"data.tokenizer.extend": chosen})
    log_new_pieces(config, prepared)
    if not config.prepare_only:
        texts = [*prepared.valid.values(), *prepared.test.values()]
        for target_lang in dict.fromkeys(
            lang for text in texts for lang in (text.target_lang, *text.target_langs)
        ):
            metrics_for(target_lang, config.evaluation, keys)
            if target_lang != config.data.target_lang:
                warn_of_words("target_lang", target_lang, keys)
        if config.recipe is Recipe.auto:
            config = with_recipe(config, prepared, folder, time.perf_counter() - started)
            check_names(config)
        config = with_fitting_batches(config, prepared, processes)
    return config, prepared


def check_names(config: TrainConfig) -> None:
    """Checks everything that is chosen by name, and its options, before the data are prepared.

    Raises:
        UserError: a name is not registered, or its class does not accept the options.
    """
    training = config.training
    check_loggers(training.loggers)
    validation_metrics(config)
    metric_kinds(training.validate_metrics, "training.validate_metrics")
    metric_kinds(config.evaluation.metrics)
    check_model(config.model)
    if ignored := ignored_options(config.model):
        log.warning(
            "%s: has no effect with model.architecture=%s.", " ".join(ignored), config.model.architecture
        )
    configured_processors(config.decoding)
    build_objective(training).check(config.model)
    check_optimizer(training)
    schedule = build_schedule(training.schedule, config.model.d_model, training.max_updates)
    if training.budget is not None and schedule.depends_on_max_updates:
        raise UserError(
            f"training.budget={training.budget}: the learning rates of training.schedule.name="
            f"{training.schedule.name} depend on training.max_updates. Give training.schedule.name=wsd."
        )


def check_languages(data: DataConfig) -> None:
    """Checks the languages of a new run, and warns of codes of countries; see `check_language`.

    Raises:
        UserError: a language is not of the form of a code.
    """
    for key, owner in {"data": data, **data.named()}.items():
        for side in ("source_lang", "target_lang"):
            code = getattr(owner, side)
            if code is not None:
                check_language(f"{key}.{side}", code)
                if (warning := country_warning(f"{key}.{side}", code)) is not None:
                    log.warning("%s", warning)


def _prepared_only(config: TrainConfig, prepared: Prepared, folder: RunFolder) -> TrainResult:
    write_data_report(prepared, folder.path)
    pairs = f"{prepared.train.num_pairs:,} training pairs prepared"
    text = "\n".join([*reports_in_words(prepared.report), pairs])
    if config.cleaned_pairs is not None:
        write_cleaned_pairs(prepared, config.data, config.cleaned_pairs)
    return TrainResult(folder.path, None, {"data": prepared.report}, text)


def _log_stopping() -> None:
    mark_line()  # ends the line in which a terminal shows the key, such as ^C
    log.info("stopping after this update; a second Ctrl-C ends immediately, back to the last checkpoint")
