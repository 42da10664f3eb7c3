"""Every command that the pages show has valid options.

The options of our commands, such as `nmt-train`, are read and composed as the commands do it, without data
and without a model. Options of scripts are compared with their parsers. Nothing is run here. Other tests run
the experiments (tests/integration/test_experiments.py) and the Python examples of docs/python.md and
docs/extending.md (test_python_api.py, test_plugins.py and test_extending.py).
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from doc_commands import ELLIPSIS, Command, commands, simple_commands
from doc_pages import ROOT

from nmt.config import EvalConfig, ExportConfig, ImportConfig, ServeConfig, TrainConfig, TranslateConfig
from nmt.config.schema import text_option
from nmt.errors import UserError
from nmt.options.arguments import read_arguments
from nmt.options.compose import compose_jobs
from nmt.options.search import read_search

SCHEMAS: dict[str, type[Any]] = {
    "train": TrainConfig,
    "translate": TranslateConfig,
    "eval": EvalConfig,
    "export": ExportConfig,
    "import": ImportConfig,
    "serve": ServeConfig,
}

NEEDS_HUB = {"multi30k", "wmt14_en_de_base", "wmt14_en_de_big"}
"""Experiments that the pages train and that read the hub."""
NEEDS_GPU = {"torchrun", "sbatch", "nvidia-smi"}
"""Programs for machines with GPUs or with Slurm."""
CHOICES = ("experiment", "data")
NEEDED = ("model_dir", "hypotheses")
"""Commands that differ in the value of a choice, or in whether they have one of these, are composed apart."""
NOT_OURS = {
    *(
        "cat",
        "curl",
        "diff",
        "du",
        "head",
        "hf",
        "iconv",
        "python",
        "python3",
        "sed",
        "sha256sum",
        "source",
        "wc",
        "xxd",
    ),
    *(f"peers/{name}/bin/pip" for name in ("fairseq", "joeynmt", "eole", "marian")),
    *("pip", "comet/bin/pip", ".venv/bin/pre-commit", "nvidia-smi", "argospm", "argos-translate"),
}
"""Other programs; their options are not checked."""

ALL = list(commands())


@dataclass
class Bin:
    """Commands that are composed together, because composing takes half a second: no two contradict."""

    name: str
    overrides: dict[str, str] = field(default_factory=dict)
    members: list[tuple[Command, dict[str, str]]] = field(default_factory=list)

    def takes(self, name: str, given: dict[str, str]) -> bool:
        """Whether a command has the same choices, and no other value for an option that is not text."""
        chosen = [[one.get(key) for key in CHOICES] for one in (self.overrides, given)]
        needed = [[key in one for key in NEEDED] for one in (self.overrides, given)]
        equal = all(
            self.overrides.get(key, value) == value or text_option(SCHEMAS[name], key)
            for key, value in given.items()
        )
        return name == self.name and chosen[0] == chosen[1] and needed[0] == needed[1] and equal

    def problems(self) -> list[str]:
        """What is wrong with the commands; composes them one by one only if they fail together."""
        if valid(self.name, self.overrides) is None:
            return []
        found = ((command, valid(self.name, given)) for command, given in self.members)
        return [f"{command}: {problem}" for command, problem in found if problem is not None]


def bins() -> list[Bin]:
    """All commands of ours, those of sweeps with the first, the second and so on of their values."""
    found: list[Bin] = []
    for command in ALL:
        for words in (command.words, *wrapped(command.words)):
            ours = our_command(words)
            for given in overrides_of(*ours) if ours is not None else ():
                assert ours is not None and ours[0] in SCHEMAS, f"{command}: there is no such command"
                place = next((one for one in found if one.takes(ours[0], given)), None)
                if place is None:
                    found.append(place := Bin(ours[0]))
                place.overrides |= given
                place.members.append((command, given))
    return found


def overrides_of(name: str, words: Sequence[str]) -> list[dict[str, str]]:
    """Key → value of a command, or of some jobs of a sweep; `...` stands for whatever else it needs."""
    folders = name == "eval" and [word for word in words if word.startswith("runs/")]  # there are none here
    words = [word for word in words if not folders or word not in folders]
    arguments = read_arguments([word for word in words if word != ELLIPSIS], SCHEMAS[name])
    if folders:
        arguments = replace(arguments, overrides=(*arguments.overrides, f"runs=[{','.join(folders)}]"))
    if arguments.help or arguments.version or arguments.completion:
        return []
    if arguments.sweeper:
        search = read_search(SCHEMAS[name], arguments)
        arguments = replace(arguments, overrides=tuple(next(search.corners())), sweep=False)
    given = {key: value for key, _, value in (word.partition("=") for word in arguments.overrides)}
    if ELLIPSIS in words and name == "train" and not {"data", "experiment"} & set(given):
        given = {"data": "local", "data.source_lang": "en", "data.target_lang": "de"} | given
    if not arguments.sweep:
        return [given]
    values = {key: value.split(",") for key, value in given.items()}
    return [
        {key: value[number % len(value)] for key, value in values.items()}
        for number in range(max(map(len, values.values())))
    ]


def valid(name: str, overrides: dict[str, str]) -> str | None:
    """What is wrong with the options of a command; None if nothing is."""
    try:
        # A folder takes the place of a model on the hub, which would be downloaded.
        words = [f"{key}={value.replace('hf://', 'hub/')}" for key, value in overrides.items()]
        compose_jobs(SCHEMAS[name], name, read_arguments(words, SCHEMAS[name]))
    except UserError as error:
        return str(error)
    return None


def our_command(words: tuple[str, ...]) -> tuple[str, tuple[str, ...]] | None:
    """Which of the three commands this is, and its arguments; None if it is another program."""
    for start, word in enumerate(words):
        rest = words[start + 1 :]
        if word.startswith("nmt-"):
            return word.removeprefix("nmt-"), rest
        if word == "nmt" and words[start - 1] == "-m":
            return rest[0], rest[1:]
        if word.startswith("nmt.cli."):
            return word.removeprefix("nmt.cli."), rest
        if word == "scripts/quickstart.sh" or word == "scripts/slurm.sh":
            return "train", rest
        if word == "scripts/multi30k.sh":
            return "train", ("experiment=multi30k", *(one for one in rest[2:] if "=" in one))
    return None


def wrapped(words: Sequence[str]) -> list[tuple[str, ...]]:
    """The commands in the option --wrap of sbatch."""
    texts = [word.removeprefix("--wrap=") for word in words if word.startswith("--wrap=")]
    return [tuple(inner) for text in texts for inner in simple_commands(text)]


def test_pages_have_commands() -> None:
    assert len(ALL) > 50
    for command in ALL:
        known = our_command(command.words) or script_of(command.words) or wrapped(command.words)
        assert known or command.words[0] in NOT_OURS, f"{command}: an unknown program"


def test_options_are_valid() -> None:
    problems = [problem for one in bins() for problem in one.problems()]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("command", [one for one in ALL if "scripts/" in shlex.join(one.words)], ids=str)
def test_scripts_exist_and_know_their_options(command: Command) -> None:
    script = script_of(command.words)
    assert script is not None and (ROOT / script).is_file(), f"{command}: there is no such script"
    known = flags(ROOT / script)
    rest = command.words[command.words.index(script) + 1 :]
    for word in rest:
        if word.startswith("-"):
            assert word.partition("=")[0] in known, f"{command}: {script} does not know {word}"


def script_of(words: tuple[str, ...]) -> str | None:
    """The script that a command runs."""
    return next(
        (word for word in words if re.fullmatch(r"(scripts/[\w.]+|\.ci/run|tests/attack)", word)), None
    )


@cache
def flags(script: Path) -> frozenset[str]:
    """The flags that a script knows: those of its parser, or of its text if it is a shell script."""
    text = script.read_text(encoding="utf-8")
    if script.suffix != ".py":
        return frozenset(re.findall(r"(?<![\w-])--?[a-z][\w-]*", text))
    calls = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument"
    ]
    return frozenset(
        word.value
        for call in calls
        for word in call.args
        if isinstance(word, ast.Constant) and str(word.value).startswith("-")
    )


def test_what_needs_the_hub_or_a_gpu_is_listed() -> None:
    shown = [shlex.join(command.words) for command in ALL]
    experiments = {match for line in shown for match in re.findall(r"experiment=(\w+)", line)}
    assert experiments == NEEDS_HUB
    assert {command.words[0] for command in ALL} & {*NEEDS_GPU, "srun"} <= NEEDS_GPU


def test_a_wrong_option_is_found() -> None:
    wrong = Bin("eval", {"decoding.beam_sizes": "3"}, [(ALL[0], {"decoding.beam_sizes": "3"}), (ALL[1], {})])
    assert [problem.partition(": ")[0] for problem in wrong.problems()] == [ALL[0].where]
    assert overrides_of("train", ("-m", "seed=1,2", "model.norm=pre")) == [
        {"seed": "1", "model.norm": "pre"},
        {"seed": "2", "model.norm": "pre"},
    ]
    assert list(simple_commands("A=1 cat a.en | nmt-translate 'x=[a,b]' > b.de # c")) == [
        ["cat", "a.en"],
        ["nmt-translate", "x=[a,b]"],
    ]
