"""A headless Chromium for the tests of pages; they are slow, and skipped where it is not installed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
needs_chromium = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="chromium and chromedriver are not installed"
)
AXE = Path(os.environ.get("NMT_AXE", "node_modules/axe-core/axe.min.js"))
needs_axe = pytest.mark.skipif(
    not AXE.is_file(), reason="NMT_AXE does not name axe.min.js of the npm package axe-core"
)
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--force-device-scale-factor=1"),
)


@contextmanager
def chromium(width: int, height: int = 900, *flags: str) -> Iterator[Any]:
    """Starts a browser with a window of this size in pixels; its console is in the log `browser`."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*_FLAGS, f"--window-size={width},{height}", *flags):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


def show_narrow(driver: Any, page: Path) -> None:
    """Loads a page into the window of a phone, 390 pixels wide."""
    size = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    driver.get(page.as_uri())


def use_first_controls(driver: Any) -> None:
    """Skips to the content of a report by keyboard, and changes the theme by mouse and back by keyboard."""
    from selenium.webdriver.common.keys import Keys

    driver.switch_to.active_element.send_keys(Keys.TAB)
    driver.switch_to.active_element.send_keys(Keys.ENTER)
    assert driver.switch_to.active_element.get_attribute("id") == "content"
    body, button = (driver.find_element("css selector", name) for name in ("body", "#theme"))
    ground = body.value_of_css_property("background-color")
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    assert body.value_of_css_property("background-color") != ground
    button.send_keys(Keys.SPACE)
    assert body.value_of_css_property("background-color") == ground


def violations(driver: Any) -> list[tuple[str, list[str]]]:
    """Returns the rules of axe-core that the page in the browser breaks, each with the elements."""
    driver.execute_script(AXE.read_text("utf-8"))
    found = driver.execute_async_script("axe.run().then(result => arguments[0](result.violations))")
    return [(one["id"], [node["html"] for node in one["nodes"]]) for one in found]
