"""A stage that writes a training corpus: lines are translated in chunks, filtered, and written as text files.

The folder of a stage has `stage.json`, its options and its report; a file for each chunk of lines that is
translated; and the two text files of the corpus. Each is written under a temporary name and renamed.
"""

from __future__ import annotations

import json
import math
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from nmt.config import TrainConfig
from nmt.data.corpora.text import file_facts
from nmt.errors import UserError
from nmt.runtime.files import make_folder, parse_json, read_text, replaced, write_text
from nmt.runtime.streams import log, progress
from nmt.training.processes.ranks import Ranks
from nmt.training.stages.text import Lines
from nmt.training.stages.translating import Job, Scored, translated
from nmt.training.state.run_folder import require_same

_LINES, _LINES_OF_GPU = 1024, 16_384  # of a chunk, for each rank: what a killed process loses
_MOST_STATE, _MOST_CHUNK = 1 << 20, 1 << 30  # bytes


@dataclass(frozen=True)
class StageFolder:
    """The folder of a stage.

    Attributes:
        path: the folder; its last part is the name of the corpus.
        files: the text files of the corpus, source and target.
        translates_source: whether the lines are the sources, and not the targets.
    """

    path: Path
    files: tuple[Path, Path]
    translates_source: bool

    def report(self) -> dict[str, Any] | None:
        """Returns the report of a stage whose text files exist; None if it is not complete."""
        state = self._state()
        if state is None or not all(file.exists() for file in self.files):
            return None
        report: dict[str, Any] | None = state.get("report")
        return report

    def has_begun(self) -> bool:
        """Whether lines have been translated, or are about to be."""
        return self._state() is not None

    def require_same(self, options: Mapping[str, Any]) -> None:
        """Requires the options with which the stage has begun, if it has.

        Raises:
            UserError: some have changed; the message names them.
        """
        saved = (self._state() or {}).get("options", options)
        # An option of the data that one of two versions lacks has not changed.
        keys = [key for key in {**saved, **options} if ".decoding." in key or key in saved.keys() & options]
        note = f" Or remove {self.path}: then all lines are translated again."
        require_same(self.path, saved, options, keys, note)

    def run(
        self,
        options: Mapping[str, Any],
        keep: float,
        lines: Lines,
        job: Callable[[], Job],
        config: TrainConfig,
        ranks: Ranks,
    ) -> dict[str, Any]:
        """Translates the lines that have no translation yet, and writes the corpus; returns the report.

        Args:
            options: what the translations depend on.
            keep: fraction of the translations to retain.
            lines: all lines.
            job: returns the models, which are read only if lines are left to translate.
            config: the options of the run, for the other ranks.
            ranks: the ranks; this is rank 0.

        Raises:
            UserError: as for `translated`; a file of the stage is damaged or can't be written; no line has a
                translation.
        """
        report = self.report()
        if report is not None and report["keep"] == keep and self._files_are(report["files"]):
            return report
        make_folder(self._chunks)
        options = {**(self._state() or {"options": {}})["options"], **options}
        self._write_state({"options": options})
        done = _end(self._done())
        if done < lines.count:
            self._translate(lines, done, job(), config, ranks)
        report = {**lines.facts, "lines": lines.count, **self._write_corpus(keep)}
        self._write_state({"options": options, "report": report})
        log.info("%s: %s", self.path.name, in_words(report))
        return report

    def _translate(self, lines: Lines, done: int, job: Job, config: TrainConfig, ranks: Ranks) -> None:
        """Translates the lines from number `done`, counted from 0, to the end."""
        size = ranks.world * (_LINES_OF_GPU if ranks.device.type == "cuda" else _LINES)
        left = islice(chain.from_iterable(lines.blocks()), done, None)
        chunks = iter(lambda: list(islice(left, size)), [])
        with progress(total=lines.count, unit="lines", description=f"translating {self.path.name}") as bar:
            bar.n = bar.initial = bar.last_print_n = done
            start = time.monotonic()
            for chunk, results in translated(job, config, ranks, chunks, bar.update):
                self._write_chunk(done, chunk, results, round(time.monotonic() - start, 3))
                done, start = done + len(chunk), time.monotonic()
        assert done == lines.count, "the text has as many lines as before"

    @property
    def _chunks(self) -> Path:
        return self.path / "translations"

    def _done(self) -> list[Path]:
        """Returns the files of the chunks from the first line on, without a gap."""
        paths, end = list[Path](), 0
        for path in sorted(self._chunks.glob("*-*.jsonl")):
            if int(path.name.partition("-")[0]) == end:
                paths.append(path)
                end = _end(paths)
        return paths

    def _write_chunk(
        self, start: int, chunk: Sequence[str], results: Sequence[Scored], seconds: float
    ) -> None:
        rows = [{"seconds": seconds}, *zip(chunk, results, strict=True)]
        text = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
        write_text(self._chunks / f"{start:012d}-{start + len(chunk):012d}.jsonl", text)

    def _read_chunk(self, path: Path) -> tuple[float, list[tuple[str, Scored]]]:
        """Returns the seconds of a chunk, and its lines with their translations."""
        try:
            first, *rows = map(parse_json, read_text(path, _MOST_CHUNK).removesuffix("\n").split("\n"))
            start, stop = map(int, path.stem.split("-"))
            if len(rows) == stop - start:
                return float(first["seconds"]), [(str(line), [*map(tuple, some)]) for line, some in rows]
        except (ValueError, TypeError, KeyError) as error:
            raise UserError(
                f"{path}: is damaged ({error}). Remove it; the same command writes it again."
            ) from None
        raise UserError(
            f"{path}: is damaged: lines are missing. Remove it; the same command writes it again."
        )

    def _write_corpus(self, keep: float) -> dict[str, Any]:
        """Writes the pairs with the best scores; returns the report about all translations."""
        seconds, lines_without, scores = 0.0, 0, array("d")
        for path in self._done():
            spent, rows = self._read_chunk(path)
            seconds += spent
            lines_without += sum(not some for _, some in rows)
            scores.extend(score for _, some in rows for _, score in some)
        if not scores:
            raise UserError(f"{self.path}: no line has a translation. Check the model and the text.")
        best = np.argsort(-np.array(scores), kind="stable")[: max(1, round(keep * len(scores)))]
        retained = np.zeros(len(scores), bool)
        retained[best] = True
        is_retained = iter(retained.tolist())
        with replaced(self.files[0]) as source, replaced(self.files[1]) as target:
            with open(source, "wb") as sources, open(target, "wb") as targets:
                sides = (sources, targets) if self.translates_source else (targets, sources)
                for path in self._done():
                    for line, some in self._read_chunk(path)[1]:
                        for text, _ in some:
                            if next(is_retained):
                                for file, written in zip(sides, (line, text), strict=True):
                                    file.write(f"{written}\n".encode())
        return {
            "untranslated": lines_without,
            "translations": len(scores),
            "keep": keep,
            "kept": len(best),
            "dropped_by_score": len(scores) - len(best),
            "mean_score": round(math.fsum(scores) / len(scores), 6),
            "lowest_kept_score": round(scores[best[-1]], 6),
            "seconds": round(seconds, 1),
            "files": [*map(file_facts, self.files)],
        }

    def _files_are(self, facts: Sequence[Mapping[str, Any]]) -> bool:
        if [*map(file_facts, self.files)] == facts:
            return True
        log.warning("%s: its text files have changed, so they are written again", self.path)
        return False

    def _state(self) -> dict[str, Any] | None:
        path = self.path / "stage.json"
        if not path.exists():
            return None
        try:
            state: dict[str, Any] = parse_json(read_text(path, _MOST_STATE))
            return {"options": dict(state["options"]), "report": state.get("report")}
        except (ValueError, TypeError, KeyError) as error:
            raise UserError(f"{path}: is damaged ({error}). Remove the folder {self.path}.") from None

    def _write_state(self, state: Mapping[str, Any]) -> None:
        write_text(self.path / "stage.json", json.dumps(state, indent=1, ensure_ascii=False) + "\n")


def in_words(report: Mapping[str, Any]) -> str:
    """Returns the report of a stage as a line of text."""
    return (
        f"{report['lines']:,} lines, {report['translations']:,} translations: {report['kept']:,} retained, "
        f"{report['dropped_by_score']:,} dropped by score, in {report['seconds'] / 60:.1f} minutes"
    )


def _end(paths: Sequence[Path]) -> int:
    """Returns the number of lines up to the end of the last chunk."""
    return int(paths[-1].stem.partition("-")[2]) if paths else 0
