"""Builds the wheels of headspace, checks them, and tries each one in an empty virtual environment.

    python .ci/wheels.py                              # x86_64 and aarch64, as far as this machine can build them
    python .ci/wheels.py --require aarch64            # fails if the aarch64 wheel cannot be built
    python .ci/wheels.py --free-threaded 3.14t        # also a wheel for this free-threaded Python
    python .ci/wheels.py --free-threaded 3.15t        # also a wheel for it and all later ones

zig links the wheel against glibc 2.17 (manylinux2014), so it runs on the Linux distributions of the last ten years. One
wheel per architecture (abi3) serves every Python from 3.10 on. The script prints what it leaves out, with the reason.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from interpreters import find_interpreters
from licenses import third_party_licenses
from versions import read_version
from wheel_files import add_license, rewrite

ROOT = Path(__file__).resolve().parents[1]
SMOKE_TEST = ROOT / "tests/wheel_smoke.py"

#: Rust's names of the architectures for which there are wheels.
TARGETS = {"x86_64": "x86_64-unknown-linux-gnu", "aarch64": "aarch64-unknown-linux-gnu"}

#: Platform tag of the wheels: glibc 2.17. Rust's standard library supports no older glibc.
COMPATIBILITY = "manylinux2014"
PLATFORM = "manylinux_2_17"

#: Maximum size of a wheel in bytes. docs/install.md explains the parts of the current one.
LARGEST_WHEEL = 6_500_000


class WheelError(Exception):
    """A wheel cannot be built, or a check of it failed."""


def is_ci() -> bool:
    """Whether this runs in CI. There, a wheel that cannot be tried is a failure, like a skipped test."""
    return os.environ.get("CI", "").lower() in ("1", "true")


def say(text: str) -> None:
    print(f"wheels: {text}", flush=True)


def run(*command: str | Path) -> str:
    """Runs a command and returns its output.

    Raises:
        WheelError: If it fails, with its output.
    """
    done = subprocess.run(
        [str(word) for word in command],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        raise WheelError(f"`{Path(command[0]).name} {command[1]}` failed:\n{done.stdout}")
    return done.stdout


def provide_standard_library(target: str) -> bool:
    """Installs Rust's standard library for `target` with `rustup`, if it is missing. Returns whether it is there."""

    def is_installed() -> bool:
        folder = subprocess.run(
            ["rustc", "--print", "target-libdir", "--target", target],
            capture_output=True,
            text=True,
        )
        return folder.returncode == 0 and any(Path(folder.stdout.strip()).glob("libstd-*.rlib"))

    if not is_installed() and shutil.which("rustup"):
        say(f"installing Rust's standard library for {target}")
        subprocess.run(["rustup", "target", "add", target], stdin=subprocess.DEVNULL, check=False)
    return is_installed()


def without_local_paths() -> str:
    """Flags of `rustc`: the messages of panics name the files of dependencies without the folders of this machine. (Cargo
    compiles the files of the workspace by their relative paths.)
    """
    cargo = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    return f"--remap-path-prefix={cargo / 'registry/src'}=crates"


def build(target: str, out: Path, *options: str) -> Path:
    """Builds one wheel into `out`, and returns its path."""
    # maturin runs zig as a module of the first Python in the path.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "maturin",
            "build",
            "--profile",
            "wheel",
            "--locked",
            "--zig",
        ]
        command += ["--compatibility", COMPATIBILITY, "--target", target]
        command += ["--compression-level", "9", "--out", folder, *options]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PATH": path, "CARGO_ENCODED_RUSTFLAGS": without_local_paths()},
        )
        if done.returncode != 0:
            raise WheelError(f"maturin could not build the wheel for {target}")
        (wheel,) = Path(folder).glob("*.whl")
        # maturin names the packages of this repository in the list of dependencies by their folders on this machine.
        rewrite(wheel, ".cyclonedx.json", lambda data: data.replace(bytes(ROOT), b"/headspace"))
        add_license(wheel, "THIRD-PARTY.txt", third_party_licenses(target))
        out.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy2(wheel, out / wheel.name))


def oldest_platform(shown: str) -> str | None:
    """The platform tag that `auditwheel show` found: that of the oldest glibc with which the wheel works."""
    found = re.search(r'consistent\s+with\s+the\s+following\s+platform\s+tag:\s+"(\w+)"', shown)
    return None if found is None else found[1]


def check(wheel: Path) -> None:
    """Checks the platform, the ABI and the size of the wheel.

    Raises:
        WheelError: If the wheel needs a newer glibc than its name says, uses functions outside of the stable ABI, or is too
            large.
    """
    shown = run(sys.executable, "-m", "auditwheel", "show", wheel)
    oldest = oldest_platform(shown)
    if oldest is None or not oldest.startswith(PLATFORM):
        raise WheelError(f"{wheel.name} is not a {PLATFORM} wheel:\n{shown}")
    # abi3audit 0.0.26 does not know `abi3t`: it takes the module's own `PyModExport__native` for a function of Python.
    if "-abi3-" in wheel.name:
        run(sys.executable, "-m", "abi3audit", "--strict", wheel)
    size = wheel.stat().st_size
    with zipfile.ZipFile(wheel) as archive:
        (extension,) = (info for info in archive.infolist() if info.filename.endswith(".so"))
    say(
        f"{wheel.name}: {size / 1e6:.2f} MB, of which the extension module takes {extension.compress_size / 1e6:.2f} MB "
        f"({extension.file_size / 1e6:.2f} MB installed); {oldest}"
    )
    if size > LARGEST_WHEEL:
        raise WheelError(f"{wheel.name} is larger than {LARGEST_WHEEL / 1e6:.1f} MB")


def try_wheel(wheel: Path, python: Path) -> None:
    """Installs the wheel into a new virtual environment of `python`, and runs the smoke test there."""
    version = read_version((ROOT / "Cargo.toml").read_text())
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder) / "venv"
        run(python, "-m", "venv", "--without-pip", environment)
        fresh = environment / "bin/python"
        install = ["-m", "pip", "--python", str(fresh), "--disable-pip-version-check", "install"]
        run(sys.executable, *install, "--quiet", "--no-index", "--no-deps", wheel)
        run(fresh, "-I", SMOKE_TEST, "--version", version, "--inside", environment)


def try_on_each_python(wheel: Path, versions: list[str]) -> None:
    if platform.machine() not in wheel.name:
        say(f"{wheel.name}: NOT TRIED, because this machine is {platform.machine()}")
        return
    for version, python in find_interpreters(versions).items():
        if python is None:
            problem = f"{wheel.name}: NOT TRIED with Python {version}, which is not on this machine"
            if is_ci():
                raise WheelError(problem)
            say(problem)
            continue
        try_wheel(wheel, python)
        say(f"{wheel.name}: works with Python {version}")


def build_free_threaded(target: str, out: Path, version: str) -> tuple[Path, list[str]]:
    """Builds the wheel for a free-threaded Python (for example `3.14t`). Returns its path, and the versions that load it.

    From 3.15 on, it has the stable ABI that free-threaded and other Pythons share (abi3t, PEP 803).
    """
    with_lock = version.removesuffix("t")
    if tuple(map(int, with_lock.split("."))) < (3, 15):
        return build(target, out, "--interpreter", f"python{version}"), [version]
    abi3t = ["--features", "pyo3/abi3t-py315"]
    return build(target, out, *abi3t, "--interpreter", f"python{with_lock}"), [with_lock, version]


def supported_pythons() -> list[str]:
    """The versions that the package's classifiers name, for example `3.12`."""
    return re.findall(r'Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text())


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Builds, checks and tries the wheels of headspace."
    )
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder of the wheels")
    parser.add_argument("--only", choices=TARGETS, help="build for this architecture only")
    parser.add_argument(
        "--require",
        choices=TARGETS,
        action="append",
        default=[],
        help="fail if its wheel cannot be built",
    )
    parser.add_argument(
        "--free-threaded",
        metavar="3.14t",
        action="append",
        default=[],
        help="also build for this Python",
    )
    args = parser.parse_args()

    # The files in a wheel have the time of the commit, so the same commit gives the same wheel.
    os.environ.setdefault("SOURCE_DATE_EPOCH", run("git", "log", "-1", "--format=%ct").strip())
    built = []
    for architecture, target in TARGETS.items():
        if args.only not in (None, architecture):
            continue
        if not provide_standard_library(target):
            reason = f"Rust's standard library for {target} is not installed (`rustup target add {target}`)"
            if architecture in args.require:
                raise WheelError(f"no wheel for {architecture}: {reason}")
            say(f"NO WHEEL for {architecture}: {reason}")
            continue
        wheel = build(target, args.out)
        check(wheel)
        try_on_each_python(wheel, supported_pythons())
        built.append(wheel)
        for version in args.free_threaded:
            wheel, versions = build_free_threaded(target, args.out, version)
            check(wheel)
            try_on_each_python(wheel, versions)
            built.append(wheel)
    if not built:
        raise WheelError("no wheel was built")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except WheelError as error:
        sys.exit(f"wheels: error: {error}")
