"""Fused layers: interpreted and compared with the plain methods; their kernels compiled for GPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from triton_programs import compiled, interpreted

from nmt.config import Activation, Kernel, ModelConfig, Norm, NormKind
from nmt.model import BACKENDS, put_on
from nmt.model.backend import Backend
from nmt.model.gpu import GpuBackend
from nmt.model.seq2seq import Seq2Seq
from nmt.model.transformer import Transformer

pytest.importorskip("triton", reason="Triton is not installed: it exists for Linux only")
from interpreted_fused import BATCH, CASES

from nmt.model.gpu import layers

CONFIG = ModelConfig(encoder_layers=1, decoder_layers=1, d_model=16, d_ff=24, heads=2)


@pytest.fixture(scope="module")
def records() -> dict[str, Any]:
    return {record["case"]: record for record in interpreted("interpreted_fused.py")}


@pytest.mark.slow  # a minute in Triton's interpreter
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients(case: str, records: dict[str, Any]) -> None:
    record = records[case]
    for found, plain, exact in zip(record["fused"], record["plain"], record["exact"], strict=True):
        size = max(map(abs, exact))
        error, error_of_plain = (
            max(abs(a - b) for a, b in zip(values, exact, strict=True)) for values in (found, plain)
        )
        rounding = 2e-5 if record["dtype"] == "float32" else 2e-3
        assert error <= 2 * error_of_plain + rounding * (size + 1)
        assert size > 0


@pytest.mark.slow
def test_the_kernel_of_the_embeddings(records: dict[str, Any]) -> None:
    fp32, fp16 = (records["embedding"][f"torch.{name}"] for name in ("float32", "float16"))
    assert fp32["error"] <= 1e-5 and fp32["error_of_gradient"] <= 1e-5
    assert fp16["error"] <= 1e-2 and fp16["error_of_gradient"] <= 1e-4
    assert fp32["kept"] == fp16["kept"] == pytest.approx(0.6, abs=0.1)
    assert fp32["rounded"] and fp16["rounded"]
    assert fp32["noted"] and not fp16["noted"]


@pytest.mark.slow
def test_the_kernel_of_a_norm_rounds_for_the_next_product(records: dict[str, Any]) -> None:
    assert records["rounding"]["rounded"] is True
    assert records["rounding"]["none"] == [0, 24]


@pytest.mark.slow
def test_the_product_before_a_relu(records: dict[str, Any]) -> None:
    facts = records["relu"]
    assert facts["trials"] == [True, True, True, True]
    assert len(facts["errors"]) == 12
    for case, errors in facts["errors"].items():
        rounding = 1e-4 if case.endswith("32") else 2e-2
        assert errors["kept"] and errors["error"] <= rounding and errors["error_of_sums"] <= rounding, case


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (RuntimeError("out of resource: shared memory\nmore"), "out of resource: shared memory"),
        (lambda grad, weight, out: (grad @ weight, out[:1]), "its results are wrong"),
    ],
)
def test_a_kernel_for_relu_that_does_not_run_is_reported_and_not_used(
    found: Any, words: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from nmt.model.gpu import relu_product

    monkeypatch.setattr(
        relu_product, "relu_product", Mock(side_effect=found) if isinstance(found, Exception) else found
    )
    relu_product.runs.cache_clear()
    for _ in range(2):
        assert not relu_product.runs(torch.device("cpu"), torch.float16)
    relu_product.runs.cache_clear()
    assert caplog.messages == [
        f"the kernels for ReLU of nmt do not run on cpu ({words}). Those of torch are used instead, which "
        "are slower"
    ]


@pytest.mark.slow
def test_dropout_masks_are_random_and_reproducible(records: dict[str, Any]) -> None:
    facts = records["masks"]
    assert facts["same"] and facts["same_in_a_smaller_batch"]
    assert facts["share"] == pytest.approx(0.8, abs=0.01)
    assert 0.7 < facts["share_of_columns"][0] and facts["share_of_columns"][1] < 0.9
    for key in ("another_seed", "another_mask", "neighbouring_rows", "neighbouring_columns"):
        agreement = next(value for name, value in facts.items() if name.endswith(key))
        assert agreement == pytest.approx(0.8**2 + 0.2**2, abs=0.02), key


class Mine(Transformer):
    """A subclass, which may override anything."""


def with_a_gate(config: ModelConfig, *sizes: int) -> Transformer:
    model = Transformer(config, *sizes)
    model.decoder_layers[0].cross_attention.gate = torch.nn.Linear(2, 2)
    return model


@pytest.mark.parametrize(
    ("kind", "change", "words"),
    [
        (Transformer, {"norm": Norm.pre}, "model.norm=pre"),
        (Transformer, {"activation": Activation.gelu}, "model.activation=gelu"),
        (Transformer, {"activation": Activation.relu2}, "model.activation=relu2"),
        (Transformer, {"norm_kind": NormKind.rms}, "model.norm_kind=rms"),
        (Transformer, {"query_key_norm": True}, "model.query_key_norm=true"),
        (Transformer, {"value_skip": True}, "model.value_skip=true"),
        (Transformer, {"embedding_skip": True}, "model.embedding_skip=true"),
        (Transformer, {"gated": True}, "model.gated=true"),
        (Transformer, {"ffn_dropout": 0.1}, "model.ffn_dropout=0.1"),
        (Transformer, {"residual": False}, "model.residual=false"),
        (Transformer, {"d_model": 8200, "heads": 2}, "model.d_model is above 8192"),
        (Mine, {}, "the model is a Mine"),
        (with_a_gate, {}, "its layers have other parts"),
        (Transformer, {"attention": "additive"}, None),
    ],
)
def test_other_layers_are_not_fused_and_the_log_says_why(
    kind: Any,
    change: dict[str, Any],
    words: str | None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(layers, "runs", lambda device: True)
    caplog.set_level("INFO")
    with torch.device("meta"):
        model: Seq2Seq = kind(replace(CONFIG, **change), 11, 11)
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    backend = GpuBackend(torch.device("cuda", 0))
    assert backend.half_weights(model, torch.float32) is None and backend.layers is None
    assert backend.half_weights(model, torch.bfloat16) is not None
    assert (backend.layers is None) == (words is not None)
    expected = [f"the layers are computed by the operators of torch: {words}"] if words else []
    assert caplog.messages == expected


def test_a_backend_is_chosen_once() -> None:
    model = Transformer(CONFIG, 11, 11)
    backend = model.backend
    assert type(backend) is Backend
    assert put_on(model, torch.device("cpu")) is model and model.backend is backend
    assert backend.half_weights(model, torch.bfloat16) is backend.layers is backend.loss_kernel is None
    assert put_on(model, torch.device("meta")).backend is not backend


def test_a_backend_that_a_plugin_registers_for_the_cpu_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine(Backend): ...

    monkeypatch.setitem(BACKENDS, "cpu", Mine)
    model, cpu = Transformer(CONFIG, 11, 11), torch.device("cpu")
    backend = put_on(model, cpu).backend
    assert type(backend) is Mine
    assert put_on(model, cpu).backend is backend


@pytest.mark.parametrize(
    "capability, width, residual",
    [pytest.param(75, 512, "fp32", marks=pytest.mark.slow), (80, 1024, "fp16"), (90, 1024, "fp32")],
)
def test_the_kernels_compile_for_gpus(capability: int, width: int, residual: str) -> None:
    from nmt.model.gpu import layer_kernels

    types = {
        **dict.fromkeys(("y", "grad_y", "rounded"), "*fp16"),
        **dict.fromkeys(("x", "out", "total", "grad", "grad_x"), f"*{residual}"),
        **dict.fromkeys(("bias", "weight", "shift", "statistics", "sums", "table"), "*fp32"),
        **dict.fromkeys(("ids", "positions", "seed"), "*i64"),
        **dict.fromkeys(("epsilon", "rate", "scale", "factor"), "fp32"),
    }
    for function, others in (
        (layer_kernels._residual_norm, {}),
        (layer_kernels._residual_norm_backward, {}),
        (layer_kernels._embed, {}),
        (layer_kernels._embed_backward, {"rows": "*fp32"}),
        (layer_kernels._relu_backward, {"grad": "*fp16", "out": "*fp16"}),
    ):
        rounds = {"ROUNDS": residual == "fp32"} if "ROUNDS" in function.arg_names else {}
        compiled(function, {**types, **others}, {"BLOCK": width, **rounds}, capability)


@pytest.mark.parametrize("capability, unit", [(80, 8), (86, 16), (90, 8), (90, 16)])
def test_the_product_before_a_relu_compiles_for_gpus(capability: int, unit: int) -> None:
    from nmt.model.gpu import relu_product as module

    inner, stages = module.parts_and_stages(divmod(capability, 10))
    sizes = {"ROWS": module._ROWS, "COLUMNS": module._COLUMNS, "INNER": inner, "GROUP": module._GROUP}
    types = {**dict.fromkeys(("grad", "weight", "out", "found"), "*bf16"), "sums": "*fp32"}
    options = {"num_warps": module._WARPS, "num_stages": stages}
    kernel = compiled(
        module._relu_product, types, {**sizes, "UNIT": unit}, capability, aligned=True, **options
    )
    assert ("wgmma.mma_async" if capability == 90 else "mma.sync") in kernel.asm["ptx"]
    assert "cp.async.cg" in kernel.asm["ptx"]  # 16 bytes at a time, past the registers
    # Two tiles per multiprocessor.
    assert 2 * kernel.metadata.shared < {80: 164_000, 86: 100_000, 90: 228_000}[capability]


def test_a_kernel_that_would_be_slow_is_not_used() -> None:
    from nmt.model.gpu.relu_product import supports

    assert supports(torch.empty(512, 2048, device="meta")) and supports(torch.empty(8, 24, device="meta"))
    assert not supports(torch.empty(300, 2048, device="meta"))
    assert not supports(torch.empty(512, 1001, device="meta"))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_product_before_a_relu_on_a_gpu(dtype: torch.dtype) -> None:
    from nmt.model.gpu.relu_product import relu_product, runs

    assert runs(torch.device("cuda", 0), dtype)
    torch.manual_seed(3)
    grad, weight, out = (
        torch.randn(shape, device="cuda").to(dtype) for shape in ((25000, 512), (512, 2048), (25000, 2048))
    )
    found, sums = relu_product(grad, weight, out.relu_())
    plain = (grad @ weight) * (out > 0)
    torch.testing.assert_close(found, plain, rtol=2**-7, atol=0.02)
    torch.testing.assert_close(sums.sum(0), plain.float().sum(0), rtol=1e-3, atol=2.0)
    assert all(map(torch.equal, relu_product(grad, weight, out), (found, sums)))  # in every run


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("kernels", [[], list(Kernel)], ids=["measured", "all"])
def test_fused_layers_on_a_gpu(kernels: list[Kernel], residual: bool, dtype: torch.dtype) -> None:
    found = []
    for device, kind in (("cuda", dtype), ("cpu", torch.float64)):
        # With these weights no input of a ReLU is so near to 0 that rounding to fp16 changes its sign.
        torch.manual_seed(254)
        model = Transformer(replace(CONFIG, d_model=64, d_ff=96, dropout=0.0), 11, 11)
        model = put_on(model.double() if kind is torch.float64 else model, torch.device(device))
        copies = model.copy_weights(kind)
        if device == "cuda":
            model.backend.layers = layers.FusedLayers(model, dtype, kernels)
        model.residual_dtype = dtype if residual and device == "cuda" else None
        with torch.autocast(device, dtype, enabled=device == "cuda"):
            hidden = model.train()(BATCH.to(device))
        # Not the sum of squares: a norm ends each layer, so its exact gradient is nearly 0.
        direction = torch.randn(hidden.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
        (hidden.double() * direction.to(device)).sum().backward()
        for weight, copy in copies:
            if copy.grad is not None:
                weight.grad = copy.grad.to(weight) + (0 if weight.grad is None else weight.grad)
        found.append([hidden, *(weight.grad for weight in model.parameters())])
    tolerance = 2e-2 if dtype is torch.float16 else 1e-1
    for on_gpu, exact in zip(*found, strict=True):
        scale = float(exact.abs().max())
        torch.testing.assert_close(on_gpu.double().cpu(), exact, rtol=tolerance, atol=tolerance * scale)
