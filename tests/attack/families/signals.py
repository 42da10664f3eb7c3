"""Signals at many moments of preparing, training and translating."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from pathlib import Path

from attack.case import Case, Expected, Machine, stopped, train, translate
from attack.room import Room

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)
_LONG = ("training.max_updates=100000", "training.validate_every=50", "training.checkpoint_every=20")


def _empty_cache(room: Room) -> None:
    import shutil

    shutil.rmtree(room.cache)
    lines = [(room.work / f"train.{side}").read_text() for side in ("src", "tgt")]
    for side, text in zip(("src", "tgt"), lines, strict=True):
        (room.work / f"train.{side}").write_text(text * 200)


def _many_lines(room: Room) -> None:
    room.put_model()
    path: Path = room.work / "many.src"
    path.write_text((room.work / "train.src").read_text() * 50)


def cases() -> Iterator[Case]:
    """All cases of this family; the moments are random but repeatable."""
    chance = random.Random(20)
    for number in SIGNALS:
        name = number.name
        ended = Expected(frozenset({128 + number}))
        saved = Machine(signals=((number, "new run in"),))
        yield train(f"signals/{name} as the run starts", ended, *_LONG, machine=saved)
        later = Machine(signals=((number, "update 50: validation"),))
        yield train(f"signals/{name} after a validation", ended, *_LONG, machine=later)
        yield train(f"signals/{name} in training", ended, *_LONG, machine=Machine(signals=((number, 3.0),)))
        for turn in range(3):
            moment = round(chance.uniform(0.02, 1.5), 2)
            machine = Machine(signals=((number, moment),))
            yield train(f"signals/{name} {turn} at {moment} s", stopped(number), machine=machine)
            moment = round(chance.uniform(0.02, 1.5), 2)
            machine = Machine(signals=((number, moment),))
            yield train(
                f"signals/{name} {turn} preparing at {moment} s", stopped(number), "prepare_only=true",
                "data.cleaning.drop_duplicates=false", setup=_empty_cache, machine=machine,
            )  # fmt: skip
            moment = round(chance.uniform(0.02, 1.0), 2)
            machine = Machine(signals=((number, moment),))
            yield translate(
                f"signals/{name} {turn} at {moment} s", stopped(number), "input=many.src", "output=out",
                setup=_many_lines, machine=machine,
            )  # fmt: skip
    both = Machine(signals=((signal.SIGTERM, "new run in"), (signal.SIGINT, 2.5)))
    yield train("signals/TERM, then INT", stopped(signal.SIGTERM, signal.SIGINT), *_LONG, machine=both)
    twice = Machine(signals=((signal.SIGTERM, "new run in"), (signal.SIGTERM, 2.5)))
    yield train("signals/TERM twice", stopped(signal.SIGTERM), *_LONG, machine=twice)
