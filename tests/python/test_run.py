"""`headspace run`: the program runs, and appears to others, as it does without headspace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from headspace_run import HEADSPACE, run, start, without_verdict
from running import Programs, clean_environment

#: Traces of `headspace run` in an environment.
TRACES = ("HEADSPACE_RUN", "_inject")

LOOP = """\
from spdl.pipeline import PipelineBuilder
pipeline = PipelineBuilder().add_source(range(50)).add_sink(3).build(num_threads=1)
print(sum(pipeline))
"""


def called(*args: str, cwd: Path, **how: object) -> subprocess.CompletedProcess[bytes]:
    """`headspace run` with those arguments."""
    env = clean_environment()
    env = {**env, **how.pop("env", {})}  # type: ignore[dict-item]
    return subprocess.run(
        [*HEADSPACE, *args],
        cwd=cwd,
        env=env,
        capture_output=True,
        timeout=120,
        **how,  # type: ignore[call-overload]
    )


def folders(cwd: Path) -> list[Path]:
    return sorted((cwd / "headspace-runs").glob("*"))


@pytest.fixture
def loop(tmp_path: Path) -> Path:
    """A script that iterates a pipeline and does not use headspace."""
    pytest.importorskip("spdl")
    path = tmp_path / "loop.py"
    path.write_text(LOOP)
    return path


def test_a_script_is_measured_and_its_verdict_is_printed(loop: Path, tmp_path: Path) -> None:
    done = called("--", sys.executable, str(loop), cwd=tmp_path)

    assert (done.returncode, done.stdout) == (0, b"1225\n")
    assert done.stderr.startswith(b"headspace  50 steps")
    (folder,) = folders(tmp_path)
    assert (folder / "rank0.jsonl").is_file()


def test_options_set_the_folder_the_interval_and_quiet(loop: Path, tmp_path: Path) -> None:
    options = ("--quiet", "--dir", "elsewhere", "--interval", "50ms", "--mode", "replay")
    # The script changes its directory. The folder is relative to the directory of the command.
    loop.write_text("import os\nos.chdir('/')\n" + LOOP)
    done = called(*options, sys.executable, str(loop), cwd=tmp_path)

    assert (done.returncode, done.stderr) == (0, b"")
    (folder,) = (tmp_path / "elsewhere").iterdir()
    text = (folder / "rank0.jsonl").read_text()
    assert '"interval":"0.05s"' in text
    assert '"mode":"replay"' in text


def test_a_module_a_zipapp_and_a_console_script_are_measured(loop: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "app.pyz", "w") as app:
        app.writestr("__main__.py", LOOP)
    console = tmp_path / "train"
    console.write_text(f"#!{sys.executable}\n{LOOP}")
    console.chmod(0o755)

    for command in (
        [sys.executable, "-m", "loop"],
        [sys.executable, "app.pyz"],
        [sys.executable, "-c", LOOP],
        [str(console)],
    ):
        before = len(folders(tmp_path))
        done = called("--quiet", "--", *command, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, b"1225\n"), done.stderr
        assert len(folders(tmp_path)) == before + 1, command


def test_a_program_without_a_loader_leaves_no_records_and_imports_nothing(tmp_path: Path) -> None:
    script = "import sys\nprint([name for name in sys.modules if 'headspace' in name])\n"
    done = called("--", sys.executable, "-c", script, cwd=tmp_path)

    assert (done.stdout, done.stderr) == (b"[]\n", b"")
    assert folders(tmp_path) == []


def test_standard_streams_are_passed_through_byte_for_byte(tmp_path: Path) -> None:
    everything = bytes(range(256)) * 1000
    script = (
        "import sys\n"
        "data = sys.stdin.buffer.read()\n"
        "sys.stdout.buffer.write(data[::-1])\n"
        "sys.stderr.buffer.write(data)\n"
    )
    done = called("--", sys.executable, "-c", script, cwd=tmp_path, input=everything)

    assert done.stdout == everything[::-1]
    assert done.stderr == everything


def test_with_headspace_0_the_program_runs_unchanged(loop: Path, tmp_path: Path) -> None:
    loop.write_text("import os, sys\nprint(sorted(os.environ.items()), sys.path)\n" + LOOP)
    env = {"HEADSPACE": "0"}
    done = called("--", sys.executable, str(loop), cwd=tmp_path, env=env)
    bare = subprocess.run(
        [sys.executable, str(loop)],
        cwd=tmp_path,
        env={
            **{name: value for name, value in os.environ.items() if name[:9] != "HEADSPACE"},
            **env,
        },
        capture_output=True,
        timeout=120,
    )

    assert (done.stdout, done.stderr) == (bare.stdout, bare.stderr)
    assert folders(tmp_path) == []


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("exit", 3),
        ("raise", 1),
        ("worker error", 1),
        ("SIGTERM", -signal.SIGTERM),
        ("SIGKILL", -signal.SIGKILL),
        ("interrupt", -signal.SIGINT),
    ],
)
def test_a_program_ends_and_prints_as_without_headspace(
    program: Programs, end: str, code: int
) -> None:
    pytest.importorskip("torch")
    args = ("--end", end, *(("--workers", 1) if end == "worker error" else ()))
    watched = run(program, "trains.py", *args)
    bare = program("trains.py", *args, timeout=120.0)

    assert (watched.exit_code, bare.exit_code) == (code, code)
    assert watched.stdout == bare.stdout
    if bare.stderr:
        assert watched.traceback_tail == bare.traceback_tail
        assert without_verdict(watched.stderr).strip()
    records = watched.folder / "rank0.jsonl"
    assert records.is_file()
    if end not in ("SIGKILL",):
        assert watched.summary()["loop_role"] == "training"


def test_a_signal_to_the_command_reaches_the_program_itself(program: Programs) -> None:
    started = start(program, "prints_signals.py")
    started.wait_for("waiting")
    started.send(signal.SIGUSR1)
    started.wait_for("SIGUSR1")
    started.send(signal.SIGINT)
    ran = started.finish()

    assert ran.exit_code == 5
    assert ran.stdout.endswith("SIGINT\n")


@pytest.mark.parametrize("fails", [False, True])
def test_the_sitecustomize_of_the_user_runs_as_without_headspace(
    program: Programs, tmp_path: Path, fails: bool
) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import os, sys\n"
        "print('theirs', __name__, __file__, __spec__.origin)\n"
        + ("raise ValueError('theirs')\n" if fails else "")
    )
    (tmp_path / "shows.py").write_text(
        "import sys\n"
        "print(getattr(sys.modules.get('sitecustomize'), '__file__', None), sys.path)\n"
        + (LOOP if not fails else "")
    )
    pytest.importorskip("spdl")
    env = {"PYTHONPATH": str(folder)}
    inherited = os.environ.get("PYTHONPATH")
    if inherited:
        env["PYTHONPATH"] += os.pathsep + inherited
    watched = run(program, tmp_path / "shows.py", env=env)
    bare = program(tmp_path / "shows.py", env=env)

    assert watched.stdout == bare.stdout
    # The command is a Python program, too.
    assert without_verdict(watched.stderr) == bare.stderr * 2
    assert len(watched.folders) == (0 if fails else 1)


@pytest.mark.parametrize("how", ["popen", "shell", "system", "execvp", "execvpe", "spawn"])
def test_a_child_that_is_not_python_gets_the_original_environment(
    program: Programs, how: str
) -> None:
    env = {"PYTHONPATH": "/first:/second", "HEADSPACE_INTERVAL": "2s"}
    options = ("--interval", "1s", "--quiet")
    watched = run(program, "child.py", how, "env", "-0", env=env, options=options)
    runs = str(watched.path)
    bare = program("child.py", how, "env", "-0", env={**env, "HEADSPACE_DIR": runs})

    def variables(text: str) -> dict[str, str]:
        pairs = (entry.partition("=") for entry in text.split("\0") if "=" in entry)
        return {name: value for name, _, value in pairs if name != "_"}

    assert watched.exit_code == 0, watched.stderr
    assert variables(watched.stdout) == variables(bare.stdout)


@pytest.mark.parametrize("how", ["popen", "shell", "system", "execvp", "execvpe", "spawn"])
def test_a_python_child_is_measured(program: Programs, loop: Path, how: str) -> None:
    ran = run(program, "child.py", how, sys.executable, loop)

    assert (ran.exit_code, ran.stdout) == (0, "1225\n"), ran.stderr
    assert len(ran.folders) == 1


def test_a_shell_script_that_calls_python_is_measured(
    program: Programs, loop: Path, tmp_path: Path
) -> None:
    script = tmp_path / "launch"
    script.write_text(f"#!/bin/sh\n'{sys.executable}' -u '{loop}'\n".replace("'", ""))
    script.chmod(0o755)

    for how in ("popen", "shell"):
        assert len(run(program, "child.py", how, script).folders) == 1


def test_a_named_pipe_among_the_arguments_of_a_child_is_not_opened(tmp_path: Path) -> None:
    """No process writes to the pipe. Opening it would block."""
    pipe = tmp_path / "clip.mp4"
    os.mkfifo(pipe)
    asks = f"from headspace._injection import restore_environment as r; print(r.is_python(['ffmpeg', '-i', {str(pipe)!r}]))"

    asked = subprocess.run(
        [sys.executable, "-c", asks], capture_output=True, text=True, timeout=60, check=True
    )

    assert asked.stdout == "False\n"


def test_an_environment_that_the_program_sets_for_a_child_is_not_changed(program: Programs) -> None:
    ran = run(program, "child.py", "popen", "--env", "env")

    assert "OWN=1" in ran.stdout.splitlines()
    assert not any(trace in ran.stdout for trace in TRACES)


def test_a_missing_command_is_named_and_gives_the_exit_code_of_a_shell(
    tmp_path: Path,
) -> None:
    script = tmp_path / "train.py"
    script.write_text("print()\n")
    for command, code, said in (
        ("no-such-command", 127, b"no command of that name is on the PATH"),
        ("./nowhere", 127, b"there is no such file"),
        (str(script), 126, f"write `python {script}`".encode()),
        ("train.py", 127, b"`python train.py`"),
    ):
        done = called("--", command, cwd=tmp_path)
        assert done.returncode == code
        assert done.stderr.startswith(f"headspace: cannot run `{command}`".encode())
        assert said in done.stderr
    assert called(cwd=tmp_path).returncode == 2


@pytest.mark.parametrize("option", ["-I", "-E", "-S"])
def test_a_python_option_that_disables_headspace_is_reported_once(
    loop: Path, tmp_path: Path, option: str
) -> None:
    loop.write_text("print('ran')\n")
    done = called("--", sys.executable, option, str(loop), cwd=tmp_path)

    assert (done.returncode, done.stdout) == (0, b"ran\n")
    assert done.stderr.count(b"\n") == 1
    assert f"`python {option}` prevents Python from loading headspace".encode() in done.stderr


def test_a_failure_inside_headspace_causes_one_notice_and_the_program_continues(
    program: Programs, loop: Path, tmp_path: Path
) -> None:
    # Modules next to a script have precedence over installed ones.
    folder = tmp_path / "broken"
    (folder / "headspace").mkdir(parents=True)
    (folder / "headspace" / "__init__.py").write_text("raise RuntimeError('on purpose')\n")
    ran = run(program, loop.rename(folder / "loop.py"))

    assert (ran.exit_code, ran.stdout) == (0, "1225\n")
    assert ran.stderr.count("\n") == 1
    assert "on purpose" in ran.stderr
    assert ran.folders == []


def test_a_script_inside_another_headspace_run_is_measured_once(
    program: Programs, loop: Path
) -> None:
    ran = run(program, loop, by=[*HEADSPACE, "--", sys.executable])

    assert ran.stdout == "1225\n"
    assert len(ran.folders) == 1
