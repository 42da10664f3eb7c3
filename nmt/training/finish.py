"""The end of a run: checkpoints averaged, held-out text translated and scored, the model folder written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from nmt.bundle import load_weights, save_bundle
from nmt.config import Criterion, Precision, TrainConfig
from nmt.data.corpus import HeldOut
from nmt.data.preparation import Prepared
from nmt.decoding.translator import Translator
from nmt.errors import UserError
from nmt.evaluation.report import Report
from nmt.evaluation.scores import Scores, score, score_groups
from nmt.runtime import log, progress, replaced
from nmt.training.averaging import average, chosen
from nmt.training.beginning import new_model
from nmt.training.checkpoint import CheckpointFolder, DamagedCheckpoint
from nmt.training.progress import Progress, Saved
from nmt.training.run_folder import RunFolder
from nmt.training.trainer import open_checkpoints


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
    updates, weights = final_weights(config, checkpoints, run)
    model = new_model(config, prepared)
    load_weights(model, weights, checkpoints.folder)
    log.info("final model: %s", _origin(updates))

    # In fp32, as nmt-translate and nmt-eval do it: they will find the same scores.
    translator = Translator(
        [model], prepared.tokenizer, config.decoding, device=device, precision=Precision.fp32
    )
    results: dict[str, Any] = {}
    for split, held_out in (("test", prepared.test), ("valid", prepared.valid)):
        if held_out is not None:
            results[split] = _judge(translator, held_out, split, config.data.target_lang, folder)
    _compare(config, run, updates, results["valid"]["bleu"])
    results["training"] = _facts(config, run, updates, model.num_parameters)
    results["data"] = prepared.report
    save_bundle(folder.model, config, weights, prepared.tokenizer, results)
    folder.write_results(results)
    return results


def finished_results(config: TrainConfig, folder: RunFolder) -> dict[str, Any] | None:
    """The results of a run that has nothing left to do; None if it has."""
    run, results = CheckpointFolder(folder.checkpoints, {}).newest_progress(), folder.read_results()
    if run is None or results is None or not folder.model.is_dir() or not run.settled:
        return None
    done = results.get("training", {}).get("updates") == run.update and run.ended(config.training) is not None
    return results if done else None


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


def final_weights(
    config: TrainConfig, checkpoints: CheckpointFolder, run: Progress
) -> tuple[list[int], dict[str, Tensor]]:
    """The updates the final model is the mean of, and that mean.

    The scheduled checkpoints count, and the one the run ended with. One that can't be read is left out.

    Raises:
        UserError: none can be read.
    """
    present = set(checkpoints.updates())
    candidates = [saved for saved in run.checkpoints if saved.update in present - {run.update}]
    candidates.append(Saved(run.update, run.quality_now()))
    while candidates:
        updates = chosen(candidates, config.training.averaging)
        damaged = [update for update in updates if not _readable(checkpoints, update)]
        if not damaged:
            return updates, average(updates, checkpoints.weights)
        candidates = [saved for saved in candidates if saved.update not in damaged]
    raise UserError(f"{checkpoints.folder}: no checkpoint can be read; remove the run folder to train anew")


def _readable(checkpoints: CheckpointFolder, update: int) -> bool:
    try:
        checkpoints.weights(update)
    except DamagedCheckpoint as damage:
        log.warning("%s; the final model is made without it", damage)
        return False
    return True


def _judge(
    translator: Translator, held_out: HeldOut, split: str, target_lang: str, folder: RunFolder
) -> dict[str, Any]:
    with progress(total=len(held_out.sources), unit="sentences", description=f"translating {split}") as bar:
        translations = translator.translate(held_out.inputs, bar.update)
    hypotheses = [translation.hypotheses[0].text for translation in translations]
    with replaced(folder.hypotheses(split)) as temporary:
        temporary.write_text("".join(f"{line}\n" for line in hypotheses), encoding="utf-8", newline="\n")
    judged = score(hypotheses, held_out.references, target_lang).as_dict()
    if held_out.groups is not None:
        groups = score_groups(hypotheses, held_out.references, held_out.groups, target_lang)
        judged["groups"] = {label: scores.as_dict() for label, scores in groups.items()}
    return judged


def _compare(config: TrainConfig, run: Progress, updates: Sequence[int], bleu: float) -> None:
    """Warns when averaging did harm: it does where the checkpoints reach back to a time of fast learning."""
    options, best = config.training, run.best_of_all
    if options.criterion is not Criterion.bleu or options.validate_sentences or len(updates) < 2:
        return
    if best is not None and best.quality is not None and best.quality > bleu + 1.0:
        log.warning(
            "the final model (%s) has BLEU %.2f on the validation set, that of update %d alone had %.2f: "
            "in a new run_dir, try training.averaging.kind=none or a smaller training.checkpoint_every",
            *(_origin(updates), bleu, best.update, best.quality),
        )


def _facts(config: TrainConfig, run: Progress, updates: Sequence[int], num_parameters: int) -> dict[str, Any]:
    options = config.training
    best, found = None, run.best_of_all
    if found is not None and found.quality is not None:
        sign = 1 if options.criterion is Criterion.bleu else -1
        best = {"update": found.update, options.criterion.value: sign * found.quality}
    return {
        "updates": run.update,
        "epochs": run.cursor.epoch,
        "target_tokens": run.target_tokens,
        "seconds": round(run.seconds, 3),
        "target_tokens_per_second": round(run.target_tokens / max(run.seconds, 1e-9), 1),
        "minutes": round(run.total_seconds / 60, 2),
        "ended": run.ended(options),
        "best": best,
        "averaged_updates": list(updates),
        "skipped_updates": run.skipped_updates,
        "parameters": num_parameters,
        "precision": options.precision.value,
        "processes": int(options.devices),
    }


def _scores(values: dict[str, Any]) -> Scores:
    return Scores(**{key: value for key, value in values.items() if key != "groups"})


def _origin(updates: Sequence[int]) -> str:
    if len(updates) == 1:
        return f"the checkpoint of update {updates[0]}"
    return f"the mean of the checkpoints of updates {', '.join(map(str, updates))}"
