"""A real browser at a console: Debian's Chromium without a window, driven by Selenium."""

import asyncio
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException, WebDriverException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select, WebDriverWait

HERE = Path(__file__).parent
SECONDS = 60.0  # for actions of the page itself: a machine may be busy
_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # tests run as root
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-prefers-reduced-motion",
    "--lang=en-US",
)
# WCAG 2.2 AA and axe's best practices; other colours can only violate the colour rules.
_RULES = {
    "type": "tag",
    "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
}
_CONTRAST = {"type": "rule", "values": ["color-contrast"]}
# One query for all of them: each takes milliseconds, and a page has a hundred.
_NAMED = """return [...document.querySelectorAll("a, button")].find(
    (one) => one.checkVisibility() && one.innerText.trim() === arguments[0])"""
T = TypeVar("T")


def require_chromium() -> None:
    """Skip the test without a browser; with CI=true fail instead."""
    missing = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    if not missing:
        return
    reason = f"{', '.join(missing)} not found: apt-get install chromium chromium-driver"
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


class Chromium:
    """One window. Its methods wait in a thread, so that a console in the test's loop answers.

    `flags` are more of its command line.
    """

    def __init__(self, *flags: str) -> None:
        require_chromium()
        os.environ["SE_OFFLINE"] = "true"  # otherwise Selenium downloads a driver
        options = webdriver.ChromeOptions()
        options.binary_location = str(shutil.which("chromium"))
        for flag in (*_FLAGS, *flags):
            options.add_argument(flag)
        options.add_experimental_option("prefs", {"intl.accept_languages": "en-US"})
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(
            options=options, service=Service(str(shutil.which("chromedriver")))
        )
        self.driver.set_script_timeout(SECONDS)
        self._wait = WebDriverWait(self.driver, SECONDS, poll_frequency=0.05)
        self.driver.set_window_size(1280, 900)
        self.bytes = 0  # received for the page that was opened last, in compressed form

    def close(self) -> None:
        self.driver.quit()

    # what a person does -----------------------------------------------------------------------

    async def open(self, address: str) -> None:
        """Go to an address and wait until it is complete."""
        await self._do(self._forget)
        await self._do(self.driver.get, address)

    async def follow(self, text: str) -> None:
        """Click the first link or button with this text, and wait for the next page."""
        await self._do(self._follow, text)

    async def back(self) -> None:
        """Go back to the previous page, and wait until it is complete."""
        await self._do(self.driver.back)

    async def follow_in_place(self, text: str) -> None:
        """Click the first link or button with this text; the page stays."""
        await self._do(self._click, text)

    async def fill(self, fields: dict[str, str]) -> None:
        """Fill in fields of the form in <main>, by their names."""
        await self._do(self._fill, fields)

    async def keys(self, text: str) -> None:
        """Press keys at the focus."""
        await self._do(lambda: self.driver.switch_to.active_element.send_keys(text))

    async def size(self, width: int, height: int) -> None:
        """Set the size of the page, in CSS pixels; also smaller than the minimum of windows."""
        wanted = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await self._do(self.driver.execute_cdp_cmd, "Emulation.setDeviceMetricsOverride", wanted)

    async def prefer(self, **features: str) -> None:
        """Media features: `prefers_color_scheme="dark"`."""
        found = [{"name": k.replace("_", "-"), "value": v} for k, v in features.items()]
        await self._do(
            self.driver.execute_cdp_cmd, "Emulation.setEmulatedMedia", {"features": found}
        )

    async def language(self, wanted: str) -> None:
        """Set the requested language, such as "zh-CN"; the browser's own, if it is empty."""
        agent = await self.run("return navigator.userAgent")
        given = {"userAgent": agent, "acceptLanguage": wanted}
        await self._do(self.driver.execute_cdp_cmd, "Emulation.setUserAgentOverride", given)

    async def scripts(self, *, run: bool) -> None:
        """Set whether pages that are opened from now on run scripts."""
        await self._do(
            self.driver.execute_cdp_cmd,
            "Emulation.setScriptExecutionDisabled",
            {"value": not run},
        )

    # what there is to be seen -----------------------------------------------------------------

    async def text(self, selector: str = "body") -> str:
        """Return the visible text of the first such element."""
        return await self._do(lambda: self.driver.find_element(By.CSS_SELECTOR, selector).text)

    async def run(self, script: str, *given: object) -> Any:
        """Return the result of a script."""
        return await self._do(self.driver.execute_script, script, *given)

    async def until(self, condition: Callable[[str], bool], selector: str = "body") -> str:
        """Return the text of an element once the condition holds."""

        def found(driver: Any) -> str | bool:
            text: str = driver.find_element(By.CSS_SELECTOR, selector).text
            return text if condition(text) else False

        return await self._do(lambda: str(self._wait.until(found)))

    async def until_true(self, script: str) -> None:
        """Return when the result of a script is true."""
        await self._do(self._wait.until, lambda driver: driver.execute_script(script))

    async def violations(self, *, contrast_only: bool = False) -> list[str]:
        """Return axe-core's accessibility violations: the rule, and the first places."""
        return await self._do(self._violations, _CONTRAST if contrast_only else _RULES)

    async def complaints(self) -> list[str]:
        """Return the new messages of the browser's console: policy violations, errors, missing
        files.
        """
        return [entry["message"] for entry in await self._do(self._log, "browser")]

    async def hosts(self) -> set[str]:
        """Return the requested hosts since a page was opened; count the received bytes."""
        return await self._do(self._hosts)

    async def picture(self, path: Path) -> None:
        """Save a screenshot as PNG."""
        await self._do(self.driver.save_screenshot, str(path))

    # ------------------------------------------------------------------------------------------

    async def _do(self, work: Callable[..., T], *given: Any) -> T:
        return await asyncio.to_thread(work, *given)

    def _forget(self) -> None:
        self.bytes = 0
        for name in ("browser", "performance"):
            self._log(name)

    def _log(self, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.driver.get_log(name)  # type: ignore[no-untyped-call]
        return found

    def _follow(self, text: str) -> None:
        before = self.driver.find_element(By.TAG_NAME, "html")
        self._click(text)
        self._wait.until(lambda _: _is_gone(before))
        ready = "return document.readyState === 'complete'"
        self._wait.until(lambda d: d.execute_script(ready))

    def _click(self, text: str) -> None:
        """Parts of a page may be replaced during the iteration."""

        def clicked(driver: Any) -> bool:
            try:
                self._named(text).click()
            except WebDriverException as error:
                if _was_replaced(error):
                    return False
                raise
            return True

        self._wait.until(clicked)

    def _named(self, text: str) -> WebElement:
        found: WebElement | None = self.driver.execute_script(_NAMED, text)
        assert found, f"nothing to click says {text!r}: {self.driver.current_url}\n{self._body()}"
        return found

    def _body(self) -> str:
        return self.driver.find_element(By.TAG_NAME, "body").text

    def _fill(self, fields: dict[str, str]) -> None:
        for name, value in fields.items():
            field = self.driver.find_element(By.CSS_SELECTOR, f"main form [name='{name}']")
            if field.tag_name == "select":
                Select(field).select_by_value(value)
            elif field.get_attribute("type") in ("checkbox", "radio"):
                if field.is_selected() != (value == "on"):
                    field.click()
            else:
                field.clear()
                field.send_keys(value)

    def _violations(self, rules: dict[str, Any]) -> list[str]:
        if not self.driver.execute_script("return 'axe' in window"):  # it is half a megabyte
            self.driver.execute_script((HERE / "axe" / "axe.min.js").read_text(encoding="utf-8"))
        found = self.driver.execute_async_script(
            "const done = arguments[arguments.length - 1];"
            "axe.run(document, {runOnly: arguments[0], resultTypes: ['violations']}).then(done,"
            " (error) => done({violations: [{id: String(error), help: '', nodes: []}]}));",
            rules,
        )
        return [
            f"{one['id']}: {one['help']}: {[node['html'][:200] for node in one['nodes'][:3]]}"
            for one in found["violations"]
        ]

    def _hosts(self) -> set[str]:
        found = set()
        for entry in self._log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                found.add(urlsplit(message["params"]["request"]["url"]).netloc)
            elif message["method"] == "Network.loadingFinished":
                self.bytes += int(message["params"]["encodedDataLength"])
        return found


def _is_gone(element: WebElement) -> bool:
    try:
        element.is_enabled()
    except WebDriverException as error:
        if _was_replaced(error):
            return True
        raise
    return False


def _was_replaced(error: WebDriverException) -> bool:
    """Return whether an element is of a replaced page.

    At the moment of the replacement the driver has another error for it.
    """
    stale = isinstance(error, StaleElementReferenceException)
    return stale or "does not belong to the document" in str(error)
