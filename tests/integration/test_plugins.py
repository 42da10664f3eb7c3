"""`plugins=`: the examples of docs/extending.md, as a package of the user's, through the real commands."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from commands import Toy
from safetensors.torch import load_file

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "extending.md"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package `my_nmt`: all examples of the document."""
    folder = tmp_path_factory.mktemp("plugins")
    examples = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text(encoding="utf-8"), re.M | re.S)
    assert len(examples) == 4
    (folder / "my_nmt").mkdir()
    (folder / "my_nmt" / "__init__.py").write_text("from my_nmt import everything\n")
    (folder / "my_nmt" / "everything.py").write_text("\n\n".join(examples))
    return folder


@pytest.fixture
def plugged(toy: Toy, package: Path, monkeypatch: pytest.MonkeyPatch) -> Toy:
    """The toy corpus and commands that find the package."""
    monkeypatch.setenv("PYTHONPATH", str(package))
    return toy


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
        f"data.train.source={data / 'train.src'}",
        f"data.train.target={data / 'train.tgt'}",
        "data.workers=2",
        "training.devices=2",
        "training.micro_batches=2",
    ]

    def trained(name: str, *more: str) -> dict[str, object]:
        result = plugged.run("nmt-train", *plugged.small(f"run_dir={tmp_path / name}", *options, *more))
        assert result.returncode == 0, result.stderr.decode()
        return load_file(tmp_path / name / "model" / "model.safetensors")

    straight = trained("straight", "training.max_updates=8")
    trained("stopped", "training.max_updates=4")
    resumed = trained("stopped", "training.max_updates=8")
    assert straight.keys() == resumed.keys() and "source.weight" in straight
    for name, weight in straight.items():
        assert weight.equal(resumed[name]), name
    results = json.loads((tmp_path / "straight" / "results.json").read_text())
    assert json.dumps(results["data"]).count('"shouting"') >= 1

    model = f"model_dir={tmp_path / 'straight'}"
    text = (plugged.folder / "test.src").read_bytes()
    translated = plugged.run("nmt-translate", model, "plugins=[my_nmt]", text=text)
    assert translated.returncode == 0, translated.stderr.decode()
    assert translated.stdout.count(b"\n") == text.count(b"\n")
    scored = plugged.run(
        "nmt-eval", model, "plugins=[my_nmt]", "evaluation.metrics=[bleu,copied]", "json=-.json"
    )
    assert scored.returncode == 0, scored.stderr.decode()
    scores = json.loads((plugged.folder / "-.json").read_text())
    same = map(bytes.__eq__, translated.stdout.splitlines(), text.splitlines())
    assert scores["copied"] == pytest.approx(100 * sum(same) / text.count(b"\n"))

    refused = plugged.run("nmt-translate", model, text=text)
    assert refused.returncode == 2
    assert refused.stderr.decode().splitlines()[-1] == (
        "nmt-translate: model.architecture=mean_pooling: there is no architecture mean_pooling. "
        "Choose from transformer, rnn_attention. The model was trained with plugins=[my_nmt]. Add that."
    )


def test_an_encoding_learns(plugged: Toy, tmp_path: Path) -> None:
    options = ["plugins=[my_nmt]", "model.positions.name=distances", "training.max_updates=2"]
    options.append("model.positions.options.furthest=8")
    result = plugged.run("nmt-train", *plugged.small(f"run_dir={tmp_path / 'run'}", *options))
    assert result.returncode == 0, result.stderr.decode()
    weights = load_file(tmp_path / "run" / "model" / "model.safetensors")
    for side in ("encoder", "decoder"):
        table = weights[f"{side}_positions.table"]
        assert table.shape[1:] == (2, 17) and table.any()


def test_an_edited_rule_cleans_again(toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "my_rules.py"
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    rule = """
from nmt.data.cleaning import RULES
from nmt.data.rules.rule import Rule

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
        module.write_text(rule.replace("LETTER", letter))
        run = tmp_path / f"run-{letter}"
        options = toy.small(f"run_dir={run}", "plugins=[my_rules]", "prepare_only=true")
        result = toy.run("nmt-train", *options)
        assert result.returncode == 0, result.stderr.decode()
        report = json.loads((run / "data_report.json").read_text())
        return int({rule["name"]: rule["dropped"] for rule in report["rules"]}["first_letter"])

    for letter in "bd":
        assert dropped(letter) == sum(line.startswith(letter) for line in sources)


@pytest.mark.parametrize(
    ("names", "line"),
    [
        ("[no_such]", "plugins=no_such: there is no module no_such. Install its package, or put the folder"),
        ("[my_nmt.none]", "plugins=my_nmt.none: there is no module my_nmt.none. Install its package"),
        ("[./my_nmt.py]", "plugins=./my_nmt.py: not the name of a module. Give one such as"),
        ("[needs]", "plugins=needs: needs the module absent_package, which is not installed."),
        ("[twice]", "architecture transformer: is registered already. Choose another name"),
    ],
)
def test_a_wrong_name_is_one_line(plugged: Toy, package: Path, names: str, line: str) -> None:
    (package / "needs.py").write_text("import absent_package\n")
    (package / "twice.py").write_text(
        "from nmt.model import MODELS, Seq2Seq\nMODELS['transformer'] = type('T', (Seq2Seq,), {})\n"
    )
    result = plugged.run("nmt-train", *plugged.small("run_dir=plugged", f"plugins={names}"))
    assert result.returncode == 2 and "Traceback" not in result.stderr.decode()
    assert result.stderr.decode().splitlines()[-1].startswith(f"nmt-train: {line}")
    assert not (plugged.folder / "plugged").exists()


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("model.architecture=rnn2", "there is no architecture rnn2. Choose from transformer, rnn_attention."),
        (
            "model.positions.name=rotary2",
            "there is no positional encoding rotary2. Choose from sinusoidal, learned, none, rotary, "
            "relative, t5, alibi, integer, normalised, binary.",
        ),
    ],
)
def test_an_unknown_name_is_refused_before_anything_is_written(toy: Toy, option: str, words: str) -> None:
    result = toy.run("nmt-train", *toy.small("run_dir=unknown", option))
    assert result.returncode == 2 and result.stderr.decode() == f"nmt-train: {option}: {words}\n"
    assert not (toy.folder / "unknown").exists()
