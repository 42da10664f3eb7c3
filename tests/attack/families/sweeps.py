"""Sweeps, and overrides that are malformed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from attack.case import Case, Expected, Machine, either, evaluate, refused, train, translate, works

_PREPARE = "prepare_only=true"

SWEEPS: tuple[tuple[str, Expected, tuple[str, ...]], ...] = (
    ("two seeds", works(None, "run"), ("-m", "seed=1,2", _PREPARE)),
    ("--multirun", works(None, "run"), ("--multirun", "seed=1,2", _PREPARE)),
    ("no -m", refused("seed"), ("seed=1,2",)),
    ("-m alone", works(), ("-m", _PREPARE)),
    ("one wrong", refused("seed"), ("-m", "seed=1,x", _PREPARE)),
    ("empty value", either(), ("-m", "seed=1,", _PREPARE)),
    ("equal values", either(), ("-m", "seed=1,1", _PREPARE)),
    ("range", either(), ("-m", "seed=range(1,3)", _PREPARE)),
    ("huge range", refused("seed"), ("-m", "seed=range(1,1000000000)", _PREPARE)),
    ("endless range", either(), ("-m", "seed=range(1,3,0)", _PREPARE)),
    ("choice", works(), ("-m", "seed=choice(1,2)", _PREPARE)),
    ("interval", refused("seed"), ("-m", "seed=interval(1,2)", _PREPARE)),
    ("glob", refused(), ("-m", "experiment=glob(*)", _PREPARE)),
    ("shuffle", either(), ("-m", "seed=shuffle(1,2)", _PREPARE)),
    ("sort", either(), ("-m", "seed=sort(2,1)", _PREPARE)),
    ("enum", works(), ("-m", "model.norm=pre,post", _PREPARE)),
    ("two options", works(), ("-m", "seed=1,2", "model.norm=pre,post", _PREPARE)),
    ("groups", either(), ("-m", "model=tiny,small", _PREPARE)),
    ("sources", replace(either(leaves=("run*",)), silent=False), ("-m", "data.train.source=train.src,test.src", _PREPARE)),
    ("run_dir", works(None, "a/data_report.json", "b/data_report.json"), ("-m", "run_dir=a,b", _PREPARE)),
    ("same run_dir", either(leaves=("a*",)), ("-m", "run_dir=a,a", _PREPARE)),
    ("10,000 jobs", either(), ("-m", "seed=" + ",".join(map(str, range(10_000))), "nonsense=1")),
    ("-m --show", works(), ("-m", "seed=1,2", "--show")),
)  # fmt: skip

MALFORMED = (
    "=",
    "==",
    "seed",
    "seed 3",
    "seed =3",
    "a..b=3",
    "training..max_updates=3",
    "model@x=tiny",
    "++=3",
    "~seed",
    "~training",
    "",
    "seed=\n3",
    'seed="3',
    "seed=[1",
    "seed={1",
    "seed=1)",
    "seed=${",
    "seed=${nowhere}",
    "seed=${oc.env:NOWHERE}",
    "seed=${oc.env:HOME}",
    "name=${oc.nonsense:x}",
    "seed=${oc.decode:'{'}",
    "seed=" + "[" * 2000,
    "seed=" + "{a:" * 500,
    "seed=" + "9" * 5000,
    "seed=" + "x" * 100_000,
    ".".join("x" * 2000) + "=1",
    "data.train.corpora." + ".".join("x" * 300) + "=1",
    "é=3",
    "seed\u00a0=3",
    "\u200bseed=3",
    "seed=\u0663",
    "\ud800=3",
    "\x1b[2J=3",
    "hydra.run.dir=x",
    "hydra/launcher=joblib",
    "+hydra.searchpath=[file:///etc]",
    "config_name=x",
    "+defaults=[]",
    "+_target_=os.system",
    "++training._target_=os.system",
    "name=null",
    "model.positions=null",
    "decoding=null",
    "data.train=[]",
    "data.hub=x",
    "data.cleaning=nonsense",
    "model={d_model: 32}",
)
"""Arguments that a typing mistake or an attacker could produce."""

FOREIGN = (
    ("learning_rate=1e-3", "peak"),
    ("lr=1e-3", "peak"),
    ("batch_size=32", "max_tokens"),
    ("warmup=100", "warmup_updates"),
    ("epochs=3", "max_epochs"),
    ("patience=3", "training.patience"),
    ("early_stopping=3", "patience"),
    ("beam=5", "beam_size"),
    ("num_beams=5", "beam_size"),
    ("output_dir=x", "run_dir"),
    ("fp16=true", "precision"),
    ("gpus=1", "devices"),
)
"""Option names of other tools, and the corresponding names here."""


def cases() -> Iterator[Case]:
    """All cases of this family."""
    for name, expected, arguments in SWEEPS:
        # Hydra's grammar needs half a minute of an idle core to parse 10,000 values.
        yield train(f"sweeps/{name}", expected, *arguments, machine=Machine(seconds=300.0))
    yield translate("sweeps/standard input", refused(), "-m", "decoding.beam_size=1,2")
    yield translate(
        "sweeps/one output", refused("output"), "-m", "decoding.beam_size=1,2", "input=test.src", "output=o"
    )
    yield translate(
        "sweeps/outputs",
        works(0, "o1", "o2"),
        "-m",
        "decoding.beam_size=1,2",
        "input=test.src",
        "output=o${decoding.beam_size}",
    )
    yield translate("sweeps/inputs", works(12), "-m", "input=test.src,valid.src")
    yield evaluate("sweeps/hypotheses", works(), "-m", "hypotheses=hyp.txt,ref.txt")
    yield evaluate("sweeps/one json", refused("json"), "-m", "hypotheses=hyp.txt,ref.txt", "json=r.json")
    for index, argument in enumerate(MALFORMED):
        name = f"malformed/{index:02d} {ascii(argument)[1:-1][:40]}"
        machine = Machine(fresh=index % 12 == 0)
        yield train(
            name,
            either(leaves=("run*",)) if argument.strip() else refused(),
            argument,
            _PREPARE,
            machine=machine,
        )
        if index % 3 == 0:
            yield translate(name, either(), argument)
        if index % 3 == 1:
            yield evaluate(name, either(), argument)
    for argument, ours in FOREIGN:
        yield train(f"foreign/{argument}", refused(argument.partition("=")[0], ours), argument)
    for argument, ours in (("beam=5", "beam_size"), ("num_beams=5", "beam_size"), ("batch_size=3", "max_")):
        yield translate(f"foreign/{argument}", refused(ours), argument)
    yield train("foreign/hydra.run.dir", refused("hydra"), "hydra.run.dir=x")
