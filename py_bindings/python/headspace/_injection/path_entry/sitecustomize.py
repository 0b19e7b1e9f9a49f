"""Installs the import hooks at Python's start. `headspace run` adds this folder to PYTHONPATH.

It removes its own folder from the path, installs the hooks, and then runs the user's own `sitecustomize`,
if there is one. Its errors do not reach the program.
"""


def _install_hooks():
    # type: () -> None
    import os
    import sys

    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != folder]
    try:
        off = os.environ.get("HEADSPACE", "1").strip().lower() in ("0", "off", "false", "no")
        if not off and "HEADSPACE_RUN" in os.environ:
            if sys.hexversion < 0x030A0000:
                raise ImportError("it needs Python 3.10 or later")
            package = os.path.dirname(os.path.dirname(folder))
            from _frozen_importlib import module_from_spec
            from _frozen_importlib_external import spec_from_file_location

            path = os.path.join(package, "_injection", "hooks.py")
            spec = spec_from_file_location("headspace._injection.hooks", path)
            if spec is None or spec.loader is None:
                raise ImportError("the package is incomplete")
            hooks = module_from_spec(spec)
            spec.loader.exec_module(hooks)
            hooks.install(package, folder)
    except Exception as error:
        # As `hooks.report_error`, which may be what is missing.
        try:
            if _prints_notices():
                # Python 2 must be able to read this file, too.
                text = (
                    "headspace: nothing is measured: " + repr(error) + ". The program continues.\n"
                )
                sys.stderr.write(text)
        except Exception:
            pass


def _prints_notices():
    # type: () -> bool
    """Whether headspace is not quiet, and the rank is 0.

    A copy of the rule in `_environment.py`, which Python 2 cannot read, and which may be what is missing.
    """
    import os

    if os.environ.get("HEADSPACE_QUIET", "").strip().lower() in ("1", "on", "true", "yes"):
        return False
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        try:
            number = int(os.environ.get(name, ""))
        except ValueError:
            continue
        if 0 <= number < 2**31:
            return number == 0
    return True


def _run_users_sitecustomize():
    # type: () -> None
    """Imports the user's `sitecustomize` in the place of this one."""
    import sys
    from _frozen_importlib import module_from_spec
    from _frozen_importlib_external import PathFinder

    spec = PathFinder.find_spec("sitecustomize")
    if spec is None or spec.loader is None:
        # The error by which `site` knows that there is none.
        raise ImportError("No module named 'sitecustomize'", name="sitecustomize")
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_install_hooks()
_run_users_sitecustomize()
