"""The commands of the prompt of `nmt-translate`: typed lines that begin with a colon, such as `:beam 8`."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from nmt.config import TranslateConfig
from nmt.config.checks import shortened
from nmt.errors import UserError


@dataclass(frozen=True)
class Settings:
    """The settings that the commands change.

    Attributes:
        config: its `scores` and `decoding`.
        prefix: each translation begins with it; may be empty.
        attention: whether to show the attention of each translation.
    """

    config: TranslateConfig
    prefix: str = ""
    attention: bool = False

    def with_decoding(self, **changes: Any) -> Settings:
        """Returns the settings with other options of decoding."""
        return replace(self, config=replace(self.config, decoding=replace(self.config.decoding, **changes)))


@dataclass(frozen=True)
class Command:
    """A command of the prompt.

    Attributes:
        usage: the command as it is typed.
        help: one line.
        apply: takes the text after the name, and the settings; returns new settings and the answer.
    """

    usage: str
    help: str
    apply: Callable[[str, Settings], tuple[Settings, str]]


def is_command(line: str) -> bool:
    """Returns whether a typed line is a command, known or not. `::text` is not."""
    return line.startswith(":") and not line.startswith("::")


def without_escape(line: str) -> str:
    """Returns the text to translate: `::text` is the text `:text`."""
    return line[1:] if line.startswith("::") else line


def respond(line: str, settings: Settings) -> tuple[Settings, str]:
    """Returns the settings after a line for which `is_command` is true, and the answer.

    Raises:
        UserError: the command is unknown or has a wrong value. The settings remain.
    """
    name, _, value = line.replace("\t", " ").partition(" ")
    command = COMMANDS.get(name.removeprefix(":"))
    if command is None:
        near = difflib.get_close_matches(name.removeprefix(":").lower(), COMMANDS, 1, 0.6)
        meant = f"Did you mean {COMMANDS[near[0]].usage}?" if near else ":help lists the commands."
        raise UserError(f"{shortened(name)}: is not a command. {meant} ::TEXT translates :TEXT.")
    value = value.strip()
    if value and " " not in command.usage:
        raise UserError(f"{name}: has no value. Type {name} alone.")
    return command.apply(value, settings)


def _nbest(value: str, settings: Settings) -> tuple[Settings, str]:
    decoding = settings.config.decoding
    if not value:
        return settings, f"decoding.nbest={decoding.nbest}"
    number = _number("nbest", value, settings.with_decoding(samples=0, nbest=1, beam_size=1000, mbr=None))
    if decoding.samples:
        raise UserError(
            f"decoding.nbest={number}: with decoding.samples={decoding.samples} all samples are returned. "
            "Leave decoding.nbest at 1."
        )
    answer, beam = f"decoding.nbest={number}", decoding.beam_size
    if number > beam:
        answer = f"{answer} decoding.beam_size={number} (raised from {beam})"
    if decoding.mbr is not None:
        answer = f"{answer} (the candidates of decoding.mbr={decoding.mbr})"
    return settings.with_decoding(nbest=number, beam_size=max(beam, number)), answer


def _beam(value: str, settings: Settings) -> tuple[Settings, str]:
    decoding = settings.config.decoding
    unused = f" (has no effect with decoding.samples={decoding.samples})" if decoding.samples else ""
    if value:
        settings = settings.with_decoding(beam_size=_number("beam_size", value, settings))
    return settings, f"decoding.beam_size={settings.config.decoding.beam_size}{unused}"


def _number(key: str, value: str, settings: Settings) -> int:
    """Reads a value for an option of decoding as on the command line, with the same errors."""
    from nmt.options.compose import changed_decoding  # imports Hydra, for which --help does not wait

    number: int = getattr(changed_decoding(settings.config.decoding, {key: value}), key)
    return number


def _prefix(value: str, settings: Settings) -> tuple[Settings, str]:
    answer = f'Each translation begins with "{value}".' if value else "Translations have no prefix."
    return replace(settings, prefix=value), answer


def _score(value: str, settings: Settings) -> tuple[Settings, str]:
    config = replace(settings.config, scores=not settings.config.scores)
    several = config.decoding.num_results > 1 and not config.scores
    always = " (several translations always have scores)" if several else ""
    return replace(settings, config=config), f"scores={str(config.scores).lower()}{always}"


def _attention(value: str, settings: Settings) -> tuple[Settings, str]:
    alignments = settings.config.alignments
    if alignments is not None:
        raise UserError(
            f":attention: is not available with alignments={alignments}. Start nmt-translate without it."
        )
    if settings.config.backend != "nmt":
        raise UserError(f":attention: backend={settings.config.backend} has none. Use backend=nmt.")
    shown = not settings.attention
    answer = "The attention of the best translation is shown." if shown else "The attention is not shown."
    return replace(settings, attention=shown), answer


def _help(value: str, settings: Settings) -> tuple[Settings, str]:
    lines = [(command.usage, command.help) for command in COMMANDS.values()]
    lines.append(("::TEXT", "translate the line :TEXT, which begins with a colon"))
    return settings, "\n".join(f"{usage:<15} {words}" for usage, words in lines)


COMMANDS = {
    "nbest": Command(":nbest N", "write the N best translations; raises the beam if it is smaller", _nbest),
    "beam": Command(":beam N", "search with N hypotheses", _beam),
    "prefix": Command(":prefix TEXT", "begin each translation with TEXT; without TEXT: no prefix", _prefix),
    "score": Command(":score", "switch the scores on or off", _score),
    "attention": Command(":attention", "switch the table of attention weights on or off", _attention),
    "help": Command(":help", "list the commands", _help),
}
"""The commands by name, in the order of `:help`."""
