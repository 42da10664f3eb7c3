"""A study of Optuna: the trials of a search, stored so that a killed search resumes, and their pruning."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from nmt.config.sweeper import PRUNERS, SAMPLERS
from nmt.errors import UserError
from nmt.options.search import Search
from nmt.runtime.seeds import mix

_PRUNED = "pruned"  # attribute of a trial: the update after which it was stopped
_COMMAND = "command"  # attribute of the study: the words of its command line


@dataclass(frozen=True)
class Study:
    """A study. Each process opens it for itself.

    A trial that was begun and has not ended stays so until the search is started again. All values that a
    trial gets are a function of the seed, its number, and the trials that ended before it.

    Attributes:
        folder: the folder of the search.
        search: what is searched, and how.
        direction: `minimize` or `maximize`.
        seed: seed of the sampler, unless its options have one.
    """

    folder: Path
    search: Search
    direction: str
    seed: int

    def check(self) -> None:
        """Checks the options of the sampler and the pruner.

        Raises:
            UserError: Optuna is not installed, or it refuses an option.
        """
        self._sampler(0)
        self._pruner()

    def begin(self, words: list[str]) -> None:
        """Creates the study, or continues it; `words` are those of the command line.

        Raises:
            UserError: the study has other words.
        """
        if self.search.options.storage is None:  # killed processes may have left them; the caller has a lock
            Path(f"{self._journal}.lock").unlink(missing_ok=True)
            if self._journal.exists():
                content = self._journal.read_bytes()
                self._journal.write_bytes(content[: content.rfind(b"\n") + 1])
        study = self._open()
        begun = study.user_attrs.get(_COMMAND, words)
        if begun != words:
            changed = " ".join(sorted({*begun} ^ {*words}))
            raise UserError(
                f"{self.folder}: has a search with other options, or without them: {changed}. Give the same "
                "options to resume it, or another run_dir."
            )
        study.set_user_attr(_COMMAND, words)

    def unfinished(self) -> list[int]:
        """Returns the numbers of the trials that were begun and have not ended."""
        return [trial.number for trial in self._trials() if not trial.state.is_finished()]

    def count(self) -> int:
        """Returns the number of trials."""
        return len(self._trials())

    def ask(self) -> int:
        """Begins a trial, and returns its number."""
        number: int = self._open().ask().number
        return number

    def values(self, number: int) -> dict[str, str]:
        """Returns the searched options of a trial and their values, as on the command line."""
        optuna, study, values = _optuna(), self._open(number), {}
        trial = optuna.trial.Trial(study, self.identity(number))
        for dimension in self.search.dimensions:
            key, ends = dimension.key, (dimension.low, dimension.high)
            if dimension.choices:
                values[key] = trial.suggest_categorical(key, list(dimension.choices))
                continue
            suggest = trial.suggest_int if dimension.whole else trial.suggest_float
            values[key] = dimension.written(suggest(key, *ends, log=dimension.log))
        return values

    def identity(self, number: int) -> int:
        """Returns Optuna's identity of a trial."""
        identity: int = self._trials()[number]._trial_id
        return identity

    def tell(self, number: int, value: float | None) -> None:
        """Ends a trial with its value; None: it was pruned."""
        state = _optuna().trial.TrialState
        self._open().tell(number, value, state=state.PRUNED if value is None else state.COMPLETE)

    def pruned(self, number: int) -> tuple[int, float] | None:
        """Returns the update and the value after which a trial was stopped; None if it was not."""
        trial = self._trials()[number]
        update = trial.user_attrs.get(_PRUNED)
        return None if update is None else (update, trial.intermediate_values[update])

    def judge(self, identity: int, update: int, value: float | None) -> bool:
        """Notes the value of a validation of a trial; returns whether the trial is to be stopped."""
        study = self._open()
        storage = study._storage
        if update not in storage.get_trial(identity).intermediate_values:
            worst = -math.inf if self.direction == "maximize" else math.inf
            known = value is not None and math.isfinite(value)
            storage.set_trial_intermediate_value(identity, update, value if known else worst)
        stops = bool(study.pruner.prune(study, storage.get_trial(identity)))
        if stops:
            storage.set_trial_user_attr(identity, _PRUNED, update)
        return stops

    @property
    def _journal(self) -> Path:
        return self.folder / "optuna.journal"

    def _trials(self) -> list[Any]:
        trials: list[Any] = self._open().get_trials(deepcopy=False)
        return trials

    def _open(self, number: int = 0) -> Any:
        """Opens the study with the sampler of a trial."""
        optuna, options = _optuna(), self.search.options
        storage: Any = options.storage
        if storage is None:
            journal = import_module("optuna.storages.journal")
            storage = optuna.storages.JournalStorage(journal.JournalFileBackend(str(self._journal)))
        return optuna.create_study(
            study_name=options.study_name,
            storage=storage,
            load_if_exists=True,
            direction=self.direction,
            sampler=self._sampler(number),
            pruner=self._pruner(),
        )

    def _sampler(self, number: int) -> Any:
        options = self.search.options.sampler
        seed = mix(int(options.get("seed", self.seed)), number) % 2**32
        return _built("sampler", SAMPLERS[self.search.sampler], {**options, "seed": seed})

    def _pruner(self) -> Any:
        return _built("pruner", PRUNERS[self.search.pruner], self.search.options.pruner)


def _built(kind: str, name: str, options: Mapping[str, Any]) -> Any:
    module = getattr(_optuna(), f"{kind}s")
    try:
        return getattr(module, name)(**options)
    except (TypeError, ValueError, ImportError) as error:
        given = " ".join(f"hydra.sweeper.{kind}.{key}={value}" for key, value in options.items())
        raise UserError(f"{given}: {name} of Optuna refuses it: {error}.") from error


def _optuna() -> Any:
    try:
        optuna = import_module("optuna")
    except ImportError as error:
        raise UserError(
            'hydra/sweeper=optuna: the package optuna is not installed. Run pip install "nmt[optuna]".'
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
