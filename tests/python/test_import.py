"""`import headspace` takes little time and imports no other library."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: Adds the folder of headspace to the path without the site module, which imports other modules.
PATH = f"import sys; sys.path[:0] = {[path for path in sys.path if path]!r}"

SHOW = "print(*sorted(set(sys.modules) - before))"

#: Modules that `import headspace` adds to an interpreter without the site module. Every program has loaded
#: most of them anyway. The others are built in or small.
ALLOWED = {
    *("_collections_abc", "_stat", "genericpath", "os", "os.path", "posixpath", "stat"),
    *("__future__", "atexit", "itertools", "time", "zlib"),
    *("_abc", "abc", "errno"),  # Python 3.15 starts without them
    *("_interpreters", "_xxsubinterpreters"),  # one of these, to refuse subinterpreters
}


def modules_added_by(code: str) -> set[str]:
    """Modules that `code` adds to a newly started interpreter."""
    shown = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"{PATH}\nbefore = set(sys.modules)\n{code}\n{SHOW}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(shown.stdout.split())


def test_import_adds_only_headspace_and_light_modules() -> None:
    added = modules_added_by("import headspace")
    foreign = {name for name in added if name.partition(".")[0] != "headspace"}

    assert "headspace._native" in added, "the list is not of an import that worked"
    assert foreign - ALLOWED == set()


@pytest.mark.parametrize(
    "use",
    [
        "headspace.wrap([1])",
        "headspace.CacheDataLoader([1], 1, 1)",
        "list(headspace.cache_iterator([1], 1, stop_after=3))",
    ],
)
def test_using_the_core_imports_no_integration(use: str) -> None:
    added = modules_added_by(
        "import os; os.environ['HEADSPACE_DIR'] = '/dev/null/no'; os.environ['HEADSPACE_QUIET'] = '1'\n"
        f"import headspace\n{use}"
    )

    assert not {name.partition(".")[0] for name in added} & {"torch", "numpy", "spdl", "lightning"}


def test_lazily_loaded_names_are_available() -> None:
    import headspace

    assert {name for name in headspace.__all__ if getattr(headspace, name, None) is None} == set()
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = headspace.nothing
