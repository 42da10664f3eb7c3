"""nmt-translate and nmt-serve with backend=ctranslate2, as processes."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import LEARNING, Toy, environment
from forking import forked_command
from serving import Server, serving

pytest.importorskip("ctranslate2", reason="the extra export is not installed")

LINES = "mu ga fi\n\nko ni mu ne bi\n"
ENGINE = ("backend=ctranslate2", "device=cpu", "threads=2")


@pytest.fixture(scope="module")
def own(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that writes nothing for some of the lines on which its export is compared."""
    run = tmp_path_factory.mktemp("engine") / "run"
    toy.done("nmt-train", *toy.small(f"run_dir={run}", *LEARNING))
    return run / "model"


@pytest.fixture(scope="module")
def exported(toy: Toy, own: Path) -> Path:
    """The export that two processes have made at the same time."""
    arguments = forked_command("nmt-translate", f"model_dir={own}", *ENGINE)
    processes = [
        subprocess.Popen(
            arguments,
            cwd=toy.folder,
            env=environment(toy.cache),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(2)
    ]
    results = [process.communicate(LINES.encode(), timeout=600) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], results
    assert results[0][0] == results[1][0]
    logs = [errors.decode() for _, errors in results]
    assert sorted("making an export of the model" in text for text in logs) == [False, True]
    return own / "exports" / "ctranslate2-float32"


def test_the_translations_are_those_of_nmt(toy: Toy, own: Path, exported: Path, tmp_path: Path) -> None:
    mine = toy.run("nmt-translate", f"model_dir={own}", "device=cpu", "decoding.beam_size=1", text=LINES)
    output = tmp_path / "b.txt"
    (tmp_path / "a.txt").write_text(LINES)
    run = toy.done(
        "nmt-translate",
        *(f"model_dir={own}", *ENGINE, "decoding.beam_size=1"),
        *(f"input={tmp_path / 'a.txt'}", f"output={output}"),
    )
    assert run.stdout == b"" and output.read_bytes() == mine.stdout
    assert mine.stdout.count(b"\n") == 3 and mine.stdout.split(b"\n")[1] == b""
    assert b"export" not in run.stderr  # it was there already


def test_scores_tables_and_json(toy: Toy, own: Path, exported: Path) -> None:
    def run(*options: str, text: str) -> str:
        found = toy.done("nmt-translate", f"model_dir={own}", *ENGINE, *options, text=text)
        return found.stdout.decode()

    rows = [line.split("\t") for line in run("decoding.nbest=2", text=LINES).splitlines()]
    assert [row[0] for row in rows] == ["1", "1", "2", "2", "3", "3"]
    assert float(rows[0][1]) >= float(rows[1][1])
    assert rows[2:4] == [["2", "0.0000", ""], ["2", "-inf", ""]]

    [score, best] = run("scores=true", text="mu ga fi\n").rstrip("\n").split("\t")
    assert [score, best] == rows[0][1:]
    assert run("column=2", text="7\tmu ga fi\n") == f"7\tmu ga fi\t{best}\n"

    given = [{"text": "mu ga fi", "id": 3}, {"text": "mu", "constraints": ["x"]}]
    lines = run("format=jsonl", text="".join(f"{json.dumps(one)}\n" for one in given)).splitlines()
    assert json.loads(lines[0]) == {"id": 3, "translation": best, "score": pytest.approx(float(score))}
    assert json.loads(lines[1]) == {"error": "line 2: backend=ctranslate2 can't have constraints"}


def test_the_folder_of_an_export(toy: Toy, own: Path, exported: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(exported, tmp_path / "moved")
    mine = toy.run("nmt-translate", f"model_dir={own}", *ENGINE, text=LINES)
    direct = toy.done("nmt-translate", f"model_dir={moved}", *ENGINE, text=LINES)
    assert direct.stdout == mine.stdout


def test_a_refused_option_is_one_line(toy: Toy) -> None:
    refused = toy.refused("nmt-translate", "model_dir=missing", *ENGINE, "decoding.samples=3", text=LINES)
    assert refused == (
        "decoding.samples=3: backend=ctranslate2 does not have it. Set decoding.samples=0, or use "
        "backend=nmt."
    )


@pytest.fixture(scope="module")
def server(toy: Toy, own: Path, exported: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    pytest.importorskip("uvicorn", reason="the extra serve is not installed")
    with serving(toy, tmp_path_factory.mktemp("served"), f"model_dir={own}", *ENGINE) as started:
        yield started


def test_the_server_answers_as_the_command(server: Server, toy: Toy, own: Path) -> None:
    expected = toy.run("nmt-translate", f"model_dir={own}", *ENGINE, text=LINES).stdout.decode()
    assert server.translate(q=LINES.rstrip("\n")).json["translatedText"] == expected.rstrip("\n")
    found = server.translate(q="mu ga fi", alternatives=2, beam_size=3, scores=True).json
    scores = [one["score"] for one in found["lines"][0]["translations"]]
    assert len(found["alternatives"]) == 2 and scores == sorted(scores, reverse=True)


def test_the_server_has_no_attention(server: Server) -> None:
    answer = server.translate(q="bada", attention=True)
    assert (answer.status, answer.json) == (400, {"error": "attention: the engine of this server has none."})
    settings = server.request("GET", "/frontend/settings").json
    assert (settings["attentionCharLimit"], settings["attentionPages"]) == (0, False)
    assert server.request("POST", "/attention", b"q=bada").status == 400
    assert server.translate(q="bada").status == 200
