"""The groups of YAML files in `configs/`, read without Hydra, which takes as long to import as `--help`."""

from __future__ import annotations

from pathlib import Path

GROUPS = {"train": ("experiment", "data", "data/cleaning", "model", "model/positions"), "eval": ("data",)}
"""The groups that the commands have: folders of `configs/`."""


def configs_folder() -> Path:
    """The folder of the YAML files: beside the package in a checkout, inside it in an installed wheel."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "configs"
    return inside if inside.is_dir() else package.parent / "configs"


def group_names(group: str) -> list[str]:
    """The names that a group of `configs/` has."""
    return sorted(path.stem for path in (configs_folder() / group).glob("*.yaml"))
