"""The end of a run: chooses the final model, scores it on held-out text and writes the model folder."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nmt import __version__
from nmt.bundle import MOST_RESULTS, load_bundle, read_config, read_results, save_bundle
from nmt.config import Average, Precision, TrainConfig
from nmt.config.storage import with_values
from nmt.data.corpora.held_out import HeldOut
from nmt.data.preparation.prepare import Prepared
from nmt.data.store import Store
from nmt.decoding.alignment import AlignmentHeads
from nmt.decoding.facts import TextFacts
from nmt.decoding.markup import StringPlacer
from nmt.decoding.torch_searcher import TorchSearcher
from nmt.decoding.translator import Translator
from nmt.errors import UserError
from nmt.evaluation.report import Report
from nmt.model import Seq2Seq, put_on
from nmt.runtime.files import parse_json, read_text, write_text
from nmt.runtime.machine import available_cores, device_name
from nmt.runtime.model_files import CONFIG, RESULTS
from nmt.runtime.streams import log, progress
from nmt.training.diagnosis import FinishedRun, diagnosis, diagnosis_text
from nmt.training.figures.monitor import records_until
from nmt.training.figures.validated import Criterion, criterion_for, criterion_sets
from nmt.training.length_penalty import tuned_length_penalty
from nmt.training.page import report_of, write_current_page, write_final_page
from nmt.training.processes.ranks import Ranks
from nmt.training.selection import Selection, final_candidates, origin, select_best, table
from nmt.training.state.checkpoint import CheckpointFolder
from nmt.training.state.progress import Progress
from nmt.training.state.run_folder import RunFolder, require_run_folder
from nmt.training.state.warm_start import initial_model, new_model, start_folder, weights_fingerprint
from nmt.training.text_evidence import text_evidence
from nmt.training.trainer import open_checkpoints
from nmt.training.update.schedule import SCHEDULES
from nmt.training.validation import SharedSearcher, Validator, translated_sets


def finish(
    config: TrainConfig, prepared: Prepared, folder: RunFolder, ranks: Ranks, start: str | None
) -> dict[str, Any]:
    """Chooses the final model of a run whose training is over, evaluates it, and writes model and results.

    All ranks call it together, and each translates a part of the texts. Rank 0 does everything else. `start`
    is the `start_fingerprint` of the run.

    Returns:
        The content of `results.json`; empty in all ranks but the first.

    Raises:
        UserError: no checkpoint can be read, or the disk is full.
    """
    checkpoints = open_checkpoints(config, prepared, folder, start)
    newest = checkpoints.newest_progress() if ranks.is_main else None
    assert newest is not None or not ranks.is_main, "training ends with a checkpoint"
    run = Progress.from_dict(ranks.share(newest and newest.as_dict()))
    model = put_on(new_model(config, prepared), ranks.device)
    # In fp32, as in nmt-translate and nmt-eval, which then compute the same scores.
    validator = Validator(model, config, prepared, ranks, final=True, names=criterion_sets(config))
    possible = final_candidates(config, checkpoints, run) if ranks.is_main else []
    selection = select_best(config, possible, checkpoints, model, validator, ranks)
    _log_selection(selection, config)
    _warn_if_one_checkpoint_was_better(config, prepared, run, selection, model, checkpoints, ranks)

    penalty, known = tuned_length_penalty(config, prepared, model, ranks, selection.best.hypotheses)
    if penalty is not None:
        config = with_values(config, {"decoding.length_penalty": penalty["chosen"]})
    alignment = ranks.share(_alignment(config, model, prepared, ranks) if ranks.is_main else None)
    heads = AlignmentHeads.from_results({"alignment": alignment})
    decoding = config.decoding.for_segments()
    searcher = SharedSearcher([model], prepared.tokenizer, decoding, ranks, heads=heads)
    results: dict[str, Any]
    results, translations = _scores(searcher, config, prepared, folder, ranks, valid=known)
    if ranks.is_main:
        results["training"] = _facts(config, run, selection, model)
        results["data"] = prepared.report
        if penalty is not None:
            results["length_penalty"] = penalty
        if alignment is not None:
            results["alignment"] = alignment
        results["diagnosis"] = _diagnosis(config, prepared, folder, run, results, translations)
    if config.start_from is not None:
        known_start = ranks.share(_results_of_start(config, start) if ranks.is_main else None)
        if known_start is not None:
            models = [initial_model(config, prepared)]
            first = AlignmentHeads.from_results(known_start)
            before = SharedSearcher(models, prepared.tokenizer, decoding, ranks, heads=first)
            results["before"], _ = _scores(before, config, prepared, folder, ranks, name="before")
        else:
            log.warning(
                "start_from=%s: the model is not there any more, or is another one, so the results have no "
                "scores of it",
                config.start_from,
            )
    if ranks.is_main:
        require_run_folder(folder.path)
        save_bundle(folder.model, config, selection.weights, prepared.tokenizer, results)
        folder.write_results(results)
        if config.training.report:
            write_final_page(config, prepared, folder, model)
        elif config.training.report_every is not None:
            write_current_page(folder)
    return results


def _diagnosis(
    config: TrainConfig,
    prepared: Prepared,
    folder: RunFolder,
    run: Progress,
    results: Mapping[str, Any],
    translations: Mapping[str, Sequence[str]],
) -> list[dict[str, str]]:
    """Returns the findings of the diagnosis."""
    schedule = SCHEDULES[config.training.schedule.name]
    flat_until = run.decays[0].begin if schedule.decays and run.decays else math.inf
    records, texts = records_until(folder, run), text_evidence(prepared, translations)
    return diagnosis(FinishedRun(folder, config, records, results, {}, texts, flat_until))


def _results_of_start(config: TrainConfig, start: str | None) -> Mapping[str, Any] | None:
    """Returns the results of the model in `start_from`, which know its heads that align words.

    None if it is not there any more, or does not have the weights with which the run has begun.
    """
    try:
        folder = start_folder(config)
        if folder is None or weights_fingerprint(folder) != start:
            return None
        return read_results(folder)
    except UserError:
        return None


_LEXICON_PAIRS = 20_000


def _alignment(
    config: TrainConfig, model: Seq2Seq, prepared: Prepared, ranks: Ranks
) -> dict[str, Any] | None:
    """Chooses the heads that align words, on the validation set; None if there is no choice."""
    if model.attention_shape is None:
        return None
    searcher = TorchSearcher([model], prepared.tokenizer, config.decoding, device=ranks.device)
    start, train, valid = time.monotonic(), prepared.train, Store.joined([*prepared.valid_stores.values()])
    sample = np.random.default_rng(1).integers(0, train.num_pairs, min(train.num_pairs, _LEXICON_PAIRS))
    choice = searcher.choose_heads(
        *(
            [(source.tolist(), target.tolist()) for source, target in zip(*sides, strict=True)]
            for sides in (valid.take(np.arange(valid.num_pairs)), train.take(sample))
        )
    )
    if choice is None:
        log.info("alignments: the validation set has too few reliable links to choose heads")
        return None
    log.info(
        "alignments: heads %s, shift %s, agree with %.1f %% of %d reliable links; all heads of the last "
        "layer with %.1f %% (%.1f seconds)",
        *([list(head) for head in choice.heads.heads], choice.heads.shift.value),
        *(100 * choice.agreement, choice.links, 100 * choice.default_agreement, time.monotonic() - start),
    )
    return choice.as_dict()


def finished_results(config: TrainConfig, folder: RunFolder) -> dict[str, Any] | None:
    """Returns the results of a run that has nothing left to do; None if it has.

    After the end of training, two things can be left to do. A changed `training.averaging` or
    `training.tune_length_penalty` requires a new final model. A metric of `evaluation.metrics` that the
    results lack must be computed.
    """
    run, results = CheckpointFolder(folder.checkpoints, {}).newest_progress(), folder.read_results()
    if run is None or results is None or not run.settled or run.ended(config.training) is None:
        return None
    training = results.get("training")
    if not isinstance(training, dict) or training.get("updates") != run.update:
        return None
    if not _is_complete(config, results, folder) or not _has_metrics(config, results):
        return None
    return results if _model_is_current(config, results, folder.model) else None


def _is_complete(config: TrainConfig, results: dict[str, Any], folder: RunFolder) -> bool:
    """Returns whether results from a file have all that is printed; if not, they are computed again."""
    try:
        results["training"]["ended"].split("=")
        results_text(config, results, folder)
    except (KeyError, TypeError, ValueError, AttributeError):
        return False
    return True


def _has_metrics(config: TrainConfig, results: dict[str, Any]) -> bool:
    """Returns whether the results have all metrics of `evaluation.metrics`."""
    wanted = set(config.evaluation.metrics)
    if all(wanted <= results[split].keys() for split in ("valid", "test") if split in results):
        return True
    log.info("evaluation.metrics has metrics that the results lack: computing them again, without training")
    return False


def _model_is_current(config: TrainConfig, results: dict[str, Any], model: Path) -> bool:
    """Returns whether the model folder has these results and the current options of the final model.

    If only `licence` differs, the folder is written again with the same weights.
    """
    try:
        saved = read_config(model / CONFIG)
        whole = bool(parse_json(read_text(model / RESULTS, MOST_RESULTS)) == results)
        for name in ("averaging", "tune_length_penalty") if whole else ():
            if getattr(saved.training, name) != getattr(config.training, name):
                log.info("training.%s has changed: choosing the final model again, without training", name)
                return False
        if whole and saved.licence != config.licence:
            log.info("licence has changed: writing the model folder again, with the same weights")
            bundle = load_bundle(model)
            licensed = replace(saved, licence=config.licence)
            save_bundle(model, licensed, bundle.model.state_dict(), bundle.tokenizer, results)
    except ValueError:
        return False  # includes `UserError`
    return whole


def results_text(config: TrainConfig, results: dict[str, Any], folder: RunFolder) -> str:
    """Returns the text that `nmt-train` prints at the end: scores, their signatures and the model's path."""
    parts = []
    for split, data in (("valid", config.data.valid), ("test", config.data.test)):
        if split in results:
            name = data.sacrebleu or f"{config.data.name} {split}"
            languages = f"{config.data.source_lang}-{config.data.target_lang}"
            title = (
                f"{name} ({len(data.sets)} set{'s' if len(data.sets) > 1 else ''})"
                if data.sets
                else f"{name} ({languages})"
            )
            before = results.get("before", {}).get(split)
            parts.append(Report.from_results(title, results[split], before).table())
    training = results["training"]
    parts.append(
        f"{training['updates']:,} updates, {training['target_tokens']:,} target tokens in "
        f"{training['minutes']:.1f} minutes ({training['target_tokens_per_second']:,.0f} a second)\n"
        f"model: {folder.model}"
    )
    if findings := results.get("diagnosis"):
        parts.append(f"\n{diagnosis_text(findings)}")
    return "\n".join(parts)


def _scores(
    searcher: SharedSearcher,
    config: TrainConfig,
    prepared: Prepared,
    folder: RunFolder,
    ranks: Ranks,
    *,
    name: str = "",
    valid: Mapping[str, Sequence[str]] | None = None,
) -> tuple[dict[str, Any], dict[str, Sequence[str]]]:
    """Returns the scores of a model on the held-out texts, split → scores, and its translations.

    The translations are by split, with the set after a dot. They are written to the run folder.

    All ranks translate. Only rank 0 scores and writes; the others return an empty result.

    `name` is that of the model in file names and on the progress bar; empty: the final model. `valid` are
    translations of validation sets that the model has made already, before the heads that align words were
    chosen.
    """
    facts = TextFacts.of(config.data, {"data": prepared.report})
    results: dict[str, Any] = {}
    translations: dict[str, Sequence[str]] = {}
    translator = Translator(searcher, prepared.tokenizer, facts=facts)
    for split, sets, known in (("test", prepared.test, None), ("valid", prepared.valid, valid)):
        hypotheses = {
            key: _placed_again(text, sets[key], translator, facts) for key, text in (known or {}).items()
        }
        if missing := {key: text for key, text in sets.items() if key not in hypotheses}:
            count, words = sum(len(text.sources) for text in missing.values()), f"translating {split} {name}"
            with progress(total=count, unit="sentences", description=words.rstrip()) as bar:
                advance = bar.update if ranks.is_main else lambda num_lines: None
                hypotheses |= translated_sets(translator, missing, advance)
        if not ranks.is_main or not sets:
            continue
        for key, text in hypotheses.items():
            translations[f"{split}.{key}" if key else split] = text
            lines = "".join(f"{line}\n" for line in text)
            write_text(folder.hypotheses(".".join(filter(None, (split, key, name)))), lines)
        reports = {key: report_of(text, hypotheses[key], config) for key, text in sets.items()}
        results[split] = Report.of_sets(split, reports).results()
    return results, translations


def _placed_again(
    translations: Sequence[str], text: HeldOut, translator: Translator, facts: TextFacts
) -> Sequence[str]:
    """Returns the translations of a set, those with strings that word links place made again."""
    kinds = StringPlacer.of_tags, StringPlacer.of_words
    placers = [kind(facts, translator.searcher, translator.tokenizer) for kind in kinds]
    rows = [row for row, line in enumerate(text.inputs) if any(placer.finds(line) for placer in placers)]
    again = translator.translate([text.inputs[row] for row in rows])
    changed = {row: one.hypotheses[0].text for row, one in zip(rows, again, strict=True)}
    return [changed.get(row, line) for row, line in enumerate(translations)]


def _log_selection(selection: Selection, config: TrainConfig) -> None:
    if len(selection.scored) > 1:
        name, sets = selection.best.criterion.name, ", ".join(criterion_sets(config))
        if sets:
            name += f" ({sets})" if config.training.criterion_set else f" (mean of {sets})"
        log.info(
            "final model: %d candidates, scored by %s on the validation set in %.1f seconds\n%s",
            *(len(selection.scored), name, selection.seconds, table(selection)),
        )
    log.info("final model: %s", origin(selection.best.candidate))


def _warn_if_one_checkpoint_was_better(
    config: TrainConfig,
    prepared: Prepared,
    run: Progress,
    selection: Selection,
    model: Seq2Seq,
    checkpoints: CheckpointFolder,
    ranks: Ranks,
) -> None:
    """Warns if the final model, of a kind other than `auto`, is worse than the best checkpoint alone."""
    options, best, delivered = config.training, run.best_of_all, selection.best
    if options.averaging.kind is Average.auto or best is None or best.quality is None:
        return
    if delivered.candidate.updates == (best.update,):
        return
    criterion = delivered.criterion
    quality, where = delivered.quality, "validation set"
    if options.validate_sentences or options.precision is not Precision.fp32:
        # Compares on the same sentences, in the same precision.
        quality, where = (
            _quality_in_training(config, prepared, model, criterion, ranks),
            "validation of training",
        )
    if best.quality > quality:
        exists = best.update in checkpoints.updates()
        log.warning(
            "the final model (%s) has %s %.*f on the %s, but the checkpoint of update %d alone had %.*f: %s",
            *(origin(delivered.candidate), criterion.name, criterion.digits, criterion.value(quality), where),
            *(best.update, criterion.digits, criterion.value(best.quality)),
            "the same command with training.averaging.kind=auto chooses the better one, without training"
            if exists
            else "its checkpoint was removed; training.averaging.kind=auto would retain it, in a new run_dir",
        )


def _quality_in_training(
    config: TrainConfig, prepared: Prepared, model: Seq2Seq, criterion: Criterion, ranks: Ranks
) -> float:
    validator = Validator(model, config, prepared, ranks, names=criterion_sets(config))
    if criterion.metric is None:
        return criterion.quality(validator.mean_loss())
    with progress(total=validator.num_sentences, unit="sentences", description="validating") as bar:
        return criterion.quality(validator.scored(criterion.metric, bar.update)[0])


def _facts(config: TrainConfig, run: Progress, selection: Selection, model: Seq2Seq) -> dict[str, Any]:
    """Returns the facts of the training; those of the machine are of its end, since it may have changed."""
    options, criterion = config.training, criterion_for(config.training.criterion)
    best, validated = None, run.best_of_all
    if validated is not None and validated.quality is not None:
        value = criterion.value(validated.quality) if math.isfinite(validated.quality) else None
        best = {"update": validated.update, criterion.key: value}
    return {
        "updates": run.update,
        "epochs": run.cursor.epoch,
        "target_tokens": run.target_tokens,
        "seconds": round(run.seconds, 3),
        "target_tokens_per_second": round(run.target_tokens / max(run.seconds, 1e-9), 1),
        "minutes": round(run.total_seconds / 60, 2),
        "ended": run.ended(options),
        "best": best,
        "averaged_updates": list(selection.best.candidate.updates),
        "delivered": selection.best.candidate.name,
        "candidates": [candidate.as_dict() for candidate in selection.scored],
        "judging_seconds": round(selection.seconds, 2),
        "skipped_updates": run.skipped_updates,
        "parameters": model.num_parameters,
        "precision": options.precision.value,
        "processes": int(options.devices),
        "device": device_name(model.output_weight.device),
        "cores": available_cores(),
        "torch": torch.__version__,
        "nmt": __version__,
    }
