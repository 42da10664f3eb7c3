"""The tables of an analysis: scores of bins, and signs of faults."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nmt.evaluation.analysis.result import Analysis, Partition
from nmt.evaluation.analysis.segments import Calibration
from nmt.evaluation.analysis.signs import P_VALUE, SIGNS, Count
from nmt.evaluation.scores import listed
from nmt.evaluation.systems import SYSTEMS, the
from nmt.evaluation.tables import Table, metric_digits, metric_name, shown_score

_WORST = 5
_LISTED = 10  # lines of a note


def tables_of(analysis: Analysis, keys: Sequence[str]) -> Iterator[Table]:
    """Yields the tables of an analysis, with the metrics of these keys."""
    if analysis.partitions:
        rows = [row for partition in analysis.partitions.values() for row in rows_of(partition, keys)]
        has_baseline = any(partition.baseline for partition in analysis.partitions.values())
        notes = ["In brackets: the difference from the baseline."] if has_baseline else []
        yield Table(["sources", "sentences", *map(metric_name, keys)], rows, notes)
    yield signs_table(analysis)
    if analysis.calibration is not None:
        yield calibration_table(analysis.calibration)
    worst = [
        [f"  {segment.row + 1}: {segment.hypothesis}", shown_score("chrf", segment.chrf)]
        for segment in analysis.worst
    ]
    if worst:
        yield Table(["worst sentences, by line", metric_name("chrf")], worst[:_WORST])


def rows_of(partition: Partition, keys: Sequence[str]) -> Iterator[list[str]]:
    """Yields the title of a partition, then a row for each of its bins."""
    yield [partition.title]
    for label, scores in partition.scores.items():
        cells = [shown_score(key, scores.values.get(key)) for key in keys]
        if label in partition.baseline:
            for place, key in enumerate(keys):
                ours, theirs = scores.values.get(key), partition.baseline[label].values.get(key)
                if ours is not None and theirs is not None:
                    cells[place] += f" ({ours - theirs:+.{metric_digits(key)}f})"
        yield [f"  {label}", str(scores.sentences), *cells]


def shown_signs(analysis: Analysis) -> list[str]:
    """Returns the names of the signs that a translation or a reference shows."""
    counts = [analysis.signs, *filter(None, [analysis.baseline_signs])]
    return [
        name
        for name, count in analysis.signs.items()
        if count.references or any(one[name].hypotheses for one in counts)
    ]


def signs_table(analysis: Analysis, systems: Sequence[str] = SYSTEMS) -> Table:
    """Returns the table of `shown_signs`."""
    header = ["signs of faults", "sentences", systems[0], "references"]
    if analysis.baseline_signs:
        header.append(systems[1])
    rows = []
    for name in shown_signs(analysis):
        count = analysis.signs[name]
        cells = [
            _share(count.hypotheses, count) + (" *" if count.is_fault else ""),
            _share(count.references, count),
        ]
        if analysis.baseline_signs:
            cells.append(_share(analysis.baseline_signs[name].hypotheses, count))
        rows.append([f"  {SIGNS[name].words}", str(count.sentences), *cells])
    return Table(header, rows, [" ".join(words_of_faults(analysis, systems))])


def calibration_table(calibration: Calibration) -> Table:
    """Returns the table of the mean chrF of sentences with similar scores of the model."""
    rows = [
        [f"  {low:.2f} to {high:.2f}", str(number), shown_score("chrf", chrf)]
        for low, high, chrf, number in calibration.bins
    ]
    notes = []
    if calibration.correlation is not None:
        notes.append(f"Spearman's correlation, by sentence: {calibration.correlation:.2f}.")
    if low := calibration.low:
        lines = ", ".join(str(row + 1) for row in low[:_LISTED]) + (", ..." if len(low) > _LISTED else "")
        notes.append(
            f"Log-probability per token far below the others', as of hallucinations: {len(low)} "
            f"sentence{'s' if len(low) > 1 else ''}, line{'s' if len(low) > 1 else ''} {lines}."
        )
    return Table(["score of the model", "sentences", metric_name("chrf")], rows, notes)


def _share(number: int, count: Count) -> str:
    return f"{number} ({number / count.sentences:.1%})"


def words_of_faults(analysis: Analysis, systems: Sequence[str] = SYSTEMS) -> Iterator[str]:
    """Yields which faults were found, with a star for the table if there are some.

    Then come the signs that too few sentences have for a test, and how often the baseline has the faults.
    """
    if analysis.faults:
        found = listed([SIGNS[name].words for name in analysis.faults])
        than = f"* More frequent in {the(systems[0])} than in the references"
        yield f"{than}: {found} (sign test, p < {P_VALUE})."
    else:
        yield f"No sign of faults is significantly more frequent than in the references (p < {P_VALUE})."
    counts = {name: analysis.signs[name] for name in analysis.undecided}
    few = [f"{SIGNS[name].words} ({one.hypotheses} of {one.sentences})" for name, one in counts.items()]
    if few:
        yield f"Too few sentences to tell: {listed(few)}."
    if compared := [*_compared(analysis)]:
        yield f"Compared with {the(systems[1])}: {'; '.join(compared)}."


def _compared(analysis: Analysis) -> Iterator[str]:
    """Yields how the faults of each system differ from the other's."""
    for name, theirs in analysis.baseline_signs.items():
        ours = analysis.signs[name]
        is_different = ours.against(theirs) < P_VALUE
        if not (is_different or ours.is_fault or theirs.is_fault):
            continue
        change = ours.hypotheses - theirs.hypotheses
        words = "as often" if not change else "more often" if change > 0 else "less often"
        if change and not is_different:
            words = f"not significantly {words}"
        yield f"{SIGNS[name].words} {words} ({ours.hypotheses} and {theirs.hypotheses} of {ours.sentences})"
