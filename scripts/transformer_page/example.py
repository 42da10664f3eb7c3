"""A sentence pair in a trained model: its pieces, and the numbers of each step of encoder and decoder.

Everything is computed by the functions that train and translate, in fp64. So the numbers are the same on
every machine. Functions return tables; their cells need no translation.

Shapes: S source and T target tokens, D d_model, H heads, E width of a head, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from page_tables import Table
from torch import Tensor

from nmt.bundle import Bundle
from nmt.config import NormKind
from nmt.data.batches.batching import Batch
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.data.subwords.vocabulary import BOS_ID, EOS_ID
from nmt.errors import UserError
from nmt.model.attention import Dot, normalised, separated
from nmt.model.positions import Places
from nmt.model.transformer import EncoderLayer, SelfAttention, Transformer
from nmt.training.update.loss import Losses, training_loss

DIMENSIONS = 4
"""Dimensions of a vector that a table shows."""
SMOOTHING = 0.1
"""Label smoothing of the paper (section 5.4)."""


@dataclass(frozen=True, eq=False)
class Example:
    """A pair of the corpus, as a batch of one pair.

    Attributes:
        model: in fp64, in evaluation mode.
        tokenizer: that of the model.
        batch: the pair.
        source: its S pieces, EOS last, as code.
        reads: the T pieces that the decoder reads, BOS first, as code.
        predicts: the T pieces that it is to predict, EOS last, as code.
        query: the place of the source piece whose vectors are shown.
    """

    model: Transformer
    tokenizer: Tokenizer
    batch: Batch
    source: list[str]
    reads: list[str]
    predicts: list[str]
    query: int

    @classmethod
    def of(cls, bundle: Bundle, source: str, target: str, query: int) -> Example:
        """Encodes a pair.

        Raises:
            UserError: the model is not a Transformer as in the paper.
        """
        model, config, tokenizer = bundle.model, bundle.config.model, bundle.tokenizer
        is_plain = config.attention == "scaled_dot" and config.attention_window is None
        later = {
            key: getattr(config, key) for key in ("gated", "value_skip", "embedding_skip", "bigram_rows")
        }
        is_plain = is_plain and not any(later.values()) and config.norm_kind is NormKind.layer
        if not (isinstance(model, Transformer) and is_plain and config.positions.name == "sinusoidal"):
            raise UserError(
                f"{bundle.folder}: not a Transformer with scaled dot products and sinusoidal positions. "
                "Give another model."
            )
        source_ids, target_ids = tokenizer.encode_source([source])[0], tokenizer.encode_target([target])[0]
        pieces = codes(tokenizer.target.pieces_of([BOS_ID, *target_ids, EOS_ID]))
        return cls(
            model.double(),
            tokenizer,
            Batch.of([source_ids], [target_ids]),
            codes(tokenizer.source.pieces_of([*source_ids, EOS_ID])),
            pieces[:-1],
            pieces[1:],
            min(query, len(source_ids) - 1),
        )

    @property
    def layer(self) -> EncoderLayer:
        """The first layer of the encoder."""
        return self.model.encoder_layers[0]

    def inputs(self) -> Tensor:
        """(S, D), the input of the encoder."""
        return self.model.embed_sources(self.batch.source_ids, Places.of_sources(self.batch.source))

    def attention_inputs(self) -> Tensor:
        """(S, D), what the first self-attention reads: with pre-norm, the normalised input of the encoder."""
        return self.layer.self_attention_norm(self.inputs()) if self.layer.pre else self.inputs()

    def queries_keys_values(self) -> tuple[Tensor, ...]:
        """The queries, keys and values of the first self-attention, (1, H, S, E) each."""
        return _queries_keys_values(self.layer.self_attention, self.attention_inputs())

    def log_probs(self) -> Tensor:
        """(T, V), the log-probabilities of the next piece, all in one pass (teacher forcing)."""
        return self.model.log_probs(self.model(self.batch))

    def stepwise_log_probs(self) -> Tensor:
        """(T, V), the same, one step of a search after the other."""
        state, rows = self.model.start(self.batch), []
        for identifier in self.batch.target_in:
            log_probs, state = self.model.step(identifier.view(1, 1), state)
            rows.append(log_probs[0, 0])
        return torch.stack(rows)

    def losses(self, place: int) -> Losses:
        """The losses of one target token."""
        model, rows = self.model, slice(place, place + 1)
        hidden = model(self.batch)[rows]
        target = self.batch.target_out[rows]
        return training_loss(hidden, model.output_weight, target, model.output_bias, smoothing=SMOOTHING)


def _queries_keys_values(attention: SelfAttention, x: Tensor) -> tuple[Tensor, ...]:
    """(N, D) → queries, keys and values of one sentence, (1, H, N, E) each."""
    return tuple(part.transpose(0, 1)[None] for part in separated(attention.projected(x)))


def codes(pieces: Sequence[str]) -> list[str]:
    """Pieces as code of Markdown."""
    return [f"`{piece}`" for piece in pieces]


def shown(value: Tensor | float, digits: int = 2) -> str:
    """A number as the pages show it."""
    text = f"{float(value):,.{digits}f}"
    return text.removeprefix("-") if not text.strip("-0.,") else text


def source_pieces(example: Example) -> Table:
    """Place, piece and id of each source token."""
    ids = example.batch.source_ids.tolist()
    return Table([[str(place), piece, str(ids[place])] for place, piece in enumerate(example.source)])


def target_pieces(example: Example) -> Table:
    """Place, and piece and id that the decoder reads and is to predict."""
    rows = zip(
        example.reads,
        example.batch.target_in.tolist(),
        example.predicts,
        example.batch.target_out.tolist(),
        strict=True,
    )
    return Table([[str(place), *map(str, row)] for place, row in enumerate(rows)])


def embedding(example: Example) -> Table:
    """By dimension: embedding, times √D, position, and the sum."""
    model, place = example.model, example.query
    matrix = model.source_embedding or model.target_embedding
    vectors = matrix(example.batch.source_ids)[place]
    inputs = example.inputs()
    places = Places.of_sources(example.batch.source)
    positions = model.encoder_positions.embed(torch.zeros_like(inputs), places)[place]
    rows = zip(vectors, inputs[place] - positions, positions, inputs[place], strict=True)
    return Table([[str(d), *(shown(x, 3) for x in row)] for d, row in enumerate(rows)][:DIMENSIONS])


def projections(example: Example) -> Table:
    """By dimension: the query, the key and the value of a piece, in the first head."""
    vectors = [part[0, 0, example.query] for part in example.queries_keys_values()]
    rows = zip(*vectors, strict=True)
    return Table([[str(d), *(shown(x, 3) for x in row)] for d, row in enumerate(rows)][:DIMENSIONS])


def scores(example: Example) -> Table:
    """By key: the dot product with the query in the first head, scaled, and the weights of all heads."""
    q, k, _ = example.queries_keys_values()
    score = example.layer.self_attention.score
    products = Dot(score.heads, score.width)(q, k)[0, 0, example.query]
    scaled = score(q, k)
    weights = normalised(scaled)[0, :, example.query]  # (H, S)
    rows = [
        [piece, shown(products[j]), shown(scaled[0, 0, example.query, j]), *map(shown, weights[:, j])]
        for j, piece in enumerate(example.source)
    ]
    return Table(rows)


def head_facts(example: Example) -> dict[str, str]:
    """The weight of the piece before that the third piece reads, in the second head of the first layer."""
    weights = example.model.attention_weights(example.batch).encoder
    assert weights is not None
    return {"head 2, weight of the piece before": shown(weights[0, -1, 2, 1])}


def sublayer(example: Example) -> Table:
    """By dimension: the concatenated heads, their projection, the residual sum, and that normalised."""
    layer, x = example.layer, example.inputs()
    heads = _heads(example)
    projected = layer.self_attention.out(heads)
    after = _after_attention(example)
    vectors = [part[example.query] for part in (heads, projected, x, x + projected, after)]
    rows = zip(*vectors, strict=True)
    return Table([[str(d), *(shown(value, 3) for value in row)] for d, row in enumerate(rows)][:DIMENSIONS])


def _heads(example: Example) -> Tensor:
    """(S, D), the outputs of all heads of the first self-attention, concatenated."""
    layer = example.layer.self_attention
    qkv = layer.projected(example.attention_inputs())
    return example.model.attention_of_sources(example.batch.source).self_attend(qkv, layer.score, 0)


def _after_attention(example: Example) -> Tensor:
    """(S, D), what the feed-forward network of the first layer reads."""
    layer, x = example.layer, example.inputs()
    attention = example.model.attention_of_sources(example.batch.source)
    after = layer.sublayer(x, layer.self_attention_norm, lambda y: layer.self_attention(y, attention))
    return layer.feed_forward_norm(after) if layer.pre else after


def norm_facts(example: Example) -> dict[str, str]:
    """Mean and variance over the dimensions of a piece, before and after the norm without its weights."""
    added = example.inputs() + example.layer.self_attention.out(_heads(example))
    vector = added[example.query]
    normal = F.layer_norm(vector, vector.shape)
    return {
        "residual sum, mean": shown(vector.mean()),
        "residual sum, variance": shown(vector.var(correction=0)),
        "normalised, mean": shown(normal.mean()),
        "normalised, variance": shown(normal.var(correction=0)),
    }


def feed_forward_facts(example: Example) -> dict[str, str]:
    """The share of inner units that are 0, and the difference from two convolutions of width 1."""
    network, x = example.layer.feed_forward, _after_attention(example)
    first, second = network.inner, network.outer
    inner = F.conv1d(x.T[None], first.weight[:, :, None], first.bias)
    inner = network.activation(inner)
    convolved = F.conv1d(inner, second.weight[:, :, None], second.bias)[0].T
    return {
        "inner units at 0, percent": shown(100 * (inner == 0).double().mean(), 0),
        "difference from convolutions": below(convolved - network(x)),
    }


def below(difference: Tensor) -> str:
    """The power of ten above the largest value of a difference that is a rounding error."""
    largest = float(difference.abs().max())
    assert largest < 1e-12, largest
    return "1e-12"


def causal_scores(example: Example) -> Table:
    """The scaled scores of the first head in the first self-attention of the decoder, all keys."""
    return _matrix(example.reads, example.reads, _decoder_scores(example)[0, 0])


def _decoder_scores(example: Example) -> Tensor:
    """(1, H, T, T), the scaled scores of the first self-attention of the decoder, before the mask."""
    model, layer = example.model, example.model.decoder_layers[0]
    x = model.embed_targets(example.batch.target_in, Places.of_targets(example.batch))
    q, k, _ = _queries_keys_values(layer.self_attention, layer.self_attention_norm(x) if layer.pre else x)
    scores: Tensor = layer.self_attention.score(q, k)
    return scores


def causal_weights(example: Example) -> Table:
    """The weights of the same head after the mask."""
    weights = example.model.attention_weights(example.batch).decoder
    assert weights is not None
    return _matrix(example.reads, example.reads, weights[0, 0])


def cross_weights(example: Example) -> Tensor:
    """(T, S), the attention to the source in the last layer, the mean over its heads."""
    return example.model.attention_weights(example.batch).cross[-1].mean(0)


def cross_attention(example: Example) -> Table:
    """The table of `cross_weights`, with what the decoder reads and is to predict."""
    table = _matrix(example.reads, example.source, cross_weights(example))
    rows = [[row[0], piece, *row[1:]] for row, piece in zip(table.rows, example.predicts, strict=True)]
    return Table(rows, table.columns)


def _matrix(rows: Sequence[str], columns: Sequence[str], values: Tensor) -> Table:
    """A row for each query, a column for each key; 0 without digits is exact, that of a mask."""
    cells = [["0" if value == 0 else shown(value) for value in line] for line in values]
    return Table([[name, *line] for name, line in zip(rows, cells, strict=True)], columns)


def uses(example: Example) -> Table:
    """The three uses of attention: shape of the weights, keys that the first and the last query see."""
    weights = example.model.attention_weights(example.batch)
    rows = []
    for name, part in (("encoder", weights.encoder), ("decoder", weights.decoder), ("cross", weights.cross)):
        assert part is not None
        seen = (part[0, 0] > 0).sum(1)
        rows.append([f"`{name}`", f"{tuple(part.shape)}", str(int(seen[0])), str(int(seen[-1]))])
    return Table(rows)


def losses(example: Example) -> Table:
    """By target token: its logit, probability, -log p, and the loss with label smoothing."""
    logits = example.model.logits(example.model(example.batch))
    log_probs, rows = example.log_probs(), []
    for place, identifier in enumerate(example.batch.target_out.tolist()):
        loss = example.losses(place)
        rows.append(
            [
                example.predicts[place],
                shown(logits[place, identifier]),
                shown(log_probs[place, identifier].exp(), 3),
                shown(loss.nll, 3),
                shown(loss.loss, 3),
            ]
        )
    return Table(rows)


def loss_facts(example: Example) -> dict[str, str]:
    """The sums and means of the losses, and the target distribution of label smoothing."""
    model, target = example.model, example.batch.target_out
    total = training_loss(
        model(example.batch), model.output_weight, target, model.output_bias, smoothing=SMOOTHING
    )
    size, rest = len(model.output_weight), SMOOTHING / len(model.output_weight)
    peak = 1 - SMOOTHING + rest
    smoothed = torch.tensor([peak, *[rest] * (size - 1)], dtype=torch.float64)
    return {
        "vocabulary": f"{size:,}",
        "smoothed share of every piece": shown(rest, 4),
        "smoothed share of the target": shown(peak, 4),
        "smallest loss of a token": shown(-(smoothed * smoothed.log()).sum(), 3),
        "sum of -log p": shown(total.nll, 3),
        "sum of the losses": shown(total.loss, 3),
        "loss per token": shown(total.loss / len(target), 3),
        "perplexity": shown((total.nll / len(target)).exp(), 3),
    }


def forcing(example: Example) -> Table:
    """By step: the best piece and its probability, the piece of the reference and its probability."""
    log_probs, rows = example.log_probs(), []
    for place, identifier in enumerate(example.batch.target_out.tolist()):
        best = int(log_probs[place].argmax())
        pair = [example.reads[place]]
        for each in (best, identifier):
            pair += codes(example.tokenizer.target.pieces_of([each]))
            pair.append(shown(log_probs[place, each].exp(), 3))
        rows.append(pair)
    return Table(rows)


def parallel_facts(example: Example) -> dict[str, str]:
    """One pass against T steps, and what a change of the last token changes before it."""
    together, changed = example.model(example.batch), example.batch.target_in.clone()
    changed[-1] = EOS_ID
    batch = Batch(
        example.batch.source_ids,
        changed,
        example.batch.target_out,
        example.batch.source,
        example.batch.target,
    )
    other = example.model(batch)
    assert float((other - together)[-1].abs().max()) > 0.01
    return {
        "one pass against steps": below(example.log_probs() - example.stepwise_log_probs()),
        "effect of a later token": below((other - together)[:-1]),
    }
