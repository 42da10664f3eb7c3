"""`nmt-translate attention=FILE`: its page in a headless Chromium by keyboard alone, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import chromium, needs_chromium
from commands import Toy

import nmt


@pytest.mark.slow
def test_a_page_of_the_first_lines(toy: Toy, trained: Path, tmp_path: Path) -> None:
    page = tmp_path / "a.html"
    options = [f"model_dir={trained}", f"attention={page}"]
    result = toy.run("nmt-translate", *options, text="ba\n\n" + "de ki\n" * 12)
    lines = result.stdout.decode().splitlines()
    assert len(lines) == 14
    pairs = [("ba", lines[0]), *[("de ki", lines[2])] * 9]
    assert page.read_text(encoding="utf-8") == nmt.load(trained, threads=1).attention_page(pairs)


@pytest.mark.slow
def test_what_is_refused(toy: Toy, trained: Path, tmp_path: Path) -> None:
    page = tmp_path / "a.html"
    for options, message in (
        ([f"model_dir=[{trained},{trained}]"], "needs one model, not an ensemble"),
        ([f"model_dir={trained}", "backend=ctranslate2"], "backend=ctranslate2 has no weights of all heads"),
        ([f"model_dir={trained}", f"output={page}"], "is also the output. Give another name."),
    ):
        assert message in toy.refused("nmt-translate", f"attention={page}", *options, text="ba\n")
        assert not page.exists()
    result = toy.run("nmt-translate", f"attention={page}", f"model_dir={trained}", text="\n")
    assert (result.returncode, result.stdout) == (0, b"\n")
    assert "there is no line to show, so the page is not written." in result.stderr.decode()
    assert not page.exists()


@pytest.fixture
def browser(toy: Toy, trained: Path, tmp_path: Path) -> Iterator[Any]:
    """The page of two sentences, the second one hostile."""
    page = tmp_path / "a.html"
    pairs = [("ba de", "ab ed"), ("</script><script>document.title=1</script>", "ki \u202e")]
    page.write_text(nmt.load(trained, threads=1).attention_page(pairs), encoding="utf-8")
    with chromium(420) as driver:
        driver.get(page.as_uri())
        yield driver


@pytest.mark.slow
@needs_chromium
def test_every_control_by_keyboard(browser: Any) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    def find(name: str) -> Any:
        return browser.find_element(By.CSS_SELECTOR, name)

    def count(name: str) -> int:
        return len(browser.find_elements(By.CSS_SELECTOR, name))

    assert browser.title == "Attention"
    assert find("#name").text.startswith("Decoder, target to source: layer 1, head 1")
    pieces = browser.execute_script("return data.pairs.map(pair => [pair.source.length, pair.target.length])")
    assert count("#picture rect[style*='tint']") == pieces[0][0] * pieces[0][1]
    find("#kind").send_keys(Keys.ARROW_UP)
    assert find("#name").text.startswith("Decoder, target to target")
    assert count("#picture rect[style*='hatch']") == pieces[0][1] * (pieces[0][1] - 1) // 2
    find("#kind").send_keys(Keys.ARROW_UP)
    find("#head").send_keys(Keys.ARROW_DOWN)
    assert find("#name").text == "Encoder, source to source: layer 1, head 2"
    find("#view").send_keys(Keys.ARROW_DOWN)
    assert count("#picture line") > 0
    said = find("#said").text
    find("#picture").send_keys(Keys.ARROW_DOWN)
    assert find("#said").text != said
    find("#heads button").send_keys(Keys.ENTER)
    assert find("#name").text.endswith("layer 1, head 1")
    assert find("#heads button").get_attribute("aria-pressed") == "true"
    browser.find_elements(By.CSS_SELECTOR, "#columns button")[2].send_keys(Keys.ENTER)
    entropies = [float(cell.text) for cell in browser.find_elements(By.CSS_SELECTOR, "#rows td:nth-child(3)")]
    assert entropies == sorted(entropies)
    browser.find_elements(By.CSS_SELECTOR, "#rows button")[-1].send_keys(Keys.SPACE)
    assert browser.switch_to.active_element.text in find("#rows tr.chosen").text
    find("#pair").send_keys(Keys.ARROW_DOWN)
    assert "</script><script>" in find("#pair").text  # its pieces are bytes: the toy vocabulary is small
    assert browser.title == "Attention"
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    assert browser.get_log("browser") == []
