"""Which weights `training.freeze` selects, in every architecture, and its errors."""

from __future__ import annotations

import pytest
from torch import Tensor, nn

from nmt.config import ModelConfig, Norm, PositionsConfig, Tie, TrainConfig, TrainingConfig
from nmt.errors import UserError
from nmt.model import MODELS, Seq2Seq, build_model
from nmt.training.state.warm_start import check_frozen, freeze, in_numbers

SHAPE = {"encoder_layers": 2, "decoder_layers": 2, "d_model": 16, "d_ff": 32, "heads": 2}


def model(architecture: str = "transformer", tie: Tie = Tie.all, **options: object) -> Seq2Seq:
    return build_model(ModelConfig(architecture=architecture, tie=tie, **SHAPE, **options), 20, 20)  # type: ignore[arg-type]


def frozen(network: Seq2Seq, *parts: str) -> set[str]:
    freeze(network, parts)
    return {name for name, weight in network.named_parameters() if not weight.requires_grad}


def names(network: Seq2Seq, *beginnings: str) -> set[str]:
    return {name for name, _ in network.named_parameters() if name.startswith(beginnings)}


@pytest.mark.parametrize("architecture", ["transformer", "rnn_attention"])
@pytest.mark.parametrize(
    ("part", "beginnings"),
    [
        ("encoder", ("encoder",)),
        ("decoder", ("decoder",)),
        ("embeddings", ("source_embedding", "target_embedding")),
        ("source_embedding", ("source_embedding",)),
        ("output", ("output",)),
        ("encoder.1", ("encoder.1.",)),
    ],
)
def test_parts_of_every_architecture(architecture: str, part: str, beginnings: tuple[str, ...]) -> None:
    network = model(architecture, Tie.none)
    expected = names(network, *beginnings)
    assert expected and frozen(network, part) == expected


def test_no_part_freezes_nothing_and_tied_embeddings_are_the_output_too() -> None:
    network = model(tie=Tie.all)
    assert frozen(network) == set()
    assert frozen(network, "embeddings") == {"target_embedding.weight"}
    assert not network.output_weight.requires_grad
    counts = f"{network.num_parameters - 320:,} of {network.num_parameters:,} weights"
    assert in_numbers(network).startswith(counts)


def test_the_encoder_includes_its_last_norm_and_its_positions() -> None:
    network = model(norm=Norm.pre, positions=PositionsConfig(name="learned"))
    assert {"encoder_norm.weight", "encoder_positions.table"} <= frozen(network, "encoder")
    assert network.get_parameter("decoder_positions.table").requires_grad


@pytest.mark.parametrize(
    ("part", "count"),
    [
        ("cross_attention", 2 * 6),
        ("*_norm", 2 * 4 + 2 * 6),
        ("decoder.*.feed_forward", 2 * 4),
        ("bias", 2 * 16),
    ],
)
def test_components_and_patterns(part: str, count: int) -> None:
    found = frozen(model(), part)
    assert len(found) == count, sorted(found)


def test_a_weight_with_two_names_is_frozen_by_each(monkeypatch: pytest.MonkeyPatch) -> None:
    class Shared(MODELS["transformer"]):  # type: ignore[misc]
        def __init__(self, *args: object) -> None:
            super().__init__(*args)
            self.head = nn.Linear(16, 20, bias=False)
            self.head.weight = self.target_embedding.weight

        @property
        def output_weight(self) -> Tensor:
            return self.head.weight

    monkeypatch.setitem(MODELS, "shared", Shared)
    assert frozen(model("shared"), "head") == {"target_embedding.weight"}


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (
            ["decoder", "encodr"],
            r"^training\.freeze=encodr: no weight has this name\. The parts of this model are decoder, "
            r"embeddings, encoder, target_embedding; parts of them are, for example,",
        ),
        (["enc"], r"^training\.freeze=enc: no weight has this name\."),  # not a beginning of letters
        (
            ["embeddings", "encoder", "decoder"],
            r"^training\.freeze=\[embeddings,encoder,decoder\]: freezes all",
        ),
        (["*"], "freezes all"),
    ],
)
def test_wrong_parts_are_one_line(parts: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        freeze(model(), parts)


def test_names_are_checked_without_the_vocabulary() -> None:
    def config(*parts: str) -> TrainConfig:
        training = TrainingConfig(freeze=list(parts))
        return TrainConfig(start_from="m", model=ModelConfig(**SHAPE), training=training)  # type: ignore[arg-type]

    check_frozen(config())
    check_frozen(config("encoder"))
    with pytest.raises(UserError, match="no weight has this name"):
        check_frozen(config("cross"))


@pytest.mark.parametrize(
    ("key", "value", "shown"), [("freeze", ["encoder"], r"\[encoder\]"), ("l2_to_start", 0.1, "0.1")]
)
def test_both_options_need_a_start(key: str, value: object, shown: str) -> None:
    training = TrainingConfig(**{key: value})  # type: ignore[arg-type]
    with pytest.raises(
        UserError, match=rf"^training\.{key}={shown}: needs a model to start from\. Give start_from"
    ):
        TrainConfig(training=training)
    TrainConfig(training=training, start_from="runs/general")
