"""`nmt.Model` in processes of `multiprocessing`: the translations of the parent, or one error at once."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

import nmt

LINES = ["ba be", "bi bo bu", "da", "fa"] * 3
FORK: Any = multiprocessing.get_context("fork")


@pytest.fixture
def model(trained: Path) -> Iterator[nmt.Model]:
    before = torch.get_num_threads()
    yield nmt.load(trained, threads=2)
    torch.set_num_threads(before)


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_forked_processes_translate(model: nmt.Model) -> None:
    expected = model.translate(LINES)  # with the threads of OpenMP, which a child lacks
    with FORK.Pool(2) as pool:
        assert pool.map_async(model.translate, LINES, chunksize=4).get(30) == expected
    with ProcessPoolExecutor(1, FORK) as executor:
        assert executor.submit(model.translate, LINES, beam_size=2).result(30) == model.translate(
            LINES, beam_size=2
        )
        assert executor.submit(model.score, [("ba be", "ab eb")]).result(30) == pytest.approx(
            model.score([("ba be", "ab eb")]), abs=1e-5
        )


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_fork_while_other_threads_translate(model: nmt.Model) -> None:
    expected, done = model.translate(LINES), threading.Event()

    def work() -> None:
        while not done.is_set():
            model.translate(LINES)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(3):
            time.sleep(0.01)
            with FORK.Pool(1) as pool:
                assert pool.apply_async(model.translate, [LINES]).get(30) == expected
    finally:
        done.set()
        for thread in threads:
            thread.join()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_other_processes_load_the_folder_once(method: str, model: nmt.Model) -> None:
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.map_async(model.translate, LINES, chunksize=1).get(90) == model.translate(LINES)


def test_a_pickled_model_is_its_folder_and_options(model: nmt.Model, tmp_path: Path) -> None:
    assert pickle.loads(pickle.dumps(model)) is copy.deepcopy(model) is model
    pickled = pickle.dumps(nmt.load(model.folders, precision="bf16", threads=1))  # and the model is gone
    assert len(pickled) < 1000
    loaded = pickle.loads(pickled)
    assert pickle.loads(pickled) is loaded
    assert loaded.folders == model.folders and loaded._options == {
        **{"device": "auto", "precision": "bf16", "threads": 1},
        "plugins": [],
    }


def test_a_folder_that_is_gone_is_an_error_of_the_call(model: nmt.Model, tmp_path: Path) -> None:
    """An error of the unpickling would end the process, and the pool would wait forever."""
    folder = Path(shutil.copytree(model.folders[0], tmp_path / "model"))
    pickled = pickle.dumps(nmt.load(folder))
    shutil.rmtree(folder)
    lost = pickle.loads(pickled)
    translate = lost.translate
    for use in (lambda: translate(LINES), lambda: lost.source_lang):
        with pytest.raises(nmt.UserError, match=r"model_dir=.*/model: there is no such folder"):
            use()
