"""The page of nmt-serve in a headless Chromium: typed into, clicked, and used by keyboard alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import chromium, needs_chromium
from commands import Toy
from serving import Server, serving
from waiting import wait_until

selenium = pytest.importorskip("selenium", reason="selenium is not installed")
from selenium import webdriver  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    needs_chromium,
]


@pytest.fixture(scope="module")
def server(toy: Toy, trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with two pairs of languages, whose models are the same."""
    folder = tmp_path_factory.mktemp("page")
    other = shutil.copytree(trained / "model", folder / "other")
    text = (other / "config.yaml").read_text()
    (other / "config.yaml").write_text(text.replace("target_lang: yy", "target_lang: de"))
    (other / "SHA256SUMS").unlink(missing_ok=True)
    with serving(toy, folder, f"model_dir=[{trained},{other}]", "threads=1") as found:
        yield found


class Page:
    """The page in a browser."""

    def __init__(self, browser: webdriver.Chrome, url: str) -> None:
        self.browser, self.url = browser, url
        browser.get(url)
        wait_until(lambda: self.text("#sourcename") == "xx")

    def find(self, selector: str) -> Any:
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[Any]:
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        return str(
            self.browser.execute_script("return document.querySelector(arguments[0]).textContent", selector)
        )

    def active(self) -> Any:
        return self.browser.switch_to.active_element

    def press(self, *keys: str) -> None:
        for key in keys:
            self.active().send_keys(key)

    def fits(self) -> bool:
        """Whether the page is not wider than the window."""
        return bool(
            self.browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
        )

    def requests(self) -> list[str]:
        """The addresses that the browser has asked since the last call."""
        events = [json.loads(entry["message"])["message"] for entry in self.browser.get_log("performance")]
        return [
            event["params"]["request"]["url"]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        ]


@pytest.fixture(params=[(1280, 800, False), (390, 844, True)], ids=["desktop", "phone"])
def page(request: pytest.FixtureRequest, server: Server, tmp_path: Path) -> Iterator[Page]:
    """The page in a new browser. No error may be in its console, and it may ask no other server."""
    width, height, mobile = request.param
    with chromium(width, height, f"--user-data-dir={tmp_path / 'profile'}") as browser:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        found = Page(browser, server.url)
        yield found
        assert browser.get_log("browser") == []
        asked = found.requests()
        assert f"{server.url}/translate" in asked
        own = (f"{server.url}/", "data:", "chrome:", "chrome-untrusted:")  # the last two: its start page
        assert [url for url in asked if not url.startswith(own)] == []


def test_type_choose_and_read_by_keyboard(page: Page, server: Server) -> None:
    line = "ba de ki"
    expected = server.translate(q=line, target="yy", alternatives=4, attention=True).json
    assert page.active().get_attribute("id") == "text"  # ready to type
    page.press(line)
    plain = server.translate(q=line, target="yy").json["translatedText"]  # with a smaller beam
    wait_until(lambda: page.text("#result") == plain)
    assert page.text("#note").endswith(" ms")
    assert page.fits()

    page.press(Keys.TAB)  # Clear
    while page.active().tag_name != "summary":
        page.press(Keys.TAB)
    page.press(Keys.ENTER)
    texts = [expected["translatedText"], *expected["alternatives"]]
    wait_until(lambda: len(page.all("#list button")) == len(texts))
    shown = [one.text.split("\n")[0] for one in page.all("#list button")]
    assert shown == texts
    scores = [one["score"] for one in expected["lines"][0]["translations"]]
    assert page.all("#list .score")[0].text == f"{scores[0]:.2f}".replace("-", "−")
    page.press(Keys.TAB, Keys.TAB, Keys.SPACE)  # the second translation
    wait_until(lambda: page.text("#result") == texts[1])
    assert page.active().get_attribute("aria-pressed") == "true"  # the focus stays

    while page.active().tag_name != "summary":
        page.press(Keys.TAB)
    page.press(Keys.ENTER)
    wait_until(lambda: len(page.all(".target .word")) > 0)
    assert [one.text for one in page.all(".source .word")] == line.split()
    assert "".join(one.text for one in page.all(".target .word")) == page.text("#result").replace(" ", "")
    page.press(Keys.TAB)
    first = page.active()
    assert "word" in first.get_attribute("class")
    assert page.text(".said").startswith(f"{first.text} ← ")
    weights = page.browser.execute_script(
        "return [...document.querySelectorAll('.source .word')]"
        ".map(one => one.style.getPropertyValue('--weight'))"
    )
    assert all(0 <= float(weight) <= 1 for weight in weights) and any(
        float(weight) > 0.1 for weight in weights
    )
    words = page.all(".target .word")
    if len(words) > 1:
        page.press(Keys.ARROW_RIGHT)
        assert page.active() == words[1]
        page.press(Keys.END)
        assert page.active() == words[-1]
        page.press(Keys.HOME)
    assert page.active() == words[0]
    assert page.fits()

    shown = page.text("#result")
    page.press(Keys.TAB)
    assert page.active().text == "All layers and heads"
    page.press(Keys.ENTER)
    wait_until(lambda: bool(page.find("#headspage").get_attribute("srcdoc")))
    page.press(Keys.TAB)
    page.browser.switch_to.frame("headspage")
    wait_until(lambda: page.text("#name") == "Decoder, target to source: layer 1, head 1")
    assert page.active().get_attribute("id") == "pair"
    assert page.text("#pair") == f"1. {line} → {shown}"
    page.press(Keys.TAB, Keys.ARROW_UP)
    assert page.text("#name") == "Decoder, target to target: layer 1, head 1"
    assert page.all("#picture rect[style*='hatch']") != []
    page.press(*[Keys.TAB] * 5, Keys.TAB, Keys.ENTER)  # the second of the small pictures
    assert page.text("#name") == "Decoder, target to target: layer 1, head 2"
    assert page.active().get_attribute("aria-pressed") == "true"
    page.browser.switch_to.default_content()
    frame = page.find("#headspage").size
    assert frame["height"] > 500 and frame["width"] < page.find("#words").size["width"] + 1
    assert page.fits()


def test_click_point_and_change_the_languages(page: Page, server: Server) -> None:
    page.find("#text").send_keys("ba\n\nde bo")
    expected = server.translate(q="ba\n\nde bo", target="yy").json["translatedText"]
    wait_until(lambda: page.text("#result") == expected)
    page.find("#words summary").click()
    wait_until(lambda: len(page.all(".pair")) == 2)  # the blank line has none
    word = page.all(".target .word")[0]
    webdriver.ActionChains(page.browser).move_to_element(word).perform()
    wait_until(lambda: "chosen" in word.get_attribute("class"))
    page.find("#heads summary").click()
    wait_until(lambda: bool(page.find("#headspage").get_attribute("srcdoc")))
    page.browser.switch_to.frame("headspage")
    wait_until(lambda: len(page.all("#pair option")) == 2)
    page.browser.switch_to.default_content()
    assert page.text("#pair") == ""
    labels = [one.text for one in page.all("#choice option")]
    assert labels == ["xx → German", "xx → yy"]
    page.browser.execute_script("document.querySelector('#choice').selectedIndex = 0")
    page.find("#choice").send_keys(Keys.ARROW_DOWN)
    wait_until(lambda: page.text("#targetname") == "yy")
    page.find("#clear").click()
    wait_until(lambda: page.text("#result") == "")
    assert page.active().get_attribute("id") == "text"
    assert page.all(".pair") == []
    wait_until(lambda: page.find("#headspage").get_attribute("srcdoc") == "")
    assert page.text("#headshint") == "Type a sentence to see the attention of every layer and head."


def test_errors_are_words(page: Page, server: Server) -> None:
    page.find("#text").send_keys("ba")
    wait_until(lambda: page.text("#result") != "")
    page.browser.execute_script(
        "const real = window.fetch; let times = 0;"
        "window.fetch = (...all) => times++ ? real(...all) : Promise.resolve(new Response("
        "JSON.stringify({error: 'x'}), {status: 503}));"
    )
    page.find("#text").send_keys(" de")
    wait_until(lambda: page.text("#error") == "The server is busy. Trying again …")
    expected = server.translate(q="ba de", target="yy").json["translatedText"]
    wait_until(lambda: page.text("#result") == expected and page.text("#error") == "")
    page.browser.execute_script("settings.charLimit = 6")
    page.find("#text").send_keys(" ki")
    wait_until(lambda: page.text("#error") == "The text has 8 characters, and at most 6 are allowed.")
    assert page.text("#result") == ""  # not the translation of the shorter text
    page.browser.execute_script("settings.charLimit = 100")
    page.browser.execute_script("window.fetch = () => Promise.reject(new TypeError('network'))")
    page.find("#text").send_keys(" ki")
    wait_until(lambda: page.text("#error") == "The server does not answer. Is it running?")


def test_stale_answers_are_dropped(page: Page) -> None:
    page.browser.execute_script(
        "window.fetch = (path, options) => { const q = JSON.parse(options.body).q;"
        "const late = q.length === 1 ? 900 : 0;"
        "return new Promise(done => setTimeout(() => done(new Response(JSON.stringify("
        "{translatedText: 'T' + q, lines: []}))), late)); };"
    )
    page.find("#text").send_keys("a")
    page.browser.execute_script("translate()")
    page.find("#text").send_keys("b")
    wait_until(lambda: page.text("#result") == "Tab")
    page.browser.execute_async_script("setTimeout(arguments[0], 1200)")
    assert page.text("#result") == "Tab"
    page.browser.execute_script("location.reload()")
    wait_until(lambda: page.text("#sourcename") == "xx")
    page.find("#text").send_keys("ba")
    wait_until(lambda: page.text("#result") != "")
