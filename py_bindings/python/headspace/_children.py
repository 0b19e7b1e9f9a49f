"""The environment of children: one that is not Python is started as if headspace were not there.

`HEADSPACE_RUN` holds what `headspace run` changed, and from what. A child is taken for Python where
any word of its command line is, or leads to a script that is run by, or calls, Python: then what it
starts is watched as well. An environment that the program itself gives is never added to.

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

BEFORE = "HEADSPACE_RUN"
_SEPARATOR = "\x1f"

#: The folder that was injected. Set by whoever loads this file.
inject = ""

#: Words of a command line that are looked up as files.
_LOOKED_UP = 24
#: Bytes of a script that are read.
_READ = 65_536

_BREAKS = re.compile(r"[\s'\"`;|&()=<>]+")
_PYTHON = re.compile(r"(python|pypy)(?!2)[0-9.]*t?(-dbg)?(\.exe)?", re.IGNORECASE)
_CALLS = re.compile(rb"\b(python|pypy|torchrun|accelerate|deepspeed|headspace)\b")


def before(env: Mapping[str, str]) -> dict[str, str]:
    """That environment, as it would be without `headspace run`."""
    restored = dict(env)
    for entry in restored.pop(BEFORE, "").split(_SEPARATOR):
        name, is_set, value = entry.partition("=")
        if name == "PYTHONPATH":
            # The program may have changed it since.
            paths = restored.pop(name, "").split(os.pathsep)
            kept = os.pathsep.join(path for path in paths if path != inject)
            if kept or is_set:
                restored[name] = kept
        elif is_set:
            restored[name] = value
        else:
            restored.pop(name, None)
    return restored


def is_python(command: Iterable[Any], path: str | None = None) -> bool:
    """Whether what is run is Python, or is likely to start one."""
    words = [word for part in command for word in _BREAKS.split(os.fsdecode(part)) if word]
    for word in words:
        name = os.path.basename(word)
        if word == sys.executable or name.endswith(".py") or _PYTHON.fullmatch(name):
            return True
    return any(_calls_python(word, path) for word in words[:_LOOKED_UP] if word[0] != "-")


def _calls_python(word: str, path: str | None) -> bool:
    """Whether it names a script that Python runs, or that calls it."""
    file = word
    if "/" not in word and not os.path.isfile(word):
        from shutil import which

        file = which(word, path=path) or ""
    try:
        # What is no file is not opened: a named pipe would wait for its writer, or lose what it holds.
        if not S_ISREG(os.stat(file).st_mode):
            return False
        with open(file, "rb") as script:
            if script.read(2) != b"#!":
                return False
            return _CALLS.search(script.read(_READ)) is not None
    except (OSError, ValueError):
        return False


def adopt(subprocess: Any) -> None:
    """What `subprocess` starts from now on is looked at."""
    popen = subprocess.Popen
    original = popen._execute_child

    def _execute_child(self: Any, args: Any, executable: Any, *rest: Any, **named: Any) -> Any:
        # preexec_fn, close_fds, pass_fds, cwd, env
        try:
            env = rest[4]
            now = os.environ if env is None else env
            if BEFORE in now:
                command = [args] if isinstance(args, (str, bytes, os.PathLike)) else list(args)
                if executable is not None:
                    command.append(executable)
                if not is_python(command, now.get("PATH")):
                    rest = (*rest[:4], before(now), *rest[5:])
        except Exception:
            pass
        return original(self, args, executable, *rest, **named)

    _execute_child._headspace_original = original  # type: ignore[attr-defined]
    popen._execute_child = _execute_child


def spare(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, tuple[Any, ...]]:
    """The call of a function of `os` that starts another program, with the environment it should
    have: the function, or None for the original, and its arguments."""
    if kwargs.keys() & {"path", "argv", "env", "command"}:
        return None, args
    if name == "system":
        if BEFORE not in os.environ or is_python(args):
            return None, args
        return None, (_assignments() + os.fsdecode(args[0]),)
    if name == "execv":
        path, argv = args
        if BEFORE not in os.environ or is_python((path, *argv)):
            return None, args
        return _original(os.execve), (path, argv, before(os.environ))
    path, argv, env = args
    if BEFORE not in env or is_python((path, *argv)):
        return None, args
    return None, (path, argv, before(env))


def _original(function: Any) -> Any:
    return getattr(function, "_headspace_original", function)


def _assignments() -> str:
    """A shell's words for the environment as it was."""
    from shlex import quote

    now, then = os.environ, before(os.environ)
    words = []
    for name in now:
        if name not in then:
            words.append(f"unset {name}; ")
        elif now[name] != then[name]:
            words.append(f"export {name}={quote(then[name])}; ")
    return "".join(words)
