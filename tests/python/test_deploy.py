"""The recipes in `examples/deploy` and docs/deploy.md: their files, their commands, and their run folders."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from running import DEADLINE_S, PROGRAMS, clean_environment, free_port

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "examples" / "deploy"
PAGE = ROOT / "docs" / "deploy.md"

SCRIPTS = sorted([*RECIPES.glob("*.sh"), *RECIPES.glob("*.sbatch")])

#: Time limit of both ranks together, including the import of torch on a busy machine.
TIMEOUT_S = 3 * DEADLINE_S


def environment(runs: Path, **more: str) -> dict[str, str]:
    """The environment of a recipe, with headspace and torchrun on the PATH."""
    launched = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}
    clean = {key: value for key, value in clean_environment().items() if key not in launched}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**clean, "PATH": path, "HEADSPACE_DIR": str(runs), "OMP_NUM_THREADS": "1", **more}


def start(command: list[str], folder: Path, env: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        cwd=folder,
        env=env,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    """Waits for a recipe. Returns what it printed."""
    try:
        out, err = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # with its ranks
        out, err = process.communicate()
        pytest.fail(f"still running after {TIMEOUT_S:g} s\n{out}\n{err}")
    assert process.returncode == 0, err
    return out


def ranks_in(folder: Path) -> set[str]:
    return {path.stem for path in folder.glob("rank*.jsonl")}


# --- Files -------------------------------------------------------------------------------------


def test_the_page_names_every_recipe_and_no_other_file() -> None:
    named = set(re.findall(r"\(\.\./examples/deploy/([\w.-]+)\)", PAGE.read_text()))

    assert named == {path.name for path in RECIPES.iterdir() if path.suffix != ".dockerignore"}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_has_no_syntax_error(script: Path) -> None:
    checked = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True)

    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize("script", sorted(RECIPES.glob("*.sbatch")), ids=lambda path: path.name)
def test_slurm_sees_every_directive(script: Path) -> None:
    # `sbatch` ignores directives after the first command.
    lines = script.read_text().splitlines()
    first_command = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
    directives = [i for i, line in enumerate(lines) if line.startswith("#SBATCH ")]

    assert len(directives) > 0
    assert max(directives) < first_command


def commands() -> Iterator[tuple[str, list[str]]]:
    """Every call of headspace in the recipes and on the page, with the file that has it."""
    for path in [*RECIPES.iterdir(), PAGE]:
        text = path.read_text().replace("\\\n", " ")
        if path.suffix == ".yaml":
            container = pod(yaml.safe_load(text))["containers"][0]
            text = shlex.join(container["args"])
        if path.name == "Dockerfile":
            text = text.replace('", "', " ").replace('["', "").replace('"]', "")
        text = re.sub(r"(?m)^\s*#.*$", "", text)
        for found in re.finditer(r"(?<![\w./-])headspace ([a-z]+)\b(?=([^\n`|#]*))", text):
            if found[1] in known_commands():
                words = found[2].partition(" -- ")[0].split()
                yield path.name, [found[1], *(word for word in words if word.startswith("--"))]


def known_commands() -> set[str]:
    return {"demo", "run", "tune", "report", "compare", "doctor", "top", "serve"}


def test_every_command_of_the_recipes_has_the_options_that_they_use() -> None:
    used = list(commands())
    assert {file for file, _ in used} >= {
        *("Dockerfile", "kubernetes.yaml", "deploy.md"),
        *(script.name for script in SCRIPTS),
    }
    for name in {command for _, (command, *_) in used}:
        help_text = subprocess.run(
            [sys.executable, "-m", "headspace", name, "--help"],
            env=clean_environment(),
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        options = {option for _, (command, *found) in used if command == name for option in found}
        assert all(option == "--" or option in help_text for option in options), (name, options)


# --- An image ----------------------------------------------------------------------------------


def is_sent(path: str) -> bool:
    """Whether Docker sends a file to the build. The last matching pattern decides."""
    sent = True
    for line in (RECIPES / "Dockerfile.dockerignore").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        pattern = line.removeprefix("!").removeprefix("**/")
        whole = fnmatch(path, pattern) or path.startswith(f"{pattern}/") or pattern == "*"
        if whole or (line.startswith("**/") and fnmatch(Path(path).name, pattern)):
            sent = line.startswith("!")
    return sent


def test_the_image_is_built_from_what_cargo_and_maturin_read_and_from_no_build_output() -> None:
    tomllib = pytest.importorskip("tomllib", reason="platform: Python 3.10 has no tomllib")
    members = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["members"]
    needed = ["Cargo.toml", "Cargo.lock", "pyproject.toml", "py_bindings/PACKAGE.md", "LICENSE-MIT"]
    for member in members:
        manifest = tomllib.loads((ROOT / member / "Cargo.toml").read_text())
        targets = [
            *manifest.get("example", []),
            *manifest.get("test", []),
            *manifest.get("bin", []),
        ]
        needed += [
            f"{member}/Cargo.toml",
            *(f"{member}/{one['path']}" for one in targets if "path" in one),
        ]

    assert [path for path in needed if not is_sent(path)] == []
    assert not any(
        map(
            is_sent,
            (
                "target/release/x",
                ".venv/bin/python",
                "py_bindings/python/headspace/_native.abi3.so",
            ),
        )
    )


# --- Kubernetes --------------------------------------------------------------------------------


def pod(job: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = job["spec"]["template"]["spec"]
    return found


@pytest.fixture
def job() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((RECIPES / "kubernetes.yaml").read_text())
    return found


def test_the_pod_has_shared_memory_in_ram_and_writes_its_runs_to_a_volume(
    job: dict[str, Any],
) -> None:
    (container,) = pod(job)["containers"]
    volumes = {volume["name"]: volume for volume in pod(job)["volumes"]}
    mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in container["volumeMounts"]}
    variables = {variable["name"]: variable.get("value") for variable in container["env"]}

    assert mounts["/dev/shm"]["emptyDir"]["medium"] == "Memory"
    assert "sizeLimit" in mounts["/dev/shm"]["emptyDir"]
    assert "persistentVolumeClaim" in mounts["/runs"]
    assert variables["HEADSPACE_DIR"] == "/runs/$(POD_NAME)"
    # Kubernetes replaces only what is defined above.
    names = list(variables)
    assert names.index("POD_NAME") < names.index("HEADSPACE_DIR")


def test_prometheus_finds_the_port_that_headspace_listens_on(job: dict[str, Any]) -> None:
    annotations = job["spec"]["template"]["metadata"]["annotations"]
    (container,) = pod(job)["containers"]
    (export,) = (one["value"] for one in container["env"] if one["name"] == "HEADSPACE_EXPORT")
    _, host, port = export.split(":")

    assert host == "0.0.0.0", "another pod cannot reach loopback"
    assert annotations["prometheus.io/port"] == port
    assert container["ports"][0]["containerPort"] == int(port)
    # The values of annotations are text.
    assert all(isinstance(value, str) for value in annotations.values())


# --- Run folders -------------------------------------------------------------------------------


@pytest.mark.slow
def test_torchrun_on_one_machine_writes_one_folder_with_both_ranks(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    runs = tmp_path / "runs"
    command = [str(RECIPES / "torchrun-one-node.sh"), str(PROGRAMS / "gloo_ranks.py")]

    printed = finish(start(command, tmp_path, environment(runs, RANKS="2")))

    (folder,) = runs.iterdir()
    assert ranks_in(folder) == {"rank0", "rank1"}
    assert "2 of 2 read" in " ".join(printed.split())
    report = [sys.executable, "-m", "headspace", "report", "--json", str(folder)]
    summary = json.loads(subprocess.run(report, capture_output=True, text=True, check=True).stdout)
    assert summary["ranks"]["world_size"] == 2


@pytest.mark.slow
def test_torchrun_on_two_machines_writes_every_rank_into_a_folder_of_the_job(
    tmp_path: Path,
) -> None:
    pytest.importorskip("torch")
    runs = tmp_path / "runs"
    settings = {"JOB": "7", "NODES": "2", "RANKS": "1", "HEAD": f"127.0.0.1:{free_port()}"}
    command = [str(RECIPES / "torchrun-nodes.sh"), str(PROGRAMS / "gloo_ranks.py")]

    nodes = [start(command, tmp_path, environment(runs, **settings)) for _ in range(2)]
    printed = sorted(finish(node).strip() for node in nodes)

    assert printed == ["rank 0 of 2", "rank 1 of 2"]
    folders = list(runs.iterdir())
    assert all(folder.name.endswith("-7") for folder in folders)
    assert [rank for folder in folders for rank in sorted(ranks_in(folder))] in (
        ["rank0", "rank1"],
        ["rank1", "rank0"],
    )


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[list[str]]]:
    """Two nodes, each as the command that starts a program there: `node1` and `node2`, with addresses, a network and a
    name of their own. They share the kernel and the file system.
    """
    names = [f"headspace-{os.getpid()}-{number}" for number in (1, 2)]
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost\n10.77.0.1 node1\n10.77.0.2 node2\n")

    def ip(*words: str) -> bool:
        try:
            return subprocess.run(["ip", *words], stderr=subprocess.DEVNULL).returncode == 0
        except FileNotFoundError:
            return False

    try:
        if not all(ip("netns", "add", name) for name in names):
            pytest.skip("platform: no network namespaces (they need root and iproute2)")
        ends = [["name", "eth0", "netns", name] for name in names]
        assert ip("link", "add", *ends[0], "type", "veth", "peer", *ends[1])
        for number, name in enumerate(names, start=1):
            assert ip("-n", name, "address", "add", f"10.77.0.{number}/24", "dev", "eth0")
            assert all(ip("-n", name, "link", "set", device, "up") for device in ("lo", "eth0"))
        name_it = 'hostname "$1"; mount --bind "$2" /etc/hosts; shift 2; exec "$@"'
        enter = ["unshare", "--uts", "sh", "-c", name_it, "sh"]
        yield [
            ["ip", "netns", "exec", name, *enter, f"node{number}", str(hosts)]
            for number, name in enumerate(names, start=1)
        ]
    finally:
        for name in names:
            ip("netns", "delete", name)


@pytest.mark.slow
def test_two_nodes_write_the_run_folder_that_is_named(
    tmp_path: Path, nodes: list[list[str]]
) -> None:
    pytest.importorskip("torch")
    runs = tmp_path / "runs"
    settings = {"JOB": "7", "NODES": "2", "RANKS": "2", "HEAD": "node1:29500"}
    env = environment(runs, **settings, HEADSPACE_RUN_ID="job7", GLOO_SOCKET_IFNAME="eth0")
    command = [str(RECIPES / "torchrun-nodes.sh"), str(PROGRAMS / "gloo_ranks.py")]

    started = [start([*node, *command], tmp_path, env) for node in nodes]
    printed = sorted(line for node in started for line in finish(node).splitlines())

    assert printed == [f"rank {rank} of 4" for rank in range(4)]
    assert [folder.name for folder in runs.iterdir()] == ["job7"]
    assert ranks_in(runs / "job7") == {"rank0", "rank1", "rank2", "rank3"}
    report = json.loads(finish(start(["headspace", "report", "--json", "job7"], runs, env)))
    assert report["ranks"]["read"] == 4
    assert report["ranks"]["missing"] == []


def command_of_srun() -> str:
    """What `srun` starts in each task of srun.sbatch."""
    text = (RECIPES / "srun.sbatch").read_text()
    found = re.search(r"(?s)^srun \S+ bash -c '(.*?)' rank \"\$@\"$", text, re.M)
    assert found is not None
    return found[1]


@pytest.mark.slow
def test_the_tasks_of_srun_on_one_machine_write_one_folder_of_the_job(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    runs = tmp_path / "runs"
    shared = {
        "SLURM_JOB_ID": "77",
        "SLURM_NTASKS": "2",
        "SLURM_NTASKS_PER_NODE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
    }
    command = ["bash", "-c", command_of_srun(), "rank", str(PROGRAMS / "gloo_ranks.py")]
    tasks = []
    for number in "01":
        own = {"SLURM_PROCID": number, "SLURM_LOCALID": number}
        tasks.append(start(command, tmp_path, environment(runs, **shared, **own)))

    printed = sorted(finish(task).strip() for task in tasks)

    assert printed == ["rank 0 of 2", "rank 1 of 2"]
    (folder,) = runs.iterdir()
    assert folder.name.endswith("-77")
    assert ranks_in(folder) == {"rank0", "rank1"}


def test_ranks_with_the_same_run_id_share_a_folder_although_their_parents_differ(
    tmp_path: Path,
) -> None:
    runs = tmp_path / "runs"
    code = (
        "import headspace, subprocess, sys\n"
        "for _ in headspace.wrap(range(50)): pass\n"
        # The helper inherits RANK and WORLD_SIZE, but is not a rank.
        "helper = 'import headspace; all(headspace.wrap(range(5)))'\n"
        "subprocess.run([sys.executable, '-c', helper], check=True)\n"
    )
    ranks = []
    for number in "01":
        env = environment(runs, RANK=number, WORLD_SIZE="2", HEADSPACE_RUN_ID="job-7")
        # The shell does not replace itself with the rank, so each rank has another parent.
        command = ["bash", "-c", '"$0" -c "$1"; exit $?', sys.executable, code]
        ranks.append(start(command, tmp_path, env))

    for rank in ranks:
        finish(rank)

    shared = runs / "job-7"
    assert ranks_in(shared) == {"rank0", "rank1"}
    for file in shared.glob("rank?.jsonl"):
        records = [json.loads(line) for line in file.read_text().splitlines()]
        # The `run` record is repeated if something becomes known later.
        assert len({record["pid"] for record in records if record["kind"] == "run"}) == 1
    assert all(ranks_in(folder) <= {"rank0", "rank1"} for folder in runs.iterdir())
    assert len(list(runs.iterdir())) >= 2


def test_a_single_process_ignores_the_run_id_of_several_ranks(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    code = "import headspace\nfor _ in headspace.wrap(range(50)): pass\n"

    finish(
        start([sys.executable, "-c", code], tmp_path, environment(runs, HEADSPACE_RUN_ID="job-7"))
    )

    assert "job-7" not in {path.name for path in runs.iterdir()}


@pytest.mark.parametrize("name", ["../elsewhere", "..", "a/b"])
def test_a_run_id_that_is_no_folder_name_is_refused_with_a_notice(
    tmp_path: Path, name: str
) -> None:
    runs = tmp_path / "runs"
    code = "import headspace\nfor _ in headspace.wrap(range(50)): pass\n"
    env = environment(runs, RANK="0", WORLD_SIZE="2", HEADSPACE_RUN_ID=name)

    process = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert f"`HEADSPACE_RUN_ID`: `{name}` is not a valid folder name" in process.stderr
    (folder,) = runs.iterdir()
    assert ranks_in(folder) == {"rank0"}
