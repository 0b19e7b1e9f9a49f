"""Documents and comments name files that exist, and links lead to headings that exist."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: A path with a folder in backticks or parentheses, for example `analysis/floor.rs`.
CODE_PATH = re.compile(r"[`(]((?:[\w.-]+/)+[\w-]+\.(?:rs|py))\b")
#: These files name files of other projects, of the past, or made up for a test.
EXCEPTIONS = ("CHANGELOG.md", "docs/adr/", "tests/rust/dependency_rule/refusals.rs")


def test_every_named_source_file_exists() -> None:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    files = listed.stdout.split()
    ends = {
        "/".join(Path(name).parts[start:])
        for name in files
        for start in range(len(Path(name).parts))
    }
    missing = []
    for name in files:
        if not name.endswith((".md", ".rs", ".py")) or name.startswith(EXCEPTIONS):
            continue
        for number, line in enumerate((ROOT / name).read_text().splitlines(), 1):
            if name.endswith(".md") or re.match(r"\s*(//|#)", line):
                missing += [
                    f"{name}:{number}: {path}"
                    for path in CODE_PATH.findall(line)
                    if path.replace("../", "") not in ends
                ]
    assert not missing


def test_every_link_to_a_heading_has_a_target() -> None:
    def anchors(path: Path) -> set[str]:
        headings = re.findall(r"(?m)^#+ (.*)$", path.read_text())
        plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
        return {heading.replace(" ", "-") for heading in plain}

    listed = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    wrong = []
    for name in listed.stdout.split():
        page = ROOT / name
        for path, anchor in re.findall(r"\]\(([\w./-]*)#([\w-]+)\)", page.read_text()):
            target = (page.parent / path).resolve() if path else page
            if not target.is_file() or anchor not in anchors(target):
                wrong.append(f"{name}: {path}#{anchor}")
    assert not wrong
