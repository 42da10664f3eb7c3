"""The experiments of the paper resolve to what `paper_experiments.yaml` says, option by option.

A new option needs a line there, with the value that leaves the paper's training as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nmt.config import TrainConfig
from nmt.config.plain_yaml import parse_yaml
from nmt.config.storage import to_plain
from nmt.options.arguments import Arguments, configs_folder
from nmt.options.compose import compose_jobs

SYSTEMS = parse_yaml(Path(__file__).with_name("paper_experiments.yaml").read_text("utf-8"))


def flat(section: Any, prefix: str = "") -> dict[str, Any]:
    """Returns full name of an option → value."""
    if not isinstance(section, Mapping) or not section:
        return {prefix: section}
    parts = [flat(value, f"{prefix}.{name}" if prefix else name) for name, value in section.items()]
    return {key: value for part in parts for key, value in part.items()}


@pytest.mark.parametrize("name", sorted(path.stem for path in configs_folder().glob("experiment/wmt14_*")))
def test_no_option_changes(name: str) -> None:
    (config,) = compose_jobs(TrainConfig, "train", Arguments((f"experiment={name}",)))
    expected = {**flat(SYSTEMS["wmt14_en_de_base"]), **SYSTEMS["differences"][name]}
    assert flat(to_plain(config)) == expected
