"""`import nmt`: the same models, texts, scores and errors as the commands; process state is unchanged."""

from __future__ import annotations

import copy
import json
import logging
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing import spawn
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import SMALL, Toy, environment
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.version import VersionBase
from omegaconf import OmegaConf
from omegaconf.basecontainer import BaseContainer

import nmt
from nmt.runtime.signals import STOP_SIGNALS

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "python.md"


@pytest.fixture
def there(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> Toy:
    """The toy corpus; its folder is the working directory, its cache is that of the commands."""
    monkeypatch.chdir(toy.folder)
    monkeypatch.setenv("NMT_CACHE", str(toy.cache))
    return toy


@pytest.fixture
def in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def state() -> dict[str, Any]:
    """Returns the process state that a call must not change."""
    log = logging.getLogger("nmt")
    return {
        "environment": {key: value for key, value in os.environ.items() if key != "PYTEST_CURRENT_TEST"},
        "folder": os.getcwd(),
        "signals": [signal.getsignal(one) for one in STOP_SIGNALS],
        "log": (log.level, log.propagate, log.disabled, [*log.handlers], [*log.filters]),
        "root log": logging.root.level,
        "agent's logs": [
            logging.getLogger(f"torch.{name}").level for name in ("distributed.elastic", "multiprocessing")
        ],
        "path": [*sys.path],
        "python's numbers": random.getstate(),
        "numpy's numbers": str(np.random.get_state()),
        "torch's numbers": torch.get_rng_state().tolist(),
        "threads": torch.get_num_threads(),
        "type": torch.get_default_dtype(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "products": torch.backends.mkldnn.matmul.fp32_precision,  # type: ignore[attr-defined]
        "gradients": torch.is_grad_enabled(),
        "hydra": (GlobalHydra.instance().hydra, VersionBase.instance().version_base),
        "store": copy.deepcopy(ConfigStore.instance().repo).keys(),
        "resolvers": dict(BaseContainer._resolvers),
        "spawning": spawn.get_preparation_data,
        "main": sys.modules["__main__"],
    }


@pytest.fixture
def unchanged() -> Iterator[None]:
    """Checks that a test does not change the process state; starts from settings that no call chooses."""
    torch.set_num_threads(2)
    torch.set_default_dtype(torch.float64)
    before = state()
    yield
    try:
        assert state() == before
    finally:
        torch.set_default_dtype(torch.float32)


def test_import_is_light_and_scores_of_texts_need_no_torch() -> None:
    code = (
        "import sys, nmt\n"
        "heavy = {'torch', 'hydra', 'omegaconf', 'numpy', 'yaml', 'sacrebleu', 'jinja2'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "assert {'train', 'load', 'evaluate', 'UserError', 'Model'} <= set(dir(nmt))\n"
        "assert issubclass(nmt.UserError, ValueError) and 'torch' not in sys.modules\n"
        "assert not hasattr(nmt, 'something')\n"
        "nmt.evaluate(['a b c d'], ['a b c d'])\n"
        "assert 'torch' not in sys.modules\n"
        "from nmt import *\n"
        "assert nmt.evaluate(['a'], ['a'], metrics=['bleu']).scores.sentences == 1\n"
        "assert train is nmt.train and 'torch' in sys.modules\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.returncode, result.stderr, result.stdout) == (0, "", "")


# Training


def test_training_equals_the_command_and_leaves_the_process_as_it_was(
    there: Toy, trained: Path, tmp_path: Path, unchanged: None, capfd: pytest.CaptureFixture[str]
) -> None:
    overrides = there.small(f"run_dir={tmp_path / 'run'}")
    result = nmt.train(overrides)
    assert result.run_dir == tmp_path / "run" and result.model_dir == tmp_path / "run" / "model"
    assert result.results == json.loads((tmp_path / "run" / "results.json").read_text())
    weights = [run / "model" / "model.safetensors" for run in (trained, result.run_dir)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    assert "\nBLEU|nrefs:1|" in result.text
    assert " INFO update 3: validation loss" in (result.run_dir / "train.log").read_text()
    assert nmt.train(overrides) == result  # the run is finished
    assert capfd.readouterr() == ("", "")


def test_training_in_another_thread(there: Toy, tmp_path: Path, unchanged: None) -> None:
    found: list[nmt.TrainResult] = []

    def work() -> None:
        found.append(nmt.train(there.small(f"run_dir={tmp_path / 'run'}", "training.max_updates=2")))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found[0].results["training"]["updates"] == 2


def test_data_alone_are_prepared(there: Toy, tmp_path: Path, unchanged: None) -> None:
    result = nmt.train(there.small(f"run_dir={tmp_path / 'run'}", "prepare_only=true"))
    assert (result.model_dir, result.text) == (None, "399 training pairs prepared")
    assert result.results["data"]["cleaning"]["kept"] == 399


@pytest.mark.parametrize(
    "override", ["experiment=nowhere", "seed=1,2", "plugins=[no_such_module]", "run_dir=train.src"]
)
def test_a_mistake_gets_the_sentence_of_the_command(override: str, there: Toy, unchanged: None) -> None:
    overrides = there.small(override)
    with pytest.raises(nmt.UserError) as raised:
        nmt.train(overrides)
    assert str(raised.value) == there.refused("nmt-train", *overrides)


def test_a_late_failure_leaves_the_process_as_it_was(
    there: Toy, tmp_path: Path, unchanged: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nmt.training.run.finish", lambda *given: 1 / 0)
    overrides = there.small(f"run_dir={tmp_path / 'run'}", "training.deterministic=true", "plugins=[json]")
    with pytest.raises(ZeroDivisionError):
        nmt.train(overrides)


def test_what_is_no_override(there: Toy, unchanged: None) -> None:
    with pytest.raises(nmt.UserError, match="-m: nmt.train takes no flags. For a sweep, call it for each"):
        nmt.train(["-m", "seed=1,2"])
    with pytest.raises(nmt.UserError, match="seed: options are written key=value"):
        nmt.train(["seed"])
    with pytest.raises(TypeError, match="must be a list of strings"):
        nmt.train("seed=1")


@pytest.mark.parametrize("devices", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_ctrl_c_saves_the_state_and_raises(devices: int, there: Toy, tmp_path: Path, unchanged: None) -> None:
    run = tmp_path / "run"
    options = "training.max_updates=100000", "training.log_every=1", "training.micro_batches=2"
    overrides = there.small(f"run_dir={run}", f"training.devices={devices}", *options)

    def interrupt() -> None:
        while not (run / "checkpoints").is_dir() or not any((run / "checkpoints").iterdir()):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        nmt.train(overrides)
    assert "stopped; the same command resumes from here" in (run / "train.log").read_text()


@pytest.mark.slow
def test_a_script_without_a_guard_trains_in_several_processes_and_prints_nothing(
    there: Toy, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    overrides = there.small(
        f"run_dir={tmp_path / 'run'}", "data.workers=2", "training.devices=2", "training.micro_batches=2"
    )
    script.write_text(
        "import logging, os, signal, sys\n"
        "import nmt\n"
        "def state():\n"
        "    signals = [signal.getsignal(one) for one in signal.Signals]\n"
        "    logs = logging.root.handlers, logging.getLogger('nmt').handlers\n"
        "    return dict(os.environ), signals, logs, sys.stdout, sys.stderr\n"
        "before = state()\n"
        f"result = nmt.train({overrides!r})\n"
        "assert result.results['training']['processes'] == 2\n"
        "assert state() == before\n",
        encoding="utf-8",
    )
    result = subprocess.run(
        [sys.executable, script], env=environment(there.cache), capture_output=True, timeout=600
    )
    assert (result.returncode, result.stdout.decode(), result.stderr.decode()) == (0, "", "")
    assert " INFO update 3: validation loss" in (tmp_path / "run" / "train.log").read_text()


def test_a_program_around_it_uses_hydra_itself(there: Toy, tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "app.yaml").write_text("defaults: [train_schema, _self_]\nlr: ${now:%d}\n")
    store = ConfigStore.instance()
    store.store(name="train_schema", node={"size": 7})
    OmegaConf.register_new_resolver("now", lambda pattern: "mine", replace=True)
    try:
        with initialize_config_dir(str(tmp_path / "conf"), version_base="1.2"):
            OmegaConf.register_new_resolver("now", lambda pattern: "mine", replace=True)
            before = state()
            with pytest.raises(nmt.UserError, match="seed"):
                nmt.train(["seed=x"], config_dir=tmp_path)
            prepared = nmt.train(there.small("prepare_only=true", f"run_dir={tmp_path / 'run'}"))
            assert prepared.model_dir is None
            assert state() == before
            config = compose("app", overrides=["+more=1"])
            assert (config.size, config.lr, config.more) == (7, "mine", 1)
    finally:
        del store.repo["train_schema.yaml"]
        OmegaConf.clear_resolver("now")


# Models


@pytest.fixture(scope="module")
def model(trained: Path) -> nmt.Model:
    return nmt.load(trained)


def test_translations_equal_those_of_the_command(there: Toy, model: nmt.Model, unchanged: None) -> None:
    text = (there.folder / "test.src").read_text() + "\n  \nlast"
    written = there.run("nmt-translate", "model_dir=trained", text=text).stdout.decode()
    assert model.translate(text.split("\n")) == written.splitlines()
    with open("test.src", encoding="utf-8") as file:
        assert model.translate(file) == written.splitlines()[:20]
    assert model.translate(text.split("\n")[0]) == written.splitlines()[0]
    assert model.translate([]) == []
    options = ["decoding.beam_size=3", "decoding.length_penalty=1.5"]
    other = there.run("nmt-translate", "model_dir=trained", *options, text=text).stdout.decode()
    assert model.translate(text.split("\n"), beam_size=3, length_penalty=1.5) == other.splitlines()


def test_scores_equal_those_of_the_command(there: Toy, model: nmt.Model, unchanged: None) -> None:
    options = ["decoding.beam_size=3", "decoding.nbest=2", "decoding.length_penalty=0"]
    text = (there.folder / "test.src").read_text()
    rows = there.run("nmt-translate", "model_dir=trained", *options, text=text).stdout.decode().splitlines()
    found = model.translate_nbest(text.splitlines(), beam_size=3, nbest=2, length_penalty=0)
    assert [f"{n}\t{one.score:.4f}\t{one.text}" for n, row in enumerate(found, 1) for one in row] == rows


def test_given_translations_are_scored(model: nmt.Model, unchanged: None) -> None:
    pairs = [("ba be bi", "ib eb ab"), ("ba be bi\n", "ib"), ("ba", ""), ("", ""), (" ", "ib")]
    scores, tokens = model.score(pairs), model.score_tokens(pairs)
    assert scores == pytest.approx(list(map(sum, tokens)))
    assert scores[3:] == [0.0, -float("inf")] and len(tokens[2]) == 1
    assert all(-100 < score < -1 for score in scores[:3])


def test_attention_of_all_layers_and_heads(model: nmt.Model, unchanged: None) -> None:
    source, target = "ba ka", "ab ak"
    seen = model.attention(source, target)
    layers, heads = model.config.model.encoder_layers, model.config.model.heads
    num_source, num_target = len(seen.source), len(seen.target)
    assert (seen.source[-1], seen.target[0], seen.predicted[-1]) == ("</s>", "<s>", "</s>")
    assert seen.target[1:] == seen.predicted[:-1]
    assert "".join(seen.predicted[:-1]).replace("\u2581", " ").strip() == target
    assert seen.encoder is not None
    assert seen.decoder is not None
    assert seen.encoder.shape == (layers, heads, num_source, num_source)
    assert seen.decoder.shape == (layers, heads, num_target, num_target)
    assert seen.cross.shape == (layers, heads, num_target, num_source)
    for weights in (seen.encoder, seen.decoder, seen.cross):
        np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    assert not np.triu(seen.decoder, 1).any()
    assert '"predicted":' in model.attention_page([(source, target)])
    with pytest.raises(nmt.UserError, match="attention_page: there are no pairs"):
        model.attention_page([])
    own = model.attention(source, beam_size=2)
    np.testing.assert_array_equal(
        own.cross, model.attention(source, model.translate(source, beam_size=2)).cross
    )


@pytest.mark.parametrize(
    ("pair", "reported"),
    [
        ((" ", "a"), "attention: the source is blank. Give a sentence."),
        (("a\nb", "a"), "source 1: contains a line break"),
        (("ba " * 2000, "a"), "attention: the source has .* tokens, and at most .* are allowed"),
    ],
)
def test_attention_that_is_refused(
    model: nmt.Model, pair: tuple[str, str], reported: str, trained: Path
) -> None:
    with pytest.raises(nmt.UserError, match=reported):
        model.attention(*pair)
    with pytest.raises(nmt.UserError, match="attention: needs one model. Load each model alone"):
        nmt.load([trained, trained]).attention("a")


@pytest.mark.parametrize(
    ("written", "given"),
    [
        ("beam_sise=3", {"beam_sise": 3}),
        ("beam_size=many", {"beam_size": "many"}),
        ("length_penalty=null", {"length_penalty": None}),
        ("nbest=9", {"nbest": 9}),
    ],
)
def test_a_wrong_option_of_decoding_gets_the_sentence_of_the_command(
    written: str, given: dict[str, Any], there: Toy, model: nmt.Model, unchanged: None
) -> None:
    with pytest.raises(nmt.UserError) as raised:
        model.translate_nbest(["ba"], **given)
    reported = there.refused("nmt-translate", "model_dir=trained", f"decoding.{written}", text="ba\n")
    assert str(raised.value) == reported


def test_lines_that_are_none(model: nmt.Model) -> None:
    with pytest.raises(
        nmt.UserError, match="line 2: contains a line break. Give each line as a separate string"
    ):
        model.translate(["a", "b\nc"])
    with pytest.raises(nmt.UserError, match=r"line 1: not valid Unicode \(surrogate U\+DCFF\)"):
        model.translate("\udcff")
    with pytest.raises(TypeError, match="line 1: must be a str, not bytes"):
        model.translate([b"a"])  # type: ignore[list-item]
    with pytest.raises(nmt.UserError, match="target 1: contains a line break"):
        model.score([("a", "b\nc")])
    with pytest.raises(nmt.UserError, match="translate returns only the best one"):
        model.translate("a", nbest=2)


def test_a_cut_source_is_logged(model: nmt.Model, said: pytest.LogCaptureFixture) -> None:
    model.translate(["ba", "ba be bi bo bu"], max_source_tokens=3)
    assert "line 2: cut to 3 of " in said.text and "line 1" not in said.text


def test_what_a_model_says_of_itself(model: nmt.Model, trained: Path) -> None:
    assert (model.source_lang, model.target_lang, model.config.model.d_model) == ("xx", "yy", 32)
    assert repr(model) == f"<nmt.Model xx-yy from {trained / 'model'}>"
    assert nmt.load([str(trained), trained], threads=1).translate("ba be") == model.translate("ba be")


@pytest.mark.parametrize("folder", ["nowhere", "."])
def test_no_model_gets_the_sentence_of_the_command(folder: str, there: Toy, unchanged: None) -> None:
    with pytest.raises(nmt.UserError) as raised:
        nmt.load(folder)
    assert str(raised.value) == there.refused("nmt-translate", f"model_dir={folder}", text="")
    with pytest.raises(nmt.UserError, match="precision=int8: must be one of"):
        nmt.load("trained", precision="int8")
    with pytest.raises(nmt.UserError, match="device=tpu: must be auto"):
        nmt.load("trained", device="tpu")


def test_threads_share_a_model(model: nmt.Model, unchanged: None) -> None:
    lines = ["ba be", "bi bo bu", "fa"]
    found: list[list[str]] = []
    threads = [threading.Thread(target=lambda: found.append(model.translate(lines))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [model.translate(lines)] * 3


# Evaluation


@pytest.mark.slow
def test_an_evaluation_equals_the_command(
    there: Toy, trained: Path, tmp_path: Path, unchanged: None, capfd: pytest.CaptureFixture[str]
) -> None:
    report = nmt.evaluate(model_dir=trained, overrides=["split=valid", "decoding.beam_size=3"])
    assert capfd.readouterr() == ("", "")
    options = [f"model_dir={trained}", "split=valid", "decoding.beam_size=3", f"json={tmp_path / 'report'}"]
    reported = there.run("nmt-eval", *options)
    assert report.table() == reported.stdout.decode()
    assert report.as_dict() == json.loads((tmp_path / "report").read_text())

    again = nmt.evaluate(report.hypotheses, "valid.tgt", target_lang="yy")
    assert again.scores == report.scores and again.title == "hypotheses on valid.tgt"
    other = nmt.evaluate(
        model_dir=trained, sources="valid.src", references=Path("valid.tgt"), metrics=["chrf"]
    )
    assert other.scores.values.keys() == {"chrf"}
    lines = Path("valid.src").read_text().splitlines(), Path("valid.tgt").read_text().splitlines()
    assert (
        nmt.evaluate(model_dir=trained, sources=lines[0], references=lines[1], metrics="chrf").scores
        == other.scores
    )


def test_texts_in_memory_and_in_files_have_the_same_scores(in_tmp: Path, unchanged: None) -> None:
    texts = {
        "ours, 'v1'.de": ["das ist ein Haus", "ein Hund läuft", "nichts"],
        "theirs[1].de": ["das ist Haus", "Hund läuft", "nichts da"],
        "a.de": ["das ist das Haus", "ein Hund läuft", "nichts"],
        "b.de": ["dies ist ein Haus", "es läuft ein Hund", "gar nichts"],
        "labels": ["x", "y", "x"],
    }
    for name, lines in texts.items():
        Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    ours, theirs, a, b, labels = texts.values()
    files = nmt.evaluate(
        "ours, 'v1'.de",
        [Path("a.de"), Path("b.de")],
        baseline="theirs[1].de",
        groups="labels",
        target_lang="de",
    )
    memory = nmt.evaluate(iter(ours), [a, b], baseline=theirs, groups=labels, target_lang="de")
    assert memory.scores == files.scores and "nrefs:2" in memory.scores.signatures["bleu"]
    assert memory.groups == files.groups and list(memory.groups) == ["x", "y"]
    assert memory.comparison == files.comparison is not None
    assert memory.hypotheses == ours == list(files.hypotheses)
    assert (memory.title, files.title) == ("hypotheses on references", "ours, 'v1'.de on a.de, b.de")


@pytest.mark.parametrize(
    ("given", "reported"),
    [
        ({}, "nothing to score. Give model_dir=DIR, or hypotheses=FILE and references=FILE."),
        ({"hypotheses": ["a"]}, "hypotheses: references=FILE is missing."),
        ({"hypotheses": ["a"], "references": ["a", "b"]}, "unequal numbers of sentences: "),
        ({"hypotheses": ["a"], "references": ["a"], "overrides": ["json=x"]}, "json: nmt.evaluate writes no"),
        (
            {"hypotheses": ["a"], "overrides": ["hypotheses=x"]},
            "hypotheses: given both as an argument and as",
        ),
        (
            {"hypotheses": ["a"], "references": ["a"], "metrics": ["bleu", "blue"]},
            "evaluation.metrics=[bleu,blue]: there is no metric blue. Choose from bleu",
        ),
        (
            {"model_dir": "m", "references": ["a"], "sources": ["a"], "overrides": ["score=true"]},
            "score: nmt.evaluate returns no such scores. Call nmt.load(DIR).score(pairs).",
        ),
    ],
)
def test_evaluations_that_are_refused(given: dict[str, Any], reported: str, unchanged: None) -> None:
    with pytest.raises(nmt.UserError) as raised:
        nmt.evaluate(**given)
    assert reported in str(raised.value)


@pytest.mark.parametrize(
    ("given", "reported"),
    [
        (
            {"hypotheses": ["a"], "references": [["a"], "b"]},
            "references: must be lines, a file, or a list of",
        ),
        ({"hypotheses": ["a", 3], "references": ["a", "b"]}, "hypotheses, line 2: must be a str, not int"),
    ],
)
def test_evaluations_of_other_types(given: dict[str, Any], reported: str) -> None:
    with pytest.raises(TypeError, match=reported):
        nmt.evaluate(**given)


# The guide


def test_the_examples_of_the_guide(toy: Toy, tmp_path: Path) -> None:
    for split in ("train", "valid", "test"):
        for ending, language in (("src", "en"), ("tgt", "de")):
            shutil.copy(toy.folder / f"{split}.{ending}", tmp_path / f"{split}.{language}")
    text = DOCUMENT.read_text(encoding="utf-8")
    examples = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    assert len(examples) == 6
    code = "\n".join(examples)
    assert code.count('"model=small",') == 1
    small = "".join(f'"{option}", ' for option in SMALL)
    (tmp_path / "guide.py").write_text(code.replace('"model=small",', small), encoding="utf-8")
    result = subprocess.run(
        [sys.executable, "guide.py"],
        cwd=tmp_path,
        env=environment(toy.cache),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert result.returncode == 0, result.stderr
    assert "runs/mine/model" in result.stdout and "BLEU|nrefs:1" in result.stdout
