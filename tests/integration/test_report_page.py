"""The page of `nmt-eval report=FILE` in a headless Chromium: each control by mouse and keyboard; axe-core."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from browser import chromium, needs_axe, needs_chromium, show_narrow, use_first_controls, violations

import nmt
from nmt.reports.evaluation import evaluation_page

HOSTILE = "</script><script>document.title=1</script> \u202e" + "x" * 10_000
SOURCES = ["Is it 15?", HOSTILE, *["We do not go home today because we have to work"] * 20]
REFERENCES = ["هل هي 15؟", HOSTILE, *["لن نذهب اليوم إلى البيت لأن علينا أن نعمل"] * 20]
LOOPING = ["هل هي؟", f"{HOSTILE} <b>", *["لن نذهب لن نذهب لن نذهب اليوم"] * 20]
BASELINE = ["هل هي 15؟", "", *["لن نذهب إلى البيت"] * 20]

pytestmark = [
    pytest.mark.slow,
    needs_chromium,
]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    page = tmp_path_factory.mktemp("page") / "report.html"
    report = nmt.evaluate(
        LOOPING, REFERENCES, SOURCES, baseline=BASELINE, target_lang="ar",
        overrides=["analysis=true", "source_lang=en"],
    )  # fmt: skip
    page.write_text(evaluation_page(report).html(), encoding="utf-8")
    with chromium(500) as driver:
        show_narrow(driver, page)
        yield driver


def test_every_control(browser: Any) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    def find(name: str) -> Any:
        return browser.find_element(By.CSS_SELECTOR, name)

    def texts(name: str) -> list[str]:
        return [part.text for part in browser.find_elements(By.CSS_SELECTOR, name)]

    def shown() -> list[str]:
        return [
            article.get_attribute("id")
            for article in browser.find_elements(By.CSS_SELECTOR, "article")
            if article.is_displayed()
        ]

    assert "on" in browser.title
    won = find(".lists option:checked")
    lines = [f"line-{line}" for line in won.get_attribute("data-lines").split()]
    assert (won.text, shown()) == (f"hypotheses better ({len(lines)})", lines)
    use_first_controls(browser)
    column = "#bins .beside:first-of-type table tr > :nth-child(2)"
    header = find(f"{column} button")
    header.send_keys(Keys.ENTER)
    assert texts(column)[1:] == ["20", "2"]
    assert find("#bins th[aria-sort]").get_attribute("aria-sort") == "descending"
    header.click()
    assert texts(column)[1:] == ["2", "20"]
    find(".lists").send_keys("loops")
    loops = shown()
    assert loops and "line-1" not in loops
    assert find("[role=status]").text.startswith(f"{len(loops)} of ")
    find(".words").send_keys("x" * 100)
    assert shown() == []
    find("#signs tr:has(details) summary").send_keys(Keys.ENTER)
    assert find("#signs details[open] a").is_displayed()
    link = find("#signs td a[href='#line-1']")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center', inline: 'center'})", link)
    link.click()
    assert "line-1" in shown() and find(".lists").get_attribute("value") == ""
    mark = find("#line-1 .baseline mark.h")
    plain = mark.value_of_css_property("text-decoration-line")
    find(".marks").send_keys("base")
    assert (plain, mark.value_of_css_property("text-decoration-line")) == ("none", "underline")
    assert find("#line-1 .reference dd").get_attribute("dir") == "auto"
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    assert "on" in browser.title
    assert browser.get_log("browser") == []


@needs_axe
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(browser: Any, theme: str) -> None:
    browser.execute_script(f"document.documentElement.dataset.theme = '{theme}'")
    assert violations(browser) == []
