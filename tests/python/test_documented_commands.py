"""Every command of the documentation works as it is printed, or another test runs it.

If this test names a new command, add it to `HERE` (this test runs it), to `ELSEWHERE` (another test runs it), or to
`NOT_RUN` with the reason. Commands of `make`, `pip`, `cargo`, `headspace tune` and the example programs need no entry:
their targets, packages and options are checked.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from doc_blocks import ROOT, SHELLS, commands_of, read_blocks
from running import clean_environment

import headspace
from headspace.tune.options import parse as parse_tune

#: The program of `headspace demo`.
DEMO = Path(headspace.__file__).with_name("demo") / "train.py"

#: A loop of about a second. `headspace run` measures it without a change, because the loader is wrapped.
LOOP = """
import time

import headspace


@headspace.stage("fetch")
def fetch(index):
    time.sleep(0.001)
    return index


for batch in headspace.wrap(map(fetch, range(600)), name="loader"):
    time.sleep(0.0005)
"""

#: A loop without a loader.
BATCH_FUNCTION = """
import time


def get_batch():
    time.sleep(0.001)
    return [1]


for _ in range(300):
    batch = get_batch()
    time.sleep(0.0005)
"""

#: A loop over a generator.
GENERATOR = """
import time


def batches():
    for index in range(600):
        time.sleep(0.001)
        yield [index]


# Other programs build a model here. The function is replaced some milliseconds after its definition.
time.sleep(0.1)
for batch in batches():
    time.sleep(0.0005)
"""


@dataclass(frozen=True)
class Expected:
    """What a command does in a folder with `train.py`, the runs `before`, `after`, `RUN` and `headspace-runs`."""

    prints: str
    """Words on stdout or stderr."""
    creates: str = ""
    """A file that exists afterwards, and is not empty."""
    program: str = LOOP
    """The program `train.py`."""
    in_root: bool = False
    """Whether the command runs in the root of the repository."""


#: Commands that this test runs.
HERE: dict[str, Expected] = {
    "headspace run -- python train.py": Expected("waiting for data"),
    "headspace run --mode probe -- python train.py": Expected("floor"),
    "headspace run --mode probe --stop-after-probe -- python train.py": Expected("floor"),
    "headspace run --mode whatif -- python train.py": Expected("what if"),
    "headspace run --batch-from train:get_batch -- python train.py": Expected(
        "get_batch", program=BATCH_FUNCTION
    ),
    "headspace run --mode probe --stop-after-probe --batch-from train:batches -- python train.py": Expected(
        "floor", program=GENERATOR
    ),
    "HEADSPACE_DIR=$(mktemp -d) headspace run --quiet -- python -m pytest tests": Expected(
        "1 passed"
    ),
    "HEADSPACE_EXPORT=prometheus:9464,otlp python train.py": Expected("waiting for data"),
    "HEADSPACE_EXPORT=prometheus headspace run --mode probe -- python train.py": Expected("floor"),
    "headspace report": Expected("waiting for data"),
    "headspace report --html page.html RUN": Expected("", creates="page.html"),
    "headspace report --perfetto run.pftrace": Expected(
        "open it at https://ui.perfetto.dev", creates="run.pftrace"
    ),
    "headspace report --perfetto run.pftrace RUN": Expected("", creates="run.pftrace"),
    "headspace report --speedscope stacks.speedscope.json RUN": Expected(
        "", creates="stacks.speedscope.json"
    ),
    "headspace report --collapsed stacks.txt RUN": Expected("", creates="stacks.txt"),
    "headspace compare before after --fail-if-slower 5%": Expected("headspace compare"),
    "headspace compare one-thread 7-threads": Expected("headspace compare"),
    "headspace run --mode whatif -- python headspace-demo/train.py --threads 2 --steps 3000": Expected(
        "what if"
    ),
    "grep -rm1 --include='*.rs' '^//!' agent/src": Expected("agent/src/lib.rs", in_root=True),
    "grep -rm1 --include='*.rs' '^//!' cli/src": Expected("cli/src/lib.rs", in_root=True),
    "grep -rm1 --include='*.rs' '^//!' collectors/src": Expected(
        "collectors/src/lib.rs", in_root=True
    ),
    "grep -rm1 --include='*.rs' '^//!' exporters/src": Expected(
        "exporters/src/lib.rs", in_root=True
    ),
    """grep -rm1 --include='*.rs' --include='*.py' -E '^(//!|\"\"\")' py_bindings/src py_bindings/python""": Expected(
        "py_bindings/python/headspace/__init__.py", in_root=True
    ),
    """grep -rm1 --include='*.rs' --include='*.py' -E '^(//!|\"\"\")' tests/rust tests/python""": Expected(
        "tests/python/running.py", in_root=True
    ),
}

#: Commands that another test runs: its file, and a part of the command that the file contains.
ELSEWHERE: dict[str, tuple[str, str]] = {
    "headspace demo": ("test_demo.py", "demo"),
    "headspace demo --video": ("test_demo.py", "--video"),
    "HEADSPACE_DIR=one-thread headspace demo": ("test_demo.py", "demo"),
    "HEADSPACE_DIR=7-threads headspace demo --threads 7": ("test_demo.py", "--threads"),
    "export HEADSPACE_RUN_ID=$SLURM_JOB_ID": ("test_deploy.py", "HEADSPACE_RUN_ID"),
    "headspace top": ("test_top.py", "top"),
    "headspace top /tmp/prefetching": ("test_top.py", "top"),
    "headspace serve": ("test_serve.py", "serve"),
    "spdl autoresearch engine --workflow spdl.autoresearch.pipeline_optimization:create_workflow "
    "--workdir ../search -- --platform headspace --agent codex --source-dir . --pipeline-script train.py "
    '--base-launch-command "python $PWD/train.py --epochs 2" --poll-interval 10 --job-timeout 300': (
        "autoresearch.py",
        "spdl.autoresearch.pipeline_optimization:create_workflow",
    ),
    "source <(headspace completion bash)": (
        "test_completion.py",
        "source <(headspace completion bash)",
    ),
    "OMP_NUM_THREADS=1 HEADSPACE_MODE=probe python examples/python/torch_dataloader.py --steps 1000": (
        "test_examples.py",
        "torch_dataloader.py",
    ),
    "RANKS=4 examples/deploy/torchrun-one-node.sh train.py": (
        "test_deploy.py",
        "torchrun-one-node.sh",
    ),
    "JOB=7 NODES=2 RANKS=4 HEAD=node1:29500 examples/deploy/torchrun-nodes.sh train.py": (
        "test_deploy.py",
        "torchrun-nodes.sh",
    ),
    "docker compose -f examples/grafana/compose.yaml up -d": ("test_grafana.py", "compose.yaml"),
}

#: Beginnings of commands that no test can run, and why. The files of the repository that they name must exist.
NOT_RUN: dict[str, str] = {
    "cd ": "it only changes the folder",
    "python3 -m venv ": "it only makes a virtual environment",
    "source tutorial/bin/activate": "it only selects a virtual environment",
    "export HEADSPACE_INTERVAL=": "it only sets a variable",
    "docker ": "there is no container engine",
    "podman ": "there is no container engine",
    "jq ": "it changes a file of the container engine",
    "kubectl ": "there is no cluster",
    "sbatch ": "there is no Slurm",
    "rustup target add ": "it downloads a part of Rust",
    "gh attestation verify ": "it asks GitHub about a release",
    "sha256sum --check SHA256SUMS": "it needs a release",
}

BLOCKS = read_blocks(*SHELLS)
COMMANDS = sorted({command for block in BLOCKS for command in commands_of(block)})


def words_of(command: str) -> list[str]:
    """The words of a command, without settings in front of it (`HEADSPACE_MODE=probe python ...`)."""
    words = shlex.split(command)
    while words and re.match(r"[A-Z_]+=", words[0]):
        words.pop(0)
    return words


def commands_like(pattern: str) -> list[str]:
    """The commands whose words begin like this, without those that have an entry."""
    return [
        command
        for command in COMMANDS
        if command not in HERE
        and command not in ELSEWHERE
        and re.match(pattern, " ".join(words_of(command)))
    ]


PIP = r"(python -m )?pip (un)?install "
MAKE = r"make "
CARGO = r"cargo run "
TUNE = r"headspace tune "
EXAMPLE = r"python examples/python/"
SYNOPSIS = r"headspace run \[--"


def test_every_command_of_the_documentation_is_known() -> None:
    by_rule = {
        command
        for rule in (PIP, MAKE, CARGO, TUNE, EXAMPLE, SYNOPSIS)
        for command in commands_like(rule)
    }
    new = [
        f"{block.where}: {command}"
        for block in BLOCKS
        for command in commands_of(block)
        if not (command in HERE or command in ELSEWHERE or command in by_rule)
        and not command.startswith(tuple(NOT_RUN))
    ]
    assert not new, (
        "No test runs these commands. Add each to `HERE`, `ELSEWHERE` or `NOT_RUN` "
        "(tests/python/test_documented_commands.py):\n" + "\n".join(new)
    )
    old = [command for command in [*HERE, *ELSEWHERE] if command not in COMMANDS]
    old += [begin for begin in NOT_RUN if not any(c.startswith(begin) for c in COMMANDS)]
    assert not old, f"These commands are in no document: {old}"


def test_commands_that_no_test_runs_name_files_that_exist() -> None:
    for command in COMMANDS:
        if command in HERE or not command.startswith(tuple(NOT_RUN)):
            continue
        for word in words_of(command):
            if re.fullmatch(r"(examples|tests|docs|requirements)/\S+", word):
                assert (ROOT / word).exists(), command


def test_the_named_tests_contain_the_commands() -> None:
    for command, (file, part) in ELSEWHERE.items():
        assert part in command
        assert part in (ROOT / "tests/python" / file).read_text(), (command, file)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the commands work: with a program, its tests, and recorded runs."""
    folder = tmp_path_factory.mktemp("commands")
    (folder / "train.py").write_text(LOOP)
    (folder / "tests").mkdir()
    (folder / "tests" / "test_train.py").write_text("def test_it_trains():\n    assert True\n")
    (folder / "tmp").mkdir()
    # `compare` needs several ticks.
    done = run_in(folder, "HEADSPACE_DIR=before HEADSPACE_INTERVAL=50ms python train.py")
    assert done.returncode == 0, done.stderr
    (run,) = (folder / "before").iterdir()
    shutil.copytree(folder / "before", folder / "after")
    for copy in ("headspace-runs", "one-thread", "7-threads"):
        shutil.copytree(folder / "before", folder / copy)
    (folder / "headspace-demo").mkdir()
    shutil.copy(DEMO, folder / "headspace-demo")
    (folder / "RUN").symlink_to(run)
    return folder


def run_in(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    """Runs a command as a user types it, with the installed `headspace` and `python`."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {
        **clean_environment(),
        "PATH": path,
        "TMPDIR": str(folder / "tmp"),
        # The plugins of this project take seconds to import.
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("command", HERE)
def test_a_command_of_the_documentation_works(folder: Path, command: str) -> None:
    expected = HERE[command]
    (folder / "train.py").write_text(expected.program)

    done = run_in(ROOT if expected.in_root else folder, command)

    assert done.returncode == 0, done.stdout + done.stderr
    assert expected.prints in done.stdout + done.stderr
    if expected.creates:
        assert (folder / expected.creates).stat().st_size > 0


def test_packages_to_install_are_those_that_the_tests_use() -> None:
    commands = commands_like(PIP)
    assert commands
    requirements = "".join(path.read_text() for path in (ROOT / "requirements").glob("*.txt"))
    project = (ROOT / "pyproject.toml").read_text()
    for command in commands:
        verb, *names = words_of(command)[words_of(command).index("pip") + 1 :]
        assert verb in ("install", "uninstall")
        while "-r" in names:
            at = names.index("-r")
            assert (ROOT / names[at + 1]).is_file(), command
            del names[at : at + 2]
        if "--find-links" in names:
            # Without an index, pip installs only this package.
            assert names == ["--no-index", "--find-links", names[2], "headspace"], command
            continue
        for name in names:
            # This package, with its extras: from the clone, from a wheel, or by its name.
            own = re.fullmatch(r"(?:\.|(?:dist/)?headspace[\w.*-]*)(?:\[([\w,]+)\])?", name)
            if own is None:
                assert re.search(rf"^{name}\b", requirements, re.MULTILINE), command
            for extra in (own[1] or "").split(",") if own else []:
                assert not extra or f"\n{extra} = [" in project, command


def test_make_has_the_targets_and_reads_the_settings() -> None:
    commands = commands_like(MAKE)
    assert commands
    makefile = (ROOT / "Makefile").read_text()
    # `tests/real` reads its settings from the environment.
    real = (ROOT / "tests/real/__main__.py").read_text()
    for command in commands:
        for word in words_of(command)[1:]:
            setting, is_setting, _ = word.partition("=")
            if is_setting:
                assert f"$({setting})" in makefile or f'"{setting}"' in real, command
            else:
                assert f"\n{word}:" in makefile, command


def test_cargo_has_the_examples() -> None:
    commands = commands_like(CARGO)
    assert commands
    manifest = (ROOT / "examples/Cargo.toml").read_text()
    for command in commands:
        words = words_of(command)
        example = words[words.index("--example") + 1]
        assert f'name = "{example}"' in manifest, command


def test_tune_accepts_its_commands() -> None:
    commands = commands_like(TUNE)
    assert commands
    for command in commands:
        asked = parse_tune(words_of(command)[2:])
        assert asked.space.knobs, command


#: Parses each command line with the parser of the program, which then ends.
PARSE = """
import argparse, json, runpy, sys

class Parsed(Exception):
    pass

parse = argparse.ArgumentParser.parse_args

def parse_only(parser, *args, **kwargs):
    parse(parser, *args, **kwargs)
    raise Parsed

argparse.ArgumentParser.parse_args = parse_only
script = sys.argv[1]
for words in json.loads(sys.argv[2]):
    sys.argv = [script, *words]
    try:
        runpy.run_path(script, run_name="__main__")
    except Parsed:
        print("parsed", *words)
"""


def example_command_lines() -> dict[str, list[list[str]]]:
    """The documented arguments of each example program, also those that `make` passes on."""
    found: dict[str, list[list[str]]] = {}
    for command in commands_like(EXAMPLE):
        _, script, *words = words_of(command)
        found.setdefault(script, []).append(words)
    programs = {
        "DECODE_LAB_ARGS": "examples/python/decode_lab",
        "STORY_ARGS": "examples/python/story.py",
    }
    for command in commands_like(MAKE):
        for word in words_of(command):
            setting, _, value = word.partition("=")
            if setting in programs:
                found.setdefault(programs[setting], []).append(shlex.split(value))
    return found


EXAMPLE_COMMANDS = example_command_lines()


@pytest.mark.parametrize("script", EXAMPLE_COMMANDS)
def test_an_example_program_accepts_its_documented_arguments(script: str) -> None:
    lines = EXAMPLE_COMMANDS[script]

    done = subprocess.run(
        [sys.executable, "-c", PARSE, script, json.dumps(lines)],
        cwd=ROOT,
        env={**clean_environment(), "PYTHONPATH": str(ROOT / "examples/python")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("parsed") == len(lines)


def test_the_synopsis_of_run_has_all_options() -> None:
    (synopsis,) = commands_like(SYNOPSIS)
    command = [sys.executable, "-m", "headspace", "run", "--help"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    options = set(re.findall(r"^ +(?:-\w, )?(--[\w-]+)", told, re.MULTILINE)) - {"--help"}

    assert set(re.findall(r"\[(--[\w-]+)", synopsis)) == options
