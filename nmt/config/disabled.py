"""The options that another option disables: tables for the sections, which `Section` reads.

A row of a `REFUSED` table is an error. A row of an `UNUSED` table is a warning, since the value may come from
a file that serves several runs. An architecture (`Seq2Seq.unused`) and an engine (`Engine.check`) declare by
themselves what they ignore, since plugins add others.
"""

from __future__ import annotations

from typing import Any

from nmt.config.checks import Table


def _gives_pieces(config: Any) -> bool:
    return config.start_from is not None or config.data.tokenizer.path is not None


def is_open(config: Any, key: str) -> bool:
    """Returns whether neither an option nor a section around it was given, so that a recipe may choose it."""
    return not any(f"{key}.".startswith(f"{given}.") for given in config.recipe_keeps)


def chooses(config: Any, key: str) -> bool:
    """Returns whether `recipe=auto` will choose an option."""
    return config.recipe.value == "auto" and is_open(config, key)


def _schedule(config: Any) -> str:
    """Returns the name of the schedule, which `recipe=auto` may choose later."""
    key = "training.schedule.name"
    return "wsd" if chooses(config, key) else str(config.training.schedule.name)


def _measures(config: Any) -> set[str]:
    training = config.training
    return {*config.evaluation.metrics, *training.validate_metrics, training.criterion}


REFUSED_IN_DECODING: Table = {
    "nbest": (
        lambda decoding: decoding.samples > 0,
        "with decoding.samples={0.samples} all samples are returned. Leave decoding.nbest at 1.",
    ),
    "diversity coverage_penalty retry_loops": (
        lambda decoding: decoding.samples > 0,
        "is for beam search, and decoding.samples={0.samples} draws translations at random. Remove one of "
        "them.",
    ),
    "mbr": (
        lambda decoding: max(decoding.samples, decoding.nbest) < 2,
        "has one candidate to choose from. Set decoding.samples=32, or decoding.nbest.",
    ),
    "numbers": (
        lambda decoding: not decoding.placeholders and decoding.numbers.value == "copy",
        "copies numbers by placeholders, and decoding.placeholders is false. Remove one of them.",
    ),
}

UNUSED_IN_DECODING: Table = {
    "temperature top_k top_p": (
        lambda decoding: not decoding.samples,
        "has no effect in beam search. Set decoding.samples, or remove it.",
    ),
    "diversity": (lambda decoding: decoding.beam_size == 1, "has no effect with decoding.beam_size=1."),
}

REFUSED_IN_MODELS: Table = {
    "positions.decoder_options": (
        lambda model: model.positions.decoder is None,
        "model.positions.decoder is not set. Set it to an encoding, or set model.positions.options, which "
        "both sides share.",
    ),
    "zero_init": (
        lambda model: not model.residual,
        "the layers would never learn without residual connections. Remove it, or set model.residual=true.",
    ),
}

REFUSED_IN_EXPORTS: Table = {
    "private": (lambda config: config.push is None, "requires push=OWNER/NAME. Remove it, or add that."),
    "quantization": (lambda config: config.format == "nmt", "format=nmt has float32 alone."),
    "check": (
        lambda config: config.format == "nmt",
        "format=nmt compares the weights themselves. Remove check and references.",
    ),
}

REFUSED_IN_SERVING: Table = {
    "api_key_variable": (
        lambda config: config.api_key_file is not None,
        "the key is already in api_key_file. Give one of them.",
    ),
    "decoding.nbest": (
        lambda config: True,
        "a request chooses its number of translations, with alternatives. Set decoding.nbest=1.",
    ),
    "decoding.samples": (lambda config: True, "is not available in nmt-serve. Remove it, or set it to 0."),
    "decoding.mbr": (lambda config: True, "is not available in nmt-serve. Remove it, or set it to null."),
}

REFUSED_IN_TRAINING: Table = {
    "cleaned_pairs": (
        lambda config: not config.prepare_only,
        "needs prepare_only=true, and the training starts with another command. Add it.",
    ),
    "find_rate": (
        lambda config: config.prepare_only,
        "needs a training, and prepare_only=true ends before it. Remove one of them.",
    ),
    "training.freeze training.l2_to_start": (
        lambda config: config.start_from is None,
        "needs a model to start from. Give start_from=DIR.",
    ),
    "training.simcut": (
        lambda config: config.training.rdrop > 0,
        "is not available with training.rdrop={0.training.rdrop}. Set one of them to 0.",
    ),
    "decoding.mbr": (
        lambda config: True,
        "is not available in training. Remove it, and give it to nmt-translate or nmt-eval.",
    ),
}

UNUSED_IN_TRAINING: Table = {
    (
        "data.tokenizer.vocab_size data.tokenizer.segmentation data.tokenizer.joint "
        "data.tokenizer.normalization"
    ): (
        _gives_pieces,
        "has no effect. The pieces and their normalisation are those of the model in start_from or "
        "data.tokenizer.path.",
    ),
    "data.tokenizer.character_coverage data.tokenizer.sample_pairs": (
        lambda config: _gives_pieces(config) and config.data.tokenizer.extend.value == "never",
        "has no effect with data.tokenizer.extend=never.",
    ),
    "data.tokenizer.extend": (
        lambda config: not _gives_pieces(config),
        "has no effect without start_from or data.tokenizer.path.",
    ),
    "distillation.decoding distillation.keep distillation.weight distillation.tag distillation.reverse": (
        lambda config: config.teacher is None,
        "has no effect without teacher.",
    ),
    "data.monolingual.decoding data.monolingual.keep data.monolingual.weight data.monolingual.reverse": (
        lambda config: config.data.monolingual.target is None,
        "has no effect without data.monolingual.target.",
    ),
    "data.temperature": (
        lambda config: not (config.data.train.corpora or config.teacher or config.data.monolingual.target),
        "has no effect on one corpus. It is for data.train.corpora.",
    ),
    "training.schedule.scale": (
        lambda config: _schedule(config) in ("inverse_sqrt", "linear", "constant", "wsd"),
        "has an effect only with training.schedule.name=noam. Set training.schedule.peak.",
    ),
    "training.schedule.peak": (
        lambda config: _schedule(config) == "noam",
        "has no effect with training.schedule.name=noam. Set training.schedule.scale.",
    ),
    "training.schedule.final": (
        lambda config: _schedule(config) in ("noam", "inverse_sqrt", "constant"),
        "has an effect only with training.schedule.name=linear or wsd.",
    ),
    "training.schedule.decay_share training.final_dropout": (
        lambda config: _schedule(config) in ("noam", "inverse_sqrt", "linear", "constant"),
        "has an effect only with training.schedule.name=wsd.",
    ),
    "training.simcut_rate": (
        lambda config: not config.training.simcut,
        "has no effect without training.simcut.",
    ),
    "training.consistency_from": (
        lambda config: (
            not (config.training.simcut or config.training.rdrop or chooses(config, "training.rdrop"))
        ),
        "has no effect without training.rdrop or training.simcut.",
    ),
    "training.averaging.count": (
        lambda config: config.training.averaging.kind.value == "none",
        "has no effect with training.averaging.kind=none.",
    ),
    "training.half_residual": (
        lambda config: config.training.precision.value == "fp32",
        "has no effect with training.precision=fp32.",
    ),
    "training.onednn_fp32": (
        lambda config: config.training.precision.value in ("bf16", "fp16"),
        "has no effect with training.precision={0.training.precision.value}.",
    ),
    "training.gradient_exchange training.sharding": (
        lambda config: config.training.devices == "1",
        "has no effect with training.devices=1.",
    ),
    "evaluation.comet.command": (
        lambda config: "comet" not in _measures(config),
        "has no effect without comet among evaluation.metrics, training.validate_metrics and "
        "training.criterion.",
    ),
}
