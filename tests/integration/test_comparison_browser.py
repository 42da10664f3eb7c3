"""The pages of a sweep and of `nmt-eval runs/*` in a headless Chromium: each control; axe-core."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser import AXE, chromium, needs_chromium, show_narrow, use_first_controls, violations
from commands import Toy
from waiting import wait_until

pytestmark = [pytest.mark.slow, needs_chromium]


@pytest.fixture(scope="module")
def pages(toy: Toy) -> dict[str, Path]:
    """Returns the pages of a sweep with one option, and of its runs and one with other options."""
    toy.done("nmt-train", "-m", *toy.small("run_dir=browsed", "seed=1,2", "training.log_every=1"))
    others = "model.norm=pre", "model.dropout=0.3", "training.label_smoothing=0.2"
    toy.done("nmt-train", *toy.small("run_dir=browsed/third", *others))
    runs = [f"browsed/{name}" for name in ("seed-1", "seed-2", "third")]
    toy.done("nmt-eval", *runs, "report=browsed/runs.html")
    return {name: toy.folder / "browsed" / f"{name}.html" for name in ("sweep", "runs")}


@pytest.mark.parametrize(
    ("name", "header", "rows"),
    [
        ("sweep", "run seed", ["seed-2", "seed-1"]),  # the option is a column
        ("runs", "run BLEU", ["third", "seed-2", "seed-1"]),  # many options have a table
    ],
)
def test_the_page(pages: dict[str, Path], name: str, header: str, rows: list[str]) -> None:
    from selenium.webdriver.common.keys import Keys

    with chromium(500) as driver:
        show_narrow(driver, pages[name])

        def texts(selector: str) -> list[str]:
            return [part.text for part in driver.find_elements("css selector", selector)]

        use_first_controls(driver)
        assert " ".join(texts("#runs thead:first-of-type th")[:2]) == header
        assert bool(texts("#options")) == (name == "runs")
        names = "#runs .table:first-of-type tbody th"
        button = driver.find_element("css selector", "#runs .table:first-of-type thead button")
        button.click()
        assert texts(names) == rows[::-1]
        button.send_keys(Keys.ENTER)
        assert texts(names) == rows
        table = driver.find_element("css selector", "#runs .table")
        table.send_keys(Keys.ARROW_RIGHT)
        wait_until(lambda: driver.execute_script("return arguments[0].scrollLeft > 0", table))
        for link in driver.find_elements("css selector", "nav a"):
            link.send_keys(Keys.ENTER)
            section = link.get_attribute("href").partition("#")[2]
            top = f"document.getElementById('{section}').getBoundingClientRect().top"
            assert driver.execute_script(f"return Math.abs({top}) < innerHeight"), section
        driver.find_element("css selector", ".words").send_keys("no such words")
        assert texts("[role=status]")[0].startswith("0 of ")
        assert driver.execute_script("return document.documentElement.scrollWidth <= innerWidth")
        for theme in ("light", "dark") if AXE.is_file() else ():
            driver.execute_script(f"document.documentElement.dataset.theme = '{theme}'")
            assert violations(driver) == []
        assert driver.get_log("browser") == []
