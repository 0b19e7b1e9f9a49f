"""`headspace completion`: the scripts with which shells complete the command line."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from running import clean_environment

#: Completes the last of the words, as bash does when the user presses Tab.
PRESS_TAB = """
source "$1"
shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_headspace headspace "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


def headspace(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headspace", *words],
        capture_output=True,
        text=True,
        timeout=60,
        env=clean_environment(),
        check=False,
    )


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the script of each shell."""
    folder = tmp_path_factory.mktemp("completion")
    for shell in ("bash", "zsh", "fish"):
        done = headspace("completion", shell)
        assert (done.returncode, done.stderr) == (0, "")
        (folder / shell).write_text(done.stdout)
    return folder


def bash(*words: str) -> str:
    done = subprocess.run(
        ["bash", "--norc", "-c", *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def completions(scripts: Path, *words: str) -> list[str]:
    """What bash offers for the last of the words."""
    return bash(PRESS_TAB, "bash", str(scripts / "bash"), *words).split()


def test_bash_registers_the_completion_of_headspace(scripts: Path) -> None:
    registered = bash('source "$1" && complete -p headspace', "bash", str(scripts / "bash"))

    assert "-F _headspace" in registered
    assert registered.split()[-1] == "headspace"


def test_the_documented_line_of_bashrc_turns_the_completion_on() -> None:
    folder = Path(sys.executable).parent
    line = "source <(headspace completion bash)"

    registered = bash(f'PATH="{folder}:$PATH"; {line}; complete -p headspace')

    assert "-F _headspace" in registered


def test_bash_completes_a_command(scripts: Path) -> None:
    assert completions(scripts, "headspace", "re") == ["report"]
    assert set(completions(scripts, "headspace", "d")) == {"demo", "doctor"}


def test_bash_completes_options_and_their_values(scripts: Path) -> None:
    assert completions(scripts, "headspace", "report", "--sp") == ["--speedscope"]
    assert completions(scripts, "headspace", "run", "--mode", "pr") == ["probe"]
    assert set(completions(scripts, "headspace", "completion", "")) >= {"bash", "zsh", "fish"}


def test_bash_completes_the_options_of_the_python_commands(scripts: Path) -> None:
    assert completions(scripts, "headspace", "demo", "--th") == ["--threads"]
    assert completions(scripts, "headspace", "tune", "--near") == ["--near-floor"]
    assert completions(scripts, "headspace", "tune", "--objective", "thr") == ["throughput"]


@pytest.mark.parametrize("command", ["run", "report", "demo", "tune", "doctor", "top", "serve"])
def test_the_completion_has_the_options_of_the_help(scripts: Path, command: str) -> None:
    if command == "tune":
        pytest.importorskip("optuna")
    told = headspace(command, "--help").stdout
    options = set(re.findall(r"^ +(?:-\w, )?(--[a-z-]+)", told, re.MULTILINE))

    offered = set(completions(scripts, "headspace", command, "--"))

    assert len(options) > 1 or command == "top"
    assert offered == options


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_script_of_another_shell_has_no_syntax_error(scripts: Path, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"platform: {shell} is not installed")
    done = subprocess.run(
        [shell, "-n", str(scripts / shell)], capture_output=True, text=True, timeout=60
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_an_unknown_shell_is_refused_with_the_known_ones() -> None:
    done = headspace("completion", "tcsh")

    assert done.returncode == 2
    assert "bash, zsh, fish" in done.stderr
