"""`make release`: which versions and repositories it accepts, and what it writes into files."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from ci_scripts import load_script

ROOT = Path(__file__).parents[2]

versions = load_script("versions")
release = load_script("release")

CHANGELOG = """# Changelog

## [Unreleased]

### Added

- A thing.

## [0.1.0] - 2026-11-23

- The first release.
"""


@pytest.mark.parametrize(
    ("new", "current"),
    [
        ("0.2.0", "0.1.0"),
        ("0.1.1", "0.1.0"),
        ("0.10.0", "0.9.0"),
        ("0.2.0-rc.1", "0.1.0"),
        ("0.2.0", "0.2.0-rc.1"),
        ("0.2.0-rc.1", "0.2.0-beta.2"),
        ("0.2.0-rc.10", "0.2.0-rc.9"),
    ],
)
def test_a_newer_version_is_accepted(new: str, current: str) -> None:
    versions.check_version(new, current)

    with pytest.raises(versions.RefusedRelease, match="not newer"):
        versions.check_version(current, new)


def test_the_same_version_is_refused() -> None:
    with pytest.raises(versions.RefusedRelease, match=r"0\.1\.0 is not newer than 0\.1\.0"):
        versions.check_version("0.1.0", "0.1.0")


@pytest.mark.parametrize(
    "text", ["", "v0.2.0", "0.2", "0.2.0.1", "0.2.0rc1", "0.02.0", "0.2.0-dev.1"]
)
def test_what_cargo_or_pip_would_not_understand_is_no_version(text: str) -> None:
    with pytest.raises(versions.RefusedRelease, match="is not a version"):
        versions.check_version(text, "0.1.0")


def test_the_version_changes_in_the_workspace_and_in_its_own_dependencies_only() -> None:
    text = (ROOT / "Cargo.toml").read_text()
    current = versions.read_version(text)

    changed = versions.set_version(text, "7.8.9")

    assert versions.read_version(changed) == "7.8.9"
    lines = zip(text.splitlines(), changed.splitlines(), strict=True)
    different = [(old, new) for old, new in lines if old != new]
    assert len(different) == 1 + len(release.CRATES)
    assert all(new == old.replace(current, "7.8.9") for old, new in different)


def test_unreleased_changes_move_under_the_version_and_its_date() -> None:
    changed = versions.release_changes(CHANGELOG, "0.2.0", "2026-12-01")

    assert versions.unreleased_changes(CHANGELOG) == "### Added\n\n- A thing."
    assert versions.unreleased_changes(changed) == ""
    assert (
        "## [Unreleased]\n\n## [0.2.0] - 2026-12-01\n\n### Added\n\n- A thing.\n\n## [0.1.0]"
        in changed
    )


def test_the_notes_have_only_links_that_work_outside_of_the_repository() -> None:
    changes = "- [A page](docs/a.md#b), [two\n  lines](c.md), [a site](https://example.org/d)."

    notes = versions.release_notes("0.2.0", changes)

    assert notes == (
        "# headspace 0.2.0\n\n"
        "- A page (docs/a.md), two\n  lines (c.md), [a site](https://example.org/d).\n"
    )


@pytest.mark.parametrize(
    ("changelog", "reason"),
    [
        (CHANGELOG.replace("## [Unreleased]\n", ""), "no changes under"),
        (CHANGELOG.replace("### Added\n\n- A thing.\n", ""), "no changes under"),
        (CHANGELOG.replace("0.1.0", "0.2.0"), "has a section of version"),
    ],
)
def test_a_changelog_without_unreleased_changes_is_refused(changelog: str, reason: str) -> None:
    with pytest.raises(versions.RefusedRelease, match=reason):
        versions.release_changes(changelog, "0.2.0", "2026-12-01")


def git(*words: str, folder: Path) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=test", "-c", "user.email=test", *words],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with the files that name a version."""
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "Cargo.toml").write_text('[workspace.package]\nversion = "0.1.0"\n')
    (folder / "CHANGELOG.md").write_text(CHANGELOG)
    git("init", "--quiet", folder=folder)
    git("add", ".", folder=folder)
    git("commit", "--quiet", "-m", "all", folder=folder)
    return folder


def test_a_clean_repository_is_accepted(repository: Path) -> None:
    release.check_repository(repository, "0.2.0")


def test_uncommitted_changes_are_refused(repository: Path) -> None:
    (repository / "new").write_text("")

    with pytest.raises(versions.RefusedRelease, match=r"uncommitted changes, 1 files:\n\?\? new"):
        release.check_repository(repository, "0.2.0")


def test_a_tag_is_not_made_twice(repository: Path) -> None:
    git("tag", "v0.2.0", folder=repository)

    with pytest.raises(versions.RefusedRelease, match=r"v0\.2\.0 exists"):
        release.check_repository(repository, "0.2.0")


def test_checksums_name_every_file_and_find_a_changed_one(tmp_path: Path) -> None:
    (tmp_path / "crates").mkdir()
    (tmp_path / "crates/a.crate").write_text("a")
    (tmp_path / "a.whl").write_text("b")

    release.write_checksums(tmp_path)

    check = ["sha256sum", "--check", "SHA256SUMS"]
    right = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True)
    assert right.stdout == "a.whl: OK\ncrates/a.crate: OK\n"
    (tmp_path / "a.whl").write_text("changed")
    wrong = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True)
    assert wrong.returncode != 0
    assert "a.whl: FAILED" in wrong.stdout


def test_a_refused_release_says_why() -> None:
    current = versions.read_version((ROOT / "Cargo.toml").read_text())

    done = subprocess.run(
        [sys.executable, ROOT / ".ci/release.py", current], capture_output=True, text=True
    )

    assert done.returncode == 1
    assert done.stderr.startswith("release: refused: ")


def test_the_release_commit_changes_the_version_the_lock_file_and_the_changelog(
    tmp_path: Path,
) -> None:
    clone = tmp_path / "clone"
    git("clone", "--quiet", str(ROOT), str(clone), folder=tmp_path)
    (clone / "CHANGELOG.md").write_text(CHANGELOG)
    update = ["cargo", "update", "--workspace", "--offline", "--quiet"]
    subprocess.run(update, cwd=clone, check=True)
    git("commit", "--quiet", "--all", "--message", "before the release", folder=clone)
    for key in ("user.name", "user.email"):
        git("config", key, "test", folder=clone)

    release.make_commit(clone, "99.0.0", "2026-12-01")

    changed = git("show", "--name-only", "--format=", "HEAD", folder=clone).split()
    assert changed == ["CHANGELOG.md", "Cargo.lock", "Cargo.toml", "fuzz/Cargo.lock"]
    fuzz_lock = (clone / "fuzz/Cargo.lock").read_text()
    assert fuzz_lock.count('version = "99.0.0"') == 4
    lock = git("show", "--format=", "--unified=0", "HEAD", "--", "Cargo.lock", folder=clone)
    added = [line for line in lock.splitlines() if re.match(r"\+[^+]", line)]
    assert len(added) > len(release.CRATES)
    assert set(added) == {'+version = "99.0.0"'}
    assert git("describe", folder=clone) == "v99.0.0\n"
