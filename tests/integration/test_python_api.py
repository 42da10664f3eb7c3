"""`nmt.train`: the same models and errors as the command, in an unchanged process; and the guide."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from commands import SMALL, Toy, environment
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf
from process_state import state

import nmt

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "python.md"


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
