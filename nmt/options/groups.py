"""The groups of YAML files in `configs/`, read without Hydra, whose import takes as long as `--help`."""

from __future__ import annotations

from pathlib import Path

GROUPS = {"train": ("experiment", "data", "data/cleaning", "model", "model/positions"), "eval": ("data",)}
"""The groups of each command: folders of `configs/`."""


def configs_folder() -> Path:
    """Returns the folder of YAML files: next to the package in a checkout, inside it in a wheel."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "configs"
    return inside if inside.is_dir() else package.parent / "configs"


def group_names(group: str) -> list[str]:
    """Returns the names of the files in a group of `configs/`."""
    return sorted(path.stem for path in (configs_folder() / group).glob("*.yaml"))
