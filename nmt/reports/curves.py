"""Charts of curves over updates, for pages of a run and of several runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nmt.evaluation.scores import listed
from nmt.runtime.charts import lines

Points = Sequence[tuple[int, float]]

_MOST_POINTS = 500  # of a curve: a chart is 376 pixels wide


def figure(
    title: str, words: str, series: Mapping[str, Points], *, markers: bool = True
) -> dict[str, Any] | None:
    """Returns what the macro `figure` of `parts.html` shows; None: no curve has two points.

    `series` are the curves by their names in the legend, as points (update, value). Those without points are
    left out. Equal curves are drawn once, and the legend names them together.
    """
    known = {name: points for name, points in series.items() if points}
    if not any(len(points) > 1 for points in known.values()):
        return None
    equal = {name: [other for other in known if known[other] == points] for name, points in known.items()}
    places = {
        f"s{place}": thinned(points)
        for place, (name, points) in enumerate(known.items(), 1)
        if equal[name][0] == name
    }
    legend = [
        "" if names[0] != name else name if len(names) == 1 else f"{listed(names)} (equal)"
        for name, names in equal.items()
    ]
    last = ", ".join(f"{name} {points[-1][1]:.4g}" for name, points in known.items())
    return {
        "title": title,
        "words": f"{words}; by update" if words else "by update",
        "chart": lines(places, f"{title} by update; last values: {last}", markers=markers),
        "legend": legend if len(known) > 1 else (),
    }


def thinned(points: Points) -> Points:
    """Returns at most as many points as a chart can show, evenly spaced; the last one is retained."""
    step = max(1, -(-len(points) // _MOST_POINTS))
    return points[(len(points) - 1) % step :: step]
