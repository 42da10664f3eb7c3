"""The command line of a search: what is searched, the options of the search, and its errors."""

from __future__ import annotations

import pytest

from nmt.config import TrainConfig
from nmt.errors import UserError
from nmt.options.arguments import read_arguments
from nmt.options.search import Dimension, Search, read_search

OPTUNA = "-m", "hydra/sweeper=optuna"


def search(*words: str) -> Search:
    return read_search(TrainConfig, read_arguments([*OPTUNA, *words], TrainConfig))


@pytest.mark.parametrize(
    ("word", "dimension"),
    [
        ("model.norm=pre,post", Dimension("model.norm", ["pre", "post"])),
        ("model.dropout=choice(0.1,0.2)", Dimension("model.dropout", ["0.1", "0.2"])),
        ("data.train.source=a.en,b.en", Dimension("data.train.source", ["a.en", "b.en"])),
        ("seed=range(1,4)", Dimension("seed", ["1", "2", "3"])),
        ("model.dropout=interval(0,0.5)", Dimension("model.dropout", low=0.0, high=0.5)),
        ("seed=interval(1,9)", Dimension("seed", low=1.0, high=9.0, whole=True)),
        ("model.dropout=int(interval(1,9))", Dimension("model.dropout", low=1, high=9, whole=True)),
        (
            "training.schedule.peak=tag(log,interval(0.001,0.01))",
            Dimension("training.schedule.peak", low=0.001, high=0.01, log=True),
        ),
    ],
)
def test_dimensions(word: str, dimension: Dimension) -> None:
    assert search("name=x", word).items == ["name=x", dimension]


def test_the_command_lines_of_trials() -> None:
    found = search("name=x", "model.norm=pre,post", "model.dropout=interval(0.1,0.3)", "seed=3")
    assert found.words({"model.norm": "post", "model.dropout": "0.25"}) == [
        *("name=x", "model.norm=post", "model.dropout=0.25", "seed=3")
    ]
    assert [words[1:3] for words in found.corners()] == [
        ["model.norm=pre", "model.dropout=0.1"],
        ["model.norm=post", "model.dropout=0.1"],
        ["model.norm=pre", "model.dropout=0.3"],
    ]
    dropout, seed = Dimension("d", low=0.1, high=0.12345), Dimension("s", low=1, high=9, whole=True)
    assert [dropout.written(value) for value in (0.1, 0.1234499, 0.123456)] == ["0.1", "0.1234", "0.12345"]
    assert seed.written(3) == "3"


def test_the_options_of_a_search() -> None:
    found = search(
        *("hydra.sweeper.n_trials=8", "hydra.sweeper.sampler.seed=3", "hydra/sweeper/sampler=random"),
        *("hydra.sweeper.storage=sqlite:///a.db", "hydra/sweeper/pruner=none", "seed=1,2"),
    )
    assert (found.sampler, found.pruner, found.options.sampler) == ("random", "none", {"seed": 3})
    assert (found.options.n_trials, found.options.storage) == (8, "sqlite:///a.db")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("seed=1", "hydra/sweeper=optuna: nothing to search. Give several values"),
        ("seed=1,2 seed=3", "seed: is given twice. Give it once, with one value."),
        ("run_dir=a,b", "run_dir: can't be searched."),
        ("hydra/sweeper=ax seed=1,2", "hydra/sweeper=ax: must be optuna."),
        ("hydra/sweeper/sampler=tp seed=1,2", "hydra/sweeper/sampler=tp: must be tpe or random or cmaes."),
        ("hydra.sweeper.n_trials=0 seed=1,2", "hydra.sweeper.n_trials=0: must be between 1 and"),
        ("hydra.sweeper.n_trials=x seed=1,2", "hydra.sweeper.n_trials=x: must be a whole number."),
        ("hydra.sweeper.n_jobs=2 seed=1,2", "hydra.sweeper.n_jobs=2: the trials are one after the other."),
        ("hydra.sweeper.direction=up seed=1,2", "hydra.sweeper.direction=up: must be minimize or maximize."),
        ("hydra.sweeper.params.seed=1 seed=1,2", "hydra.sweeper.params.seed: there is no such option."),
        ("model.dropout=interval(0.3,0.1)", "model.dropout=interval(0.3,0.1): the interval needs two finite"),
        ("model.dropout=tag(log,interval(0,1))", "model.dropout=tag(log,interval(0,1)): the interval needs"),
        (
            "hydra.sweeper.n_trails=3 seed=1,2",
            "hydra.sweeper.n_trails: not an option of hydra/sweeper=optuna. It has n_trials, n_jobs, "
            "direction, study_name, storage, max_failure_rate, sampler, pruner. Did you mean "
            "hydra.sweeper.n_trials?",
        ),
    ],
)
def test_errors(words: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        search(*words.split(" "))
    assert str(error.value).startswith(message)


@pytest.mark.parametrize("words", [["hydra/sweeper=optuna"], ["-m", "hydra.sweeper.n_trials=3"]])
def test_both_flags_are_needed(words: list[str]) -> None:
    with pytest.raises(UserError, match=r"hydra/sweeper=optuna: is a sweep|hydra/sweeper: must be optuna"):
        read_search(TrainConfig, read_arguments([*words, "seed=1,2"], TrainConfig))
