"""The values that a boolean option accepts."""

from __future__ import annotations

from typing import Any

import pytest

from nmt.config import EvalConfig, TrainConfig
from nmt.config.schema import check_truth
from nmt.errors import UserError


@pytest.mark.parametrize("value", [True, False, 0, 1, "yes", "No", "ON", "off", "true", "1", "${other}"])
def test_truth_values(value: Any) -> None:
    check_truth(TrainConfig, "prepare_only", value)


@pytest.mark.parametrize("value", [2, -1, 1.0, 0.5, "y", "n", "t", "2", "", "01", "maybe"])
def test_others(value: Any) -> None:
    with pytest.raises(UserError) as caught:
        check_truth(TrainConfig, "prepare_only", value)
    assert str(caught.value) == f"prepare_only={value}: must be true or false."
    check_truth(TrainConfig, "seed", value)
    check_truth(TrainConfig, "name", value)


def test_within_a_section() -> None:
    section = {"cleaning": {"drop_leaked": 2}}
    for schema in (TrainConfig, EvalConfig):
        with pytest.raises(UserError, match=r"^data\.cleaning\.drop_leaked=2: "):
            check_truth(schema, "data", section)


@pytest.mark.parametrize("value", [None, [True], {"a": 2}])
def test_other_types_are_left_to_the_types_of_the_options(value: Any) -> None:
    check_truth(TrainConfig, "prepare_only", value)
