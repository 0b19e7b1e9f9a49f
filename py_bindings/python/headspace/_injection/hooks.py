"""Hooks Python's import system under `headspace run`, to start watching when a loader's module is imported.

A program that imports no such module pays for one look-up per imported module. This file is loaded by
path and imports nothing of headspace. headspace is imported with the first such module.
"""

from __future__ import annotations

import atexit
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

#: Modules that are watched, each with the module of headspace whose `module_imported` is called when it
#: has been imported.
WATCHED = {
    "torch.utils.data": "_watch.loaders",
    "torch.nn.modules.module": "_watch.loaders",
    "torch.compiler": "_watch.optimizer_steps",
    "torch.optim.optimizer": "_watch.optimizer_steps",
    "spdl.pipeline": "_watch.loaders",
    "spdl.dataloader": "_watch.loaders",
    "datasets": "_watch.loaders",
    "webdataset": "_watch.loaders",
    "litdata": "_watch.loaders",
    "streaming": "_watch.loaders",
    "ray.data": "_watch.ray_data",
    "accelerate.data_loader": "_watch.loaders",
    "fastai.data.load": "_watch.loaders",
    "monai.data": "_watch.loaders",
    "tensorflow.python.data.ops.iterator_ops": "_watch.tensorflow",
    "grain": "_watch.loaders",
    "grain.python": "_watch.loaders",
    "transformers.trainer_callback": "_watch.trainers",
    "lightning.pytorch.loops.fit_loop": "_watch.trainers",
    "pytorch_lightning.loops.fit_loop": "_watch.trainers",
}

#: A program that trains usually imports one of these.
NUMERIC = ("numpy", "torch", "jax", "tensorflow", *(name.partition(".")[0] for name in WATCHED))

#: A program that imports none of them may still train, if it runs for this long. In seconds.
LONG_RUN_S = 10.0

#: The notice at the end of a program that may have trained, if no loop was seen.
NOT_SEEN = (
    "no training loop was seen, so there is no verdict. Looked for: torch's DataLoader, loaders of "
    "SPDL, Hugging Face datasets, WebDataset, LitData, MosaicML Streaming, Ray Data, MONAI, fastai, Grain "
    "and tf.data, and steps of torch's optimizers. If the batches come from a function or a generator, name it: headspace "
    "run --batch-from train:get_batch. Or wrap what the loop iterates in headspace.wrap(...), or call headspace.step() "
    "once a step"
)

#: The folder of the package, and the one that was put on PYTHONPATH. Set by :func:`install`.
package = path_entry = ""

_has_reported = False


def install(package_folder: str, path_entry_folder: str) -> None:
    """Watches imports from now on, and restores the environment of children that are not Python."""
    global package, path_entry
    package, path_entry = package_folder, path_entry_folder
    sys.meta_path.insert(0, Finder())
    for name in ("execv", "execve", "posix_spawn", "posix_spawnp", "system"):
        if hasattr(os, name):
            _replace_starter(name)
    if os.environ.get("HEADSPACE_RUN_PID") == str(os.getpid()):
        marker = _load("headspace._run_marker", "_run_marker.py")
        marker.remove()  # An earlier process of this number may have left one.
        atexit.register(_notify_if_not_seen, os.getpid(), marker, time.monotonic())
    target = os.environ.get("HEADSPACE_BATCH_FROM", "")
    if target:
        try:
            module = _import("_watch.batch_function").install(target)
            WATCHED.setdefault(module, "_watch.batch_function")
        except Exception as error:
            report_error(error)
    # Modules that a `.pth` file has imported.
    for name in ("subprocess", *WATCHED):
        if name in sys.modules:
            module_imported(name, sys.modules[name])


def report_error(error: BaseException) -> None:
    """Reports the first error in one line. The program continues without headspace."""
    global _has_reported
    if not _has_reported:
        _has_reported = True
        _print_notice(
            f"not everything is measured: {type(error).__name__}: {error}. The program continues."
        )


def _print_notice(text: str) -> None:
    """One line on stderr, on rank 0."""
    if not _prints_notices():
        return
    try:
        sys.stderr.write(f"headspace: {text}\n")
    except Exception:
        pass


def _prints_notices() -> bool:
    """Whether this process prints notices. `_environment.py` decides, and is loaded only for a notice.

    True if it cannot be loaded, because the notice is probably about the same error.
    """
    try:
        return bool(_load("headspace._environment", "_environment.py").prints_notices())
    except Exception:
        return True


def _notify_if_not_seen(pid: int, marker: Any, began: float) -> None:
    """Prints a notice at the end of the process of `headspace run`, if no loop was seen.

    Args:
        pid: The process.
        marker: The module `_run_marker.py`.
        began: When the process began, by ``time.monotonic``.
    """
    if os.getpid() != pid or marker.remove():  # Forked from it, or something was seen.
        return
    # A program that ended by an exception may not have reached its loop.
    if hasattr(sys, "last_value") or hasattr(sys, "last_exc"):
        return
    session = sys.modules.get("headspace._session.lifecycle")
    own_errors = sys.modules.get("headspace._session.own_errors")
    if _has_reported or getattr(session, "has_failed", False):
        return
    if getattr(own_errors, "has_reported", False):
        return
    batch_function: Any = sys.modules.get("headspace._watch.batch_function")
    function = getattr(batch_function, "_function", None)
    if function is not None:
        batch_function.look_at_end(function)
    if function is not None and not function.has_module:
        _print_notice(
            f"--batch-from {function.target}: no module `{function.module}` was imported, and the script has "
            "another name, so no function's batches were timed."
        )
    # A function that was named has a notice of its own.
    if function is None and not getattr(session, "has_begun", False) and _may_have_trained(began):
        _print_notice(NOT_SEEN)


def _may_have_trained(began: float) -> bool:
    """Whether the program may have trained, or the user asks for more than times of steps. A command such as `pip` gets no
    notice."""
    return (
        any(name in sys.modules for name in NUMERIC)
        or os.environ.get("HEADSPACE_MODE", "measure") != "measure"
        or time.monotonic() - began >= LONG_RUN_S
    )


class Finder:
    """Finds no module itself. It asks the other finders, and hooks the module's execution."""

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
                    _hook_execution(spec)
                    return spec
        finally:
            self._busy.discard(name)
        return None


def _hook_execution(spec: Any) -> None:
    """Calls :func:`module_imported` after the module has been executed."""
    try:
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            try:
                del loader.exec_module
            except AttributeError:
                pass
            execute(module)
            module_imported(spec.name, module)

        loader.exec_module = exec_module
    except Exception as error:
        report_error(error)


def module_imported(name: str, module: ModuleType) -> None:
    """A watched module has been imported. No error of this reaches the program."""
    try:
        if name == "subprocess":
            environments().watch_subprocess(module)
        else:
            _import(WATCHED[name]).module_imported(name, module)
    except Exception as error:
        report_error(error)


def _import(name: str) -> Any:
    """Imports a module of headspace, also if the program's own Python has no headspace installed."""
    from importlib import import_module

    try:
        import_module("headspace")
    except ModuleNotFoundError as error:
        if error.name != "headspace":
            raise
        module = _new_module("headspace", "__init__.py", [package])
        sys.modules["headspace"] = module
        try:
            module.__loader__.exec_module(module)
        except BaseException:
            del sys.modules["headspace"]
            raise
    return import_module(f"headspace.{name}")


def _new_module(name: str, file: str, folders: list[str] | None = None) -> Any:
    """A module of a file in the package, not yet executed."""
    # `importlib.util` takes longer to import.
    from _frozen_importlib import module_from_spec
    from _frozen_importlib_external import spec_from_file_location

    path = os.path.join(package, file)
    spec: Any = spec_from_file_location(name, path, submodule_search_locations=folders)
    return module_from_spec(spec)


def _load(name: str, file: str) -> Any:
    """Executes a file in the package, without importing the package."""
    module = _new_module(name, file)
    module.__loader__.exec_module(module)
    return module


_environments: Any = None


def environments() -> Any:
    """The module `restore_environment.py`, loaded by its path as this file is."""
    global _environments
    if _environments is None:
        _environments = _load(
            "headspace._injection.restore_environment", "_injection/restore_environment.py"
        )
        _environments.path_entry = path_entry
    return _environments


def _replace_starter(name: str) -> None:
    """Replaces a function of `os` that starts a program, to pass it the right environment."""
    original = getattr(os, name)

    def start_program(*args: Any, **kwargs: Any) -> Any:
        try:
            function, args = environments().restore_environment(name, args, kwargs)
        except Exception:
            function = None
        return (original if function is None else function)(*args, **kwargs)

    start_program.__name__ = start_program.__qualname__ = name
    start_program.__doc__ = original.__doc__
    start_program.__module__ = original.__module__
    start_program.__wrapped__ = start_program._headspace_original = original  # type: ignore[attr-defined]
    setattr(os, name, start_program)
