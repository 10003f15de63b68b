"""Headless Chromium, for tests of pages."""

import base64
import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

_ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
_HEIGHT = 900
# Script in the browser: counts the pixels of an image per colour, and reads its first pixel.
_COUNT_PIXELS = """
const [url, colours, done] = arguments;
const image = new Image();
image.onload = () => {
  const canvas = new OffscreenCanvas(image.width, image.height);
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const data = context.getImageData(0, 0, image.width, image.height).data;
  const counts = {};
  const name = place => `rgb(${data[place]}, ${data[place + 1]}, ${data[place + 2]})`;
  for (let place = 0; place < data.length; place += 4)
    if (colours.includes(name(place))) counts[name(place)] = (counts[name(place)] || 0) + 1;
  done([name(0), counts]);
};
image.src = url;
"""


class Browser:
    """A browser and its one window."""

    def __init__(self, driver: "Chrome") -> None:
        self._driver = driver

    def open(self, path: Path) -> None:
        """Show a file."""
        self._driver.get(path.as_uri())

    def go(self, url: str) -> None:
        """Show the page of a server."""
        self._driver.get(url)

    def type_into(self, name: str, text: str) -> None:
        """Type into the field with this id; a new line sends its form."""
        from selenium.webdriver.common.by import By

        self._driver.find_element(By.ID, name).send_keys(text)

    def errors(self) -> list[str]:
        """Errors in the console since the last call, refused requests included."""
        log = self._driver.get_log("browser")
        return [line["message"] for line in log if line["level"] == "SEVERE"]

    def forget_cookies(self) -> None:
        """Forget who is signed in."""
        self._driver.delete_all_cookies()

    def ask_async(self, script: str, *values: Any) -> Any:
        """Run a script that calls its last argument with the result."""
        return self._driver.execute_async_script(script, *values)

    def show_as(self, width: int, scheme: str) -> None:
        """Set the window's width (px) and the system's colour scheme: `light` or `dark`."""
        size = {"width": width, "height": _HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        self._driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def ask(self, script: str) -> Any:
        """Run a script in the page; returns its result."""
        return self._driver.execute_script(script)

    def picture(self) -> bytes:
        """A PNG of the visible part of the page."""
        return base64.b64decode(
            self._driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"]
        )

    def pixels(self, picture: bytes, colours: list[str]) -> tuple[str, dict[str, int]]:
        """The first pixel as `rgb(...)`, and pixels per colour of `colours`; leaves the page."""
        self._driver.get("about:blank")
        url = f"data:image/png;base64,{base64.b64encode(picture).decode()}"
        first, counts = self._driver.execute_async_script(_COUNT_PIXELS, url, colours)
        return first, counts


@contextlib.contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """A browser with the empty directory `profile`; skips the test if none is installed."""
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip(f"{'chromium' if browser is None else 'chromedriver'} is not installed")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for argument in (*_ARGUMENTS, f"--user-data-dir={profile}"):
        options.add_argument(argument)
    running = webdriver.Chrome(options, Service(driver))
    try:
        yield Browser(running)
    finally:
        running.quit()
