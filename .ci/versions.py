"""The rules of versions, and the files that name one: `Cargo.toml` and `CHANGELOG.md`. Text in, text out."""

from __future__ import annotations

import re

from packaging.version import Version

#: Cargo and pip both understand these: `0.2.0`, and before it `0.2.0-alpha.1`, `0.2.0-beta.1`, `0.2.0-rc.1`.
FORM = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-(alpha|beta|rc)\.(0|[1-9]\d*))?")

UNRELEASED = "## [Unreleased]\n"


class RefusedRelease(Exception):
    """The release cannot be made. The message says what to change."""


def check_version(new: str, current: str) -> None:
    """Checks that `new` is a version, and newer than `current`.

    Raises:
        RefusedRelease: If it is not.
    """
    if FORM.fullmatch(new) is None:
        raise RefusedRelease(f"`{new}` is not a version: use for example `0.2.0` or `0.2.0-rc.1`")
    if Version(new) <= Version(current):
        raise RefusedRelease(
            f"version {new} is not newer than {current}, the version in Cargo.toml"
        )


def read_version(cargo_toml: str) -> str:
    """The version of the workspace, which all its packages have."""
    found = re.search(r'^\[workspace\.package\]\nversion = "(.+)"$', cargo_toml, re.MULTILINE)
    if found is None:
        raise RefusedRelease("Cargo.toml has no `version` at the beginning of [workspace.package]")
    return found[1]


def set_version(cargo_toml: str, new: str) -> str:
    """`Cargo.toml` with the version `new`: of the workspace, and of its packages as dependencies."""
    old = re.escape(read_version(cargo_toml))
    changed = re.sub(rf'(?m)^version = "{old}"$', f'version = "{new}"', cargo_toml, count=1)
    return re.sub(
        rf'(?m)^(headspace[\w-]* = {{ path = "[\w-]+", version = )"{old}"',
        rf'\g<1>"{new}"',
        changed,
    )


def set_locked_version(cargo_lock: str, new: str) -> str:
    """A `Cargo.lock` with the version `new` of headspace's packages, except that of the fuzz targets, which has none."""
    return re.sub(
        r'(?m)^(name = "headspace(?!-fuzz)[\w-]*"\nversion = )"[^"]+"$',
        rf'\g<1>"{new}"',
        cargo_lock,
    )


def release_changes(changelog: str, version: str, date: str) -> str:
    """The changelog, with the unreleased changes under the version and its date. Above them, a new empty section follows.

    Raises:
        RefusedRelease: If there are no unreleased changes, or the version has a section already.
    """
    if f"## [{version}]" in changelog:
        raise RefusedRelease(f"CHANGELOG.md has a section of version {version} already")
    if not unreleased_changes(changelog):
        raise RefusedRelease("CHANGELOG.md has no changes under `## [Unreleased]`")
    return changelog.replace(UNRELEASED, f"{UNRELEASED}\n## [{version}] - {date}\n", 1)


def unreleased_changes(changelog: str) -> str:
    """The text under `## [Unreleased]`, up to the next version. Empty without such a section."""
    _, _, rest = changelog.partition(UNRELEASED)
    return re.split(r"(?m)^## ", rest, maxsplit=1)[0].strip()


def release_notes(version: str, changes: str) -> str:
    """The changes as a page of their own. Links into the repository lead nowhere there, so they become the file's path."""
    text = re.sub(r"\[([^\]]*)\]\((?!https?://)([^)#]*)[^)]*\)", r"\1 (\2)", changes)
    return f"# headspace {version}\n\n{text}\n"
