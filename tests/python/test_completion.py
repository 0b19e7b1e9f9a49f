"""`headspace completion`: the scripts with which shells complete the command line."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from running import clean_environment
from screen import Terminal

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


def require(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"platform: {shell} is not installed")


def fish(scripts: Path, line: str) -> set[str]:
    """What fish offers for the end of the line."""
    require("fish")
    program = "source $argv[1]; complete --do-complete=$argv[2]"
    done = subprocess.run(
        ["fish", "--no-config", "-c", program, str(scripts / "fish"), line],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return {offered.partition("\t")[0] for offered in done.stdout.splitlines()}


def test_fish_completes_commands_options_and_values(scripts: Path) -> None:
    assert fish(scripts, "headspace re") == {"report"}
    assert fish(scripts, "headspace report --sp") == {"--speedscope"}
    assert fish(scripts, "headspace run --mode pr") == {"probe"}
    assert fish(scripts, "headspace demo --th") == {"--threads"}


def test_zsh_completes_commands_options_and_values(scripts: Path, tmp_path: Path) -> None:
    require("zsh")
    (tmp_path / "_headspace").write_text((scripts / "zsh").read_text())
    terminal = Terminal(["zsh", "-f", "-i"], cwd=tmp_path, env={"PS1": "zsh> "})
    try:
        terminal.wait_for("zsh>")
        terminal.type("fpath=($PWD $fpath); autoload -U compinit; compinit -D -u; echo rea''dy\n")
        terminal.wait_for("ready\nzsh>")
        for typed, completed in (
            ("headspace repo\t", "headspace report "),
            ("--sp\t", "headspace report --speedscope "),
            ("\x15headspace run --mode pr\t", "headspace run --mode probe "),
            ("\x15headspace demo --th\t", "headspace demo --threads "),
        ):
            terminal.type(typed)
            terminal.wait_for(completed.rstrip())
    finally:
        terminal.close()


def test_an_unknown_shell_is_refused_with_the_known_ones() -> None:
    done = headspace("completion", "tcsh")

    assert done.returncode == 2
    assert "bash, zsh, fish" in done.stderr
