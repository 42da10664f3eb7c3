"""The flat gradients against separate ones, fused Adam against its formula, its state saved and put back."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from nmt.config import OptimizerConfig, OptimizerName
from nmt.errors import UserError
from nmt.training.optimizer import Adam, FlatGradients


def tiny(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5), nn.Linear(5, 2))


def backward(model: nn.Module, seed: int) -> None:
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(seed))
    model(x).square().sum().backward()


def test_gradients_are_views_that_accumulate() -> None:
    flat_model, plain = tiny(), tiny()
    flat = FlatGradients(flat_model.parameters(), num_extras=2)
    for seed in (1, 2):
        backward(flat_model, seed)
        backward(plain, seed)
    flat.extras += 7.0
    grads = [p.grad for p in plain.parameters()]
    for parameter, grad in zip(flat_model.parameters(), grads, strict=True):
        assert parameter.grad is not None and grad is not None
        assert torch.equal(parameter.grad, grad)
        assert parameter.grad.untyped_storage().data_ptr() == flat.buffer.untyped_storage().data_ptr()
        assert (parameter.grad.data_ptr() - flat.buffer.data_ptr()) % 64 == 0
    expected = torch.cat([g.flatten() for g in grads if g is not None]).norm()
    torch.testing.assert_close(flat.norm(), expected)  # the extras are no part of it
    flat.zero()
    assert not any(p.grad.any() for p in flat_model.parameters() if p.grad is not None)
    assert flat.extras.tolist() == [0.0, 0.0]


def test_the_norm_of_many_values_is_exact() -> None:
    parameter = nn.Parameter(torch.zeros(3_000_001))
    flat = FlatGradients([parameter], num_extras=0)
    flat.gradients[: parameter.numel()].fill_(0.1)
    assert flat.norm().item() == pytest.approx(0.1 * 3_000_001**0.5, rel=1e-6)


@pytest.mark.parametrize("name", list(OptimizerName))
def test_steps_follow_the_formula(name: OptimizerName) -> None:
    config = OptimizerConfig(name=name, beta1=0.9, beta2=0.98, epsilon=1e-3, weight_decay=0.1)
    model = nn.Linear(2, 1)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, -2.0]]))
        model.bias.fill_(0.5)
    FlatGradients(model.parameters(), num_extras=0)
    optimizer = Adam(model, config)
    w, m, v = [1.0, -2.0, 0.5], [0.0] * 3, [0.0] * 3
    for step, (rate, grads) in enumerate([(0.1, [0.3, -0.4, 0.5]), (0.2, [-0.1, 0.2, 0.0])], start=1):
        assert model.weight.grad is not None and model.bias.grad is not None
        model.weight.grad.copy_(torch.tensor([grads[:2]]))
        model.bias.grad.copy_(torch.tensor(grads[2:]))
        optimizer.step(rate)
        for i, grad in enumerate(grads):
            decay = 0.1 if i < 2 else 0.0  # the bias is spared
            g = grad if name is OptimizerName.adamw else grad + decay * w[i]
            if name is OptimizerName.adamw:
                w[i] *= 1 - rate * decay
            m[i], v[i] = 0.9 * m[i] + 0.1 * g, 0.98 * v[i] + 0.02 * g * g
            w[i] -= rate * (m[i] / (1 - 0.9**step)) / ((v[i] / (1 - 0.98**step)) ** 0.5 + 1e-3)
    assert [*model.weight.flatten().tolist(), model.bias.item()] == pytest.approx(w, rel=1e-5)


def test_state_put_back_goes_on_bit_for_bit() -> None:
    def trained(
        updates: range, tensors: dict[str, torch.Tensor] | None = None, model: nn.Module | None = None
    ):
        model = model or tiny()
        gradients = FlatGradients(model.parameters(), num_extras=0)
        optimizer = Adam(model, OptimizerConfig())
        if tensors is not None:
            optimizer.load(tensors, "here")
        for update in updates:
            gradients.zero()
            backward(model, update)
            optimizer.step(0.01)
        saved = {name: tensor.clone() for name, tensor in optimizer.tensors().items()}
        return model, saved

    whole, whole_state = trained(range(6))
    half, state = trained(range(3))
    other = tiny(seed=9)
    other.load_state_dict(half.state_dict())
    resumed, resumed_state = trained(range(3, 6), state, other)
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[name])
    assert whole_state.keys() == resumed_state.keys()
    assert all(torch.equal(whole_state[name], resumed_state[name]) for name in whole_state)
    assert whole_state["step"].item() == 6


def test_state_before_the_first_update_is_zero() -> None:
    model = tiny()
    tensors = Adam(model, OptimizerConfig()).tensors()
    assert tensors.keys() >= {"step", "exp_avg.0.weight", "exp_avg_sq.2.bias"}
    assert not any(tensor.any() for tensor in tensors.values())


def test_state_of_another_model_is_refused() -> None:
    model, other = tiny(), nn.Sequential(nn.Linear(3, 6))
    tensors = Adam(other, OptimizerConfig()).tensors()
    with pytest.raises(UserError, match="checkpoint 3.*0.weight"):
        Adam(model, OptimizerConfig()).load(tensors, "checkpoint 3")
