"""COMET through a stand-in of `comet-score`: correct output, failures, saved runs and interruption."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nmt.config import CometConfig, EvaluationConfig
from nmt.errors import UserError
from nmt.evaluation.metrics import Metric, ScoringStopped, metrics_for
from nmt.evaluation.metrics.comet import read_scores
from nmt.evaluation.scores import compare, score, score_groups

SOURCES = ["ein Haus", "zwei\r Hunde", "drei  "]
HYPOTHESES = ["a house", "two dogs", ""]
REFERENCES = ["a house", "two hounds", "three"]

STAND_IN = """\
import sys
arguments = dict(zip(sys.argv[1:-1:2], sys.argv[2::2]))
with open({calls!r}, "a") as calls:
    print(*sys.argv[1:], file=calls)
lines = {{flag: open(arguments[flag]).read().splitlines() for flag in ("-s", "-t", "-r")}}
assert len(lines["-s"]) == len(lines["-t"]) == len(lines["-r"]), lines
print("Fetching 5 files: 100%")
scores = [1.0 if t == r else len(s) / 100 for s, t, r in zip(*lines.values())]
for number, one in enumerate(scores):
    print(f"{{arguments['-t']}}\\tSegment {{number}}\\tscore: {{one:.4f}}")
print(f"{{arguments['-t']}}\\tscore: {{sum(scores) / len(scores):.4f}}")
"""
"""Scores 1 for a hypothesis equal to its reference, otherwise 1/100 of the source's characters."""


def program(path: Path, code: str) -> Path:
    path.write_text(f"#!{sys.executable} -S\n{code}", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    return tmp_path / "calls"


@pytest.fixture
def command(tmp_path: Path, calls: Path) -> Path:
    return program(tmp_path / "comet-score", STAND_IN.format(calls=os.fspath(calls)))


def comet(*words: Path | str) -> dict[str, Metric]:
    config = CometConfig(command=[str(word) for word in words])
    return metrics_for("en", EvaluationConfig(metrics=["comet"], comet=config))


def test_the_scores_of_system_and_segments(command: Path, calls: Path) -> None:
    found = score(HYPOTHESES, [REFERENCES], comet(command, "--gpus", "0"), sources=SOURCES)
    assert found.as_dict() == {
        "comet": pytest.approx(0.39),  # 1, 11 and 6 hundredths
        "signatures": {"comet": "nrefs:1|command:comet-score --gpus 0"},
        "sentences": 3,
    }
    (call,) = calls.read_text().splitlines()
    words = call.split()
    assert words[:2] == ["--gpus", "0"] and words[2::2] == ["-s", "-t", "-r", "--quiet"]
    assert not Path(words[3]).exists(), "the files are removed"


def test_a_single_word_is_a_command_too(command: Path) -> None:
    options = EvaluationConfig(metrics=["comet"], comet=CometConfig(command=str(command)))
    assert score(HYPOTHESES, [REFERENCES], metrics_for("en", options), sources=SOURCES)["comet"] is not None


def test_parts_of_a_set_need_no_other_run(command: Path, calls: Path) -> None:
    metrics = comet(command)
    score(HYPOTHESES, [REFERENCES], metrics, sources=SOURCES)
    groups = score_groups(HYPOTHESES, [REFERENCES], ["x", "y", "x"], metrics, sources=SOURCES)
    assert groups["x"]["comet"] == pytest.approx(0.53) and groups["y"]["comet"] == pytest.approx(0.11)
    found = compare(HYPOTHESES, REFERENCES, [REFERENCES], metrics, 20, sources=SOURCES)["comet"]
    assert found is not None
    assert (found.baseline, found.delta) == (1.0, pytest.approx(-0.61))
    assert len(calls.read_text().splitlines()) == 2, "one for each system"


def test_several_references_have_a_mean(command: Path, calls: Path) -> None:
    metrics = comet(command)
    found = score(HYPOTHESES, [REFERENCES, HYPOTHESES], metrics, sources=SOURCES)
    assert found["comet"] == pytest.approx((0.39 + 1) / 2)
    assert found.signatures["comet"].startswith("nrefs:2|")
    sentences = metrics["comet"].sentence_scores(HYPOTHESES, [REFERENCES, HYPOTHESES], SOURCES)
    assert sentences == pytest.approx([1.0, 0.555, 0.53])
    assert len(calls.read_text().splitlines()) == 2, "one for each set of references"


def test_the_command_has_an_environment_of_its_own(
    tmp_path: Path, calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither our PYTHONPATH nor the variables of distributed training."""
    seen = tmp_path / "seen"
    code = f"import os\nopen({os.fspath(seen)!r}, 'w').write(' '.join(os.environ))\n"
    for name in ("PYTHONPATH", "RANK", "WORLD_SIZE", "SLURM_NTASKS", "KEPT"):
        monkeypatch.setenv(name, "1")
    command = program(tmp_path / "comet-score", code + STAND_IN.format(calls=os.fspath(calls)))
    score(HYPOTHESES, [REFERENCES], comet(command), sources=SOURCES)
    names = set(seen.read_text().split())
    assert {"KEPT", "PATH"} <= names and not names & {"PYTHONPATH", "RANK", "WORLD_SIZE", "SLURM_NTASKS"}


SEGMENTS = "".join(f"print('f\\tSegment {number}\\tscore: 0.5')\n" for number in range(3))


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import sys; sys.exit('no GPU is there')", "ended with exit status 1: no GPU is there"),
        ("raise SystemExit(3)", "ended with exit status 3: no message"),
        (
            "raise ValueError('first\\nlast')",
            "ended with exit status 1: last",
        ),
        ("import os; os.kill(os.getpid(), 9)", "ended by signal 9: no message"),
        ("", "it printed no system score"),
        (SEGMENTS, "it printed no system score"),
        ("print('f\\tscore: 0.5')", "it printed scores of 0 segments, but there are 3"),
        (f"{SEGMENTS}print('f\\tscore: 0.5\\nf\\tscore: 0.4')", "it printed 2 different system scores"),
        (f"{SEGMENTS}print('f\\tscore: nan')", "it printed the score 'nan', which is not a number"),
        (f"{SEGMENTS}print('f\\tscore: high')", "it printed the score 'high', which is not a number"),
        (
            f"{SEGMENTS}print('f\\tSegment 7\\tscore: 0.5\\nf\\tscore: 0.5')",
            "it printed scores of 4 segments, but there are 3",
        ),
        (
            "import sys; sys.stdout.buffer.write(b'\\xff\\xfe\\tscore: 0.5\\n')",
            "it printed scores of 0 segments, but there are 3",
        ),
    ],
)
def test_bad_behaviours_are_told_in_one_line(code: str, message: str, tmp_path: Path) -> None:
    command = program(tmp_path / "comet-score", code)
    with pytest.raises(UserError) as caught:
        score(HYPOTHESES, [REFERENCES], comet(command), sources=SOURCES)
    remedy = ". Give the comet-score of unbabel-comet 2.2, without --only_system."
    end = remedy if message.startswith("it printed") else ""
    assert str(caught.value) == f"evaluation.comet.command={command}: {message}{end}"


def test_commands_that_can_not_be_run(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.write_text("no program")
    nothing = "there is no such command. Give the path of an executable file."
    for words, message in [
        (["/nowhere/comet-score"], f"evaluation.comet.command=/nowhere/comet-score: {nothing}"),
        (["no-such-command"], f"evaluation.comet.command=no-such-command: {nothing}"),
        (["~/no-such-command"], f"evaluation.comet.command=~/no-such-command: {nothing}"),
        (
            [str(there)],
            f"evaluation.comet.command={there}: not executable. Give the path of an executable file.",
        ),
    ]:
        with pytest.raises(UserError) as caught:
            comet(*words)
        assert str(caught.value) == message
    there.chmod(0o755)
    with pytest.raises(UserError, match=r"there: can't be started: Exec format error$"):
        score(HYPOTHESES, [REFERENCES], comet(there), sources=SOURCES)


def test_comet_needs_a_command() -> None:
    with pytest.raises(UserError) as caught:
        metrics_for("en", EvaluationConfig(metrics=["comet"]))
    assert str(caught.value) == (
        "evaluation.comet.command: not set, but the metric comet requires it. Install unbabel-comet in a "
        "separate environment, and give its command: evaluation.comet.command=/path/to/comet-score"
    )
    with pytest.raises(UserError, match=r"^evaluation.comet.command=\[\]: must be a command, or a list"):
        CometConfig(command=[])


def test_what_comet_score_prints() -> None:
    r"""The format of `comet/cli/score.py` 2.2: `{}\tSegment {}\tscore: {:.4f}`, `{}\tscore: {:.4f}`."""
    output = "hyp.en\tSegment 0\tscore: 0.9822\nhyp.en\tSegment 1\tscore: -0.0599\nhyp.en\tscore: 0.4612\n"
    assert read_scores(output, 2) == (0.4612, [0.9822, -0.0599])


SLOW = """\
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
with open({pids!r} + ".tmp", "w") as file:
    print(os.getpid(), child.pid, file=file)
os.rename({pids!r} + ".tmp", {pids!r})
time.sleep(600)
"""


def gone(pids: Path) -> bool:
    """Returns whether the processes end within 30 seconds."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        states = [Path(f"/proc/{pid}/stat") for pid in pids.read_text().split()]
        if not any(
            path.exists() and path.read_text().rpartition(")")[2].split()[0] != "Z" for path in states
        ):
            return True
        time.sleep(0.05)
    return False


def test_an_interrupted_score_ends_the_command_and_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    metrics = comet(program(tmp_path / "comet-score", SLOW.format(pids=os.fspath(pids))))
    metrics["comet"].interrupted = pids.exists
    with pytest.raises(ScoringStopped):
        score(HYPOTHESES, [REFERENCES], metrics, sources=SOURCES)
    assert gone(pids)


def test_ctrl_c_ends_the_command_and_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    command = program(tmp_path / "comet-score", SLOW.format(pids=os.fspath(pids)))
    for name, lines in {"src": SOURCES, "hyp": HYPOTHESES, "ref": REFERENCES}.items():
        (tmp_path / name).write_text("".join(f"{line.strip()}\n" for line in lines), newline="\n")
    code = "import sys; sys.argv[0] = 'nmt-eval'; from nmt.cli.evaluate import main; main()"
    arguments = ["hypotheses=hyp", "references=ref", "source=src", "evaluation.metrics=[comet]"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments, f"evaluation.comet.command=[{command},--gpus,0]"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.fspath(Path(__file__).parents[3])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not pids.exists() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "nmt-eval: stopped\n")
    assert gone(pids)
