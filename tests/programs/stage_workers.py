"""Stages in worker processes: `stage_workers.py START_METHOD HOW`.

Everything happens within one training loop; what each `HOW` does is in the function of that name.
"""

import ctypes
import glob
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor

import headspace

work = headspace.stage("work")


@headspace.stage("square")
def square(number):
    return number * number


def calls(count):
    for _ in range(count):
        with work:
            pass


def calls_and_grandchild(method):
    calls(10)
    child = multiprocessing.get_context(method).Process(target=calls, args=(20,))
    child.start()
    child.join()
    calls(1)


def dies(how):
    calls(30)
    with work:
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "exit":
            os._exit(7)
        ctypes.string_at(0)


def calls_with_small_files(count):
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, resource.RLIM_INFINITY))
    calls(count)


def calls_when_told(pipe):
    while pipe.recv():
        calls(25)
        pipe.send(None)


def run(context, target, *args, daemon=False):
    process = context.Process(target=target, args=args, daemon=daemon)
    process.start()
    process.join()
    return process


def processes(context):
    started = [context.Process(target=calls, args=(50,)) for _ in range(3)]
    for process in started:
        process.start()
    for process in started:
        process.join()


def one_after_another(context):
    """Each worker calls a stage before the next worker starts. All live until the last one has called it."""
    pipes, workers = [], []
    for _ in range(3):
        ours, theirs = context.Pipe()
        workers.append(context.Process(target=calls_when_told, args=(theirs,)))
        workers[-1].start()
        tell(ours)
        tell(ours)
        pipes.append(ours)
    for ours, worker in zip(pipes, workers, strict=True):
        ours.send(False)
        worker.join()


def executor(context):
    with ProcessPoolExecutor(2, context) as pool:
        assert sum(pool.map(square, range(40))) == 20540


def pool(context):
    with context.Pool(2) as pool:  # `Pool` ends its workers by a signal.
        assert sum(pool.map(square, range(40))) == 20540


def grandchild(context):
    run(context, calls_and_grandchild, context.get_start_method())


def kill(context):
    assert run(context, dies, "kill").exitcode == -signal.SIGKILL


def exit(context):
    assert run(context, dies, "exit").exitcode == 7


def segfault(context):
    assert run(context, dies, "segfault").exitcode == -signal.SIGSEGV


def short(context):
    for _ in range(64):
        run(context, calls, 5)


def small_files(context):
    assert run(context, calls_with_small_files, 10).exitcode == 0


def bare_fork(context):
    pid = os.fork()
    if pid == 0:
        calls(10)
        os._exit(0)
    os.waitpid(pid, 0)


def fork_within_a_stage(context):
    with work:
        pid = os.fork()
        if pid == 0:
            with work:
                pass
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def program(context):
    code = "import stage_workers; stage_workers.calls(10)"
    env = {**os.environ, "PYTHONPATH": os.path.dirname(__file__) + ":" + sys.path[0]}
    subprocess.run([sys.executable, "-c", code], check=True, env=env)


def batches(context, how):
    globals()[how](context)
    yield from range(5)


def earlier(context):
    """A worker calls a stage before the first session, during it, after it, and during the second one."""
    ours, theirs = context.Pipe()
    worker = context.Process(target=calls_when_told, args=(theirs,))
    worker.start()
    for _ in range(2):
        tell(ours)
        for _ in headspace.wrap(until_it_counts(ours), name="loop"):
            pass
        headspace.stop()
    ours.send(False)
    worker.join()


def until_it_counts(pipe):
    end = time.monotonic() + 30
    while not any(glob.glob(f"/dev/shm/headspace-{os.getuid()}/*-{os.getpid()}-*/[0-9]*")):
        assert time.monotonic() < end
        tell(pipe)
        yield 0
    tell(pipe)


def tell(pipe):
    pipe.send(True)
    pipe.recv()


if __name__ == "__main__":
    method, how = sys.argv[1:]
    context = multiprocessing.get_context(method)
    if how == "earlier":
        earlier(context)
    else:
        assert len(list(headspace.wrap(batches(context, how)))) == 5
        headspace.stop()
    print("done", flush=True)
