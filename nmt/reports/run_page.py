"""The page of a run: what `nmt-train` did, on which data, with which options, and what came out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from nmt.config import TrainConfig
from nmt.config.storage import flat_options
from nmt.data.preparation.report import FORMAT
from nmt.evaluation.analysis.signs import SIGNS
from nmt.evaluation.metrics import METRICS
from nmt.evaluation.report import Report
from nmt.evaluation.tables import Table, metric_name, shown_score
from nmt.languages import language_of
from nmt.reports.curves import figure, thinned
from nmt.reports.differences import missing, runs, words_of
from nmt.reports.evaluation import evaluation_sections
from nmt.reports.glossary import explained
from nmt.reports.page import Page, Section
from nmt.reports.run import RunRecord
from nmt.reports.summary import sentences_of, terms_of, tiles_of
from nmt.runtime.charts import histogram, short
from nmt.runtime.run_files import RunFiles

_MOST_VERSIONS = 10  # of a sample


def run_page(run: RunRecord, report: Report | None = None, attention: str | None = None) -> Page:
    """Returns the page of a run.

    `report` is an evaluation of its model, with an analysis, and `attention` a page of attention weights.
    """
    scores = run.results.get("test") or run.results.get("valid") or {}
    others = [key for key in scores.get("signatures", ()) if not report or key not in report.scores.values]
    tiles = [*(tiles_of(report) if report else ())]
    tiles += [*((shown_score(key, scores[key]), metric_name(key)) for key in others), *_tiles(run)]
    sentences = [*_state(run), *_best_loss(run), *(sentences_of(report) if report else ())]
    terms = explained(["update", "loss", "token", *(terms_of(report) if report else others)])
    content = {"sentences": sentences, "tiles": tiles, "terms": terms}
    summary = Section("summary", "In short", "summary", content)
    evaluated = [*evaluation_sections(report)] if report else []
    sections = [summary, *_first_sections(run), *evaluated, *_last_sections(run, attention)]
    languages = f"{run.config.data.source_lang}–{run.config.data.target_lang}"
    data = _figures(run) | ({"evaluation": report.as_dict()} if report else {})
    return Page(f"{run.name} ({languages})", sections, data)


def with_run(page: Page, folder: Any) -> Page:
    """Returns the page of an evaluation with the sections of a run, if `folder` is the folder of one.

    Raises:
        UserError: a file of the run is damaged.
    """
    if not isinstance(folder, str) or not RunFiles(Path(folder)).metrics.is_file():
        return page
    run = RunRecord.read(folder)
    sections = [*page.sections, *_first_sections(run), *_last_sections(run)]
    return replace(page, sections=sections, data={**page.data, "run": _figures(run)})


def _first_sections(run: RunRecord) -> Iterator[Section]:
    """Yields the sections that stand before those of an evaluation."""
    if "diagnosis" in run.results:
        meanings = {name: sign.meaning for name, sign in SIGNS.items()}
        content = {"findings": run.diagnosis, "meanings": meanings}
        yield Section("diagnosis", "Diagnosis", "diagnosis", content)
    if charts := [*_charts(run)]:
        yield Section("curves", "Learning curves", "curves", {"charts": charts})


def _last_sections(run: RunRecord, attention: str | None = None) -> Iterator[Section]:
    if samples := _samples(run):
        yield Section("samples", "Translations during training", "samples", {"samples": samples})
    if attention is not None:
        yield Section("attention", "Attention", "attention", {"page": attention})
    if run.data.get("format") == FORMAT:  # not of an earlier version
        yield Section("data", "Training data", "data", _data(run))
    if tables := [*_tables(run)]:
        yield Section("training", "Training", "tables", {"tables": tables, "sortable": False})
    yield Section("options", "Options", "options", {"rows": _options(run)})
    names = ("Train this model", "Evaluate it", "Translate with it")
    commands = [*zip(names, run.commands(), strict=True)]
    yield Section("commands", "Commands", "commands", {"commands": commands})


def _figures(run: RunRecord) -> dict[str, Any]:
    """Returns the figures of the page as plain values; curves have the points that are drawn."""
    return {
        "options": run.changed,
        "commands": run.commands(),
        "results": run.results,
        "joules": run.joules,
        "best_validation_loss": min(run.series("valid", "loss"), key=_loss, default=None),
        "curves": {kind: _curves(run, kind) for kind in ("train", "valid")},
        "data": {key: run.data[key] for key in _OF_DATA if key in run.data},
    }


def _curves(run: RunRecord, kind: str) -> dict[str, Sequence[tuple[int, float]]]:
    keys = dict.fromkeys(key for record in run.records if record["kind"] == kind for key in record)
    curves = {key: thinned(run.series(kind, key)) for key in keys if key not in ("update", "time")}
    return {key: points for key, points in curves.items() if points}


_OF_DATA = ("pairs", "kept", "vocab_size", "rules", "source", "target", "warnings", "stages")


def _state(run: RunRecord) -> Iterator[str]:
    """Yields on how much text the model was trained, how far, and the first advice of the diagnosis."""
    facts, pairs = run.training, run.data.get("kept")
    if pairs is not None and run.records:
        yield f"The model is trained on {pairs:,} pairs of sentences."
    if "ended" in facts:
        yield f"The training ended after {facts['updates']:,} updates: {facts['ended']}."
        yield from _advice(run)
        return
    if not run.records:
        yield "The training has not begun."
        return
    left = [minutes for _, minutes in run.series("train", "eta_minutes")]
    words = f", about {left[-1]:,.0f} minutes before the end of the training" if left else ""
    yield f"The run has not ended: this page is of update {run.records[-1]['update']:,}{words}."


def _advice(run: RunRecord) -> Iterator[str]:
    """Yields the first finding that names an option to change, or else the first finding."""
    for one in sorted(run.diagnosis, key=lambda one: not one["option"])[:1]:
        option = f" Change: {one['option']}." if one["option"] else ""
        more = f" The diagnosis has {len(run.diagnosis) - 1} more." if len(run.diagnosis) > 1 else ""
        yield f"{one['finding']}{option}{more}"


def _best_loss(run: RunRecord) -> Iterator[str]:
    """Yields at which update the validation loss was lowest, and how much higher the last one is."""
    losses = run.series("valid", "loss")
    if len(losses) > 1:
        (update, least), (_, last) = min(losses, key=_loss), losses[-1]
        words = f"The validation loss was lowest at update {update:,}"
        if last > least:
            yield f"{words}: {least:.3f}. The last one is {last:.3f}, {last / least - 1:.1%} higher."
        else:
            yield f"{words}, the last one: {least:.3f}."


def _loss(point: tuple[int, float]) -> float:
    return point[1]


def _tiles(run: RunRecord) -> Iterator[tuple[str, str]]:
    facts = run.training
    if "minutes" in facts:
        yield _duration(facts["minutes"]), "training, with validations"
    if "parameters" in facts:
        yield short(float(f"{facts['parameters']:.3g}")), "parameters"


def _duration(minutes: float) -> str:
    return f"{minutes:,.1f} min" if minutes < 90 else f"{minutes / 60:,.1f} h"


def _charts(run: RunRecord) -> Iterator[dict[str, Any]]:
    """Yields the title, the chart, a text and the legend of each figure."""
    losses = {"training": run.series("train", "loss"), "validation": run.series("valid", "loss")}
    scores = {metric_name(key): run.series("valid", key) for key in METRICS}
    percent = {name: points for name, points in scores.items() if any(abs(y) > 2 for _, y in points)}
    others = {name: points for name, points in scores.items() if name not in percent}
    key = run.config.training.criterion
    sets = {name: run.series("valid", f"{name}/{key}") for name in run.config.data.valid.sets}
    few = run.validated_sentences
    on = f"on the first {few:,} sentences" if few else ""
    yield from filter(None, [
        figure("Loss", "per target token, label-smoothed", losses, markers=False),
        *(figure("Scores in validation", on, part) for part in (percent, others)),
        figure(f"{metric_name(key)} of each validation set", on, dict([*sets.items()][:8])),
        *(
            figure(title, words, {title: run.series("train", key)}, markers=False)
            for title, words, key in _FIGURES
        ),
    ])  # fmt: skip


_FIGURES = (
    ("Learning rate", "", "learning_rate"),
    ("Speed", "target tokens a second, without validations", "tokens_per_second"),
    ("Gradient norm", "before clipping", "gradient_norm"),
)


def _samples(run: RunRecord) -> list[dict[str, Any]]:
    """Returns how the translations of a few sentences changed; equal ones in a row are shown once."""
    by_character = not language_of(run.config.data.target_lang).has_spaces
    found: dict[tuple[str, str, str], list[tuple[int, str]]] = {}
    for record in run.records:
        for sample in (record.get("samples") or ()) if record["kind"] == "valid" else ():
            place = tuple(sample.get(key, "") for key in ("set", "source", "reference"))
            found.setdefault(place, []).append((record["update"], sample["hypothesis"]))
    samples = []
    for (name, source, reference), texts in found.items():
        changed = [texts[0], *(now for before, now in pairwise(texts) if now[1] != before[1])]
        step = max(1, (len(changed) - 1) / (_MOST_VERSIONS - 1))
        shown = [changed[round(place * step)] for place in range(min(len(changed), _MOST_VERSIONS))]
        words = words_of(reference, by_character=by_character)
        versions = []
        for update, text in shown:
            hypothesis = words_of(text, by_character=by_character)
            versions.append((update, runs(hypothesis, {"r": missing(hypothesis, words)[0]})))
        samples.append({"set": name, "source": source, "reference": reference, "versions": versions})
    languages = {"source_lang": run.config.data.source_lang, "target_lang": run.config.data.target_lang}
    return [sample | languages for sample in samples]


def _data(run: RunRecord) -> dict[str, Any]:
    report, sides = run.data, ("source", "target")
    dropped = [
        [rule["words"], f"{count:,}", f"{count / max(report['pairs'], 1):.2%}", rule["option"]]
        for rule in report["rules"]
        for count in [rule["dropped"]]
    ]
    return {
        "report": report,
        "page": run.files.data_page.name,
        "dropped": Table(["reason", "pairs dropped", "share", "option"], dropped),
        "charts": [
            {
                "title": f"{side.capitalize()} lengths ({report[side]['lang']})",
                "words": f"pieces per sentence; mean {report[side]['mean_length']:.1f}, "
                f"maximum {report[side]['max_length']:,}",
                "chart": histogram(
                    *(report[side]["lengths"]["edges"], report[side]["lengths"]["counts"], f"s{number}"),
                    f"Number of {side} sentences by length in pieces",
                ),
                "legend": (),
            }
            for number, side in enumerate(sides, 1)
        ],
        "warnings": report["warnings"],
    }


def _tables(run: RunRecord) -> Iterator[tuple[str, Table]]:
    """Yields the facts of the training, the candidates of the final choice, the stages and the start."""
    facts = run.training
    known = [(words, pattern, facts[key]) for key, words, pattern in _FACTS if facts.get(key) is not None]
    rows = [[words, pattern.format(value)] for words, pattern, value in known]
    if (joules := run.joules) is not None:
        rows.append(["energy of the training", f"{joules / 3.6e6:.3g} kWh"])
    if rows:
        yield "Time, tokens and machine", Table(["fact", "value"], rows)
    if candidates := facts.get("candidates"):
        keys = [key for key in candidates[0] if key not in ("name", "updates")]
        yield (
            "Candidates of the final model, scored on the validation set",
            Table(
                ["candidate", *("loss" if key == "loss" else metric_name(key) for key in keys), "updates"],
                [
                    [
                        _marked(one["name"], one["name"] == facts.get("delivered")),
                        *(f"{one[key]:.4f}" if key == "loss" else shown_score(key, one[key]) for key in keys),
                        ", ".join(map(str, one["updates"])),
                    ]
                    for one in candidates
                ],
                ["→ is the delivered model."],
            ),
        )
    if penalty := run.results.get("length_penalty"):
        keys = [key for key in penalty["tried"][0] if key != "length_penalty"]
        yield (
            f"Length penalties, scored on {penalty['sentences']:,} sentences of validation",
            Table(
                ["length penalty", *map(metric_name, keys)],
                [
                    [
                        _marked(f"{one['length_penalty']:g}", one["length_penalty"] == penalty["chosen"]),
                        *(shown_score(key, one[key]) for key in keys),
                    ]
                    for one in penalty["tried"]
                ],
                [
                    "→ is the one of the delivered model.",
                    *(["Another one must be better on all sentences, too."] if "on_all" in penalty else []),
                ],
            ),
        )
    stages = run.data.get("stages") or run.results.get("data", {}).get("stages", {})
    counts = ("lines", "translations", "kept", "dropped_by_score")
    if written := {name: stage for name, stage in stages.items() if "lines" in stage}:
        yield (
            "Corpora that models wrote before the training",
            Table(
                ["stage", "lines", "translations", "retained", "dropped by score", "minutes"],
                [
                    [name, *(f"{stage[key]:,}" for key in counts), f"{stage['seconds'] / 60:.1f}"]
                    for name, stage in written.items()
                ],
            ),
        )
    for split, before in run.results.get("before", {}).items():
        keys = [*before["signatures"]]
        parts = {"the model in start_from": before, "the final model": run.results[split]}
        rows = [[name, *(shown_score(key, one[key]) for key in keys)] for name, one in parts.items()]
        yield f"Before and after, {split}", Table(["model", *map(metric_name, keys)], rows)


def _marked(text: str, delivered: bool) -> str:
    return f"→ {text}" if delivered else text


_FACTS = (
    ("ended", "end of the training", "{}"),
    ("updates", "updates", "{:,}"),
    ("epochs", "complete epochs", "{:,}"),
    ("minutes", "minutes of training, with validations and checkpoints", "{:,.2f}"),
    ("seconds", "seconds of updates", "{:,.1f}"),
    ("target_tokens", "target tokens", "{:,}"),
    ("target_tokens_per_second", "target tokens a second", "{:,.1f}"),
    ("skipped_updates", "skipped updates", "{:,}"),
    ("judging_seconds", "seconds for the choice of the final model", "{:,.2f}"),
    ("parameters", "parameters", "{:,}"),
    ("precision", "precision", "{}"),
    ("processes", "processes", "{:,}"),
    ("device", "device", "{}"),
    ("cores", "CPU cores", "{:,}"),
    ("torch", "torch", "{}"),
    ("nmt", "nmt", "{}"),
)
"""Key in `results.json`, name and format of each fact."""


def _options(run: RunRecord) -> list[tuple[str, str, str]]:
    """Returns name, value and default of each option that differs from its default, as on a command line."""
    from nmt.options.overrides import written  # imports Hydra

    def shown(key: str, value: Any) -> str:
        return "-" if value == "???" else written(TrainConfig, key, value).partition("=")[2]

    defaults = flat_options(TrainConfig())
    return [(key, shown(key, value), shown(key, defaults.get(key))) for key, value in run.changed.items()]
