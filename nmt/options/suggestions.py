"""Suggests options for the option names of other toolkits, which `suggestions.yaml` lists.

A suggestion names options that the command has, and says how the meaning differs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from nmt.config import EvalConfig, ExportConfig, ImportConfig, ServeConfig, TrainConfig, TranslateConfig
from nmt.config.plain_yaml import parse_yaml
from nmt.config.schema import schema_keys


@dataclass(frozen=True)
class Word:
    """The meaning of an option name of another toolkit."""

    options: tuple[str, ...]
    """Keys, or `key=value`. A command suggests those that it has."""
    remark: str = ""
    """How the meaning differs, or the alternative. A remark that begins with "It " is about the value."""

    @property
    def differs(self) -> bool:
        """Whether a value of the other toolkit has another meaning here; the remark explains the value."""
        return self.remark.startswith("It ")


@cache
def foreign() -> dict[str, Word]:
    """Returns the meaning of each name in `suggestions.yaml`."""
    meanings = parse_yaml((Path(__file__).parent / "suggestions.yaml").read_text("utf-8"))
    return {
        name: Word(tuple(meaning.get("options", "").split()), meaning.get("remark", ""))
        for meaning in meanings
        for name in meaning["names"].split()
    }


COMMANDS = {
    "nmt-train": TrainConfig,
    "nmt-translate": TranslateConfig,
    "nmt-eval": EvalConfig,
    "nmt-export": ExportConfig,
    "nmt-import": ImportConfig,
    "nmt-serve": ServeConfig,
}


def meant(name: str, known: Collection[str]) -> str | None:
    """Returns the end of a message about an unknown option or flag; None if no other toolkit has its name.

    Args:
        name: the option, such as `optim.lr`, `--num-beams` or `-lr`.
        known: the keys of the command.
    """
    meaning = foreign().get(_plain(name))
    if meaning is None:
        return None
    if not meaning.options:
        return f". {meaning.remark}"
    options = [own for option in meaning.options if (own := _same_split(name, option)).split("=")[0] in known]
    if options:
        about = re.match(r"[\w.]+\.\w+", meaning.remark)  # the option that the remark names
        remark = "" if about and about[0] not in options else meaning.remark
        return f". Did you mean {' or '.join(options)}? {remark}".rstrip()
    commands = list(_commands(meaning.options[0]))
    return f". {' and '.join(commands)} {'has' if len(commands) == 1 else 'have'} {meaning.options[0]}."


def corrected_flag(flag: str, value: str | None, known: Collection[str]) -> str:
    """Returns the end of a message about an unknown flag such as `--lr`: the option to use instead.

    Args:
        flag: the flag, without its value.
        value: its value; None if it has none.
        known: the keys of the command.
    """
    name = _plain(flag)
    own = [key for key in known if key == flag.lstrip("-").replace("-", "_")]
    own = own or [key for key in known if key.rpartition(".")[2] == name and "*" not in key]
    meaning = foreign().get(name)
    if meaning is not None and not own[:1] == [name]:
        found = meant(flag, known) or ""
        options = [option for option in meaning.options if option.split("=")[0] in known]
        if len(options) == 1 and "=" not in options[0] and value is not None and not meaning.differs:
            return found.replace(f"{options[0]}?", f"{options[0]}={value}?")
        return found
    if len(own) == 1:
        return f". Did you mean {own[0]}={'...' if value is None else value}?"
    return f". Did you mean {' or '.join(own[:4])}?" if own else ""


def _plain(name: str) -> str:
    """Returns a name as in the table: without its sections, in lower case, with underscores."""
    last = re.sub(r"^[-+~]+", "", name).rpartition(".")[2]
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", last).lower().replace("-", "_")


def _same_split(name: str, option: str) -> str:
    """Returns the option for the split in the name: for `data.valid.src` that is `data.valid.source`."""
    split = re.search(r"\bdata\.(valid|test)\.", name)
    return option.replace("data.train.", f"data.{split[1]}.") if split else option


def _commands(option: str) -> Iterator[str]:
    for program, schema in COMMANDS.items():
        if option.split("=")[0] in schema_keys(schema):
            yield program
