"""Starts real database servers on loopback. A test module loads them with
`pytest_plugins = ["database_fixtures"]`."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from running import free_port, wait_until

#: Servers refuse to run as root, or warn of it.
NOBODY = "nobody" if os.geteuid() == 0 else None


@pytest.fixture
def database() -> Iterator[Callable[[str], str]]:
    """Starts a `postgresql` or a `mysql` server with an empty database, and yields its URL."""
    started: list[subprocess.Popen[bytes]] = []
    # Not in a folder of pytest, because only this user can read those.
    folder = Path(tempfile.mkdtemp(prefix="headspace-database-"))
    if NOBODY:
        shutil.chown(folder, NOBODY)

    def start(kind: str) -> str:
        return (_postgresql if kind == "postgresql" else _mysql)(folder, started)

    yield start
    for process in started:
        process.kill()
        process.wait()
    shutil.rmtree(folder)


def _postgresql(folder: Path, started: list[subprocess.Popen[bytes]]) -> str:
    # Debian has a separate folder for the programs of each version.
    folders = sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")))
    path = os.pathsep.join([*reversed(folders), os.environ["PATH"]])
    data, port = folder / "data", free_port()
    _run(path, "initdb", "-D", data, "-U", "tuner", "--auth=trust", "--no-sync",
         "--no-locale", "--encoding=UTF8")  # fmt: skip
    server = ("postgres", "-D", data, "-h", "127.0.0.1", "-p", port, "-k", folder, "-F")
    process = _start(path, folder, started, *server)
    ready = ("pg_isready", "-q", "-h", "127.0.0.1", "-p", port)
    _wait(process, folder, lambda: _run(path, *ready, check=False) == 0)
    return f"postgresql+psycopg://tuner@127.0.0.1:{port}/postgres"


def _mysql(folder: Path, started: list[subprocess.Popen[bytes]]) -> str:
    path = os.pathsep.join([os.environ["PATH"], "/usr/sbin"])
    data, port = folder / "data", free_port()
    _run(path, "mariadb-install-db", "--no-defaults", f"--datadir={data}",
         "--auth-root-authentication-method=normal", "--skip-test-db")  # fmt: skip
    process = _start(
        path, folder, started, "mariadbd", "--no-defaults", f"--datadir={data}", f"--port={port}",
        "--bind-address=127.0.0.1", f"--socket={folder / 'socket'}", f"--pid-file={folder / 'pid'}",
    )  # fmt: skip
    pymysql = pytest.importorskip("pymysql")

    def made() -> bool:
        try:
            with pymysql.connect(host="127.0.0.1", port=port, user="root") as connection:
                connection.cursor().execute("CREATE DATABASE tune")
        except pymysql.err.OperationalError:
            return False
        return True

    _wait(process, folder, made)
    return f"mysql+pymysql://root@127.0.0.1:{port}/tune"


def _program(path: str, name: str) -> str:
    program = shutil.which(name, path=path)
    if program is None:
        pytest.skip(f"`{name}` is not installed (requirements/debian-test.txt)")
    return program


def _run(path: str, name: str, *args: object, check: bool = True) -> int:
    command = [_program(path, name), *map(str, args)]
    done = subprocess.run(
        command, user=NOBODY, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if check and done.returncode != 0:
        pytest.fail(f"{name}: {done.stdout}{done.stderr}")
    return done.returncode


def _start(
    path: str, folder: Path, started: list[subprocess.Popen[bytes]], name: str, *args: object
) -> subprocess.Popen[bytes]:
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [_program(path, name), *map(str, args)],
            user=NOBODY,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    started.append(process)
    return process


def _wait(process: subprocess.Popen[bytes], folder: Path, ready: Callable[[], bool]) -> None:
    wait_until(lambda: process.poll() is not None or ready(), "the server is ready")
    if process.poll() is not None:
        pytest.fail((folder / "log").read_text())
