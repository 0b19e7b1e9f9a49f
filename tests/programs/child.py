"""Starts a child process in each way that Python has, and prints the environment that the child sees:
`child.py HOW COMMAND...`. With `--env`, the child gets its own environment."""

import os
import subprocess
import sys

how, *command = sys.argv[1:]
env = None
if command[0] == "--env":
    command = command[1:]
    env = {**os.environ, "OWN": "1"}

if how == "popen":
    sys.exit(subprocess.run(command, env=env).returncode)
elif how == "shell":
    sys.exit(subprocess.run(" ".join(command), shell=True, env=env).returncode)
elif how == "system":
    sys.exit(os.waitstatus_to_exitcode(os.system(" ".join(command))))
elif how == "execvp":
    os.execvp(command[0], command)
elif how == "execvpe":
    os.execvpe(command[0], command, os.environ)
elif how == "spawn":
    pid = os.posix_spawnp(command[0], command, os.environ)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
