"""The parts of `make wheels`: its smoke test, its search for interpreters, and the package's requirements."""

from __future__ import annotations

import ast
import base64
import hashlib
import importlib.metadata
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from ci_scripts import load_script
from running import VERSIONS, clean_environment

import headspace

ROOT = Path(__file__).parents[2]
PACKAGE = Path(headspace.__file__).parent

interpreters = load_script("interpreters")
licenses = load_script("licenses")
wheel_files = load_script("wheel_files")
wheels = load_script("wheels")

#: The package imports only parts of these, and only in a program that has imported them itself.
OF_THE_PROGRAM = {"ray"}

#: Names of packages that differ from those of their modules.
MODULES = {"ipython": "IPython", "opentelemetry-sdk": "opentelemetry"}


def smoke_test(*options: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, ROOT / "tests/wheel_smoke.py", *options],
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.slow
def test_the_smoke_test_passes_for_the_installed_package() -> None:
    done = smoke_test("--version", headspace.__version__)

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("passed: ") >= 6
    assert "the demo trains" in done.stdout


def test_the_smoke_test_fails_if_another_version_is_installed() -> None:
    done = smoke_test("--version", "9.9.9")

    assert done.returncode == 1
    assert "failed: `headspace --version` says 9.9.9" in done.stderr


def test_the_smoke_test_fails_if_the_package_is_elsewhere(tmp_path: Path) -> None:
    done = smoke_test("--version", headspace.__version__, "--inside", tmp_path)

    assert done.returncode == 1
    assert "failed: the package is the installed one" in done.stderr


def test_the_description_of_the_package_has_no_link_that_a_package_index_cannot_follow() -> None:
    description = str(importlib.metadata.metadata("headspace").get_payload())

    assert "headspace demo" in description
    assert re.findall(r"\]\((?!https://)[^)]*\)", description) == []


def test_an_interpreter_is_one_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def program(path: Path, text: str) -> Path:
        path.parent.mkdir(parents=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    program(tmp_path / "shims/python3.98", "#!/bin/sh\nexit 127\n")
    real = program(
        tmp_path / "versions/3.98.1/bin/python3.98", f'#!/bin/sh\nexec {sys.executable} "$@"\n'
    )
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "shims"), prepend=":")

    assert interpreters.find_interpreters(["3.98", "3.99t"]) == {"3.98": real, "3.99t": None}


def test_the_oldest_platform_is_read_from_what_auditwheel_shows() -> None:
    shown = """
headspace-0.1.0-cp310-abi3-linux_x86_64.whl is consistent with the
following platform tag: "manylinux_2_34_x86_64".

The wheel references external versioned symbols in these
system-provided shared libraries: libc.so.6 with versions
{'GLIBC_2.34', 'GLIBC_2.17'}
"""

    assert wheels.oldest_platform(shown) == "manylinux_2_34_x86_64"
    assert wheels.oldest_platform("This does not look like a platform wheel") is None


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A wheel with a module, a list of dependencies, and wrong hashes."""
    path = tmp_path / "thing-1.0-py3-none-any.whl"
    meta = "thing-1.0.dist-info"
    metadata = "Metadata-Version: 2.4\nName: thing\nVersion: 1.0\n\nA thing.\n\nIts use.\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("thing.py", "value = 1\n")
        archive.writestr(f"{meta}/sboms/a.cyclonedx.json", '{"path": "/home/me/thing"}')
        archive.writestr(f"{meta}/METADATA", metadata)
        archive.writestr(
            f"{meta}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(
            f"{meta}/RECORD",
            f"thing.py,sha256=old,10\n{meta}/sboms/a.cyclonedx.json,sha256=old,26\n{meta}/RECORD,,\n",
        )
    return path


def install(wheel: Path, folder: Path) -> None:
    command = ["-m", "pip", "install", "--no-index", "--quiet", "--target", folder, wheel]
    subprocess.run([sys.executable, *command], check=True, capture_output=True)


def hash_of(data: bytes) -> str:
    """As in the list of files of a wheel."""
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def test_a_changed_file_of_a_wheel_can_still_be_installed(wheel: Path, tmp_path: Path) -> None:
    meta = "thing-1.0.dist-info"

    wheel_files.rewrite(wheel, ".cyclonedx.json", lambda data: data.replace(b"/home/me", b""))

    with zipfile.ZipFile(wheel) as archive:
        sbom = archive.read(f"{meta}/sboms/a.cyclonedx.json")
        record = archive.read(f"{meta}/RECORD").decode().splitlines()
    assert sbom == b'{"path": "/thing"}'
    assert record == [
        "thing.py,sha256=old,10",
        f"{meta}/sboms/a.cyclonedx.json,sha256={hash_of(sbom)},{len(sbom)}",
        f"{meta}/RECORD,,",
    ]
    install(wheel, tmp_path / "out")
    assert (tmp_path / "out/thing.py").read_text() == "value = 1\n"


def test_a_licence_that_is_added_to_a_wheel_is_installed_and_named(
    wheel: Path, tmp_path: Path
) -> None:
    wheel_files.add_license(wheel, "THIRD-PARTY.txt", "Copyright © others")

    install(wheel, tmp_path / "out")
    meta = tmp_path / "out/thing-1.0.dist-info"
    text = (meta / "licenses/THIRD-PARTY.txt").read_bytes()
    assert text.decode() == "Copyright © others"
    header, description = (meta / "METADATA").read_text().split("\n\n", 1)
    assert header.splitlines()[-1] == "License-File: THIRD-PARTY.txt"
    assert description == "A thing.\n\nIts use.\n"
    with zipfile.ZipFile(wheel) as archive:
        record = archive.read("thing-1.0.dist-info/RECORD").decode()
    assert f"licenses/THIRD-PARTY.txt,sha256={hash_of(text)},{len(text)}\n" in record


def test_the_licences_name_every_package_that_is_compiled_into_the_module() -> None:
    target = "x86_64-unknown-linux-gnu"
    packages = {package["name"] for package in licenses.compiled_packages(target)}
    text = licenses.third_party_licenses(target)

    assert set(re.findall(r"(?m)^([\w-]+) \d+\.\d+\S* \(", text)) == packages
    assert {"pyo3", "py-spy", "hdrhistogram", "rustls", "tokio", "serde_json"} <= packages
    # They are for tests and builds.
    assert not packages & {"proptest", "divan", "syn", "serde_derive", "headspace-agent"}
    for holder in ("Ben Frederickson", "fiat-crypto", "UNICODE", "Leon Sorokin"):
        assert holder in text


def test_the_supported_pythons_are_those_of_the_classifiers() -> None:
    assert wheels.supported_pythons() == list(VERSIONS)
    assert 'requires-python = ">=3.10"' in (ROOT / "pyproject.toml").read_text()


def imported_libraries() -> set[str]:
    """The modules that the package imports when it runs, except its own and those of Python."""
    found = set()

    def search(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module).partition(".")[0])
        for child in ast.iter_child_nodes(node):
            search(child)

    for path in PACKAGE.rglob("*.py"):
        search(ast.parse(path.read_text()))
    # `tomllib` is new in Python 3.11. Some of Python's own private modules are older or newer than this Python.
    found -= sys.stdlib_module_names | {"headspace", "tomllib"}
    return {name for name in found if not name.startswith("_")}


def test_each_extra_installs_libraries_that_the_package_imports_and_none_is_missing() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    section = text.split("[project.optional-dependencies]\n")[1].split("\n[")[0]
    requirements = re.findall(r'"([A-Za-z][\w-]*)[<>=]', section)
    modules = [MODULES.get(name, name) for name in requirements]

    assert len(requirements) >= 5
    assert set(modules) == imported_libraries() - OF_THE_PROGRAM


def import_in(folder: Path, code: str) -> str:
    """Runs code that ends with an error. Returns the last line of the traceback."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        cwd=folder,
        env=clean_environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stderr
    return done.stderr.splitlines()[-1]


WRONG = (
    "ImportError: headspace's compiled module is missing or not built for this Python (CPython 3."
)


def test_without_a_compiled_module_the_import_says_how_to_get_one(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "headspace", ignore=shutil.ignore_patterns("*.so"))

    last = import_in(tmp_path, "import headspace")

    assert last.startswith(WRONG)
    assert last.endswith("in a clone of its repository: `pip install .`")


def test_a_free_threaded_python_does_not_load_a_module_for_others() -> None:
    """Loading it would crash. The test only makes this Python look like a free-threaded one."""
    assert (PACKAGE / "_native.abi3.so").exists()

    last = import_in(PACKAGE.parent, "import sys; sys.abiflags = 't'; import headspace")

    assert last.startswith(WRONG)
