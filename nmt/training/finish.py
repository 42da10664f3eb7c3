"""The end of a run: the final model chosen, held-out text translated and scored, the model folder written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from nmt.bundle import CONFIG, MOST_RESULTS, RESULTS, read_config, save_bundle
from nmt.config import Average, Precision, TrainConfig
from nmt.data.corpora.corpus import HeldOut
from nmt.data.preparation.prepare import Prepared
from nmt.decoding.translator import Translator
from nmt.evaluation.metrics import metrics_for
from nmt.evaluation.report import Report
from nmt.evaluation.scores import Scores, score, score_groups
from nmt.model import Seq2Seq
from nmt.runtime import log, parse_json, progress, read_text, replaced
from nmt.training.criterion import Criterion, criterion_for
from nmt.training.selection import Selection, final_candidates, origin, select_best, table
from nmt.training.state.checkpoint import CheckpointFolder
from nmt.training.state.progress import Progress
from nmt.training.state.run_folder import RunFolder
from nmt.training.state.warm_start import new_model
from nmt.training.trainer import open_checkpoints
from nmt.training.validation import validator_for


def finish(
    config: TrainConfig, prepared: Prepared, folder: RunFolder, device: torch.device
) -> dict[str, Any]:
    """Makes the final model of a run whose training is over, judges it, and writes what the run is for.

    Returns:
        What `results.json` holds.

    Raises:
        UserError: no checkpoint can be read, or the disk is full.
    """
    checkpoints = open_checkpoints(config, prepared, folder)
    run = checkpoints.newest_progress()
    assert run is not None, "training ends with a checkpoint"
    model = new_model(config, prepared).to(device)
    # In fp32, as nmt-translate and nmt-eval do it: they will find the same scores.
    validator = validator_for(model, config, prepared, device, final=True)
    selection = select_best(config, final_candidates(config, checkpoints, run), checkpoints, model, validator)
    _tell(config, selection)
    _compare(config, prepared, run, selection, model, checkpoints)

    translator = Translator(
        [model], prepared.tokenizer, config.decoding, device=device, precision=Precision.fp32
    )
    results: dict[str, Any] = {}
    for split, held_out in (("test", prepared.test), ("valid", prepared.valid)):
        if held_out is not None:
            known = selection.best.hypotheses if split == "valid" else None
            results[split] = _scored(translator, held_out, split, config, folder, known)
    results["training"] = _facts(config, run, selection, model.num_parameters)
    results["data"] = prepared.report
    folder.require_present()
    save_bundle(folder.model, config, selection.weights, prepared.tokenizer, results)
    folder.write_results(results)
    return results


def finished_results(config: TrainConfig, folder: RunFolder) -> dict[str, Any] | None:
    """The results of a run that has nothing left to do; None if it has.

    A run that is over has something left to do if `training.averaging` has changed since: its final model; or
    if `evaluation.metrics` has a metric that the results lack.
    """
    run, results = CheckpointFolder(folder.checkpoints, {}).newest_progress(), folder.read_results()
    if run is None or results is None or not run.settled or run.ended(config.training) is None:
        return None
    training = results.get("training")
    if not isinstance(training, dict) or training.get("updates") != run.update:
        return None
    if not _can_be_told(config, results, folder) or not _has_metrics(config, results):
        return None
    return results if _made_as_wanted(config, results, folder.model) else None


def _can_be_told(config: TrainConfig, results: dict[str, Any], folder: RunFolder) -> bool:
    """Whether the results of a file have all that is printed of them; otherwise they are made again."""
    try:
        results["training"]["ended"].split("=")
        results_text(config, results, folder)
    except (KeyError, TypeError, ValueError, AttributeError):
        return False
    return True


def _has_metrics(config: TrainConfig, results: dict[str, Any]) -> bool:
    """Whether the results have all metrics of `evaluation.metrics`."""
    wanted = set(config.evaluation.metrics)
    if all(wanted <= results[split].keys() for split in ("valid", "test") if split in results):
        return True
    log.info("evaluation.metrics has more metrics than the results: they are made anew, without training")
    return False


def _made_as_wanted(config: TrainConfig, results: dict[str, Any], model: Path) -> bool:
    """Whether the model folder is the one that the results are of, made as `training.averaging` says."""
    try:
        there = read_config(model / CONFIG).training.averaging
        whole = parse_json(read_text(model / RESULTS, MOST_RESULTS)) == results
    except ValueError:
        return False  # `UserError` is one of them
    if whole and there != config.training.averaging:
        log.info("training.averaging has changed: the final model is made anew, without training")
    return whole and there == config.training.averaging


def results_text(config: TrainConfig, results: dict[str, Any], folder: RunFolder) -> str:
    """What `nmt-train` prints at the end: the scores with their signatures, and where the model is."""
    parts = []
    for split, data in (("valid", config.data.valid), ("test", config.data.test)):
        if split in results:
            name = data.sacrebleu or f"{config.data.name} {split}"
            title = f"{name} ({config.data.source_lang}-{config.data.target_lang})"
            groups = {label: _scores(values) for label, values in results[split].get("groups", {}).items()}
            parts.append(Report(title, _scores(results[split]), groups).table())
    training = results["training"]
    parts.append(
        f"{training['updates']:,} updates, {training['target_tokens']:,} target tokens in "
        f"{training['minutes']:.1f} minutes ({training['target_tokens_per_second']:,.0f} a second)\n"
        f"model: {folder.model}"
    )
    return "\n".join(parts)


def _scored(
    translator: Translator,
    held_out: HeldOut,
    split: str,
    config: TrainConfig,
    folder: RunFolder,
    known: Sequence[str] | None,
) -> dict[str, Any]:
    """The scores of the final model's translations, which are `known` or made now, and written."""
    hypotheses = known
    if hypotheses is None:
        with progress(
            total=len(held_out.sources), unit="sentences", description=f"translating {split}"
        ) as bar:
            translations = translator.translate(held_out.inputs, bar.update)
        hypotheses = [translation.hypotheses[0].text for translation in translations]
    with replaced(folder.hypotheses(split)) as temporary:
        temporary.write_text("".join(f"{line}\n" for line in hypotheses), encoding="utf-8", newline="\n")
    metrics, sources = metrics_for(config.data.target_lang, config.evaluation), held_out.sources
    scored = score(hypotheses, held_out.references, metrics, sources=sources).as_dict()
    if held_out.groups is not None:
        groups = score_groups(hypotheses, held_out.references, held_out.groups, metrics, sources=sources)
        scored["groups"] = {label: scores.as_dict() for label, scores in groups.items()}
    return scored


def _tell(config: TrainConfig, selection: Selection) -> None:
    if len(selection.scored) > 1:
        log.info(
            "final model: %d candidates, judged by %s on the validation set in %.1f seconds\n%s",
            *(len(selection.scored), selection.best.criterion.name, selection.seconds),
            table(selection),
        )
    log.info("final model: %s", origin(selection.best.candidate))


def _compare(
    config: TrainConfig,
    prepared: Prepared,
    run: Progress,
    selection: Selection,
    model: Seq2Seq,
    checkpoints: CheckpointFolder,
) -> None:
    """Warns when a kind other than `auto` has delivered less than one checkpoint had alone."""
    options, best, delivered = config.training, run.best_of_all, selection.best
    if options.averaging.kind is Average.auto or best is None or best.quality is None:
        return
    if delivered.candidate.updates == (best.update,):
        return
    criterion = delivered.criterion
    quality, where = delivered.quality, "validation set"
    if options.validate_sentences or options.precision is not Precision.fp32:
        # Like with like: the same sentences, in the same precision.
        quality, where = _quality_in_training(config, prepared, model, criterion), "validation of training"
    if best.quality > quality:
        there = best.update in checkpoints.updates()
        log.warning(
            "the final model (%s) has %s %.*f on the %s, that of update %d alone had %.*f: %s",
            *(origin(delivered.candidate), criterion.name, criterion.digits, criterion.value(quality), where),
            *(best.update, criterion.digits, criterion.value(best.quality)),
            "the same command with training.averaging.kind=auto chooses the best of both, without training"
            if there
            else "its checkpoint is not there; in a new run_dir, training.averaging.kind=auto retains it",
        )


def _quality_in_training(
    config: TrainConfig, prepared: Prepared, model: Seq2Seq, criterion: Criterion
) -> float:
    validator = validator_for(model, config, prepared, next(model.parameters()).device)
    if criterion.metric is None:
        return criterion.quality(validator.losses()[0])
    with progress(total=validator.num_sentences, unit="sentences", description="validating") as bar:
        return criterion.quality(validator.score(criterion.metric, validator.hypotheses(bar.update)))


def _facts(config: TrainConfig, run: Progress, selection: Selection, num_parameters: int) -> dict[str, Any]:
    options, criterion = config.training, criterion_for(config.training.criterion)
    best, found = None, run.best_of_all
    if found is not None and found.quality is not None:
        best = {"update": found.update, criterion.key: criterion.value(found.quality)}
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
        "parameters": num_parameters,
        "precision": options.precision.value,
        "processes": int(options.devices),
    }


def _scores(values: dict[str, Any]) -> Scores:
    return Scores.from_dict({key: value for key, value in values.items() if key != "groups"})
