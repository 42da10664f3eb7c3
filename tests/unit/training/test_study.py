"""A study of Optuna: its values depend on the seed and the trial alone, and bad trials are stopped."""

from __future__ import annotations

import math
import sys
from functools import partial
from pathlib import Path

import pytest

from nmt.config import TrainConfig
from nmt.errors import UserError
from nmt.options.arguments import read_arguments
from nmt.options.search import read_search
from nmt.training.study import Study

pytest.importorskip("optuna")
WORDS = ["model.dropout=interval(0.1,0.3)", "model.norm=pre,post", "seed=int(interval(1,9))"]


def study(folder: Path, *words: str, direction: str = "maximize") -> Study:
    arguments = read_arguments(["-m", "hydra/sweeper=optuna", *WORDS, *words], TrainConfig)
    made = Study(folder, read_search(TrainConfig, arguments), direction, seed=1)
    made.check()
    made.begin(WORDS)
    return made


def test_a_study_that_is_opened_again_continues_with_the_same_values(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    whole, rows = study(tmp_path / "a"), []
    for value in (1.0, 3.0, 2.0):
        number = whole.ask()
        rows.append(whole.values(number))
        whole.tell(number, value)
    assert rows[0].keys() == {"model.dropout", "model.norm", "seed"} and len({str(row) for row in rows}) == 3
    again = study(tmp_path / "b")
    again.tell(again.ask(), 1.0)
    number = again.ask()  # killed before it has values
    with (tmp_path / "b" / "optuna.journal").open("ab") as journal:
        journal.write(b'{"op_code": 4, "half a rec')
    (tmp_path / "b" / "optuna.journal.lock").symlink_to("gone")
    again = study(tmp_path / "b")
    assert (again.unfinished(), again.count()) == ([number], 2)
    assert again.values(number) == again.values(number) == rows[1]
    again.tell(number, 3.0)
    assert again.unfinished() == [] and again.values(again.ask()) == rows[2]


def test_a_trial_below_the_median_is_stopped(tmp_path: Path) -> None:
    found = study(tmp_path, "hydra.sweeper.pruner.n_startup_trials=1")
    for values, stops in (((5.0, 9.0), None), ((6.0, 8.0), 200), ((4.0,), 100), ((math.nan,), 100)):
        number = found.ask()
        judge = partial(found.judge, found.identity(number))
        judged = [judge(100 * place, value) for place, value in enumerate(values, 1)]
        assert judged == [False] * (len(values) - 1) + [stops is not None]
        assert [stops] == [end and end[0] for end in [found.pruned(number)]]
        found.tell(number, None if stops else values[-1])
    number = found.ask()
    judge = partial(found.judge, found.identity(number))
    assert (judge(100, 7.0), judge(100, 1.0)) == (False, False)  # a resumed run validates again
    assert judge(150, None) is False  # no other trial has this update


def test_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = study(tmp_path)
    with pytest.raises(UserError, match="has a search with other options, or without them: seed=3. Give the"):
        study(tmp_path).begin([*WORDS, "seed=3"])
    with pytest.raises(
        UserError, match=r"^hydra.sweeper.pruner.startup=3: MedianPruner of Optuna refuses it"
    ):
        study(tmp_path, "hydra.sweeper.pruner.startup=3")
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(
        UserError, match="^hydra/sweeper=optuna: the package optuna is not installed. Run pip"
    ):
        made.check()
