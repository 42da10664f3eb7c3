"""A model of transformers' Marian: loaded by transformers, its ids, and the names of its weights.

Marian's sinusoids have the sines in the first half of the dimensions and the cosines in the second. Those of
the paper alternate. A permutation of the dimensions of hidden states between sub-layers turns one into the
other: embeddings, norms, and the sides of the matrices that read or write these states are permuted. The sums
of a product have another order then, so results agree up to rounding.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import sentencepiece as spm
import torch
from torch import Tensor

from nmt.config import ModelConfig, Tie
from nmt.data.subwords.vocabulary import BOS_ID, EOS_ID, FORBIDDEN_IDS, PAD_ID
from nmt.decoding.search_batches import batches_by_length
from nmt.interop.parity import equally_probable

_BATCH_TOKENS = 2048


@dataclass(frozen=True)
class Numbering:
    """The ids of a Marian model, by the ids here.

    Attributes:
        source: (V,) their id of each source piece.
        target: (V,) their id of each target piece. That of BOS begins a translation.
    """

    source: Sequence[int]
    target: Sequence[int]

    @classmethod
    def of(cls, source: tuple[int, int, int, int, int], target: tuple[int, int, int, int, int]) -> Numbering:
        """Numbers both sides; each is given by its size and its ids of pad, start, eos and unk.

        Where a translation begins with the padding id, that id has two numbers here: PAD and BOS.
        """
        sides = []
        for size, *special in (source, target):
            others = [id for id in range(size) if id not in special]
            sides.append([*special, *others])
        return cls(*sides)

    @property
    def starts_with_padding(self) -> bool:
        """Whether a translation begins with the padding id."""
        return self.target[BOS_ID] == self.target[PAD_ID]

    @property
    def is_identity(self) -> bool:
        """Whether the ids are the same."""
        return all(list(side) == list(range(len(side))) for side in (self.source, self.target))


class MarianModel:
    """A Marian model on the CPU in fp32; see `ForeignModel`.

    Args:
        model: a `MarianMTModel`.
        report: the report of transformers about loading it.
        tokenizer: a `MarianTokenizer`.
        source_model: the SentencePiece model of the source side.
        numbering: the ids of the model; None, for an export: they are ours.

    Raises:
        ValueError: transformers has drawn a weight at random, or has ignored one.
    """

    def __init__(
        self,
        model: Any,
        report: Mapping[str, Any],
        tokenizer: Any,
        source_model: bytes,
        numbering: Numbering | None = None,
    ) -> None:
        surplus = [name for name in report["unexpected_keys"] if "embed_positions" not in name]
        problems = {"lacks": report["missing_keys"], "config.json has no place for": surplus}
        for problem, names in problems.items():
            if names:
                weights = "weights, such as" if len(names) > 1 else "weight,"
                raise ValueError(f"{problem} {len(names)} {weights} {min(names)}")
        self.model, self._tokenizer = model.eval(), tokenizer
        self._source = spm.SentencePieceProcessor(model_proto=source_model)
        config = self.model.config
        self._forbids = numbering is None  # its own options have the ids that must not be written
        numbering = numbering or Numbering(range(config.vocab_size), range(config.decoder_vocab_size))
        self._has_our_ids = numbering.is_identity
        self._to_source, self._to_target = numbering.source, numbering.target
        # The first number of an id: that of PAD rather than of BOS.
        self._from_source, self._from_target = (
            {theirs: ours for ours, theirs in reversed([*enumerate(side)])}
            for side in (self._to_source, self._to_target)
        )

    @classmethod
    def load(cls, folder: Path) -> MarianModel:
        """Loads an export of nmt as its users do. Raises `ValueError` if a weight is missing or surplus."""
        from transformers import MarianMTModel, MarianTokenizer

        load: Any = MarianMTModel.from_pretrained
        with quiet():
            tokenizer = MarianTokenizer.from_pretrained(folder)
            # In half precision, the table of positions would be rounded, too.
            model, report = load(folder, dtype=torch.float32, output_loading_info=True)
        return cls(model, report, tokenizer, (folder / "source.spm").read_bytes())

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """See `ForeignModel.encode`."""
        encoded = ([*map(int, self._tokenizer(line)["input_ids"])][:-1] for line in lines)
        return [[self._from_source[id] for id in ids] for ids in encoded]

    def encodings_tie(self, line: str, ids: Sequence[int]) -> bool:
        """See `ForeignModel.encodings_tie`. A `MarianVocabulary` encodes whole lines, too: no ties."""
        return self._has_our_ids and equally_probable(self._source, line, ids)

    def encode_target(self, lines: Sequence[str]) -> list[list[int]]:
        """See `ForeignModel.encode_target`."""
        encoded = ([*map(int, self._tokenizer(text_target=line)["input_ids"])][:-1] for line in lines)
        return [[self._from_target[id] for id in ids] for ids in encoded]

    def decode(self, targets: Sequence[Sequence[int]]) -> list[str]:
        """See `ForeignModel.decode`."""
        texts: list[str] = self._tokenizer.batch_decode(
            [_numbers(ids, self._to_target) for ids in targets], skip_special_tokens=True
        )
        return texts

    @torch.inference_mode()
    def translate(self, sources: Sequence[Sequence[int]], limits: Sequence[int]) -> list[list[int]]:
        """See `ForeignModel.translate`."""
        options: dict[str, Any] = {}
        if not self._forbids:
            forbidden = sorted({self._to_target[id] for id in FORBIDDEN_IDS})
            options = {"bad_words_ids": [[id] for id in forbidden], "forced_eos_token_id": None}
        end_id = self._to_target[EOS_ID]
        translations: list[list[int]] = [[] for _ in sources]
        for rows in _batches([max(len(ids), limit) for ids, limit in zip(sources, limits, strict=True)]):
            ids, mask = self._sources([sources[row] for row in rows])
            longest = max(limits[row] for row in rows)
            output = self.model.generate(
                input_ids=ids,
                attention_mask=mask,
                num_beams=1,
                do_sample=False,
                max_length=longest + 1,
                **options,
            )
            for row, result in zip(rows, output[:, 1:].tolist(), strict=True):
                end = result.index(end_id) if end_id in result else len(result)
                translations[row] = [self._from_target[id] for id in result[: min(end, limits[row])]]
        return translations

    @torch.inference_mode()
    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        """See `ForeignModel.score`."""
        scores: list[list[float]] = [[] for _ in sources]
        for rows in _batches([max(len(a), len(b)) + 1 for a, b in zip(sources, targets, strict=True)]):
            ids, mask = self._sources([sources[row] for row in rows])
            read = _padded([_numbers([BOS_ID, *targets[row]], self._to_target) for row in rows])[0]
            written = _padded([_numbers([*targets[row], EOS_ID], self._to_target) for row in rows])[0]
            logits = self.model(input_ids=ids, attention_mask=mask, decoder_input_ids=read).logits
            own = logits.float().log_softmax(-1).gather(-1, written[..., None])[..., 0]
            for row, values in zip(rows, own.tolist(), strict=True):
                scores[row] = values[: len(targets[row]) + 1]
        return scores

    def _sources(self, sources: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        rows = [_numbers([*ids, EOS_ID], self._to_source) for ids in sources]
        return _padded(rows, self._to_source[PAD_ID])


def _numbers(ids: Sequence[int], numbers: Sequence[int]) -> list[int]:
    return [numbers[id] for id in ids]


def _batches(lengths: Sequence[int]) -> Sequence[Sequence[int]]:
    return batches_by_length(lengths, _BATCH_TOKENS, _BATCH_TOKENS)


@contextmanager
def quiet() -> Iterator[None]:
    """Hides the progress bars and the advice of transformers."""
    from transformers import utils

    logging: Any = utils.logging  # it has no annotations
    was_active, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # sacremoses is not needed: nothing calls the normaliser
            yield
    finally:
        logging.set_verbosity(level)
        if was_active:
            logging.enable_progress_bar()


def _padded(rows: Sequence[Sequence[int]], pad: int = 0) -> tuple[Tensor, Tensor]:
    """Returns (B, L) ids, filled up with `pad`, and their mask."""
    longest = max(map(len, rows))
    ids = torch.tensor([[*row, *[pad] * (longest - len(row))] for row in rows])
    lengths = torch.tensor([*map(len, rows)])
    return ids, (torch.arange(longest) < lengths[:, None]).long()


FORBIDDING_BIAS = -1000.0
"""The bias of a piece that is never written: its probability is zero in fp32."""
LAYOUT_KEY = "nmt_position_layout"
"""Key in config.json of an export: the layout of the sinusoids of the model that was exported. An import
reverses the permutation."""


class Module(NamedTuple):
    """A matrix with its bias, or a norm.

    Attributes:
        ours: its name here.
        theirs: its names there; several of theirs are one of ours, one after the other.
        reads: whether the columns of its matrix read hidden states. Otherwise its rows write them.
    """

    ours: str
    theirs: tuple[str, ...]
    reads: bool

    def permuted(self, weight: Tensor, order: Tensor) -> Tensor:
        """Returns its matrix or its bias with the dimensions of hidden states in another order (D,)."""
        if not self.reads:
            return weight[order]
        return weight[:, order] if weight.dim() == 2 else weight


def modules(config: ModelConfig) -> Iterator[Module]:
    """Yields the modules of all layers."""
    for side, count in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for number in range(count):
            ours, theirs = f"{side}.{number}.", f"model.{side}.layers.{number}."
            attentions = {"self_attn": "self_attention"}
            parts = tuple(f"{theirs}self_attn.{part}_proj" for part in "qkv")
            yield Module(f"{ours}self_attention.qkv", parts, reads=True)
            if side == "decoder":
                attentions["encoder_attn"] = "cross_attention"
                yield Module(f"{ours}cross_attention.q", (f"{theirs}encoder_attn.q_proj",), reads=True)
                parts = tuple(f"{theirs}encoder_attn.{part}_proj" for part in "kv")
                yield Module(f"{ours}cross_attention.kv", parts, reads=True)
            for name, attention in attentions.items():
                yield Module(f"{ours}{attention}.out", (f"{theirs}{name}.out_proj",), reads=False)
                yield Module(f"{ours}{attention}_norm", (f"{theirs}{name}_layer_norm",), reads=False)
            yield Module(f"{ours}feed_forward.inner", (f"{theirs}fc1",), reads=True)
            yield Module(f"{ours}feed_forward.outer", (f"{theirs}fc2",), reads=False)
            yield Module(f"{ours}feed_forward_norm", (f"{theirs}final_layer_norm",), reads=False)


def theirs_of(config: ModelConfig, ours: Mapping[str, Tensor], order: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yields the weights of all layers under their names; `order` (D,) has ours for their dimensions."""
    for module, kind in itertools.product(modules(config), ("weight", "bias")):
        weight = module.permuted(ours[f"{module.ours}.{kind}"], order)
        names = [f"{name}.{kind}" for name in module.theirs]
        yield from zip(names, weight.chunk(len(names)), strict=True)


def ours_of(config: ModelConfig, theirs: Mapping[str, Tensor], order: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yields the weights of all layers under our names; reverses `theirs_of`."""
    back = torch.argsort(order)
    for module, kind in itertools.product(modules(config), ("weight", "bias")):
        weight = torch.cat([theirs[f"{name}.{kind}"] for name in module.theirs])
        yield f"{module.ours}.{kind}", module.permuted(weight, back)


def halves_order(d_model: int) -> Tensor:
    """Returns for each dimension of Marian's order that of the paper: 0, 2, 4, ..., 1, 3, 5, ...; (D,)."""
    return torch.cat([torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)])


def our_weights(
    config: ModelConfig, state: Mapping[str, Tensor], numbering: Numbering
) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Returns the options and the weights under our names; `state` has them under their names.

    `tie` and `output_bias` of the options are set.
    """
    interleaved = not config.positions.options
    order = halves_order(config.d_model) if interleaved else torch.arange(config.d_model)
    back = torch.argsort(order)
    theirs = {
        "source": state["model.encoder.embed_tokens.weight"],
        "target": state["model.decoder.embed_tokens.weight"],
        "output": state["lm_head.weight"],
    }
    tie = Tie.none
    if torch.equal(theirs["target"], theirs["output"]):
        same = theirs["source"].shape == theirs["target"].shape and torch.equal(
            theirs["source"], theirs["target"]
        )
        tie = Tie.all if same else Tie.target
    rows = {"source": numbering.source, "target": numbering.target, "output": numbering.target}
    ours = {name: weight[torch.tensor(rows[name])][:, back] for name, weight in theirs.items()}
    weights = {"target_embedding.weight": ours["target"]}
    if tie is not Tie.all:
        weights["source_embedding.weight"] = ours["source"]
    if tie is Tie.none:
        weights["output.weight"] = ours["output"]
    bias = state["final_logits_bias"][0][torch.tensor(numbering.target)].clone()
    if numbering.starts_with_padding:
        bias[[PAD_ID, BOS_ID]] -= math.log(2)
    has_bias = bool(bias.any())
    if has_bias:
        weights["logit_bias"] = bias
    weights |= ours_of(config, state, order)
    return replace(config, tie=tie, output_bias=has_bias), weights
