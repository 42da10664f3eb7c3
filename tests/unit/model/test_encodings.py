"""Each positional encoding: literal values, an independent twin, and the properties of all encodings."""

from __future__ import annotations

import cmath
import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from test_attention import Watching
from test_transformer import PAIRS, TINY, batch_of, build, decode, sentences
from torch import Tensor

from nmt.config import ModelConfig, PositionsConfig
from nmt.data.batches.batching import Batch
from nmt.errors import UserError
from nmt.model import POSITIONS, Transformer
from nmt.model.cpu.cached import CachedDecoderState
from nmt.model.positions import T5, ALiBi, Places, Positions, Relative, Shape, build_positions

EVEN = replace(TINY, d_model=12, heads=3)
NAMES = list(POSITIONS)


def configured(name: str, **more: object) -> ModelConfig:
    return replace(EVEN, positions=PositionsConfig(name), **more)


def shape(heads: int, width: int, *, causal: bool, layers: int = 2) -> Shape:
    return Shape(heads * width, heads, layers, causal, width**-0.5)


def embedded(name: str, width: int, positions: list[int], lengths: list[int]) -> list[list[float]]:
    """Returns the values that an encoding adds to embeddings of zeros."""
    encoding = build_positions(PositionsConfig(name), shape(1, width, causal=False))
    places = Places(torch.tensor(positions), max(positions) + 1, lambda: torch.tensor(lengths))
    rows: list[list[float]] = encoding.embed(torch.zeros(len(positions), width), places).tolist()
    return rows


def test_naive_encodings_by_hand() -> None:
    assert embedded("none", 2, [0, 5], [6, 6]) == [[0, 0], [0, 0]]
    assert embedded("integer", 2, [0, 5], [6, 6]) == [[0, 0], [5, 5]]
    assert embedded("normalised", 2, [0, 3, 5], [6, 6, 20]) == [[0, 0], [0.5, 0.5], [0.25, 0.25]]
    assert embedded("binary", 4, [0, 1, 6, 11], [12] * 4) == [
        [0, 0, 0, 0],
        [1, 0, 0, 0],
        [0, 1, 1, 0],
        [1, 1, 0, 1],
    ]
    assert len(embedded("binary", 100, [10**9], [10**9 + 1])[0]) == 100


OTHERS = [
    replace(EVEN, positions=PositionsConfig("t5", {"buckets": 8}, "relative", {"clip": 2})),
    *(configured("t5", attention=score, attention_window=window)
      for score in ("dot", "additive") for window in (None, 2)),
    configured("relative", key_width=3, value_width=5, attention_window=2),
    configured("rotary", key_width=2, value_width=5),
    configured("alibi", key_width=5, attention="additive"),
]  # fmt: skip


@pytest.mark.parametrize(
    "config", [*map(configured, NAMES), *OTHERS], ids=[*NAMES, *map(str, range(len(OTHERS)))]
)
@pytest.mark.parametrize("plan", [[1], [4, 1, 2], [9, 3]], ids=str)
def test_steps_are_the_forward_pass(config: ModelConfig, plan: list[int]) -> None:
    model = build(config)
    for got, expected in zip(decode(model, PAIRS, plan), sentences(model, PAIRS), strict=True):
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_neighbours_do_not_matter(name: str) -> None:
    model = build(configured(name))
    alone = [sentences(model, [pair])[0] for pair in PAIRS]
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        for i, together in zip(order, sentences(model, [PAIRS[i] for i in order]), strict=True):
            torch.testing.assert_close(together, alone[i], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_all_weights_learn(name: str) -> None:
    model = build(configured(name)).train()
    model(batch_of(PAIRS)).square().sum().backward()
    for weight, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.any(), weight


@pytest.mark.parametrize("name", NAMES)
def test_only_without_an_encoding_the_encoder_commutes_with_permutations(name: str) -> None:
    model = build(configured(name))
    ids = torch.tensor([5, 6, 7, 8, 9, 2])
    order = torch.tensor([3, 1, 0, 5, 4, 2])
    layout = Batch.of([ids[:-1].tolist()], [[]]).source
    found, permuted = model.encode(ids, layout), model.encode(ids[order], layout)
    same = torch.allclose(permuted, found[order], rtol=0, atol=1e-5)
    assert same is (name == "none")


def test_the_decoder_may_have_another_one() -> None:
    model = build(OTHERS[0])
    assert isinstance(model.encoder_positions, T5) and isinstance(model.decoder_positions, Relative)
    weights = model.state_dict()
    assert weights["encoder_positions.table"].shape == (8, 3)
    assert weights["decoder_positions.keys"].shape == (2, 5, 4)


@pytest.mark.parametrize("name", sorted({*NAMES} - {"learned"}))
def test_a_step_at_position_10_000_makes_no_square(name: str) -> None:
    model = build(configured(name))
    with torch.no_grad():
        state = model.start(batch_of(PAIRS[:2]))
        room = F.pad(state.cache, (*(0,) * 8, 0, 10_001))
        sizes: list[int] = []
        with Watching(sizes):
            log_probs, _ = model.step(torch.tensor([[4], [5]]), replace(state, cache=room, length=10_000))
    assert log_probs.isfinite().all()
    assert max(sizes) <= room.numel()


def test_learned_has_a_last_position() -> None:
    config = replace(EVEN, positions=PositionsConfig("learned", {"max_positions": 4}))
    model = build(config)
    assert (model.max_source_len, model.max_target_len) == (4, 4)
    model(Batch.of([[5, 6, 7]], [[4, 5, 6]]))
    with pytest.raises(UserError, match=r"a source sentence has 5 tokens, but the learned encoding has 4"):
        model(Batch.of([[5, 6, 7, 8]], [[4]]))
    with pytest.raises(UserError, match=r"a target sentence has 5 tokens"):
        model(Batch.of([[5]], [[4, 5, 6, 7]]))


@pytest.mark.parametrize("name", sorted({*NAMES} - {"learned"}))
def test_others_take_any_length(name: str) -> None:
    model = build(configured(name))
    assert model.max_source_len is None and model.max_target_len is None
    assert model(Batch.of([[5] * 600], [[4] * 600])).isfinite().all()


@pytest.mark.parametrize("name", ["rotary", "relative"])
def test_encodings_of_products_refuse_an_additive_score(name: str) -> None:
    expected = rf"model\.attention=additive: the positional encoding {name} needs dot-product scores\. "
    with pytest.raises(UserError, match=expected):
        Transformer.check(configured(name, attention="additive"))
    with pytest.raises(UserError, match=expected):
        Transformer.check(
            replace(EVEN, attention="additive", positions=PositionsConfig("sinusoidal", decoder=name))
        )
    Transformer.check(configured("t5", attention="additive"))


def test_options_are_checked_before_a_model_is_built() -> None:
    with pytest.raises(UserError, match="rotary needs heads of an even width, not 5"):
        Transformer.check(replace(configured("rotary"), d_model=15, heads=3))
    with pytest.raises(UserError, match=r"even width, not 3\. Change model\.key_width, model\.heads or"):
        Transformer.check(configured("rotary", key_width=3))
    Transformer.check(configured("rotary", value_width=3))
    with pytest.raises(UserError, match=r"options\.buckets=7: must be a multiple of 4"):
        Transformer.check(replace(EVEN, positions=PositionsConfig("t5", {"buckets": 7})))
    with pytest.raises(UserError, match=r"options\.max_distance=16: must be between 17 and"):
        Transformer.check(replace(EVEN, positions=PositionsConfig("t5", {"max_distance": 16})))
    with pytest.raises(UserError, match=r"model\.attention=absent: there is no attention score absent"):
        Transformer.check(replace(EVEN, attention="absent"))


def test_rotary_is_a_product_with_complex_numbers() -> None:
    """Dimensions i and i + E/2 are the real and the imaginary part, rotated by position * 10000^(-2i/E)."""
    width = 6
    rotary = build_positions(PositionsConfig("rotary"), shape(2, width, causal=True))
    q = torch.randn(3, 2, width, dtype=torch.float64)
    positions = [0, 1, 200]
    turned, _ = rotary.rotate(q, q, torch.tensor(positions))
    for token, position in enumerate(positions):
        for head in range(2):
            for i in range(width // 2):
                number = complex(q[token, head, i], q[token, head, i + width // 2])
                number *= cmath.exp(1j * position * 10000 ** (-2 * i / width))
                assert turned[token, head, i].item() == pytest.approx(number.real, abs=1e-5)
                assert turned[token, head, i + width // 2].item() == pytest.approx(number.imag, abs=1e-5)


def test_slopes_of_alibi() -> None:
    """8 heads: as in the paper; 12 heads: the authors add every other slope of 16 heads."""
    eight = ALiBi(None, shape(8, 4, causal=True)).slopes
    assert eight.tolist() == [2.0**-i for i in range(1, 9)]
    twelve = ALiBi(None, shape(12, 4, causal=True)).slopes
    assert twelve[:8].tolist() == eight.tolist()
    assert twelve[8:].tolist() == pytest.approx([2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5])


def bias(encoding: Positions, queries: int, keys: int) -> Tensor:
    q = torch.zeros(1, encoding.shape.heads, queries, 4)
    found = encoding.bias(q, torch.arange(queries), torch.arange(keys), 0)
    assert found is not None
    return found


def test_alibi_by_hand() -> None:
    found = bias(ALiBi(None, shape(2, 4, causal=False)), 3, 4)
    near, far = 2.0**-4, 2.0**-8
    distances = torch.tensor([[0.0, 1, 2, 3], [1, 0, 1, 2], [2, 1, 0, 1]])
    assert torch.equal(found, -torch.stack([near * distances, far * distances]))


@pytest.mark.parametrize(
    ("causal", "distances", "buckets"),
    [
        (True, [0, 1, 2, 3, 4, 5, 6, 8, 11, 12, 15, 16, 100], [0, 1, 2, 3, 4, 4, 5, 6, 6, 7, 7, 7, 7]),
        (True, [-1, -5], [0, 0]),
        (False, [20, 3, 2, 1, 0, -1, -2, -3, -20], [3, 2, 2, 1, 0, 5, 6, 6, 7]),
    ],
)
def test_buckets_of_t5(causal: bool, distances: list[int], buckets: list[int]) -> None:
    """8 buckets up to distance 16, numbered as in the paper's program; a bias is looked up by its bucket."""
    encoding = T5(T5.Options(8, 16), shape(2, 4, causal=causal))
    for query in (99, 100):
        places = query - torch.tensor(distances)
        assert torch.equal(bias(encoding, 101, 121)[:, query, places.clamp(0)], encoding.table[buckets].T)


def test_relative_positions_are_added_to_keys_and_values() -> None:
    """Equations 3 and 4 of Shaw et al., with a tensor of (Lq, Lk, E) that the encoding avoids."""
    encoding = Relative(Relative.Options(clip=2), shape(2, 4, causal=False))
    assert encoding.outputs is not None
    q, weights = torch.randn(3, 2, 6, 4), torch.rand(3, 2, 6, 6)
    places = torch.arange(6)
    near = (places - places[:, None]).clamp(-2, 2) + 2
    found = encoding.bias(q, places, places, 1)
    expected = torch.einsum("bhqe,qke->bhqk", q, encoding.keys[1][near]) / math.sqrt(4)
    torch.testing.assert_close(found, expected)
    values = encoding.values(weights, places, places, 1)
    torch.testing.assert_close(values, torch.einsum("bhqk,qke->bhqe", weights, encoding.outputs[1][near]))
    without = Relative(Relative.Options(values=False), shape(2, 4, causal=False))
    assert without.values(weights, places, places, 1) is None and len(list(without.parameters())) == 1


def test_lengths_in_a_search_are_those_of_the_sources_and_fifty() -> None:
    model = build(configured("normalised"))
    state = model.start(batch_of(PAIRS))
    assert isinstance(state, CachedDecoderState)
    state = state.select(torch.tensor([[0, 0], [2, 2]]))
    assert state.places.lengths.tolist() == [55, 55, 52, 52]
