"""`report.html` of real runs: its figures, its currency while training, and that it never ends a run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from browser import AXE, chromium, needs_chromium, violations
from commands import Toy
from waiting import wait_until


def data_of(page: Path) -> dict[str, Any]:
    found = re.search(r'id="data">(.*?)</script>', page.read_text(encoding="utf-8"), re.DOTALL)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


def sections_of(page: Path) -> list[str]:
    return re.findall(r'<section id="([\w-]+)"', page.read_text(encoding="utf-8"))


def options(toy: Toy, *overrides: str) -> list[str]:
    return toy.small("training.report=true", *overrides)


def test_a_run_writes_its_page_and_nmt_eval_one_with_its_sections(toy: Toy, tmp_path: Path) -> None:
    run = tmp_path / "run"
    toy.done("nmt-train", *options(toy, f"run_dir={run}", "training.log_every=1"))
    page = run / "report.html"
    expected = "summary diagnosis curves scores signs samples attention data training options commands"
    assert {*expected.split()} <= {*sections_of(page)}
    results = json.loads((run / "results.json").read_text())
    data = data_of(page)
    assert data["results"] == results
    for key in ("bleu", "chrf", "ter"):
        assert data["evaluation"][key] == results["test"][key]
    assert data["evaluation"]["analysis"]["unseen_words"] == []
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = [[one["update"], one["loss"]] for one in records if one["kind"] == "train"]
    assert data["curves"]["train"]["loss"] == losses and len(losses) == 6
    assert data["options"]["model.d_model"] == 32
    other = tmp_path / "other.html"
    toy.done("nmt-eval", f"model_dir={run}", f"report={other}")
    assert data_of(other)["run"]["results"] == results and "curves" in sections_of(other)


def test_the_page_is_current_while_training(toy: Toy, tmp_path: Path) -> None:
    run = tmp_path / "run"
    given = options(toy, f"run_dir={run}", "training.report_every=2", "training.validate_every=1")
    failing = ["evaluation.metrics=[comet]", "evaluation.comet.command=/bin/false"]
    toy.refused("nmt-train", *given, *failing, "training.max_updates=5")  # after the training
    validated = data_of(run / "report.html")["curves"]["valid"]["loss"]
    assert [update for update, _ in validated] == [1, 2, 3, 4]
    assert "The run has not ended" in (run / "report.html").read_text()


def test_a_page_that_fails_does_not_end_the_run(toy: Toy, tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "report.html").mkdir(parents=True)
    result = toy.done("nmt-train", *options(toy, f"run_dir={run}", "training.report_every=1"))
    warnings = re.findall(r"report\.html: the page of the run was not written: .*", result.stderr.decode())
    assert len(warnings) == 3 and (run / "results.json").exists()


@pytest.mark.slow
@needs_chromium
def test_the_page_in_a_browser(toy: Toy, tmp_path: Path) -> None:
    """The parts that a run adds: the page of attention, and commands to copy; axe-core."""
    toy.done("nmt-train", *options(toy, f"run_dir={tmp_path / 'run'}", "data.target_lang=zho_Hans"))
    with chromium(500) as driver:
        driver.get((tmp_path / "run" / "report.html").as_uri())
        run = driver.execute_script
        assert driver.find_element("css selector", ".hypothesis dd").get_attribute("lang") == "zh-Hans"
        run("window.frame = document.querySelector('iframe')")
        page = "frame.contentDocument.documentElement.scrollHeight"
        wait_until(lambda: run(f"return {page} > 500 && {page} <= frame.clientHeight"))
        dark = "return frame.contentWindow.matchMedia('(prefers-color-scheme: dark)').matches"
        before = run(dark)
        run("document.getElementById('theme').click()")
        wait_until(lambda: run(dark) != before)
        button = driver.find_element("css selector", "button.copy")
        button.send_keys("\n")
        wait_until(lambda: button.text.startswith(("Copied", "Selected")))
        assert run("return document.documentElement.scrollWidth <= innerWidth")
        if AXE.is_file():
            assert violations(driver) == []
        assert [line for line in driver.get_log("browser") if "postMessage" not in line["message"]] == []
