"""What the outputs of an encoder know about order: a linear probe of the position, and permuted sources."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from nmt.bundle import Bundle, load_bundle
from nmt.data.batches.batching import Batch
from nmt.model import Seq2Seq
from nmt.model.attention import separated
from nmt.model.transformer import EncoderLayer, Transformer

_RIDGE = 1e-6
"""Regularisation of the probe, relative to the mean square of its inputs."""


def permutation(run: Path, count: int = 20) -> float:
    """Returns how much the encoder's outputs differ if the pieces of a source are permuted.

    The outputs for the permuted source are put back into the old order, so the difference is 0 for an encoder
    that does not see the order. It is relative to the norm of the outputs.
    """
    bundle = load_bundle(run / "model")
    torch.manual_seed(1)
    num_pieces = len(bundle.tokenizer.source.processor)
    differences = []
    for _ in range(count):
        ids = torch.randint(num_pieces - 30, num_pieces, (12,))
        order = torch.randperm(12)
        plain, permuted = (_layers(bundle, [each.tolist()])[-1] for each in (ids, ids[order]))
        differences.append((plain[:12][order] - permuted[:12]).norm() / plain[:12].norm())
    return float(torch.stack(differences).mean())


def position_probe(run: Path, sources: Sequence[str]) -> list[dict[str, float]]:
    """Predicts the position of a token from its hidden state, by linear regression.

    Half of the sources are for the regression, the other half for the test.

    Args:
        run: a run folder.
        sources: raw text.

    Returns:
        For the embeddings and for each layer of the encoder: `r2`, the share of the variance of positions
        that is explained, and `exact`, the share of tokens whose rounded prediction is their position.
    """
    bundle = load_bundle(run / "model")
    ids = bundle.tokenizer.encode_source(list(sources))
    half = len(ids) // 2
    fitted, tested = _layers(bundle, ids[:half]), _layers(bundle, ids[half:])
    at_fit, at_test = (
        torch.cat([torch.arange(len(sentence) + 1) for sentence in part]).double()
        for part in (ids[:half], ids[half:])
    )
    found = []
    for inputs, outputs in zip(fitted, tested, strict=True):
        weights = _regression(inputs, at_fit)
        predicted = _with_constant(outputs) @ weights
        error = (predicted - at_test).square().mean()
        exact = (predicted.round() == at_test).double().mean()
        found.append({"r2": float(1 - error / at_test.var(correction=0)), "exact": float(exact)})
    return found


def attention_saturation(run: Path, sources: Sequence[str]) -> dict[str, dict[str, float]]:
    """Returns how peaked the self-attention of the encoder is, and the gradient that reaches its projections.

    Returns:
        For the trained model and for the same model before training: `largest`, the mean of the largest
        weight of a query; `saturated`, the share of queries whose largest weight is above 0.99; and
        `gradient`, the norm of the gradient of the projections to queries and keys, divided by the norm of
        the gradient of the projection to values.
    """
    bundle = load_bundle(run / "model")
    vocab = len(bundle.tokenizer.source.processor)
    torch.manual_seed(1)
    models = {"untrained": Transformer(bundle.config.model, vocab, vocab).eval(), "trained": bundle.model}
    ids = bundle.tokenizer.encode_source(list(sources))
    return {name: _saturation(model, ids) for name, model in models.items()}


def _saturation(model: Seq2Seq, ids: Sequence[Sequence[int]]) -> dict[str, float]:
    assert isinstance(model, Transformer)
    batch = Batch.of(ids, ids)
    layers = [layer for layer in model.encoder if isinstance(layer, EncoderLayer)]
    inputs: list[Tensor] = []
    hooks = [layer.register_forward_pre_hook(lambda _, given: inputs.append(given[0])) for layer in layers]
    hidden = model(batch)
    for hook in hooks:
        hook.remove()
    loss = model.logits(hidden).log_softmax(-1).gather(1, batch.target_out[:, None]).mean().neg()
    torch.autograd.backward(loss)
    width = model.config.d_model
    largest, query_key, value = [], 0.0, 0.0
    for layer, given in zip(layers, inputs, strict=True):
        attention = layer.self_attention
        with torch.no_grad():
            read = layer.self_attention_norm(given) if layer.pre else given
            q, k, _ = separated(attention.projected(read))
            for sentence in zip(
                *(torch.split(part, list(batch.source.lengths)) for part in (q, k)), strict=True
            ):
                scores = attention.score(*(part.transpose(0, 1)[None] for part in sentence))
                largest.append(scores.softmax(-1).amax(-1).flatten())
        gradient = attention.qkv.weight.grad
        assert gradient is not None
        query_key += float(gradient[: 2 * width].square().sum())
        value += float(gradient[2 * width :].square().sum())
    peaks = torch.cat(largest)
    return {
        "largest": float(peaks.mean()),
        "saturated": float((peaks > 0.99).double().mean()),
        "gradient": (query_key / value) ** 0.5,
    }


@torch.no_grad()
def _layers(bundle: Bundle, ids: Sequence[Sequence[int]]) -> list[Tensor]:
    """Returns the input of the first layer of the encoder and the output of each: (S, D) each."""
    model = bundle.model.eval()
    assert isinstance(model, Transformer)
    batch = Batch.of(ids, ids)
    found: list[Tensor] = []
    hooks = [model.encoder[0].register_forward_pre_hook(lambda _, given: found.append(given[0]))]
    hooks += [layer.register_forward_hook(lambda _, given, out: found.append(out)) for layer in model.encoder]
    model.encode(batch.source_ids, batch.source)
    for hook in hooks:
        hook.remove()
    return found


def _regression(inputs: Tensor, targets: Tensor) -> Tensor:
    x = _with_constant(inputs)
    gram = x.T @ x
    ridge = _RIDGE * gram.diagonal().mean()
    weights: Tensor = torch.linalg.solve(gram + ridge * torch.eye(len(gram), dtype=gram.dtype), x.T @ targets)
    return weights


def _with_constant(x: Tensor) -> Tensor:
    return torch.cat([x.double(), x.new_ones(len(x), 1).double()], 1)
