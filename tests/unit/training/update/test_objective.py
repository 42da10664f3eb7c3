"""Objectives: one call for training and validation, and a second loss of a plugin."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.config import ModelConfig, ObjectiveConfig, Precision, TrainingConfig
from nmt.data.batches.batching import Batch
from nmt.data.subwords.vocabulary import BOS_ID
from nmt.errors import UserError
from nmt.model import MODELS, ModelOutput, Seq2Seq, Transformer, build_model
from nmt.model.dropout import DropoutSource
from nmt.training.processes.ranks import Ranks
from nmt.training.update.loss import Losses, training_loss
from nmt.training.update.objective import OBJECTIVES, LabelSmoothing, LossInput, build_objective
from nmt.training.update.training_step import TrainingStep

CPU = torch.device("cpu")
SHAPE = ModelConfig(encoder_layers=1, decoder_layers=2, d_model=16, d_ff=32, heads=2, dropout=0.1)
BATCH = Batch.of([[4, 5, 6], [6]], [[5, 4], [4, 6, 7]]).filled(8)


class Peaked(LabelSmoothing):
    """A term that asks the first head of a layer to see the first source token."""

    @dataclass(frozen=True)
    class Options:
        weight: float = 0.5
        layer: int = -1

    def __init__(self, options: Any, training: TrainingConfig) -> None:
        super().__init__(options, training)
        self.needs = {"attention_layers": (options.layer,)}

    def losses(self, output: ModelOutput, inputs: LossInput) -> Losses:
        (attention,) = output.attention
        first = attention.unflatten(0, (inputs.passes, -1))[:, : len(inputs.target), 0, 0]
        term = -self.options.weight / inputs.passes * first.log().sum()
        return super().losses(output, inputs).plus(term, inputs.scale)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OBJECTIVES, "peaked", Peaked)


def options(name: str = "label_smoothing", rdrop: float = 0.0, **given: Any) -> TrainingConfig:
    objective = ObjectiveConfig(name, given)
    return TrainingConfig(objective=objective, rdrop=rdrop, precision=Precision.fp32)


def stepped(network: Seq2Seq, update: int | None = None, **training: float) -> TrainingStep:
    """A step that has the gradient of one micro-batch."""
    step = TrainingStep(network.train(), replace(options(), **training), Ranks(0, 1, CPU))
    step.begin(8.0, update)
    step.add(BATCH, 0, seed=3)
    return step


def model(**changes: Any) -> Transformer:
    torch.manual_seed(1)
    return Transformer(replace(SHAPE, **changes), 11, 11)


@pytest.mark.parametrize("rdrop", [0.0, 5.0])
def test_a_validation_has_one_pass_and_the_loss_of_evaluation_mode(rdrop: float) -> None:
    network = model().eval()
    losses = build_objective(options(rdrop=rdrop))(network, BATCH, precision=Precision.fp32)
    target = BATCH.target_out[: BATCH.num_target_tokens]
    expected = training_loss(network(BATCH), network.output_weight, target, smoothing=0.1)
    assert all(map(torch.equal, losses, expected))


@pytest.mark.parametrize("rdrop", [0.0, 5.0])
def test_a_second_loss_adds_its_gradient_and_the_figures_are_those_of_the_first(rdrop: float) -> None:
    def step_of(name: str, **given: Any) -> TrainingStep:
        step = TrainingStep(model(), options(name, rdrop, **given), Ranks(0, 1, CPU))
        step.model.train()
        step.begin(8.0)
        step.add(BATCH, 0, seed=3)
        return step

    plain, added = step_of("label_smoothing"), step_of("peaked", weight=0.25)
    network = model().train()
    network.seed_dropout(3)
    network.randomness.restart()
    output = network(BATCH if not rdrop else BATCH.twice(), attention_layers=(1,))
    count, passes = BATCH.num_target_tokens, 2 if rdrop else 1
    weights = output.attention[0][:, 0, 0].view(passes, -1)[:, :count]
    term = -0.25 * weights.log().sum() / passes
    (8 * term).backward()
    for name, parameter in added.model.named_parameters():
        one, other = network.get_parameter(name).grad, plain.model.get_parameter(name).grad
        assert other is not None
        torch.testing.assert_close(parameter.grad, other if one is None else other + one)
    assert added.counters.objective.item() == pytest.approx(plain.counters.objective.item() + term.item())
    assert torch.equal(added.counters.loss, plain.counters.loss)
    assert torch.equal(added.counters.teraflops, plain.counters.teraflops)


@pytest.mark.parametrize("architecture", ["transformer", "rnn_attention"])
def test_simcut_is_the_divergence_from_the_pair_with_embeddings_of_zero(architecture: str) -> None:
    def network() -> Seq2Seq:
        torch.manual_seed(1)
        return build_model(replace(SHAPE, dropout=0.0, architecture=architecture), 11, 11)

    step, plain = stepped(network(), simcut=3.0, simcut_rate=0.5), network()
    drawn = DropoutSource()
    drawn.seed(3)
    kept, count = [], BATCH.num_target_tokens
    for ids in (BATCH.source_ids, BATCH.target_in):
        mask = drawn.mask(torch.Size((len(ids), 1)), 32768)
        kept.append(torch.maximum(mask, (ids <= 2).to(mask)[:, None]))  # never a mark of an end
        assert 0 < kept[-1].sum() < len(ids)
    first = plain.logits(plain(BATCH))[:count].log_softmax(-1)
    masks = iter(kept)
    plain.target_embedding.register_forward_hook(lambda module, ids, x: x * next(masks))
    second = plain.logits(plain(BATCH))[:count].log_softmax(-1)
    target = BATCH.target_out[:count]
    loss = F.cross_entropy(first, target, label_smoothing=0.1, reduction="sum")
    objective = loss + 3.0 * (first.exp() * (first - second)).sum()
    (8 * objective).backward()
    for name, parameter in step.model.named_parameters():
        torch.testing.assert_close(parameter.grad, plain.get_parameter(name).grad)
    assert step.counters.objective.item() == pytest.approx(objective.item())
    assert step.counters.loss.item() == pytest.approx(loss.item())


@pytest.mark.parametrize("name", ["rdrop", "simcut"])
def test_an_update_before_consistency_from_has_one_pass(name: str) -> None:
    late: dict[str, float] = {name: 5.0, "consistency_from": 3}
    for update, expected in ((2, {}), (3, {name: 5.0})):
        step, other = stepped(model(), update, **late), stepped(model(), **expected)
        assert torch.equal(step.parallel.extras, other.parallel.extras)
        for one, two in zip(step.model.parameters(), other.model.parameters(), strict=True):
            assert torch.equal(one.grad, two.grad)


@pytest.mark.parametrize(
    ("start", "update", "last", "passes"),
    [(0, 2, 5, 6), (4, 0, 3, 3), (4, 1, 6, 8), (4, 3, 4, 2), (9, 0, 0, 0)],
)
def test_passes_of_several_updates(start: int, update: int, last: int, passes: int) -> None:
    objective = build_objective(TrainingConfig(simcut=1.0, consistency_from=start))
    assert objective.passes_after(update, last) == passes


def test_simcut_needs_a_model_that_can_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Transformer, "cuts_tokens", False)
    with pytest.raises(UserError, match="training.simcut=3.0: model.architecture=transformer does not set"):
        build_objective(TrainingConfig(simcut=3.0)).check(SHAPE)


def test_attention_weights_are_those_of_a_search() -> None:
    network = model().eval()
    sources, targets = [[4, 5, 6], [6]], [[5, 4], [4, 6, 7]]
    (first, last) = network(Batch.of(sources, targets), attention_layers=(0, -1)).attention
    begin = 0
    for source, target in zip(sources, targets, strict=True):
        state = network.start(Batch.of([source], [[]]))
        for place, piece in enumerate([BOS_ID, *target]):
            _, state, weights = network.step_with_heads(torch.tensor([[piece]]), state)
            for layer, found in enumerate((first, last)):
                row = found[begin + place]
                torch.testing.assert_close(row[:, : len(source) + 1], weights[0, 0, layer])
                assert not row[:, len(source) + 1 :].any()
        begin += len(target) + 1


def test_a_model_may_return_more_than_hidden_states(monkeypatch: pytest.MonkeyPatch) -> None:
    network, seen = model().eval(), []
    forward = network.forward

    def returning(batch: Batch) -> ModelOutput:
        hidden = forward(batch)
        assert isinstance(hidden, Tensor)
        return ModelOutput(hidden, added={"name": hidden})

    class Reading(LabelSmoothing):
        def losses(self, output: ModelOutput, inputs: LossInput) -> Losses:
            seen.append(output.added["name"])
            return super().losses(output, inputs)

    monkeypatch.setattr(network, "forward", returning)
    monkeypatch.setitem(OBJECTIVES, "reading", Reading)
    build_objective(options("reading"))(network, BATCH, precision=Precision.fp32)
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("architecture", "layer", "message"),
    [
        ("rnn_attention", 0, "needs attention_layers, which model.architecture=rnn_attention does not have."),
        ("transformer", 2, "needs the attention of decoder layer 2, counted from 0, but model.decoder_la"),
        ("transformer", -3, "needs the attention of decoder layer -3, counted from 0, but model.decoder_la"),
        ("transformer", -2, None),
        ("transformer", 1, None),
    ],
)
def test_a_model_must_have_what_an_objective_needs(
    architecture: str, layer: int, message: str | None
) -> None:
    objective = build_objective(options("peaked", layer=layer))
    config = replace(SHAPE, architecture=architecture)
    if message is None:
        objective.check(config)
        return
    with pytest.raises(UserError) as caught:
        objective.check(config)
    assert str(caught.value).startswith(f"training.objective.name=peaked: {message}")


def test_a_model_may_pass_on_what_an_objective_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    class Passing(Transformer):
        def forward(self, batch: Batch, **needs: Any) -> Tensor | ModelOutput:
            return super().forward(batch, **needs)

    monkeypatch.setitem(MODELS, "passing", Passing)
    build_objective(options("peaked", layer=1)).check(replace(SHAPE, architecture="passing"))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (options("none"), "training.objective.name=none: there is no objective none. Choose from label_"),
        (options("peaked", wait=1), "training.objective.options.wait: not an option of training.objective."),
    ],
)
def test_wrong_names_and_options_are_one_line(config: TrainingConfig, message: str) -> None:
    with pytest.raises(UserError) as caught:
        build_objective(config)
    assert str(caught.value).startswith(message)
