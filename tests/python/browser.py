"""A real browser, and the parts of a page that tests check.

It is Chromium without a window, controlled through ChromeDriver. Its own network requests are disabled,
and its request log shows the requests of a page.
"""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from running import wait_until
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

OPTIONS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
]

#: Widths of windows, from a small phone to a large screen, with both sides of each bound in the style sheet.
WIDTHS = (320, 390, 400, 620, 621, 700, 1000, 1099, 1100, 1200, 1440, 1600, 1920)

#: Names pairs of texts that overlap, and texts that stick out of the page.
GEOMETRY = """
const shown = [];
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
  const node = walk.currentNode, parent = node.parentElement;
  if (!node.textContent.trim() || parent.closest('script, style, noscript, h2.quiet, .tip')) continue;
  if (!parent.checkVisibility({visibilityProperty: true})) continue;
  const clip = parent.closest('.scroll, pre')?.getBoundingClientRect();
  const range = document.createRange();
  range.selectNodeContents(node);
  for (const box of range.getClientRects()) {
    if (box.width < 1 || box.height < 1) continue;
    let [left, right] = [box.left, box.right];
    if (clip) { left = Math.max(left, clip.left); right = Math.min(right, clip.right); }
    if (right - left < 1) continue;
    // Lines stand apart by less than letters are high.
    shown.push({text: node.textContent.trim().slice(0, 40), node,
                left, right, top: box.top + box.height * 0.2, bottom: box.bottom - box.height * 0.2});
  }
}
const bad = [];
for (const [at, a] of shown.entries()) {
  if (a.right > innerWidth + 1 || a.left < -1) bad.push(`outside: ${a.text}`);
  for (const b of shown.slice(at + 1)) {
    const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (a.node !== b.node && wide > 1 && high > 1) bad.push(`overlap: ${a.text} | ${b.text}`);
  }
}
return bad;
"""

#: Names words that are broken although they would fit: an element is narrower than its longest word.
#: Only a word that is wider than its block, and than about 24 letters, may be broken: a path, an identifier.
BROKEN_WORDS = """
const broken = [];
const inner = (element) => {
  while (getComputedStyle(element).display.startsWith('inline')) element = element.parentElement;
  const style = getComputedStyle(element);
  const room = element.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  return Math.max(room, 12 * parseFloat(style.fontSize));
};
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
  const node = walk.currentNode, parent = node.parentElement;
  if (parent.closest('script, style, noscript, .tip')) continue;
  if (!parent.checkVisibility({visibilityProperty: true})) continue;
  // A line may end behind a hyphen.
  for (const word of node.textContent.matchAll(/[^\\s-]+/g)) {
    const range = document.createRange();
    range.setStart(node, word.index);
    range.setEnd(node, word.index + word[0].length);
    const boxes = [...range.getClientRects()];
    const lines = new Set(boxes.map((box) => Math.round(box.top)));
    const wide = boxes.reduce((sum, box) => sum + box.width, 0);
    if (lines.size > 1 && wide < inner(parent)) broken.push(`broken: ${word[0]}`);
  }
}
return broken;
"""

#: The lowest contrast between a text and its background, and that text (WCAG 2 requires at least 4.5).
CONTRAST = """
const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
const light = (colour) => {
  const [r, g, b] = parts(colour).slice(0, 3).map((c) => {
    c /= 255;
    return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const colour = getComputedStyle(at).backgroundColor;
    const [, , , alpha = 1] = parts(colour);
    if (alpha > 0.99) return colour;
  }
  return 'rgb(255, 255, 255)';
};
let worst = [99, ''];
for (const element of document.querySelectorAll('body *')) {
  const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
  if (!own || element.closest('script, style, noscript')) continue;
  const [a, b] = [light(getComputedStyle(element).color), light(behind(element))];
  const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (contrast < worst[0]) worst = [contrast, element.textContent.trim().slice(0, 40)];
}
return worst;
"""


class Browser:
    """One window."""

    def __init__(self) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = _found("chromium")
        for option in OPTIONS:
            options.add_argument(option)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(_found("chromedriver")))

    def look(self, width: int, height: int, *, dark: bool = False, scripts: bool = True) -> None:
        """Sets the size and the colour scheme of the window, and whether scripts run."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        run = self.driver.execute_cdp_cmd
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        run("Emulation.setDeviceMetricsOverride", size)
        run("Emulation.setEmulatedMedia", {"features": [scheme]})
        run("Emulation.setScriptExecutionDisabled", {"value": not scripts})

    def open(self, url: str) -> None:
        """Opens a page, and clears the errors and requests of the page before."""
        self.driver.get("about:blank")
        self.errors()
        self.requested_hosts()
        self.driver.get(url)

    def run(self, script: str) -> Any:
        return self.driver.execute_script(script)

    def text(self, selector: str) -> str:
        """The text of the element, on one line."""
        found = self.run(f"return document.querySelector({json.dumps(selector)})?.innerText ?? ''")
        return " ".join(str(found).split())

    def wait(self, condition: Callable[[], object], what: str) -> None:
        wait_until(condition, what)

    def errors(self) -> list[str]:
        """The messages in the browser's log since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requested_hosts(self) -> set[str]:
        """The hosts that the page has sent requests to since the last call."""
        hosts = set()
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                url = urlsplit(message["params"]["request"]["url"])
                if url.scheme in ("http", "https", "ws", "wss"):
                    hosts.add(url.hostname or "")
        return hosts

    def faults(self) -> list[str]:
        """The faults of the layout: the page is too wide, or texts overlap, break or cannot be read."""
        found: list[str] = self.run(GEOMETRY) + self.run(BROKEN_WORDS)
        wide, room = self.run("return [document.documentElement.scrollWidth, innerWidth]")
        if wide > room:
            found.append(f"the page is {wide} wide in a window of {room}")
        contrast, text = self.run(CONTRAST)
        if contrast < 4.5:
            found.append(f"contrast {contrast:.2f}: {text}")
        return found

    def has_chart(self) -> bool:
        """Whether the page has drawn a chart."""
        return bool(self.run("return !!document.querySelector('canvas')"))

    def faults_by_width(
        self, url: str, is_drawn: Callable[[], object], *, dark: bool
    ) -> dict[int, list[str]]:
        """The faults of a page by width, for each of `WIDTHS` with a fault."""
        faults = {}
        for width in WIDTHS:
            self.look(width, 900, dark=dark)
            self.open(url)
            self.wait(is_drawn, "the page is drawn")
            if found := self.faults() + self.errors():
                faults[width] = found
        return faults

    def picture(self, path: Path, height: int | None = None) -> None:
        """Saves a picture of the page, from its top."""
        width, all_of_it = self.run("return [innerWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": width, "height": height or all_of_it, "scale": 1}
        shot = {"format": "png", "captureBeyondViewport": True, "clip": clip}
        data = self.driver.execute_cdp_cmd("Page.captureScreenshot", shot)["data"]
        path.write_bytes(base64.b64decode(data))

    def close(self) -> None:
        self.driver.quit()


def _found(program: str) -> str:
    path = shutil.which(program)
    assert path, f"`{program}` is not installed (requirements/debian-test.txt)"
    return path
