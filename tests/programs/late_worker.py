"""A process calls a stage before its trainer begins. Its first call after that raises. Prints the type of the error."""

import os
import time

import headspace


@headspace.stage("decode")
def decode(fails):
    if fails:
        raise ValueError("corrupt file")


begin, began = os.pipe()
child = os.fork()
if child == 0:
    decode(False)
    os.read(begin, 1)
    time.sleep(1.1)  # A process looks for its trainer once a second.
    try:
        decode(True)
    except BaseException as error:
        print(type(error).__name__, flush=True)
    decode(False)
    os._exit(0)
with headspace.start():
    os.write(began, b"x")
    os.waitpid(child, 0)
