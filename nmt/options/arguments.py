"""The overrides and flags of a command line."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Arguments:
    """A parsed command line."""

    overrides: tuple[str, ...] = ()
    """`key=value`, in order."""
    help: bool = False
    version: bool = False
    show: bool = False
    """Print the finished options instead of running."""
    sweep: bool = False
    """Run once for each combination of values separated by commas."""
    config_dir: str | None = None
    """A folder of YAML files that is searched in addition to `configs/`."""
    completion: str | None = None
    """Print the completion script for this shell instead of running."""
    complete: str | None = None
    """Print the completions of this word; the completion scripts use it."""
