"""The files of a case on this machine: its folders, data, copy of the program, and command lines."""

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
STEPS = 1620


class NotHere(Exception):
    """A case cannot run on this machine. The text says what is missing."""


@dataclass(frozen=True)
class Workplace:
    """The folders in which the cases run.

    Args:
        folder: For data, copies and runs.
        checkouts: `REAL_DIR`.
        steps: Steps that our own programs take.
    """

    folder: Path
    checkouts: Path | None
    steps: int = STEPS

    def check(self, case: Case) -> None:
        """Creates missing data, and removes the files of an earlier run.

        Raises:
            NotHere: If a package or a checkout is missing.
        """
        missing = [name for name in case.modules if importlib.util.find_spec(name) is None]
        if missing:
            raise NotHere(f"not installed: {', '.join(missing)}")
        if case.checkout and not (self.checkouts and (self.checkouts / case.checkout).is_dir()):
            raise NotHere(f"no checkout `{case.checkout}` in REAL_DIR")
        self._data(case)
        shutil.rmtree(self.folder / case.name, ignore_errors=True)

    def renew(
        self, case: Case, changes: dict[str, str] | None = None, *, cached: bool = False
    ) -> Path:
        """Copies the program again to the same path. Returns the folder in which it runs.

        Files of an earlier run next to the program, such as a checkpoint, are removed.

        Args:
            case: The program.
            changes: New values of knobs.
            cached: Whether to make the program repeat batches (`Case.cached_edits`).

        Raises:
            NotHere: If the checkout does not contain the text to replace.
        """
        copy = self.folder / case.name / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        cwd = copy / case.folder if case.checkout else copy
        if case.checkout:
            assert self.checkouts is not None
            shutil.copytree(self.checkouts / case.checkout / case.folder, cwd, symlinks=True)
        else:
            copy.mkdir(parents=True)
        for edit in (*case.edits, *(case.cached_edits if cached else ())):
            self._apply(edit, case, cwd, changes)
        data = self._data(case)
        for place in filter(None, case.data_at.split(",")):
            link = cwd / place
            link.parent.mkdir(parents=True, exist_ok=True)
            if data is not None:
                link.symlink_to(data)
        return cwd

    def _apply(self, edit: Edit, case: Case, cwd: Path, changes: dict[str, str] | None) -> None:
        path = cwd / edit.file
        text = path.read_text()
        if edit.old not in text:
            raise NotHere(f"`{edit.file}` has no `{edit.old}`: this checkout is of another version")
        path.write_text(text.replace(edit.old, self._filled(edit.new, case, cwd, changes)))

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
        """The command line, with the default values of the knobs or the values in `changes`."""
        return [self._filled(word, case, cwd, changes) for word in case.command]

    def environment(self, case: Case, cwd: Path) -> dict[str, str]:
        """The environment of the program, without variables of headspace."""
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("HEADSPACE", "TRUTH_", "REAL_", "COV_"))
        }
        fixed = {
            # One thread for the model, so that the loaders have their own core on a machine with two.
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
