"""Frozen weights (`training.freeze`): a training leaves them as they are in `start_from`."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from torch import Tensor, nn

from nmt.config import TrainConfig
from nmt.config.checks import shortened
from nmt.errors import UserError
from nmt.model import Seq2Seq, build_model
from nmt.training.update.optimizer import trained_parameters

_EMBEDDINGS = "embeddings"


def freeze(model: Seq2Seq, parts: Sequence[str]) -> None:
    """Freezes parts of a model: their weights get no gradient.

    `embeddings` are the weights of all `torch.nn.Embedding` modules, in every architecture. Any other part is
    a sequence of whole components of the names of weights: `decoder.0` and `cross_attention` both select
    `decoder.0.cross_attention.q.weight`. `*` stands for any text. A part also selects the modules of the
    model whose names begin with it and `_`: `encoder` includes `encoder_norm` and `encoder_positions`.

    Args:
        model: its weights are changed to `requires_grad=False`. A weight with several names is frozen if one
            of them is selected.
        parts: as `training.freeze`.

    Raises:
        UserError: a part selects no weight, or no weight is left to train.
    """
    for part in parts:
        found = _selected(model, part)
        if not found:
            raise UserError(
                f"training.freeze={shortened(part)}: no weight has this name. The parts of this model are "
                f"{', '.join(_parts(model))}; parts of them are, for example, encoder.0 and cross_attention."
            )
        for parameter in found:
            parameter.requires_grad_(False)
    if parts and not trained_parameters(model):
        raise UserError(
            f"training.freeze=[{','.join(parts)}]: freezes all weights of the model. Remove a part."
        )


def check_frozen(config: TrainConfig) -> None:
    """Checks `training.freeze` before the data are prepared; the names do not depend on the vocabulary.

    Raises:
        UserError: see `freeze`.
    """
    if config.training.freeze:
        freeze(build_model(config.model, _FEW_PIECES, _FEW_PIECES), config.training.freeze)


_FEW_PIECES = 300


def in_numbers(model: Seq2Seq) -> str:
    """Returns how many weights are trained, for the log."""
    trained = sum(parameter.numel() for parameter in trained_parameters(model).values())
    return f"{trained:,} of {model.num_parameters:,} weights are trained, the others are frozen"


def _selected(model: Seq2Seq, part: str) -> Sequence[Tensor]:
    if part == _EMBEDDINGS:
        return _embeddings(model)
    named = model.named_parameters(remove_duplicate=False)
    return [parameter for name, parameter in named if _selects(part, name)]


def _selects(part: str, name: str) -> bool:
    inside, first = fnmatchcase(f".{name}.", f"*.{part}.*"), name.partition(".")[0]
    return inside or fnmatchcase(first, f"{part}_*")


def _embeddings(model: Seq2Seq) -> Sequence[Tensor]:
    return [module.weight for module in model.modules() if isinstance(module, nn.Embedding)]


def _parts(model: Seq2Seq) -> list[str]:
    """Returns the largest parts, in alphabetical order."""
    parts = {name.partition(".")[0] for name, _ in model.named_parameters()}
    return sorted(parts | ({_EMBEDDINGS} if _embeddings(model) else set()))
