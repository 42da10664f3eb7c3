"""The table of what models lose on changed sources."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from robustness import CHANGES, measured, table

from nmt.config import DataConfig, SetConfig, SplitConfig

LINES = ["A dog runs over the grass.", "Two small children play in the snow!", "Where is he?"]


class Copying:
    """Copies its input."""

    def __init__(self, folder: Path) -> None:
        (folder / "text").write_text("\n".join(LINES) + "\n", encoding="utf-8")
        both = SetConfig(source=str(folder / "text"), target=str(folder / "text"), tag="<2en>")
        data = DataConfig(name="x", source_lang="en", target_lang="en", valid=SplitConfig(sets={"a": both}))
        self.config, self.seen = SimpleNamespace(data=data), list[list[str]]()

    def translate(self, lines: list[str], progress: bool, **decoding: str) -> list[str]:
        assert decoding == {"case": "never"}
        self.seen.append(lines)
        return [line.removeprefix("<2en> ") for line in lines]


def test_rows_and_table(tmp_path: Path) -> None:
    model = Copying(tmp_path)
    rows = measured(model, "valid", 1, {"case": "never"})  # type: ignore[arg-type]
    plain, capitals, titles, no_end, typos = rows
    assert [row.sources for row in rows] == [*CHANGES]
    assert model.seen[0] == [f"<2en> {line}" for line in LINES]
    assert model.seen[1][0] == "<2en> A DOG RUNS OVER THE GRASS."
    assert model.seen[2][0] == "<2en> A Dog Runs Over The Grass."
    assert model.seen[3][2] == "<2en> Where is he"
    assert model.seen[4][0] == "<2en> A dog runjs oveer the grass."
    assert (plain.cased, plain.bleu, capitals.cased < 10, capitals.bleu, titles.bleu) == (
        100,
        100,
        True,
        100,
        100,
    )
    assert plain.changed == 0 and capitals.changed == titles.changed == no_end.changed == typos.changed == 1
    assert 0 < typos.bleu < no_end.bleu < 100
    text = table({"one": rows, "two": rows}).splitlines()
    assert text[0] == ("| Sources | one: BLEU | lost | chrF2 | lost | two: BLEU | lost | chrF2 | lost |")
    assert text[3] == f"| capitals {'| 100.00 | 0.00 ' * 4}|"
    assert text[-1] == "BLEU with case, sources as they are: one 100.00, two 100.00"
