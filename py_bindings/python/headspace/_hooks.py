"""What `headspace run` leaves in a Python process: it waits until a loader's module is imported.

A program that imports none of them pays for one look at a name for each module that it imports. This
file is loaded by its path and imports nothing of headspace: that comes with the first such module.
"""

from __future__ import annotations

import atexit
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

#: Modules with loaders, and with what tells training from evaluation, by the module of headspace
#: that is told when they have been imported.
WATCHED = {
    "torch.utils.data": "_watch",
    "torch.nn.modules.module": "_watch",
    "torch.compiler": "_steps",
    "torch.optim.optimizer": "_steps",
    "spdl.pipeline": "_watch",
    "spdl.dataloader": "_watch",
    "datasets": "_watch",
    "webdataset": "_watch",
    "accelerate.data_loader": "_watch",
    "fastai.data.load": "_watch",
    "monai.data": "_watch",
    "tensorflow.python.data.ops.iterator_ops": "_tensorflow",
    "grain": "_watch",
    "grain.python": "_watch",
}

#: One of these is imported by a program that may train. Of any other nothing is said at its end.
NUMERIC = ("numpy", "torch", "jax", "tensorflow", *(name.partition(".")[0] for name in WATCHED))

#: What a program with a loop that was not seen is told.
NOT_SEEN = (
    "no training loop was seen, so there is no verdict. Looked for: torch's DataLoader, loaders of "
    "SPDL, Hugging Face datasets, WebDataset, MONAI, fastai, Grain and tf.data, and steps of torch's "
    "optimizers. Wrap what the loop iterates in headspace.wrap(...), call headspace.step() once a step, "
    "or name the function that returns a batch: headspace run --batch-from train:get_batch"
)

#: The folder of the package, and the one that was injected. Set by :func:`install`.
package = inject = ""

_said = False


def install(package_folder: str, inject_folder: str) -> None:
    """From now on the modules are waited for, and children that are not Python are spared."""
    global package, inject
    package, inject = package_folder, inject_folder
    sys.meta_path.insert(0, Finder())
    for name in ("execv", "execve", "posix_spawn", "posix_spawnp", "system"):
        if hasattr(os, name):
            _spare(name)
    if os.environ.get("HEADSPACE_RUN_PID") == str(os.getpid()):
        _was_told(os.getpid())  # A process of this number may have been killed once.
        atexit.register(_tell_not_seen, os.getpid())
    target = os.environ.get("HEADSPACE_BATCH_FROM", "")
    if target:
        try:
            WATCHED.setdefault(_headspace("_batch_from").install(target), "_batch_from")
        except Exception as error:
            say(error)
    # What a `.pth` file imported.
    for name in ("subprocess", *WATCHED):
        if name in sys.modules:
            arrived(name, sys.modules[name])


def say(error: BaseException) -> None:
    """One line, once: the program goes on as if headspace were not there."""
    global _said
    if not _said:
        _said = True
        _print(f"not everything is measured: {type(error).__name__}: {error}. The program goes on.")


def _print(text: str) -> None:
    """One line on stderr, on rank 0."""
    quiet = os.environ.get("HEADSPACE_QUIET", "").strip().lower() in ("1", "on", "true", "yes")
    if quiet or os.environ.get("RANK", "0") != "0":
        return
    try:
        sys.stderr.write(f"headspace: {text}\n")
    except Exception:
        pass


def _tell_not_seen(pid: int) -> None:
    """At the end of the process that `headspace run` became: says so if nothing was watched."""
    if os.getpid() != pid:  # Forked from it.
        return
    # What ended by an exception may not have come to its loop.
    failed = hasattr(sys, "last_value") or hasattr(sys, "last_exc")
    if _was_told(pid):
        return
    session = sys.modules.get("headspace._session")
    # What went wrong has been said.
    said = _said or getattr(session, "_gave_up", False)
    said = said or getattr(sys.modules.get("headspace._guard"), "said", False)
    if failed or said:
        return
    batch_from: Any = sys.modules.get("headspace._batch_from")
    function = getattr(batch_from, "_function", None)
    if function is not None:
        batch_from.look_at_end(function)
    if function is not None and not function.is_here:
        _print(
            f"--batch-from {function.target}: no module `{function.module}` was imported, and the script has "
            "another name, so no function's batches were timed."
        )
    if not getattr(session, "has_begun", False) and any(name in sys.modules for name in NUMERIC):
        _print(NOT_SEEN)


def _was_told(pid: int) -> bool:
    """Whether a child of the process said that it is watched. It is said no more."""
    try:
        # As `_settings.tell_command` has it, which is not imported here.
        folder = os.environ.get("TMPDIR") or "/tmp"
        os.unlink(os.path.join(folder, f"headspace-run-{os.getuid()}-{pid}"))
    except OSError:
        return False
    return True


class Finder:
    """Finds nothing itself. It sees what others find, and waits for its end."""

    def __init__(self) -> None:
        self._busy: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if (name not in WATCHED and name != "subprocess") or name in self._busy:
            return None
        self._busy.add(name)
        try:
            for finder in list(sys.meta_path):
                find = getattr(finder, "find_spec", None)
                spec = None if finder is self or find is None else find(name, path, target)
                if spec is not None:
                    _follow(spec)
                    return spec
        finally:
            self._busy.discard(name)
        return None


def _follow(spec: Any) -> None:
    """Has :func:`arrived` called once the module is there."""
    try:
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            try:
                del loader.exec_module
            except AttributeError:
                pass
            execute(module)
            arrived(spec.name, module)

        loader.exec_module = exec_module
    except Exception as error:
        say(error)


def arrived(name: str, module: ModuleType) -> None:
    """A module has been imported. Nothing that goes wrong here reaches whoever imports it."""
    try:
        if name == "subprocess":
            children().adopt(module)
        else:
            _headspace(WATCHED[name]).ready(name, module)
    except Exception as error:
        say(error)


def _headspace(name: str) -> Any:
    """A module of headspace, also where the program's own Python has no headspace installed."""
    from importlib import import_module

    try:
        import_module("headspace")
    except ModuleNotFoundError as error:
        if error.name != "headspace":
            raise
        from importlib.util import module_from_spec, spec_from_file_location

        spec: Any = spec_from_file_location(
            "headspace",
            os.path.join(package, "__init__.py"),
            submodule_search_locations=[package],
        )
        module = module_from_spec(spec)
        sys.modules["headspace"] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules["headspace"]
            raise
    return import_module(f"headspace.{name}")


_children: Any = None


def children() -> Any:
    """`_children.py`, loaded as this file was."""
    global _children
    if _children is None:
        from importlib.util import module_from_spec, spec_from_file_location

        spec: Any = spec_from_file_location(
            "headspace._children", os.path.join(package, "_children.py")
        )
        _children = module_from_spec(spec)
        spec.loader.exec_module(_children)
        _children.inject = inject
    return _children


def _spare(name: str) -> None:
    original = getattr(os, name)

    def spared(*args: Any, **kwargs: Any) -> Any:
        try:
            function, args = children().spare(name, args, kwargs)
        except Exception:
            function = None
        return (original if function is None else function)(*args, **kwargs)

    spared.__name__ = spared.__qualname__ = name
    spared.__doc__ = original.__doc__
    spared.__module__ = original.__module__
    spared.__wrapped__ = spared._headspace_original = original  # type: ignore[attr-defined]
    setattr(os, name, spared)
