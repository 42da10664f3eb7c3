"""The Transformer: naive twins, step-by-step decoding, precision, initial weights and presets."""

from __future__ import annotations

import copy
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from torch import Tensor

from nmt.config import Activation, ModelConfig, Norm, NormKind, PositionsConfig, Tie
from nmt.data.batches.batching import Batch
from nmt.model import Seq2Seq, Transformer
from nmt.model.attention import Score
from nmt.model.backend import Backend
from nmt.model.cpu.cached import CachedDecoderState
from nmt.model.positions import Places
from nmt.model.reference import naive_hidden, naive_log_probs

CONFIGS = Path(__file__).parents[3] / "configs" / "model"
TINY = ModelConfig(encoder_layers=2, decoder_layers=2, d_model=12, d_ff=20, heads=3, dropout=0.2)
PAIRS = [([5, 6, 7, 8], [9, 4]), ([], [5]), ([4], []), ([9, 8, 7, 6, 5, 4, 5], [4, 5, 6, 7, 8, 9])]

CONFIGURATIONS = {
    "paper": TINY,
    "pre": replace(TINY, norm=Norm.pre),
    "no residual": replace(TINY, residual=False),
    "pre no residual": replace(TINY, norm=Norm.pre, residual=False),
    "target gelu bias": replace(TINY, tie=Tie.target, activation=Activation.gelu, output_bias=True),
    "none silu": replace(TINY, tie=Tie.none, norm=Norm.pre, activation=Activation.silu, encoder_layers=1),
    "narrow keys": replace(TINY, key_width=2),
    "narrow values": replace(TINY, key_width=5, value_width=3, norm=Norm.pre),
    "wide heads": replace(TINY, key_width=7, value_width=7, heads=5),
    "relu2, deep encoder": replace(TINY, activation=Activation.relu2, encoder_layers=3, decoder_layers=1),
    **{f"gated {each.value}": replace(TINY, gated=True, activation=each) for each in Activation},
    "embedding skip": replace(TINY, embedding_skip=True, encoder_layers=3),
    "value skip": replace(TINY, value_skip=True, norm=Norm.pre),
    "both skips, two widths": replace(TINY, value_skip=True, embedding_skip=True, key_width=5),
    "bigrams": replace(TINY, bigram_rows=7),
    "bigrams of two vocabularies": replace(TINY, bigram_rows=64, tie=Tie.target, norm=Norm.pre),
    "bounded logits": replace(TINY, logit_cap=2.0, output_bias=True),
    "rms": replace(TINY, norm_kind=NormKind.rms),
    "pre rms": replace(TINY, norm_kind=NormKind.rms, norm=Norm.pre),
    "head norms": replace(TINY, query_key_norm=True),
    "head norms, two widths": replace(TINY, query_key_norm=True, key_width=5, norm=Norm.pre),
}
VARIANTS = pytest.mark.parametrize("config", CONFIGURATIONS.values(), ids=CONFIGURATIONS)


def build(config: ModelConfig, seed: int = 0, vocab_size: int = 10) -> Transformer:
    torch.manual_seed(seed)
    model = (
        Transformer(config, vocab_size if config.tie is Tie.all else vocab_size + 2, vocab_size)
        .double()
        .eval()
    )
    for parameter in model.parameters():  # biases and norms too, so that a forgotten one shows
        torch.nn.init.normal_(parameter, std=0.5)
    return model


def batch_of(pairs: list[tuple[list[int], list[int]]]) -> Batch:
    return Batch.of([source for source, _ in pairs], [target for _, target in pairs])


def sentences(model: Transformer, pairs: list[tuple[list[int], list[int]]]) -> list[Tensor]:
    """Returns log-probabilities (T, V) of each pair."""
    batch = batch_of(pairs)
    return list(model.logits(model(batch)).log_softmax(-1).split(batch.target.lengths))


def assert_same_with_gradients(model: Seq2Seq, fast: Tensor, slow: Tensor) -> None:
    torch.testing.assert_close(fast, slow, rtol=0, atol=1e-12)
    grad, weights = torch.randn(slow.shape, dtype=slow.dtype), dict(model.named_parameters())
    found, expected = (torch.autograd.grad(x, list(weights.values()), grad) for x in (fast, slow))
    for name, got, wanted in zip(weights, found, expected, strict=True):
        torch.testing.assert_close(
            got, wanted, rtol=1e-10, atol=1e-11, msg=lambda t, name=name: f"{name}: {t}"
        )


@VARIANTS
def test_forward_and_gradients_are_the_naive_ones(config: ModelConfig) -> None:
    model = build(config)
    fast = torch.cat(sentences(model, PAIRS))
    weights = dict(model.named_parameters())
    slow = torch.cat(
        [
            naive_log_probs(weights, config, naive_hidden(weights, config, [*source, 2], [1, *target]))
            for source, target in PAIRS
        ]
    )
    assert_same_with_gradients(model, fast, slow)


@VARIANTS
def test_training_mode_without_dropout_is_evaluation(config: ModelConfig) -> None:
    model = build(replace(config, dropout=0.0))
    expected = model(batch_of(PAIRS))
    assert torch.equal(model.train()(batch_of(PAIRS)), expected)


@pytest.mark.parametrize("overhead", [0, 60, 10**9])
def test_neighbours_do_not_matter(overhead: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Backend, "group_overhead", overhead)
    model = build(TINY)
    alone = [sentences(model, [pair])[0] for pair in PAIRS]
    for order in ([0, 1, 2, 3], [3, 1, 0, 2], [2, 3]):
        for i, together in zip(order, sentences(model, [PAIRS[i] for i in order]), strict=True):
            torch.testing.assert_close(together, alone[i], rtol=0, atol=1e-12)


def decode(model: Transformer, pairs: list[tuple[list[int], list[int]]], plan: list[int]) -> list[Tensor]:
    """Returns log-probabilities (T, V) of each pair, token by token.

    `plan` gives the number of hypotheses of a sentence at each step: the true one, at a changing place, and
    rivals that read other pieces. Finished sentences leave the batch.
    """
    batch = batch_of(pairs)
    state = model.start(batch)
    targets = [[1, *target] for _, target in pairs]
    results: list[list[Tensor]] = [[] for _ in pairs]
    left, true = list(range(len(pairs))), [0] * len(pairs)
    width = 1
    for step in range(max(map(len, targets))):
        ids = torch.tensor(
            [
                [targets[i][step] if k == place else (step + k) % 10 for k in range(width)]
                for i, place in zip(left, true, strict=True)
            ]
        )
        log_probs, state = model.step(ids, state)
        assert log_probs.shape == (len(left), width, 10)
        for row, (i, place) in enumerate(zip(left, true, strict=True)):
            results[i].append(log_probs[row, place])
        new_width = plan[step % len(plan)]
        keep = [row for row, i in enumerate(left) if len(targets[i]) > step + 1]
        if not keep:
            break
        new_true = [(step + row) % new_width for row in range(len(keep))]
        rows = [
            [row * width + (true[row] if k == place else k % width) for k in range(new_width)]
            for row, place in zip(keep, new_true, strict=True)
        ]
        if width > 1 or rows != [[row] for row in range(len(left))]:  # a greedy search has nothing to reorder
            state = state.select(torch.tensor(rows))
        left, true, width = [left[row] for row in keep], new_true, new_width
    return [torch.stack(steps) for steps in results]


# Longer than the cache grows by; all but the first leave the batch before it.
LONG = [
    ([4 + i % 5 for i in range(source)], [4 + i % 6 for i in range(target)])
    for source, target in [(3, 70), (20, 25), (1, 41), (9, 40), (17, 18)]
]


@VARIANTS
@pytest.mark.parametrize(
    "plan",  # up to 8 hypotheses share a cache
    [[1], [4, 1, 2], [8, 9, 5], *(pytest.param(plan, marks=pytest.mark.slow) for plan in ([3], [12, 2]))],
    ids=str,
)
def test_steps_are_the_forward_pass(config: ModelConfig, plan: list[int]) -> None:
    model = build(config)
    with torch.no_grad():
        for pairs in (PAIRS, LONG):
            for got, expected in zip(decode(model, pairs, plan), sentences(model, pairs), strict=True):
                torch.testing.assert_close(got, expected, rtol=0, atol=1e-11)


@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(3, 9), max_size=9),
            st.lists(st.integers(3, 9), max_size=9),
        ),
        min_size=1,
        max_size=5,
    ),
    st.lists(st.integers(1, 10), min_size=1, max_size=3),
    st.sampled_from([Norm.pre, Norm.post]),
)
@settings(max_examples=30)
def test_steps_are_the_forward_pass_whatever_the_lengths(
    pairs: list[tuple[list[int], list[int]]], plan: list[int], norm: Norm
) -> None:
    model = build(replace(TINY, norm=norm, encoder_layers=1))
    with torch.no_grad():
        for pair, got in zip(pairs, decode(model, pairs, plan), strict=True):
            torch.testing.assert_close(got, sentences(model, [pair])[0], rtol=0, atol=1e-12)


def test_hypotheses_share_a_cache_that_does_not_move() -> None:
    model, rows = build(TINY), torch.tensor([[1, 0, 1, 1], [4, 7, 6, 5]])
    with torch.no_grad():
        state = model.start(batch_of(PAIRS[:2]))
        _, state = model.step(torch.ones(2, 1, dtype=torch.int64), state)
        _, state = model.step(torch.arange(8).view(2, 4), state.select(torch.tensor([[0] * 4, [1] * 4])))
        reordered = state.select(rows)
    assert reordered.cache is state.cache
    assert reordered.ancestors is not None
    assert reordered.ancestors[:, :, 1].tolist() == [[1, 0, 1, 1], [0, 3, 2, 1]]
    assert not reordered.ancestors[:, :, 0].any()  # all descend from BOS


def test_sources_are_held_once_however_many_hypotheses() -> None:
    model = build(TINY)
    batch = batch_of(PAIRS)
    with torch.no_grad():
        state = model.start(batch)
        _, state = model.step(torch.ones(4, 1, dtype=torch.int64), state)
        wide = state.select(torch.arange(4)[:, None].expand(4, 5))
    assert wide.cross is state.cross
    assert wide.num_hypotheses == 5


def test_log_probabilities_are_fp32_under_bf16() -> None:
    model = Transformer(TINY, 10, 10).eval()
    batch = batch_of(PAIRS)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        state = model.start(batch)
        log_probs, _ = model.step(torch.ones(4, 1, dtype=torch.int64), state)
        assert model.logits(model(batch)).dtype is torch.float32
    assert log_probs.dtype is torch.float32
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(4, 1))


def test_bf16_trains_every_weight_close_to_fp32() -> None:
    torch.manual_seed(0)
    model = Transformer(replace(TINY, d_model=24), 10, 10).train()
    gradients = []
    for enabled in (False, True):
        model.zero_grad()
        model.seed_dropout(3)
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            logits = model.logits(model(batch_of(PAIRS)))
        torch.nn.functional.cross_entropy(logits, batch_of(PAIRS).target_out).backward()
        assert all(parameter.grad.dtype is torch.float32 for parameter in model.parameters())
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))
    assert torch.cosine_similarity(*gradients, dim=0) > 0.99


def test_word_dropout_leaves_a_token_its_position_alone() -> None:
    """In training, for sources and targets; in translation, not at all."""
    without = build(replace(TINY, dropout=0.0)).train()
    model = build(replace(TINY, dropout=0.0, word_dropout=0.5)).train()
    model.load_state_dict(without.state_dict())
    batch = batch_of(PAIRS)

    def embedded(model: Transformer, ids: Tensor, places: Places) -> Tensor:
        return model.embed_sources(ids, places)

    sources, targets = Places.of_sources(batch.source), Places.of_targets(batch)
    for ids, places in ((batch.source_ids, sources), (batch.target_in, targets)):
        whole = embedded(without, ids, places)
        words = without.target_embedding(ids) * 12**0.5
        positions = whole - words
        model.seed_dropout(5)
        seen = embedded(model, ids, places)
        model.seed_dropout(5)
        mask = model.word_dropout(torch.ones(len(ids), 12))
        assert set(mask.unique().tolist()) == {0.0, 2.0}
        torch.testing.assert_close(seen, words * mask + positions)
    assert torch.equal(model.eval()(batch), without.eval()(batch))


def test_a_token_after_one_that_is_cut_out_has_the_bigram_of_a_first_one() -> None:
    model = build(replace(TINY, bigram_rows=50, positions=PositionsConfig("none")))
    ids, cut = torch.tensor([5, 6, 7]), torch.tensor([False, True, False])
    first = model.embed_sources(torch.tensor([7]), Places(torch.zeros(1), 1, Tensor))
    embedded = model.embed_sources(ids, Places(torch.arange(3), 3, Tensor, cut))
    assert not embedded[1].any() and torch.equal(embedded[2], first[0])
    assert not torch.equal(model.embed_sources(ids, Places(torch.arange(3), 3, Tensor))[2], first[0])


def test_dropout_is_a_pure_function_of_the_seed() -> None:
    model = build(replace(TINY, ffn_dropout=0.3, word_dropout=0.3)).train()
    batch = batch_of(PAIRS)

    def run(seed: int) -> list[Tensor]:
        model.seed_dropout(seed)
        out = model(batch)
        return [out, *torch.autograd.grad(out.sum(), list(model.parameters()), allow_unused=True)]

    first = run(7)
    torch.manual_seed(99)
    assert all(torch.equal(a, b) for a, b in zip(run(7), first, strict=True))
    assert not torch.equal(run(8)[0], first[0])
    twin = copy.deepcopy(model)
    twin.seed_dropout(7)
    model.seed_dropout(1)
    assert torch.equal(twin(batch), first[0])


@pytest.mark.parametrize(
    ("preset", "vocab_size", "expected"),
    [
        ("tiny", 8_000, 2_349_056),
        ("small", 10_000, 36_663_296),
        ("base", 37_000, 63_082_496),
        ("big", 37_000, 214_245_376),
        ("quickstart", 8_000, 6_002_688),
    ],
)
def test_presets(preset: str, vocab_size: int, expected: int) -> None:
    values = OmegaConf.load(CONFIGS / f"{preset}.yaml")
    assert values.pop("defaults") == [{"positions": "sinusoidal"}, "_self_"]
    values.positions = OmegaConf.load(CONFIGS / "positions" / "sinusoidal.yaml")
    schema = OmegaConf.structured(ModelConfig)
    assert values.keys() == schema.keys()
    config = OmegaConf.to_object(OmegaConf.merge(schema, values))
    assert isinstance(config, ModelConfig)
    with torch.device("meta"):
        num_parameters = Transformer(config, vocab_size, vocab_size).num_parameters
    assert num_parameters == expected


@pytest.mark.parametrize(("key_width", "expected"), [(16, 55_990_784), (32, 58_354_688)])
def test_row_b_of_table_3(key_width: int, expected: int) -> None:
    """The base model without 18 * 2 * (512 + 1) * 8 * (64 - key_width) weights of queries and keys."""
    with torch.device("meta"):
        model = Transformer(ModelConfig(key_width=key_width), 37_000, 37_000)
    assert model.num_parameters == expected
    attention = model.decoder_layers[0].cross_attention
    assert attention.q.weight.shape == (8 * key_width, 512)
    assert attention.kv.weight.shape == (8 * key_width + 512, 512)
    assert attention.out.weight.shape == (512, 512)
    assert model.decoder_layers[0].self_attention.qkv.weight.shape == (16 * key_width + 512, 512)
    assert attention.score.scale == pytest.approx(key_width**-0.5)


def test_every_key_of_the_presets_has_its_comment() -> None:
    for path in CONFIGS.rglob("*.yaml"):
        for line in path.read_text().splitlines():
            assert not line or line == "defaults:" or line == "  - _self_" or "#" in line, f"{path}: {line}"


def test_the_names_of_the_weights_stay() -> None:
    """Models on disk depend on these names."""
    config = replace(TINY, encoder_layers=1, decoder_layers=1)
    attention_norm = ["self_attention_norm.weight", "self_attention_norm.bias"]
    own = ["qkv.weight", "qkv.bias", "out.weight", "out.bias"]
    own = [f"self_attention.{name}" for name in own] + attention_norm
    cross = ["q.weight", "q.bias", "kv.weight", "kv.bias", "out.weight", "out.bias"]
    cross = [f"cross_attention.{name}" for name in cross] + [
        "cross_attention_norm.weight",
        "cross_attention_norm.bias",
    ]
    feed = ["inner.weight", "inner.bias", "outer.weight", "outer.bias"]
    feed = [f"feed_forward.{name}" for name in feed] + ["feed_forward_norm.weight", "feed_forward_norm.bias"]
    encoder = [f"encoder.0.{name}" for name in own + feed]
    decoder = [f"decoder.0.{name}" for name in own + cross + feed]
    final = [f"{side}_norm.{name}" for side in ("encoder", "decoder") for name in ("weight", "bias")]
    layers = encoder + decoder

    def names(tie: Tie, norm: Norm) -> list[str]:
        return list(Transformer(replace(config, tie=tie, norm=norm), 10, 10).state_dict())

    assert names(Tie.all, Norm.post) == ["target_embedding.weight", *layers]
    assert names(Tie.target, Norm.post) == ["target_embedding.weight", "source_embedding.weight", *layers]
    assert names(Tie.none, Norm.pre) == [
        "target_embedding.weight",
        "source_embedding.weight",
        "output.weight",
        *layers,
        *final,
    ]


def test_weights_start_as_they_should() -> None:
    torch.manual_seed(0)
    model = Transformer(ModelConfig(1, 1, 64, 256, 4), 2000, 2000)
    weights = dict(model.named_parameters())
    assert weights["target_embedding.weight"].std().item() == pytest.approx(1 / 8, rel=0.02)
    # Xavier-uniform of fan_in and fan_out; fused projections count separately and are smaller.
    limits = {
        "decoder.0.self_attention.qkv.weight": (3 / 128) ** 0.5,
        "decoder.0.cross_attention.kv.weight": (3 / 128) ** 0.5,
        "decoder.0.cross_attention.q.weight": (3 / 128) ** 0.5,
        "decoder.0.cross_attention.out.weight": (6 / 128) ** 0.5,
        "decoder.0.feed_forward.inner.weight": (6 / 320) ** 0.5,
        "decoder.0.feed_forward.outer.weight": (6 / 320) ** 0.5,
    }
    for name, limit in limits.items():
        assert weights[name].abs().max().item() == pytest.approx(limit, rel=0.01), name
        assert weights[name].std().item() == pytest.approx(limit / 3**0.5, rel=0.03), name
    # Fused projections of other widths begin as separate ones, too.
    narrow = dict(Transformer(ModelConfig(1, 1, 64, 256, 4, key_width=8), 9, 9).named_parameters())
    keys, values = narrow["decoder.0.cross_attention.kv.weight"].split([32, 64])
    assert keys.abs().max().item() == pytest.approx((3 / 96) ** 0.5, rel=0.01)
    assert values.abs().max().item() == pytest.approx((3 / 128) ** 0.5, rel=0.01)
    for name, weight in weights.items():
        if name.endswith("bias"):
            assert not weight.any(), name
        elif "norm" in name:
            assert (weight == 1).all(), name


@pytest.mark.parametrize("norm", Norm)
def test_layers_that_start_as_the_identity_learn(norm: Norm) -> None:
    config = replace(TINY, zero_init=True, norm=norm, dropout=0.0)
    model, batch = Transformer(config, 10, 10), batch_of(PAIRS)
    last = {name: weight for name, weight in model.named_parameters() if re.search(r"out(er)?\.weight", name)}
    assert len(last) == 2 * 2 + 2 * 3 and not any(weight.any() for weight in last.values())
    hidden = model(batch)
    embedded = model.embed_targets(batch.target_in, Places.of_targets(batch))
    torch.testing.assert_close(hidden, model.decoder_layers[0].feed_forward_norm(embedded), atol=1e-4, rtol=0)
    (hidden * torch.randn_like(hidden)).sum().backward()
    assert all(last[name].grad.any() for name in last if name.startswith("decoder"))


SOURCES = [[5, 6, 7, 8], [], [9, 8, 7, 6, 5, 4, 5], [4]]
HYPOTHESES = 2


@pytest.fixture
def model() -> Transformer:
    return build(replace(TINY, encoder_layers=1))


@torch.no_grad()
def start_of(model: Transformer, sources: list[list[int]]) -> CachedDecoderState:
    return model.start(Batch.of(sources, [()] * len(sources)))


def steps(
    model: Transformer, sources: list[list[int]], *, recorded: bool
) -> tuple[Tensor, CachedDecoderState]:
    """Steps with BOS, then with two hypotheses a sentence that read different pieces."""
    state = start_of(model, sources)
    _, state = model.step(torch.ones(len(sources), 1, dtype=torch.int64), state)
    state = state.select(torch.arange(len(sources))[:, None].expand(-1, HYPOTHESES))
    ids = torch.tensor([4, 7]).expand(len(sources), HYPOTHESES)
    return model.step(ids, state.recording() if recorded else state)


def test_recording_changes_no_log_probability(model: Transformer) -> None:
    plain, state = steps(model, SOURCES, recorded=False)
    same, recorded = steps(model, SOURCES, recorded=True)
    assert torch.equal(same, plain)
    assert state.attention is None
    assert recorded.attention is not None and list(recorded.attention) == [0, 1]


def test_weights_are_the_softmax_of_scaled_products(
    model: Transformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries: dict[int, Tensor] = {}
    attend = CachedDecoderState.cross_attend

    def watched(self: CachedDecoderState, q: Tensor, keys_values: None, score: Score, layer: int) -> Tensor:
        queries[layer] = q
        return attend(self, q, keys_values, score, layer)

    monkeypatch.setattr(CachedDecoderState, "cross_attend", watched)
    _, state = steps(model, SOURCES, recorded=True)
    assert state.attention is not None
    for layer, weights in state.attention.items():
        assert weights.shape == (len(SOURCES), TINY.heads, HYPOTHESES, 8)
        keys = state.cross[layer, 0]  # (B, H, S, E)
        q = queries[layer].view(len(SOURCES), HYPOTHESES, TINY.heads, 4)
        for sentence, source in enumerate(SOURCES):
            places = len(source) + 1
            for head in range(TINY.heads):
                scores = q[sentence, :, head] @ keys[sentence, head, :places].T / math.sqrt(4)
                found = weights[sentence, head]
                torch.testing.assert_close(found[:, :places], scores.softmax(-1), rtol=0, atol=1e-13)
                assert (found[:, places:] == 0).all()


def test_every_step_has_its_own_weights(model: Transformer) -> None:
    _, first = model.step(torch.ones(4, 1, dtype=torch.int64), start_of(model, SOURCES).recording())
    kept = first.attention
    _, second = model.step(torch.full((4, 1), 5), first.recording())
    assert kept is not None and second.attention is not None
    assert first.attention is kept
    assert not torch.equal(kept[0], second.attention[0])


def test_recorded_attention_does_not_depend_on_neighbours(model: Transformer) -> None:
    _, together = steps(model, SOURCES, recorded=True)
    assert together.attention is not None
    for sentence, source in enumerate(SOURCES):
        _, alone = steps(model, [source], recorded=True)
        assert alone.attention is not None
        for layer, weights in alone.attention.items():
            expected = together.attention[layer][sentence, :, :, : len(source) + 1]
            torch.testing.assert_close(weights[0], expected, rtol=0, atol=1e-12)
