"""The page of the run, `report.html`: while training, and at its end with an analysis of the final model."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice

from nmt.config import TrainConfig
from nmt.data.corpora.held_out import HeldOut
from nmt.data.preparation.prepare import Prepared
from nmt.decoding.attention_page import MOST_BYTES, attention_page
from nmt.decoding.pairs import PairReader
from nmt.decoding.torch_searcher import TorchSearcher
from nmt.evaluation.model_data import training_counts
from nmt.evaluation.report import Report
from nmt.evaluation.task import Task
from nmt.model import Seq2Seq
from nmt.reports.run import RunRecord
from nmt.reports.run_page import run_page
from nmt.runtime.files import write_text
from nmt.runtime.streams import log
from nmt.training.state.run_folder import RunFolder

_SECONDS, _SECONDS_PER_SENTENCE = 2.0, 0.006  # of the page and its analysis, on a core of a CPU
_COUNTED, _SECONDS_PER_PAIR = 300_000, 2e-5  # the most training pairs whose words are counted, and the time
_SLOW = ("comet",)  # metrics that would translate or score again for each bin
_SHOWN = 3  # sentences with attention: the first ones, and as many of the worst ones


def write_current_page(folder: RunFolder, every: int = 1) -> None:
    """Writes the page of a run without an analysis, after every `every` validations; logs a failure."""
    with _failures_logged(folder):
        run = RunRecord.read(folder.path)
        if sum(record["kind"] == "valid" for record in run.records) % every == 0:
            _write(folder, run)


def write_final_page(config: TrainConfig, prepared: Prepared, folder: RunFolder, model: Seq2Seq) -> None:
    """Writes the page of a finished run, whose folder has everything else; a failure is only logged.

    `model` is the final one, on its device.
    """
    started = time.monotonic()
    with _failures_logged(folder):
        split, sets = ("test", prepared.test) if prepared.test else ("valid", prepared.valid)
        files = {name: folder.hypotheses(f"{split}.{name}" if name else split) for name in sets}
        hypotheses = {name: file.read_text("utf-8").split("\n")[:-1] for name, file in files.items()}
        run, counts = RunRecord.read(folder.path), None
        if prepared.train.num_pairs <= _COUNTED:
            counts = training_counts(run, [line for text in sets.values() for line in text.sources])
        reports = {
            name: report_of(text, hypotheses[name], config, analysed=True, counts=counts)
            for name, text in sets.items()
        }
        chosen = [
            (text.inputs[row], hypotheses[name][row])
            for name, text in sets.items()
            for row in _rows(reports[name])
        ]
        attention = _attention(config, prepared, model, chosen)
        _write(folder, run, Report.of_sets(split, reports), attention)
        log.info("report of the run: %s (%.1f seconds)", folder.report, time.monotonic() - started)


def seconds_of_page(config: TrainConfig, prepared: Prepared) -> float:
    """Returns the expected time of `write_final_page`."""
    sentences = sum(len(text.sources) for text in (prepared.test or prepared.valid).values())
    counted = prepared.train.num_pairs if prepared.train.num_pairs <= _COUNTED else 0
    seconds = _SECONDS + _SECONDS_PER_SENTENCE * sentences + _SECONDS_PER_PAIR * counted
    return seconds if config.training.report else 0.0


def report_of(
    text: HeldOut,
    hypotheses: Sequence[str],
    config: TrainConfig,
    *,
    analysed: bool = False,
    counts: Mapping[str, int] | None = None,
) -> Report:
    """Returns the report of the translations of a set; an analysis is without slow metrics.

    `counts` are those of `bins_of`.
    """
    options = config.evaluation
    if analysed:
        fast = [key for key in options.metrics if key not in _SLOW]
        options = replace(options, metrics=fast or ["chrf"])
    task = Task(options=options, analysed=analysed, counts_of_words=counts)
    task.add_held_out(text, text.name)
    task.texts["hypotheses"] = list(hypotheses)
    return task.report()


def _rows(report: Report) -> list[int]:
    worst = report.analysis.worst if report.analysis else ()
    first = range(min(_SHOWN, report.scores.sentences))
    return list(dict.fromkeys([*first, *(segment.row for segment in worst[:_SHOWN])]))


def _attention(
    config: TrainConfig, prepared: Prepared, model: Seq2Seq, pairs: Sequence[tuple[str, str]]
) -> str | None:
    """Returns the page of the attention in the first pairs that are short enough; None: there is none."""
    if model.attention_shape is None:
        return None
    decoding, device = config.decoding.for_segments(), model.output_weight.device
    searcher = TorchSearcher([model], prepared.tokenizer, decoding, device=device)
    reader = PairReader(searcher, prepared.tokenizer)
    return attention_page(islice(reader.attentions(pairs, MOST_BYTES // (2 * _SHOWN)), 2 * _SHOWN))


def _write(
    folder: RunFolder, run: RunRecord, report: Report | None = None, attention: str | None = None
) -> None:
    write_text(folder.report, run_page(run, report, attention).html())


@contextmanager
def _failures_logged(folder: RunFolder) -> Iterator[None]:
    """Logs any error in one line: a page must not end a run."""
    try:
        yield
    except Exception as error:
        words = " ".join(f"{error}".split()) or type(error).__name__
        log.warning("%s: the page of the run was not written: %s", folder.report, words)
