"""`plugins=`: the examples of docs/extending.md as a package of the user, through the real commands."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
import torch
from commands import Toy
from safetensors.torch import load_file

from nmt.config import TrainConfig
from nmt.errors import UserError
from nmt.options.arguments import Arguments
from nmt.options.compose import compose_jobs
from nmt.runtime.plugins import import_plugins
from nmt.training.run import train

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "extending.md"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package `my_nmt`, which consists of all examples of the document."""
    folder = tmp_path_factory.mktemp("plugins")
    examples = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text(encoding="utf-8"), re.M | re.S)
    assert len(examples) == 11
    (folder / "my_nmt").mkdir()
    (folder / "my_nmt" / "__init__.py").write_text("from my_nmt import everything\n")
    (folder / "my_nmt" / "everything.py").write_text("\n\n".join(examples))
    return folder


@pytest.fixture
def plugged(toy: Toy, package: Path, monkeypatch: pytest.MonkeyPatch) -> Toy:
    """The toy corpus and commands that find the package."""
    monkeypatch.setenv("PYTHONPATH", str(package), prepend=os.pathsep)
    return toy


def straight_and_resumed(toy: Toy, folder: Path, updates: int, options: list[str]) -> dict[str, torch.Tensor]:
    """Trains at once, and with a stop in the middle; the weights must be equal, and are returned."""
    for name, until in (("straight", updates), ("stopped", updates // 2), ("stopped", updates)):
        run = f"run_dir={folder / name}"
        toy.done("nmt-train", *toy.small(run, *options, f"training.max_updates={until}"))
    straight, resumed = (
        load_file(folder / name / "model" / "model.safetensors") for name in ("straight", "stopped")
    )
    assert straight.keys() == resumed.keys()
    for name, weight in straight.items():
        assert weight.equal(resumed[name]), name
    return straight


@pytest.mark.slow
def test_an_architecture_and_a_rule_train_in_two_ranks_resume_translate_and_evaluate(
    plugged: Toy, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for side in ("src", "tgt"):
        lines = (plugged.folder / f"train.{side}").read_text().splitlines()
        (data / f"train.{side}").write_text("\n".join([*lines[:-7], *map(str.upper, lines[-7:])]) + "\n")
    options = [
        "plugins=[my_nmt]",
        "training.validate_metrics=[copied]",
        "training.criterion=copied",
        "model.architecture=mean_pooling",
        "training.schedule.name=steps",
        "training.schedule.options.every=2",
        "training.schedule.peak=0.5",
        "training.schedule.warmup_updates=2",
        "training.optimizer.name=momentum",
        "training.optimizer.options.momentum=0.5",
        f"data.train.source={data / 'train.src'}",
        f"data.train.target={data / 'train.tgt'}",
        "data.workers=2",
        "training.devices=2",
        "training.micro_batches=2",
    ]

    straight = straight_and_resumed(plugged, tmp_path, 8, options)
    assert "source.weight" in straight
    state = load_file(tmp_path / "straight" / "checkpoints" / "update-00000008" / "optimizer.safetensors")
    again = load_file(tmp_path / "stopped" / "checkpoints" / "update-00000008" / "optimizer.safetensors")
    assert state.keys() == {f"velocity.{name}" for name in straight}
    assert all(tensor.any() and tensor.equal(again[name]) for name, tensor in state.items())
    records = map(json.loads, (tmp_path / "straight" / "metrics.jsonl").read_text().splitlines())
    assert [one["learning_rate"] for one in records if one["kind"] == "train"] == [0.5 / 2**3]
    results = json.loads((tmp_path / "straight" / "results.json").read_text())
    assert json.dumps(results["data"]).count('"shouting"') >= 1

    model = f"model_dir={tmp_path / 'straight'}"
    text = (plugged.folder / "test.src").read_bytes()
    translated = plugged.done("nmt-translate", model, "plugins=[my_nmt]", text=text)
    assert translated.stdout.count(b"\n") == text.count(b"\n")
    plugged.done("nmt-eval", model, "plugins=[my_nmt]", "evaluation.metrics=[bleu,copied]", "json=-.json")
    scores = json.loads((plugged.folder / "-.json").read_text())
    same = map(bytes.__eq__, translated.stdout.splitlines(), text.splitlines())
    assert scores["copied"] == pytest.approx(100 * sum(same) / text.count(b"\n"))

    assert plugged.refused("nmt-translate", model, text=text) == (
        "model.architecture=mean_pooling: there is no architecture mean_pooling. "
        "Choose from transformer, rnn_attention. The model was trained with plugins=[my_nmt]. Add that."
    )


def test_an_encoding_and_a_score_learn(plugged: Toy, tmp_path: Path) -> None:
    options = ["plugins=[my_nmt]", "model.positions.name=distances", "training.max_updates=2"]
    options += ["model.positions.options.furthest=8", "model.attention=nearness", "training.loggers=[table]"]
    plugged.done("nmt-train", *plugged.small(f"run_dir={tmp_path / 'run'}", *options))
    weights = load_file(tmp_path / "run" / "model" / "model.safetensors")
    for side in ("encoder", "decoder"):
        table = weights[f"{side}_positions.table"]
        assert table.shape[1:] == (2, 17) and table.any()
    tags = [line.split("\t")[1] for line in (tmp_path / "run" / "figures.tsv").read_text().splitlines()]
    assert {"train/loss", "valid/bleu", "final/test/bleu"} <= set(tags)
    assert not (tmp_path / "run" / "tensorboard").exists()
    scales = torch.stack([weight for name, weight in weights.items() if name.endswith(".score.w")])
    assert scales.unique().numel() == scales.numel() > 2


@pytest.mark.slow
def test_a_second_loss_trains_one_head_to_align(plugged: Toy, tmp_path: Path) -> None:
    def final_record(name: str, *more: str) -> dict[str, float]:
        options = ["plugins=[my_nmt]", "model.dropout=0", "training.rdrop=1", *more]
        plugged.done("nmt-train", *plugged.small(f"run_dir={tmp_path / name}", *options))
        records = map(json.loads, (tmp_path / name / "metrics.jsonl").read_text().splitlines())
        return {one["kind"]: one for one in records}

    plain = final_record("plain")
    options = ["training.objective.name=alignment", "training.objective.options.weight=2"]
    aligned = final_record("aligned", *options)
    difference = aligned["train"]["objective"] - aligned["train"]["loss"]
    assert difference > 0.1 > abs(plain["train"]["objective"] - plain["train"]["loss"])
    assert aligned["valid"]["loss"] != plain["valid"]["loss"]  # other weights
    small = plugged.small(f"run_dir={tmp_path / 'rnn'}", "plugins=[my_nmt]", *options)
    assert plugged.refused("nmt-train", *small, "model.architecture=rnn_attention") == (
        "training.objective.name=alignment: needs attention_layers, which "
        "model.architecture=rnn_attention does not have. Choose another objective or architecture."
    )


def test_a_start_from_a_model_names_its_plugins(plugged: Toy, tmp_path: Path) -> None:
    base = tmp_path / "base"
    options = ["model.positions.name=distances", "model.positions.options.furthest=8"]
    small = plugged.small(f"run_dir={base}", "training.max_updates=2", *options)
    plugged.done("nmt-train", "plugins=[my_nmt]", *small)
    kept = [one for one in plugged.small() if not one.startswith(("model", "data.tokenizer"))]
    refused = plugged.refused("nmt-train", *kept, f"start_from={base}", f"run_dir={tmp_path / 'next'}")
    assert refused.endswith(f"The model in {base} was trained with plugins=[my_nmt]. Add that.")


def test_plugins_are_a_list_in_python_too() -> None:
    with pytest.raises(UserError, match=r"^plugins=my_nmt: must be a list of module names"):
        import_plugins("my_nmt")


ENCODINGS = Path(__file__).parents[1] / "unit" / "model" / "toy_positions.py"
"""An added encoding that needs lengths, a rotary one, a learnt bias, and the tables of Shaw in each layer."""


@pytest.mark.slow
@pytest.mark.parametrize(("encoder", "decoder"), [("lengths", "shaw"), ("turning", "distances")])
def test_encodings_of_all_kinds_train_in_two_ranks_resume_translate_and_evaluate(
    encoder: str, decoder: str, toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registration = "\n\nfrom nmt.model import POSITIONS\n\nPOSITIONS.update(KINDS)\n"
    (tmp_path / "my_positions.py").write_text(ENCODINGS.read_text() + registration)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    options = [
        "plugins=[my_positions]",
        f"model.positions.name={encoder}",
        f"model.positions.decoder={decoder}",
        "training.devices=2",
        "training.micro_batches=2",
    ]

    straight = straight_and_resumed(toy, tmp_path, 4, options)
    assert any(name.startswith("decoder_positions.") for name in straight)

    model, text = f"model_dir={tmp_path / 'straight'}", (toy.folder / "test.src").read_bytes()
    plain = ["plugins=[my_positions]", "decoding.max_length_offset=5"]
    together = toy.run("nmt-translate", model, *plain, text=text)
    alone = toy.run("nmt-translate", model, *plain, "decoding.max_sentences=1", text=text)
    assert together.returncode == 0, together.stderr.decode()
    assert together.stdout == alone.stdout and together.stdout.count(b"\n") == text.count(b"\n")
    scored = toy.run("nmt-eval", model, *plain)
    assert scored.returncode == 0 and b"BLEU" in scored.stdout, scored.stderr.decode()


@pytest.mark.slow
def test_a_yaml_file_names_plugins_and_what_they_register(plugged: Toy, tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(
        """
plugins: [my_nmt]
training:
  max_updates: 2
  schedule: {name: steps, warmup_updates: 1, peak: 0.001, options: {every: 1, factor: 0.25}}
decoding:
  processors:
    repetition: {strength: 1000}
"""
    )
    run = tmp_path / "run"
    small = [option for option in plugged.small() if not option.startswith("training.max_updates=")]
    command = ("nmt-train", "--config-dir", str(tmp_path), "experiment=mine", *small, f"run_dir={run}")
    plugged.done(*command)
    records = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    assert [one["learning_rate"] for one in records if one["kind"] == "train"] == [0.00025]

    model, text = f"model_dir={run}", (plugged.folder / "test.src").read_bytes()
    words = [line.split() for line in (run / "test.hypotheses.txt").read_text().splitlines()]
    assert any(words) and all(len(set(line)) == len(line) for line in words)
    free = plugged.done("nmt-translate", model, "decoding.processors.repetition=null", text=text)
    assert free.stdout != (run / "test.hypotheses.txt").read_bytes()
    same = plugged.run("nmt-translate", model, "plugins=[my_nmt]", text=text)
    assert same.stdout == (run / "test.hypotheses.txt").read_bytes()

    unknown = "there is no processor repetition. Choose from no_repeat_ngram."
    assert plugged.refused("nmt-translate", model, text=text) == (
        f"decoding.processors.repetition: {unknown} The model was trained with plugins=[my_nmt]. Add that."
    )
    assert plugged.refused(*command, "plugins=[]", "training.max_updates=4") == (
        f"decoding.processors.repetition: {unknown} The run in {run} was started with plugins=[my_nmt]. "
        "Add that."
    )


def test_an_edited_rule_cleans_again(toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "my_rules.py"
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    rule = """
from nmt.data.cleaning.cleaner import RULES
from nmt.data.cleaning.rules.rule import Rule

class First(Rule):
    name = "first_letter"
    words = "the source begins with a certain letter"

    @classmethod
    def build(cls, config, setting):
        return cls()

    def drops(self, source, target):
        return source.startswith("LETTER")

RULES[First.name] = First
"""
    sources = (toy.folder / "train.src").read_text().splitlines()

    def dropped(letter: str) -> int:
        # Another length each time: Python takes compiled code of the same second and length for the same.
        module.write_text(rule.replace("LETTER", letter) + "\n" * len(list(tmp_path.iterdir())))
        run = tmp_path / f"run-{letter}"
        options = toy.small(f"run_dir={run}", "plugins=[my_rules]", "prepare_only=true")
        toy.done("nmt-train", *options)
        report = json.loads((run / "data_report.json").read_text())
        return int({rule["name"]: rule["dropped"] for rule in report["rules"]}["first_letter"])

    for letter in "bd":
        assert dropped(letter) == sum(line.startswith(letter) for line in sources)


@pytest.mark.parametrize(
    ("names", "line"),
    [
        ("[no_such]", "plugins=no_such: there is no module no_such. Install its package, or add its parent"),
        ("[my_nmt.none]", "plugins=my_nmt.none: there is no module my_nmt.none. Install its package"),
        ("[./my_nmt.py]", "plugins=./my_nmt.py: not a module name. Give a name such as"),
        ("[needs]", "plugins=needs: requires the module absent_package, which is not installed."),
        ("[twice]", "architecture transformer: already registered. Choose another name"),
        ("[leaves]", "plugins=leaves: the module calls sys.exit when it is imported."),
        ("[wrong]", "plugins=wrong: wrong.py, line 1: invalid syntax. Correct the module."),
    ],
)
def test_a_wrong_name_is_one_line(plugged: Toy, package: Path, names: str, line: str) -> None:
    (package / "needs.py").write_text("import absent_package\n")
    (package / "wrong.py").write_text("def (\n")
    (package / "leaves.py").write_text("import sys\nsys.exit(0)\n")
    (package / "twice.py").write_text(
        "from nmt.model import MODELS, Seq2Seq\nMODELS['transformer'] = type('T', (Seq2Seq,), {})\n"
    )
    refused = plugged.refused("nmt-train", *plugged.small("run_dir=plugged", f"plugins={names}"))
    assert refused.startswith(line)
    assert not (plugged.folder / "plugged").exists()


@pytest.mark.parametrize(
    ("option", "line"),
    [
        (
            "model.architecture=rnn2",
            "model.architecture=rnn2: there is no architecture rnn2. Choose from transformer, rnn_attention.",
        ),
        (
            "training.schedule.options.every=5",
            "training.schedule.options.every: not an option of training.schedule.name=noam. It has none.",
        ),
        (
            "decoding.processors.mine.size=3",
            "decoding.processors.mine: there is no processor mine. Choose from no_repeat_ngram.",
        ),
        (
            "training.objective.name=mine",
            "training.objective.name=mine: there is no objective mine. Choose from label_smoothing.",
        ),
    ],
)
def test_unknown_names_and_options_are_refused_before_anything_is_written(
    toy: Toy, option: str, line: str, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    [config] = compose_jobs(TrainConfig, "train", Arguments((*toy.small(f"run_dir={run}"), option)))
    with pytest.raises(UserError) as caught:
        train(config)
    assert str(caught.value) == line
    assert not run.exists()


ODD_METRICS = """
import os, subprocess, sys
from nmt.evaluation.metrics import METRICS, Metric

print("from the import")
subprocess.run(["echo", "from a child"])

class Odd(Metric):
    def score(self, hypotheses, references, sources):
        print("from a score")
        os.write(1, b"from a library\\n")
        return self.value() if callable(self.value) else self.value

def register(key, value):
    METRICS[key] = type(key, (Odd,), {"key": key, "name": key, "value": value})

for key, value in {"nothing": None, "words": "many", "nan": float("nan"), "huge": 10**400, "one": 1}.items():
    register(key, value)
register("exits", staticmethod(sys.exit))
"""


@pytest.fixture
def odd(plugged: Toy, package: Path) -> tuple[Toy, list[str]]:
    """The corpus, and the arguments of `nmt-eval` with the plugin `odd_metrics`."""
    (package / "odd_metrics.py").write_text(ODD_METRICS)
    texts = ["hypotheses=test.src", "references=test.tgt", "baseline=test.tgt", "target_lang=de"]
    return plugged, [*texts, "plugins=[odd_metrics]"]


def test_what_a_plugin_prints_is_not_in_the_output(odd: tuple[Toy, list[str]]) -> None:
    toy, arguments = odd
    done = toy.done("nmt-eval", *arguments, "evaluation.metrics=[one]")
    assert b"from" not in done.stdout
    assert done.stdout.startswith(b"test.src on test.tgt\n") and done.stdout.endswith(b"\none|nrefs:1\n")
    for printed in (b"from the import\n", b"from a child\n", b"from a score\n", b"from a library\n"):
        assert printed in done.stderr


@pytest.mark.parametrize("key", ["nan", "huge"])
def test_a_score_that_is_not_finite_is_null(odd: tuple[Toy, list[str]], key: str, tmp_path: Path) -> None:
    toy, arguments = odd
    toy.done("nmt-eval", *arguments, f"evaluation.metrics=[{key},one]", f"json={tmp_path / 'report.json'}")
    report = json.loads((tmp_path / "report.json").read_text(), parse_constant=pytest.fail)
    assert (report[key], report["one"], report["baseline"][key]) == (None, 1.0, None)
    assert report["baseline"]["one"]["delta"] == 0.0


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("nothing", "metric nothing: its score is None, not a number. Correct the metric."),
        ("words", "metric words: its score is 'many', not a number. Correct the metric."),
    ],
)
def test_a_score_that_is_not_a_number_is_one_line(odd: tuple[Toy, list[str]], key: str, line: str) -> None:
    toy, arguments = odd
    result = toy.run("nmt-eval", *arguments, f"evaluation.metrics=[{key}]")
    assert (result.returncode, result.stdout) == (2, b"")
    assert result.stderr.decode().splitlines()[-1] == f"nmt-eval: {line}"


def test_a_metric_that_exits_does_not_end_the_command_with_success(odd: tuple[Toy, list[str]]) -> None:
    toy, arguments = odd
    result = toy.run("nmt-eval", *arguments, "evaluation.metrics=[exits]")
    assert (result.returncode, result.stdout) == (1, b"")
    assert b"RuntimeError: a plugin or a library called sys.exit before the work was done" in result.stderr
