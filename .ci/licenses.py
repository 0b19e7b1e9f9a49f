"""Collects the licence texts of the Rust packages that are compiled into the wheel.

The licences MIT, BSD, ISC and others demand that their text and the copyright notices accompany the binary.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

#: The package that becomes the extension module.
MODULE = "headspace-py"

#: Beginnings of the names of files with licence texts.
NAMES = ("license", "licence", "copying", "notice", "copyright", "unlicense")

#: Folders of a package whose files are not compiled into the module.
NOT_COMPILED = {"tests", "test", "testing", "benches", "examples", "fuzz"}

#: Texts of code that is in the module, but is no package of Cargo.
BUNDLED = {"uPlot (JavaScript)": ROOT / "cli/src/page/assets/uPlot.LICENSE"}

#: Code that is in the module without a licence text of its own: its licence and authors.
STANDARD_LIBRARY = (
    "Rust's standard library (MIT OR Apache-2.0): the contributors of the Rust project"
)

INTRODUCTION = """\
The extension module of headspace contains code of the packages below. Each licence text follows the names of the packages
that contain it.
"""

WITHOUT_TEXT = """\
These packages name their licence and contain no text of it. The text of Apache-2.0 is in the file LICENSE-APACHE beside
this one. That of MIT is in the file LICENSE-MIT, with the authors named here instead of those of headspace.
"""


def third_party_licenses(target: str) -> str:
    """The licence texts of all packages in the module for this target, except headspace's own."""
    texts: dict[str, list[str]] = defaultdict(list)
    without_text = [STANDARD_LIBRARY]
    for package in compiled_packages(target):
        name = f"{package['name']} {package['version']} ({package['license'] or 'see the text'})"
        found = license_files(Path(package["manifest_path"]).parent)
        for path in found:
            texts[path.read_text(errors="replace").strip()].append(name)
        if not found:
            without_text.append(f"{name}: {', '.join(package['authors']) or package['repository']}")
    for name, path in BUNDLED.items():
        texts[path.read_text().strip()].append(name)
    parts = [INTRODUCTION, f"{WITHOUT_TEXT}\n" + "\n".join(sorted(without_text)) + "\n"]
    for text, names in sorted(texts.items(), key=lambda item: (-len(item[1]), item[1])):
        parts.append("\n".join(sorted(names)) + f"\n\n{text}\n")
    return ("\n" + "=" * 80 + "\n\n").join(parts)


def compiled_packages(target: str) -> list[dict[str, Any]]:
    """The packages of others whose code is in the module: without those for builds, tests and macros."""
    tree = cargo(
        "tree",
        "--package",
        MODULE,
        "--target",
        target,
        "--edges",
        "normal,no-proc-macro",
        "--prefix",
        "none",
    )
    linked = {tuple(re.findall(r"(\S+) v(\S+)", line)[0]) for line in tree.splitlines()}
    metadata = json.loads(cargo("metadata", "--format-version", "1", "--filter-platform", target))
    return [
        package
        for package in sorted(metadata["packages"], key=lambda one: (one["name"], one["version"]))
        if package["source"] is not None and (package["name"], package["version"]) in linked
    ]


def cargo(*words: str) -> str:
    return subprocess.check_output(["cargo", *words, "--locked"], cwd=ROOT, text=True)


def license_files(folder: Path) -> list[Path]:
    """The files with licence texts in a package's folder, also those of code of others in it."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file()
        and path.name.lower().startswith(NAMES)
        and path.suffix != ".rs"
        and not NOT_COMPILED & set(path.relative_to(folder).parts)
    )
