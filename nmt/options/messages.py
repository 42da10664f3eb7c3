"""Messages about options: errors of Hydra and OmegaConf that begin with the key, and suggestions.

`suggestions.yaml` has the option names of other toolkits. A suggestion names options that the command has,
and says how the meaning differs.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf.errors import OmegaConfBaseException

from nmt.config import SCHEMAS
from nmt.config.checks import shortened
from nmt.config.plain_yaml import parse_yaml
from nmt.config.schema import schema_keys
from nmt.config.training import NO_AVERAGE_OF_MODELS

if TYPE_CHECKING:
    from hydra.errors import MissingConfigException

_KINDS = {"Integer": "a whole number", "Float": "a number", "Boolean": "true or false"}
"""OmegaConf's names of types, in words."""


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


def missing_config(error: MissingConfigException, overrides: Sequence[str]) -> str:
    """Returns the message for a group, or a file of a group, that does not exist."""
    group, _, name = (error.missing_cfg_file or "").rpartition("/")
    options = sorted(option for option in (error.options or []) if not option.endswith("_schema"))
    asked = f"{group}={name}" if group else name
    hint = did_you_mean(name, options, prefix=f"{group}=")
    if not options:
        return f"{next((o for o in overrides if o.startswith(asked)), asked)}: there is no group {group}."
    return f"{asked}: there is no such {group}{hint} The names are {', '.join(options)}."


def explained(known: Sequence[str], error: Exception) -> str:
    """Returns the message for an error of Hydra or OmegaConf; `known` are the keys to suggest."""
    cause = error.__cause__ if isinstance(error.__cause__, OmegaConfBaseException) else error
    text = f"{error}\n{cause}"
    unknown = re.search(r"(?:Could not override|Could not append to config[^']*) '([^']+)'", text)
    key = getattr(cause, "full_key", None) or (unknown.group(1) if unknown else "")
    if re.search(r"[Kk]ey '.*' (is )?not in|No match in the defaults list|Could not append", text):
        return f"{key}: there is no such option{did_you_mean(key, known)}"
    if key == "training.averaging":
        return f"{key}: {wrong_value(cause)} {NO_AVERAGE_OF_MODELS}"
    return f"{key}: {wrong_value(cause)}" if key else first_line(error)


def wrong_value(error: Exception) -> str:
    """Returns the problem that OmegaConf reports for the value of an option."""
    words = first_line(error)
    if re.search(r"^Cannot (merge|assign)|is not a subclass of|incompatible with type hint 'dict", words):
        return "is a section or a list. Give its options one by one."
    if value := re.match(
        r"Value '(.*)' of type '.*' could not be converted to (Integer|Float|Boolean)", words
    ):
        return f"must be {_KINDS[value[2]]}, not {shortened(value[1])}."
    if "is not a ListConfig" in words:
        return "must be a list. Write it in brackets: [a,b]."
    return shortened(f"{words[0].lower()}{words[1:]}", 300)


def did_you_mean(name: str, known: Sequence[str], prefix: str = "") -> str:
    """Returns the end of a message about an unknown name: the most similar known name, or `--help`."""
    close = "." in name and difflib.get_close_matches(name, known, 1, 0.9)
    other = None if prefix or close else meant(name, known)
    if other is not None:
        return other
    last = {key.rpartition(".")[2]: key for key in reversed(known)}
    near = difflib.get_close_matches(name, known, 1, 0.75) or [
        last[key] for key in difflib.get_close_matches(name.rpartition(".")[2], list(last), 1, 0.75)
    ]
    return f". Did you mean {prefix}{_with_names(near[0], name)}?" if near else ". --help lists all."


def _with_names(key: str, given: str) -> str:
    """Returns a key of `schema_keys` with the free names of `given` in place of `*`."""
    names = [*given.split("."), *["NAME"] * key.count(".")]
    return ".".join(name if part == "*" else part for part, name in zip(key.split("."), names, strict=False))


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's message, or its type if the message is empty."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def meant(name: str, known: Collection[str]) -> str | None:
    """Returns the end of a message about an unknown option or flag; None if no other toolkit has its name.

    The option is such as `optim.lr`, `--num-beams` or `-lr`; `known` are the keys of the command.
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
    option = meaning.options[0].split("=")[0]
    commands = [program for program, schema in SCHEMAS.items() if option in schema_keys(schema)]
    return f". {' and '.join(commands)} {'has' if len(commands) == 1 else 'have'} {meaning.options[0]}."


def corrected_flag(flag: str, value: str | None, known: Collection[str]) -> str:
    """Returns the end of a message about an unknown flag such as `--lr`: the option to use instead.

    `flag` is without its value, which is None if it has none; `known` are the keys of the command.
    """
    name = _plain(flag)
    own = [key for key in known if key == flag.lstrip("-").replace("-", "_")]
    own = own or [key for key in known if key.rpartition(".")[2] == name and "*" not in key]
    meaning = foreign().get(name)
    if meaning is not None and not own[:1] == [name]:
        end = meant(flag, known) or ""
        options = [option for option in meaning.options if option.split("=")[0] in known]
        if len(options) == 1 and "=" not in options[0] and value is not None and not meaning.differs:
            return end.replace(f"{options[0]}?", f"{options[0]}={value}?")
        return end
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
