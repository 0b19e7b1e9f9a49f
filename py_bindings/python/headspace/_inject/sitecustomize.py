"""What `headspace run` has Python import as it starts: headspace comes in by this door.

It leaves no trace of itself: its folder is taken off the path, and the user's own `sitecustomize`,
where there is one, runs as it would have run. Nothing that goes wrong here reaches the program.
"""


def _arrive():
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
            package = os.path.dirname(folder)
            from _frozen_importlib import module_from_spec
            from _frozen_importlib_external import spec_from_file_location

            spec = spec_from_file_location("headspace._hooks", os.path.join(package, "_hooks.py"))
            if spec is None or spec.loader is None:
                raise ImportError("the package is not whole")
            hooks = module_from_spec(spec)
            spec.loader.exec_module(hooks)
            hooks.install(package, folder)
    except Exception as error:
        # As `_hooks.say`, which may be what is missing.
        try:
            quiet = os.environ.get("HEADSPACE_QUIET", "").strip().lower()
            if os.environ.get("RANK", "0") == "0" and quiet in ("", "0", "off", "false", "no"):
                # Python 2 must be able to read this file, too.
                text = "headspace: nothing is measured: " + repr(error) + ". The program goes on.\n"
                sys.stderr.write(text)
        except Exception:
            pass


def _make_way():
    # type: () -> None
    """Has the user's `sitecustomize` in the place of this one."""
    import sys
    from _frozen_importlib import module_from_spec
    from _frozen_importlib_external import PathFinder

    spec = PathFinder.find_spec("sitecustomize")
    if spec is None or spec.loader is None:
        # As `site` is told that there is none.
        raise ImportError("No module named 'sitecustomize'", name="sitecustomize")
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_arrive()
_make_way()
