"""Restores the original environment for child processes that are not Python.

`HEADSPACE_RUN` holds the variables that `headspace run` changed, with their old values. A child counts as
Python if a word of its command line is Python, or names a script that Python runs or that calls Python.
Then its environment stays, and its loaders are watched too. Nothing is ever added to an environment that
the program itself passes.

This file is loaded by its path and imports nothing of headspace.
"""

from __future__ import annotations

import os
import re
import sys
from stat import S_ISREG

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

CHANGES = "HEADSPACE_RUN"
_SEPARATOR = "\x1f"

#: The folder that was put on PYTHONPATH. Set by `hooks.environments`.
path_entry = ""

#: Words of a command line that are looked up as files.
_MAX_LOOK_UPS = 24
#: Bytes of a script that are read.
_MAX_READ = 65_536

_BREAKS = re.compile(r"[\s'\"`;|&()=<>]+")
_PYTHON = re.compile(r"(python|pypy)(?!2)[0-9.]*t?(-dbg)?(\.exe)?", re.IGNORECASE)
_CALLS = re.compile(rb"\b(python|pypy|torchrun|accelerate|deepspeed|headspace)\b")


def original_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The environment as it would be without `headspace run`."""
    restored = dict(env)
    for entry in restored.pop(CHANGES, "").split(_SEPARATOR):
        name, is_set, value = entry.partition("=")
        if name == "PYTHONPATH":
            # The program may have changed it since.
            paths = restored.pop(name, "").split(os.pathsep)
            kept = os.pathsep.join(path for path in paths if path != path_entry)
            if kept or is_set:
                restored[name] = kept
        elif is_set:
            restored[name] = value
        else:
            restored.pop(name, None)
    return restored


def is_python(command: Iterable[Any], path: str | None = None) -> bool:
    """Whether the command is Python, or is likely to start Python."""
    words = [word for part in command for word in _BREAKS.split(os.fsdecode(part)) if word]
    for word in words:
        name = os.path.basename(word)
        if word == sys.executable or name.endswith(".py") or _PYTHON.fullmatch(name):
            return True
    return any(_calls_python(word, path) for word in words[:_MAX_LOOK_UPS] if word[0] != "-")


def _calls_python(word: str, path: str | None) -> bool:
    """Whether it names a script that Python runs, or that calls it."""
    file = word
    if "/" not in word and not os.path.isfile(word):
        from shutil import which

        file = which(word, path=path) or ""
    try:
        # Only files are opened. A named pipe would wait for its writer, or lose its contents.
        if not S_ISREG(os.stat(file).st_mode):
            return False
        with open(file, "rb") as script:
            if script.read(2) != b"#!":
                return False
            return _CALLS.search(script.read(_MAX_READ)) is not None
    except (OSError, ValueError):
        return False


def watch_subprocess(subprocess: Any) -> None:
    """Replaces the method by which `subprocess` starts a child."""
    popen = subprocess.Popen
    original = popen._execute_child

    def _execute_child(self: Any, args: Any, executable: Any, *rest: Any, **named: Any) -> Any:
        # preexec_fn, close_fds, pass_fds, cwd, env
        try:
            env = rest[4]
            now = os.environ if env is None else env
            if CHANGES in now:
                command = [args] if isinstance(args, (str, bytes, os.PathLike)) else list(args)
                if executable is not None:
                    command.append(executable)
                if not is_python(command, now.get("PATH")):
                    rest = (*rest[:4], original_environment(now), *rest[5:])
        except Exception:
            pass
        return original(self, args, executable, *rest, **named)

    _execute_child._headspace_original = original  # type: ignore[attr-defined]
    popen._execute_child = _execute_child


def restore_environment(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, tuple[Any, ...]]:
    """The call that starts a program with the environment that it should have.

    Args:
        name: The function of `os` that the program calls.
        args: Its arguments.
        kwargs: Its keyword arguments.

    Returns:
        The function to call, or None for that one, and its arguments.
    """
    if kwargs.keys() & {"path", "argv", "env", "command"}:
        return None, args
    if name == "system":
        if CHANGES not in os.environ or is_python(args):
            return None, args
        return None, (_assignments() + os.fsdecode(args[0]),)
    function = None
    path, argv, env = (*args, os.environ) if name == "execv" else args
    if CHANGES not in env or is_python((path, *argv)):
        return None, args
    if name == "execv":
        function = getattr(os.execve, "_headspace_original", os.execve)
    return function, (path, argv, original_environment(env))


def _assignments() -> str:
    """Shell commands that restore the environment."""
    from shlex import quote

    now, original = os.environ, original_environment(os.environ)
    words = []
    for name in now:
        if name not in original:
            words.append(f"unset {name}; ")
        elif now[name] != original[name]:
            words.append(f"export {name}={quote(original[name])}; ")
    return "".join(words)
