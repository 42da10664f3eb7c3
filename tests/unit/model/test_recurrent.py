"""The recurrent model: a naive twin, and the properties of all architectures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from test_transformer import PAIRS, assert_same_with_gradients, batch_of, decode
from torch import Tensor

from nmt.config import ModelConfig, Norm, PositionsConfig, Tie, TrainConfig
from nmt.data.batches.batching import Batch, Layout
from nmt.errors import UserError
from nmt.model import RecurrentModel, build_model, check_model, ignored_options
from nmt.model.packed import Packing
from nmt.options.arguments import Arguments
from nmt.options.compose import compose_jobs

TINY = ModelConfig(
    encoder_layers=2,
    decoder_layers=2,
    d_model=6,
    heads=1,
    dropout=0.2,
    architecture="rnn_attention",
)
VARIANTS = pytest.mark.parametrize(
    "config",
    [
        replace(
            TINY,
            options={"cell": cell, "attention": attention},
            tie=tie,
            output_bias=cell == "lstm",
        )
        for cell, attention, tie in (
            ("gru", "bahdanau", Tie.all),
            ("lstm", "bahdanau", Tie.target),
            ("gru", "luong", Tie.none),
            ("lstm", "luong", Tie.all),
        )
    ],
    ids=["gru bahdanau", "lstm bahdanau", "gru luong", "lstm luong"],
)


def build(config: ModelConfig) -> Any:
    torch.manual_seed(1)
    model = build_model(config, 10 if config.tie is Tie.all else 12, 10).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model


def naive(model: RecurrentModel, source: list[int], target: list[int]) -> tuple[Tensor, Tensor]:
    """Returns log-probabilities (T, V) and attention (T, S) of a pair, without packing, padding or masks."""
    d = model.config.d_model
    embedding = model.source_embedding or model.target_embedding
    x = torch.stack([embedding.weight[i] * d**0.5 for i in [*source, 2]])
    for layer in model.encoder:
        x = layer.unit(x[:, None])[0][:, 0]
    memory, decoder = x, model.decoder
    hidden = list(torch.tanh(decoder.initial(memory[0, d // 2 :])).chunk(len(decoder.units)))
    cells = [torch.zeros(d, dtype=x.dtype) for _ in hidden]
    output, found, seen = torch.zeros(d, dtype=x.dtype), [], []
    for i in [1, *target]:
        y = model.target_embedding.weight[i] * d**0.5
        if hasattr(decoder, "score"):
            scores = [decoder.score @ torch.tanh(decoder.query(hidden[-1]) + decoder.key(m)) for m in memory]
            weights = torch.stack(scores).softmax(0)
            context = weights @ memory
            step = torch.cat([y, context])
        else:
            step = torch.cat([y, output])
        for number, unit in enumerate(decoder.units):
            if isinstance(unit, torch.nn.LSTMCell):
                hidden[number], cells[number] = unit(step, (hidden[number], cells[number]))
            else:
                hidden[number] = unit(step, hidden[number])
            step = hidden[number]
        if hasattr(decoder, "score"):
            output = torch.tanh(decoder.out(torch.cat([step, y, context])))
        else:
            weights = torch.stack([step @ decoder.key(m) for m in memory]).softmax(0)
            output = torch.tanh(decoder.out(torch.cat([weights @ memory, step])))
        seen.append(weights)
        bias = 0 if model.output_bias is None else model.output_bias
        found.append((model.output_weight @ output + bias).log_softmax(0))
    return torch.stack(found), torch.stack(seen)


def log_probs(model: RecurrentModel) -> list[Tensor]:
    batch = batch_of(PAIRS)
    hidden = model(batch)
    return list(model.logits(hidden).log_softmax(-1).split(batch.target.lengths))


@VARIANTS
def test_forward_and_gradients_are_the_naive_ones(config: ModelConfig) -> None:
    model = build(config)
    fast = torch.cat(log_probs(model))
    slow = torch.cat([naive(model, source, target)[0] for source, target in PAIRS])
    assert_same_with_gradients(model, fast, slow)


@VARIANTS
@pytest.mark.parametrize("plan", [[1], [3], [4, 1, 2]], ids=str)
def test_steps_are_the_forward_pass(config: ModelConfig, plan: list[int]) -> None:
    model = build(config)
    for got, expected in zip(decode(model, PAIRS, plan), log_probs(model), strict=True):
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


@VARIANTS
def test_attention_weights_are_the_naive_ones(config: ModelConfig) -> None:
    model = build(config)
    for pair in PAIRS:
        found = model.attention_weights(batch_of([pair]))
        assert found.encoder is None and found.decoder is None
        torch.testing.assert_close(found.cross[0, 0].double(), naive(model, *pair)[1], rtol=0, atol=1e-6)


@VARIANTS
def test_attention_sums_to_1_over_the_source(config: ModelConfig) -> None:
    model = build(config)
    state = model.start(batch_of(PAIRS))
    ids = torch.ones(len(PAIRS), 1, dtype=torch.int64)
    _, _, attention = model.step_with_heads(ids, state)
    attention = attention[:, :, 0, 0]
    assert attention.shape == (4, 1, 8)
    torch.testing.assert_close(attention.sum(-1), torch.ones(4, 1, dtype=torch.float64))
    for row, (source, _) in enumerate(PAIRS):
        assert (attention[row, 0, len(source) + 1 :] == 0).all()


def test_dropout_is_a_pure_function_of_the_seed() -> None:
    model = build(replace(TINY, word_dropout=0.1)).train()
    batch = batch_of(PAIRS)

    def passed(seed: int) -> Tensor:
        model.seed_dropout(seed)
        return model(batch)

    one = passed(3)
    assert torch.equal(passed(3), one) and not torch.equal(passed(4), one)
    assert not torch.equal(one, model.eval()(batch))


def test_packing_is_one_to_one() -> None:
    layout = Layout.of([2, 4, 1, 0, 0])
    packing = Packing.of(layout)
    assert packing.batch_sizes.tolist() == [3, 2, 1, 1] and packing.order.tolist() == [1, 0, 2]
    x = torch.arange(7.0)[:, None].requires_grad_()
    assert packing.packed(x).flatten().tolist() == [2, 0, 6, 3, 1, 4, 5]
    assert torch.equal(packing.flat(packing.packed(x)), x)
    (grad,) = torch.autograd.grad(packing.packed(x), x, torch.arange(7.0)[:, None])
    assert grad.flatten().tolist() == [1, 4, 0, 3, 5, 6, 2]


def test_batches_that_are_filled_up() -> None:
    model = build(TINY)
    batch = batch_of(PAIRS)
    filled = batch.filled(16)
    count = len(batch.target_in)
    torch.testing.assert_close(model(filled)[:count], model(batch), rtol=0, atol=1e-12)


def test_operations_grow_with_the_batch_and_weights_are_a_lower_bound() -> None:
    model = build(TINY)
    one, two = Batch.of([[4, 5]], [[4, 5]]), Batch.of([[4, 5]] * 2, [[4, 5]] * 2)
    assert model.training_flops(two) == 2 * model.training_flops(one) > 0
    for config in (TINY, replace(TINY, tie=Tie.none, options={"cell": "lstm", "attention": "luong"})):
        sizes = (10, 10) if config.tie is Tie.all else (12, 10)
        counted = RecurrentModel.num_weights(config, *sizes)
        assert 0.5 * build(config).num_parameters < counted <= build(config).num_parameters


def test_options_that_have_no_effect_are_listed() -> None:
    unused = replace(
        TINY, heads=1, d_ff=256, positions=PositionsConfig(name="none"), norm=Norm.post, ffn_dropout=0.0
    )
    assert ignored_options(unused) == []
    given = replace(
        unused,
        norm=Norm.pre,
        positions=PositionsConfig(name="rotary"),
        attention_window=3,
        key_width=4,
        gated=True,
        bigram_rows=5,
        logit_cap=30.0,  # has an effect
    )
    assert ignored_options(given) == [
        "model.positions.name=rotary",
        "model.key_width=4",
        "model.attention_window=3",
        "model.norm=pre",
        "model.gated=True",
        "model.bigram_rows=5",
    ]
    assert ignored_options(ModelConfig(norm=Norm.pre)) == []


def test_the_configuration_of_the_recurrent_model_sets_no_ignored_option() -> None:
    files = [f"data.{split}.{side}=x" for split in ("train", "valid") for side in ("source", "target")]
    given = ("data=local", "data.source_lang=xx", "data.target_lang=yy", *files, "model=rnn")
    [config] = compose_jobs(TrainConfig, "train", Arguments(given))
    assert config.model.architecture == "rnn_attention" and ignored_options(config.model) == []


def test_mistakes() -> None:
    with pytest.raises(UserError, match=r"^model\.d_model=7: must be even for a bidirectional encoder\.$"):
        check_model(replace(TINY, d_model=7))
    with pytest.raises(UserError, match=r"^model\.options\.cell=rnn: must be gru or lstm\.$"):
        check_model(replace(TINY, options={"cell": "rnn"}))
