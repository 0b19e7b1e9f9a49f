"""Checks and builds a release into `dist/VERSION`. Uploads nothing.

    python .ci/release.py 0.2.0            # a dry run: the repository stays as it is
    python .ci/release.py 0.2.0 --tag      # the same, then adds the commit and the tag to the repository

All work happens in a temporary clone. There the script sets the version, commits, and builds from that commit: wheels, source
distribution, crates, list of dependencies (SBOM), notes and checksums. So the files of a release always come from a commit,
and a release that fails changes nothing in the repository outside of `dist`.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from versions import (
    RefusedRelease,
    check_version,
    read_version,
    release_changes,
    release_notes,
    set_locked_version,
    set_version,
    unreleased_changes,
)

ROOT = Path(__file__).resolve().parents[1]

#: The packages for crates.io, in the order in which they must be published.
CRATES = ("headspace-agent", "headspace-collectors", "headspace-exporters", "headspace")


def say(text: str) -> None:
    print(f"\033[1m== release: {text}\033[0m", flush=True)


def run(*command: str | Path, folder: Path, **env: str) -> str:
    """Runs a command, and returns what it prints on stdout.

    Raises:
        RefusedRelease: If it fails.
    """
    words = [str(word) for word in command]
    done = subprocess.run(
        words, cwd=folder, env={**os.environ, **env}, stdout=subprocess.PIPE, text=True
    )
    if done.returncode != 0:
        raise RefusedRelease(
            f"`{' '.join(words)}` failed{f': {done.stdout}' if done.stdout else ''}"
        )
    return done.stdout


def check_repository(repository: Path, version: str) -> None:
    """Checks that the repository is ready for the release.

    Raises:
        RefusedRelease: If it has uncommitted changes, the version is not newer, the tag exists, or nothing is unreleased.
    """
    changed = run("git", "status", "--porcelain", folder=repository).splitlines()
    if changed:
        listed = "\n".join(changed[:10])
        raise RefusedRelease(
            f"the repository has uncommitted changes, {len(changed)} files:\n{listed}"
        )
    check_version(version, read_version((repository / "Cargo.toml").read_text()))
    if run("git", "tag", "--list", f"v{version}", folder=repository):
        raise RefusedRelease(f"the tag v{version} exists already")
    release_changes((repository / "CHANGELOG.md").read_text(), version, date="")


def make_commit(clone: Path, version: str, date: str) -> None:
    """Sets the version in the clone, commits it and tags it."""
    cargo_toml = clone / "Cargo.toml"
    cargo_toml.write_text(set_version(cargo_toml.read_text(), version))
    changelog = clone / "CHANGELOG.md"
    changelog.write_text(release_changes(changelog.read_text(), version, date))
    # Writes the versions of the workspace's packages into Cargo.lock, and changes nothing else there.
    run("cargo", "update", "--workspace", "--offline", "--quiet", folder=clone)
    # The fuzz targets have a workspace of their own, whose libraries may never have been downloaded here.
    fuzz_lock = clone / "fuzz/Cargo.lock"
    fuzz_lock.write_text(set_locked_version(fuzz_lock.read_text(), version))
    run(
        "git",
        "commit",
        "--quiet",
        "--all",
        "--message",
        f"workspace: release {version}",
        folder=clone,
    )
    run(
        "git", "tag", "--annotate", f"v{version}", "--message", f"headspace {version}", folder=clone
    )


def check_source(clone: Path) -> None:
    """The checks that take seconds. `make test` and `make lint` belong to CI, before the release."""
    say("formatting and lints of the scripts")
    run("cargo", "fmt", "--all", "--check", folder=clone)
    run(sys.executable, "-m", "ruff", "check", "--quiet", folder=clone)
    run(sys.executable, "-m", "ruff", "format", "--check", "--quiet", folder=clone)


def build_crates(clone: Path, out: Path, version: str) -> None:
    say("packages for crates.io")
    names = [word for crate in CRATES for word in ("--package", crate)]
    target = Path(os.environ.get("CARGO_TARGET_DIR", clone / "target"))
    run("cargo", "package", "--locked", "--no-verify", "--quiet", *names, folder=clone)
    out.mkdir(parents=True)
    for crate in CRATES:
        shutil.copy2(target / "package" / f"{crate}-{version}.crate", out)


def build_sdist(clone: Path, out: Path) -> None:
    """Builds the source distribution, and checks that Cargo finds every package in it."""
    say("source distribution")
    run(sys.executable, "-m", "maturin", "sdist", "--out", out, folder=clone)
    (sdist,) = out.glob("*.tar.gz")
    with tempfile.TemporaryDirectory() as name, tarfile.open(sdist) as archive:
        archive.extractall(name, filter="data")
        (unpacked,) = Path(name).iterdir()
        run("cargo", "metadata", "--locked", "--format-version", "1", folder=unpacked)


def extract_sbom(out: Path, version: str) -> None:
    """Copies the list of dependencies out of the wheel for x86_64 (else another one), into which maturin writes it."""
    wheel = max(out.glob("*.whl"), key=lambda path: (path.match("*-abi3-*x86_64.whl"), path))
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".cyclonedx.json"))
        (out / f"headspace-{version}.cyclonedx.json").write_bytes(archive.read(name))


def write_checksums(out: Path) -> Path:
    """Writes `SHA256SUMS`, which `sha256sum --check` reads."""
    files = sorted(path for path in out.rglob("*") if path.is_file())
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(out)}\n"
        for path in files
    ]
    sums = out / "SHA256SUMS"
    sums.write_text("".join(lines))
    return sums


def build(clone: Path, out: Path, version: str, wheel_options: list[str]) -> None:
    """Builds all files of the release into the folder `out`."""
    # The files in the archives have the time of the commit, so the same commit gives the same archives.
    os.environ["SOURCE_DATE_EPOCH"] = run("git", "log", "-1", "--format=%ct", folder=clone).strip()
    check_source(clone)
    build_crates(clone, out / "crates", version)
    build_sdist(clone, out)
    say("wheels")
    wheels = subprocess.run([sys.executable, clone / ".ci/wheels.py", "--out", out, *wheel_options])
    if wheels.returncode != 0:
        raise RefusedRelease("the wheels could not be built, or a check of them failed")
    extract_sbom(out, version)
    write_checksums(out)


def next_steps(version: str, tagged: bool) -> str:
    tag = f"git push origin main v{version}" if tagged else f"make release VERSION={version} TAG=1"
    publish = "\n".join(f"     cargo publish --package {crate}" for crate in CRATES)
    return f"""
Nothing was uploaded. Next:
  1. Look at the files, and compare them: (cd dist/{version} && sha256sum --check SHA256SUMS)
  2. {tag}
     On GitHub, the tag starts .github/workflows/release.yml, which builds, attests and publishes the wheels.
  3. Publish the crates, in this order:
{publish}"""


def release(version: str, *, tag: bool, wheel_options: list[str]) -> None:
    check_repository(ROOT, version)
    changes = unreleased_changes((ROOT / "CHANGELOG.md").read_text())
    out = ROOT / "dist" / version
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "headspace"
        run("git", "clone", "--quiet", "--no-tags", ROOT, clone, folder=ROOT)
        for key in ("user.name", "user.email"):
            value = run("git", "config", "--default", "", key, folder=ROOT).strip()
            # A dry run needs no author.
            run("git", "config", key, value or ("" if tag else "dry run"), folder=clone)
        # Otherwise the release would change more in Cargo.lock than its own version.
        run("cargo", "metadata", "--locked", "--format-version", "1", folder=clone)
        make_commit(clone, version, datetime.date.today().isoformat())
        (out / "NOTES.md").write_text(release_notes(version, changes))
        build(clone, out, version, wheel_options)
        if tag:
            name = f"refs/tags/v{version}"
            # The tag comes last. If the branch has moved meanwhile, the merge fails before, and no tag remains.
            run("git", "fetch", "--quiet", "--no-tags", clone, name, folder=ROOT)
            run("git", "merge", "--quiet", "--ff-only", "FETCH_HEAD", folder=ROOT)
            run("git", "fetch", "--quiet", clone, f"{name}:{name}", folder=ROOT)
    say(f"the files are in {out.relative_to(ROOT)}")
    for path in sorted(out.rglob("*")):
        if path.is_file():
            print(f"{path.stat().st_size / 1e3:10.0f} kB  {path.relative_to(out)}")
    print(next_steps(version, tag))


def main() -> None:
    parser = argparse.ArgumentParser(description="Checks and builds a release into dist/VERSION.")
    parser.add_argument("version", help="for example 0.2.0; newer than the version in Cargo.toml")
    parser.add_argument(
        "--tag", action="store_true", help="add the commit and the tag to this repository"
    )
    parser.add_argument(
        "--wheels", metavar="OPTIONS", default="", help="options of .ci/wheels.py, as one word"
    )
    args = parser.parse_args()
    release(args.version, tag=args.tag, wheel_options=shlex.split(args.wheels))


if __name__ == "__main__":
    try:
        main()
    except RefusedRelease as refused:
        sys.exit(f"release: refused: {refused}")
