"""Random cases: valid command lines and files with random changes, drawn from a seed."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

from attack.case import LINES, Case, Expected, Machine, either, evaluate, train, translate
from attack.families.sweeps import FOREIGN, MALFORMED
from attack.room import Room

_KEYS = (
    "seed", "name", "run_dir", "start_from", "resume", "data.max_tokens", "data.train.source",
    "data.valid.target", "data.tokenizer.vocab_size", "data.tokenizer.user_symbols",
    "data.cleaning.max_ratio", "data.block_pairs", "model.d_model", "model.heads", "model.dropout",
    "model.norm", "model.positions.name", "training.ema", "training.micro_batches", "training.clip_norm",
    "training.averaging.count", "training.averaging.kind", "training.schedule.peak",
    "training.schedule.name", "training.optimizer.beta2", "training.patience", "training.criterion",
    "training.label_smoothing", "training.validate_sentences", "decoding.beam_size",
    "decoding.length_penalty", "decoding.max_tokens", "decoding.max_length_factor", "decoding.nbest",
)  # fmt: skip
_VALUES = (
    "0", "1", "-1", "2", "3", "0.5", "1e-3", "1e99", "-0.0", "nan", "inf", "null", "true", "x", "", "[]",
    "{}", "[1,2]", "{a:1}", "''", "\"", "'", "${seed}", "${oc.env:HOME}", "1" * 30, "é", "train.src",
    "run", "/", ".", "..", "auto", "none", "best", "last", "pre", "adam", "\x1b[31m", "a=b", "a,b",
    "999999", "4294967295", "0x1F", "1_000", "+1",
)  # fmt: skip
_RUN_FILES = (
    "config.yaml", "results.json", "metrics.jsonl", "checkpoints/update-00000004/state.json",
    "checkpoints/update-00000004/model.safetensors", "checkpoints/update-00000004/optimizer.safetensors",
    "model/config.yaml", "model/joint.spm", "model/model.safetensors",
)  # fmt: skip
_ANY = either(leaves=("*",))
_FEW = "training.max_updates=4"


def random_case(seed: int, number: int) -> Case:
    """Returns the random case with this number; it is the same for the same seed."""
    chance = random.Random(f"{seed}/{number}")
    kind = chance.choice((_options, _options, _arguments, _model, _run, _text, _input, _texts_of_eval))
    return kind(chance, f"random/{seed}-{number} {kind.__name__.strip('_')}")


def _options(chance: random.Random, name: str) -> Case:
    """Valid options with odd values."""
    chosen = [f"{chance.choice(_KEYS)}={chance.choice(_VALUES)}" for _ in range(chance.randint(1, 3))]
    return train(name, _ANY, *chosen, chance.choice((_FEW, "prepare_only=true")))


def _arguments(chance: random.Random, name: str) -> Case:
    """Malformed or valid arguments with a few characters changed."""
    texts = [*MALFORMED, *(argument for argument, _ in FOREIGN), *(f"{key}=1" for key in _KEYS)]
    arguments = []
    for _ in range(chance.randint(1, 2)):
        text = list(chance.choice(texts)[:500])
        for _ in range(chance.randint(0, 3)):
            at = chance.randrange(len(text) + 1)
            text[at : at + chance.randint(0, 1)] = chance.choice("=.,[]{}()'\"$~+-:@/# é0x")
        arguments.append("".join(text))
    make = chance.choice((train, translate, evaluate))
    return make(name, _ANY, *arguments, *(("prepare_only=true",) if make is train else ()))


def changed(content: bytes, chance: random.Random) -> bytes:
    """Returns the content with bytes flipped, removed, repeated or inserted; it always differs."""
    text = bytearray(content)
    for _ in range(chance.choice((1, 1, 1, 2, 8))):
        at = chance.randrange(len(text) + 1)
        length = chance.choice((1, 1, 4, 100))
        match chance.randrange(5):
            case 0 if at < len(text):
                text[at] ^= 1 << chance.randrange(8)
            case 1:
                del text[at : at + length]
            case 2:
                text[at:at] = text[at : at + length]
            case 3:
                text[at:at] = chance.randbytes(length)
            case _:
                del text[at:]
    return bytes(text) if bytes(text) != content else content + b"\0"


def _change(path: Path, seed: float) -> None:
    path.write_bytes(changed(path.read_bytes(), random.Random(seed)))


def _model(chance: random.Random, name: str) -> Case:
    """A damaged model folder: refused, unless the program does not read the damaged part."""
    file = chance.choice(("config.yaml", "joint.spm", "model.safetensors", "results.json"))
    seed = chance.random()
    return translate(name, either(3), setup=lambda room: _change(room.put_model() / file, seed))


def _run(chance: random.Random, name: str) -> Case:
    """A training that resumes a damaged run."""
    file, seed = chance.choice(_RUN_FILES), chance.random()
    updates = chance.choice((4, 5))
    return train(
        name,
        _ANY,
        f"training.max_updates={updates}",
        setup=lambda room: _change(room.put_run() / file, seed),
    )


def _damage(room: Room, name: str, seed: float) -> None:
    _change(room.work / name, seed)


def _text(chance: random.Random, name: str) -> Case:
    """Damaged training data."""
    file = f"{chance.choice(('train', 'train', 'valid', 'test'))}.{chance.choice(('src', 'tgt'))}"
    return train(name, _ANY, "prepare_only=true", setup=partial(_damage, name=file, seed=chance.random()))


def _input(chance: random.Random, name: str) -> Case:
    """Damaged text to translate: the output has as many lines as the input."""
    text = changed(LINES * 2, chance)
    lines = text.count(b"\n") + (not text.endswith(b"\n") and bool(text))
    expected = Expected(frozenset({0}), lines=lines)
    # The lines before the first line that is not UTF-8 are translated and written.
    expected = expected if _is_utf8(text) else Expected(frozenset({2}), silent=False)
    return translate(name, expected, machine=Machine(stdin=text, piped=chance.random() < 0.5))


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _texts_of_eval(chance: random.Random, name: str) -> Case:
    """Damaged hypotheses or references."""
    file = chance.choice(("hyp.txt", "ref.txt"))
    arguments = chance.choice(((), ("groups=hyp.txt",), ("baseline=ref.txt",), ("json=report.json",)))
    return evaluate(name, either(), *arguments, setup=partial(_damage, name=file, seed=chance.random()))
