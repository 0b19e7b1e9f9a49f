"""A case on this machine: its folders, its data, its copy of the program, its command lines."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from case import Case, Edit

PROGRAMS = Path(__file__).parent / "programs"

#: Steps that our own programs take.
STEPS = 900


class NotHere(Exception):
    """A case cannot run on this machine; the text says what is missing."""


@dataclass(frozen=True)
class Workplace:
    """Where the cases run.

    Args:
        folder: For data, copies and runs.
        checkouts: `REAL_DIR`.
        steps: Steps that our own programs take.
    """

    folder: Path
    checkouts: Path | None
    steps: int = STEPS

    def prepare(self, case: Case, *, cached: bool = False) -> Path:
        """Makes data and copy where they are missing. Returns the folder that the program runs in.

        Raises:
            NotHere: If a package or a checkout is missing.
        """
        missing = [name for name in case.modules if importlib.util.find_spec(name) is None]
        if missing:
            raise NotHere(f"not installed: {', '.join(missing)}")
        copy = self.folder / case.name / ("cached" if cached else "copy")
        cwd = copy / case.folder if case.checkout else copy
        if not copy.exists():
            self._copy(case, copy)
            for edit in (*case.edits, *(case.cached_edits if cached else ())):
                _apply(edit, cwd, case.knobs)
        data = self._data(case)
        for place in filter(None, case.data_at.split(",")):
            link = cwd / place
            link.parent.mkdir(parents=True, exist_ok=True)
            if data is not None and not link.exists():
                link.symlink_to(data)
        return cwd

    def _copy(self, case: Case, copy: Path) -> None:
        if not case.checkout:
            copy.mkdir(parents=True)
            return
        source = self.checkouts / case.checkout if self.checkouts else None
        if source is None or not source.is_dir():
            raise NotHere(f"no checkout `{case.checkout}` in REAL_DIR")
        shutil.copytree(source / case.folder, copy / case.folder, symlinks=True)

    def _data(self, case: Case) -> Path | None:
        if case.data is None:
            return None
        folder = self.folder / "data" / case.data.__name__
        if not folder.exists():
            part = folder.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
            case.data(part)
            part.rename(folder)
        return folder

    def command(self, case: Case, cwd: Path, changes: dict[str, str] | None = None) -> list[str]:
        """The command line, with the knobs as they are by default or as `changes` has them."""
        return [self._filled(word, case, cwd, changes) for word in case.command]

    def environment(self, case: Case, cwd: Path) -> dict[str, str]:
        """The environment in which the program runs plain. Nothing of headspace is in it."""
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("HEADSPACE", "TRUTH_", "REAL_", "COV_"))
        }
        fixed = {
            # A thread for the model, so that loaders have a core of their own where there are two.
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "HF_HUB_OFFLINE": "1",
            "HF_DATASETS_OFFLINE": "1",
            "HF_DATASETS_CACHE": str(self.folder / "huggingface"),
            "MPLBACKEND": "Agg",
            "TERM": "dumb",
            "COLUMNS": "120",
        }
        own = {name: self._filled(value, case, cwd, None) for name, value in case.env.items()}
        return {**inherited, **fixed, **own}

    def _filled(self, text: str, case: Case, cwd: Path, changes: dict[str, str] | None) -> str:
        data = "" if case.data is None else str(self.folder / "data" / case.data.__name__)
        values = {
            "python": sys.executable,
            "bin": str(Path(sys.executable).parent),
            "programs": str(PROGRAMS),
            "data": data,
            "cwd": str(cwd),
            "steps": str(self.steps),
            **case.knobs,
            **(changes or {}),
        }
        for name, value in values.items():
            text = text.replace("{" + name + "}", value)
        return text


def _apply(edit: Edit, cwd: Path, knobs: dict[str, str]) -> None:
    path = cwd / edit.file
    text = path.read_text()
    if edit.old not in text:
        raise NotHere(f"`{edit.file}` has no `{edit.old}`: this checkout is of another version")
    new = edit.new
    for name, value in knobs.items():
        new = new.replace("{" + name + "}", value)
    path.write_text(text.replace(edit.old, new))
