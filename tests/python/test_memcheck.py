"""`make memcheck`: which errors of valgrind count, and that the programs and tests it runs exist."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

MEMCHECK = Path(__file__).parents[1] / "memcheck"
sys.path.append(str(MEMCHECK))

import valgrind  # noqa: E402

FRAME = "<frame><ip>0x1</ip><obj>{file}</obj><fn>{function}</fn></frame>"
PYTHON = FRAME.format(file="/usr/lib/libpython3.12.so", function="list_dealloc")
OWN = FRAME.format(file="/tmp/package/headspace/_native.abi3.so", function="exit&lt;T&gt;")
OTHER = FRAME.format(file="/tmp/hypothesis/_native.cpython-312.so", function="exit")


def error(*stacks: str) -> str:
    """An error of valgrind. The second stack is where the block was freed."""
    texts = [f"<stack>{stack}</stack>" for stack in stacks]
    where = "<auxwhat>Address 0x2 is in a block of size 8 free'd</auxwhat>"
    return f"<error><what>Invalid read of size 8</what>{where.join(texts)}</error>"


def test_errors_with_a_frame_of_the_module_in_any_stack_are_those_of_headspace(
    tmp_path: Path,
) -> None:
    errors = [error(OWN + PYTHON), error(PYTHON, PYTHON + OWN), error(PYTHON), error(OTHER)]
    # A process that was killed does not write the end of the file.
    leak = f"<error><kind>Leak_PossiblyLost</kind><stack>{OWN}</stack></error>"
    (tmp_path / "1.xml").write_text("\n".join([leak, *errors, "<error><what>Inv"]))
    (tmp_path / "2.xml").write_text("<valgrindoutput>\n</valgrindoutput>")

    found = valgrind.read_errors(tmp_path)

    assert found == errors
    own = [valgrind.involves(one, "_native.abi3.so") for one in found]
    assert own == [True, True, False, False]
    assert valgrind.describe(errors[1]).splitlines() == [
        "Invalid read of size 8",
        "    list_dealloc  in /usr/lib/libpython3.12.so",
        "Address 0x2 is in a block of size 8 free'd",
        "    list_dealloc  in /usr/lib/libpython3.12.so",
        "    exit<T>  in /tmp/package/headspace/_native.abi3.so",
    ]


def test_what_runs_under_valgrind_exists() -> None:
    spec = importlib.util.spec_from_file_location("memcheck", MEMCHECK / "__main__.py")
    assert spec is not None
    assert spec.loader is not None
    memcheck = importlib.util.module_from_spec(spec)
    sys.modules["memcheck"] = memcheck  # Dataclasses look up their module.
    spec.loader.exec_module(memcheck)

    names = [run.name for run in memcheck.RUNS]
    assert len(names) == len(set(names)) > 0
    for run in memcheck.RUNS:
        (file,) = [word for word in run.arguments if word.endswith(".py")]
        assert Path(file).is_file(), run.name
