"""What a command line asks for: overrides and flags."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Arguments:
    """A command line, taken apart."""

    overrides: tuple[str, ...] = ()
    """`key=value`, in order."""
    help: bool = False
    version: bool = False
    show: bool = False
    """Print the finished options instead of running."""
    sweep: bool = False
    """Run once for each combination of values that stand separated by commas."""
    config_dir: str | None = None
    """A folder with more YAML files, searched beside the ones that come with the program."""
    completion: str | None = None
    """Print the completion script of this shell instead of running."""
    complete: str | None = None
    """Print the words that this one may become; the completion script asks for it."""
