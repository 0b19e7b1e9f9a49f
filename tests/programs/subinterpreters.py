"""Iterates loops in the main interpreter and in a subinterpreter: `subinterpreters.py GIL ORDER END`.

GIL: `own` or `shared`, as the subinterpreter has it (before Python 3.12, all share one). ORDER: `main first`, `sub first`,
`sub only`, or `at once`: the subinterpreter works on a thread, without headspace, while the main interpreter iterates. END:
`destroyed`, or `left` until the process ends.

Each loop prints its name and its number of batches. An error in the subinterpreter is printed as `error TEXT`.
"""

import sys
import threading

try:
    import _interpreters as interpreters  # from Python 3.13 on
except ImportError:
    import _xxsubinterpreters as interpreters

GIL, ORDER, END = sys.argv[1:]

LOOP = """
import headspace

with headspace.stage("load"):
    batches = range(100)
print("{name}", sum(1 for _ in headspace.wrap(batches, name="{name}")), flush=True)
"""

BUSY = "sum(number * number for number in range(2_000_000))"


def create():
    if sys.version_info >= (3, 13):
        return interpreters.create("isolated" if GIL == "own" else "legacy")
    return interpreters.create(isolated=GIL == "own")


def execute(interpreter, code):
    """Runs code in an interpreter. Returns its error as text, or None."""
    if sys.version_info >= (3, 13):
        error = interpreters.exec(interpreter, code)
        return error and f"{error.type.__name__}: {error.msg}"
    try:
        return interpreters.run_string(interpreter, code)
    except Exception as error:
        return f"{error}"


def iterate_in_main(name):
    exec(LOOP.format(name=name), {})


def iterate_in(interpreter):
    error = execute(interpreter, LOOP.format(name="sub"))
    if error is not None:
        print("error", error, flush=True)


sub = create()
if ORDER == "at once":
    thread = threading.Thread(target=execute, args=(sub, BUSY))
    thread.start()
    # At least once, because a thread that holds the shared lock may end before this one goes on.
    iterate_in_main("main")
    while thread.is_alive():
        iterate_in_main("main")
    thread.join()
else:
    if ORDER == "main first":
        iterate_in_main("main")
    iterate_in(sub)
    if ORDER == "sub first":
        iterate_in_main("main")
if END == "destroyed":
    interpreters.destroy(sub)
    if ORDER != "sub only":
        iterate_in_main("main")
print("end")
