"""Takes the pictures of the web pages in docs/images: the report of a run, and the live page, light and dark.

    python tests/python/picture_page.py headspace headspace-runs/<run> docs/images

The live page shows the finished run, as `headspace serve` does after its end.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from browser import Browser

WIDTH, HEIGHT = 1280, 1180


def main() -> None:
    command, run, target = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    browser = Browser()
    server = subprocess.Popen(
        [command, "serve", run, "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "report.html"
            subprocess.run([command, "report", run, "--html", page], check=True)
            browser.look(WIDTH, HEIGHT)
            browser.open(page.as_uri())
            browser.wait(browser.has_chart, "charts")
            browser.picture(target / "report.png", HEIGHT)
        assert server.stdout
        url = next(filter(None, (re.search(r"http://\S+/", line) for line in server.stdout)))[0]
        for scheme in ("light", "dark"):
            browser.look(WIDTH, HEIGHT, dark=scheme == "dark")
            browser.open(url)
            browser.wait(browser.has_chart, "charts")
            browser.picture(target / f"serve-{scheme}.png", HEIGHT)
    finally:
        server.terminate()
        server.wait()
        browser.close()


if __name__ == "__main__":
    main()
