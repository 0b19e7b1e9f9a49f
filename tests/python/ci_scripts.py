"""Loads the scripts of `.ci` as modules, because `.ci` is not a package."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]


def load_script(name: str) -> ModuleType:
    """A script of `.ci`. Scripts that import each other get the same modules."""
    sys.path.insert(0, str(ROOT / ".ci"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(ROOT / ".ci"))
