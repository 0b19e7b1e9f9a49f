"""`headspace run` over torch: which loop trains, ranks, workers, and the probe."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from headspace_run import run, without_verdict
from running import Programs, of_kind

pytest.importorskip("torch")


@pytest.mark.alone  # A stall of the machine makes a step as long as an evaluation.
def test_evaluation_is_detected_by_the_mode_of_the_model_and_reported_separately(
    program: Programs,
) -> None:
    ran = run(program, "trains.py", "--eval-every", 10)
    summary = ran.summary()

    assert ran.stdout == "200 DataLoader True 50\n"
    assert (summary["loop"], summary["loop_role"]) == ("DataLoader", "training")
    (other,) = summary["other_loops"]
    assert (other["name"], other["role"]) == ("DataLoader (evaluation)", "evaluation")
    # There are ten evaluations of ten batches within the epochs, and two after them.
    assert (summary["steps"], other["steps"]) == (100, 120)
    # An evaluation takes at least 200 ms, so none is part of a step.
    assert summary["step_p99_ms"] < 150
    # The names of stages distinguish the loops for people, `loop_name` for programs.
    loops = {stage["name"]: stage["loop_name"] for stage in summary["stages"]}
    assert loops["fetch"] == "DataLoader"
    assert loops["evaluation fetch"] == "DataLoader (evaluation)"
    assert "loop       DataLoader (model in training mode). Not included:" in ran.stderr
    assert without_verdict(ran.stderr) == ""


def test_without_model_modes_disabled_gradients_mark_an_evaluation(program: Programs) -> None:
    summary = run(program, "trains.py", "--no-modes").summary()

    assert (summary["loop"], summary.get("loop_role")) == ("DataLoader", None)
    assert [other["role"] for other in summary["other_loops"]] == ["evaluation"]


def test_a_mode_set_after_the_first_batch_still_marks_an_evaluation(program: Programs) -> None:
    # Some trainers do this with a model that was loaded in evaluation mode.
    summary = run(program, "trains.py", "--late-modes").summary()

    assert (summary["loop"], summary["loop_role"]) == ("DataLoader", "training")
    assert summary["steps"] == 100
    assert [other["role"] for other in summary["other_loops"]] == ["evaluation"]


def test_the_validation_of_lightning_is_a_separate_loop(program: Programs) -> None:
    pytest.importorskip("lightning")
    ran = run(program, "lightning_fit.py")
    summary = ran.summary()

    assert ran.exit_code == 0, ran.stderr
    assert (summary["loop_role"], summary["steps"]) == ("training", 100)
    assert {other["role"] for other in summary["other_loops"]} == {"evaluation"}
    # The trainer states the number of epochs.
    time = summary["run_time"]
    assert (time["epochs"], time["epoch"]["steps"], time["run"]["steps"]) == (2, 50, 100)


def test_a_loader_that_accelerate_prepared_is_measured_in_its_loop(program: Programs) -> None:
    pytest.importorskip("accelerate")
    summary = run(program, "accelerate_prepare.py").summary()

    assert (summary["loop"], summary["loop_role"]) == ("DataLoaderShard", "training")
    assert (summary["steps"], summary.get("other_loops", [])) == (200, [])
    assert {"fetch", "collate"} <= {stage["name"] for stage in summary["stages"]}


def test_the_user_may_name_the_training_loop(program: Programs) -> None:
    ran = run(program, "trains.py", options=("--loop", "DataLoader (evaluation)"))
    summary = ran.summary()

    assert summary["loop"] == "DataLoader (evaluation)"
    assert summary["loop_chosen"] is True
    assert "chosen by you" in ran.stderr


def test_only_the_training_loop_is_probed(program: Programs) -> None:
    ran = run(
        program,
        "trains.py",
        *("--batches", 4000, "--epochs", 1),
        options=("--mode", "probe", "--stop-after-probe"),
    )
    summary = ran.summary()

    assert (summary["loop"], summary["mode"]) == ("DataLoader", "probe")
    assert summary["floor_step_ms"] is not None or summary["findings"]
    # A probe takes 2,400 steps at most.
    assert summary["steps"] < 4000
    (probe,) = ran.kind("probe")
    assert probe["loop"] == "DataLoader"
    # The loader delivered every batch of the evaluation. None was repeated.
    (other,) = summary["other_loops"]
    assert other["steps"] == 10


def test_probe_options_reach_the_training_loop_and_errors_name_them_as_the_user_wrote_them(
    program: Programs,
) -> None:
    ran = run(
        program,
        "trains.py",
        *("--batches", 1000, "--epochs", 1),
        options=(
            *("--mode", "probe", "--probe-steps", "300"),
            *("--num-caches", "3", "--stop-after-probe"),
        ),
    )
    summary = ran.summary()

    assert summary["options_from"] == "run"
    assert summary["steps"] <= 300
    (probe,) = ran.kind("probe")
    assert probe["cached_batches"] == 3
    assert probe["replayed_steps"] == summary["replayed_steps"] > 0
    (begin,) = [n["text"] for n in ran.kind("notice") if n["code"] == "probe_begins"]
    assert begin.startswith("probe of `DataLoader`: up to 300 steps, of which up to ")
    assert begin.endswith(" The epoch ends when the probe is done (`--stop-after-probe`).")
    assert f"\nrepeated   {summary['replayed_steps']} of {summary['steps']} steps " in ran.stderr


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_are_not_recorded_as_trainers(program: Programs, method: str) -> None:
    ran = run(program, "trains.py", "--workers", 2, "--start", method)
    summary = ran.summary()

    assert ran.exit_code == 0, ran.stderr
    assert (summary["steps"], summary["loop_role"]) == (100, "training")
    # There is only one run. The workers reported its stages.
    told = {entry.get("worker") for tick in ran.kind("tick") for entry in tick.get("stages", [])}
    assert {"worker 0", "worker 1"} <= told


@pytest.mark.parametrize(
    "launcher",
    [
        ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"],
        [
            "accelerate.commands.launch",
            *("--multi_gpu", "--num_processes", "2", "--num_machines", "1"),
            *("--mixed_precision", "no", "--dynamo_backend", "no"),
        ],
    ],
)
def test_all_ranks_of_a_launcher_are_one_run(program: Programs, launcher: list[str]) -> None:
    if launcher[0].startswith("accelerate"):
        pytest.importorskip("accelerate")
    ran = run(
        program,
        "trains.py",
        *("--epochs", 1),
        by=[sys.executable, "-m", *launcher],
        env={"OMP_NUM_THREADS": "1"},
        timeout=240.0,
    )

    assert ran.exit_code == 0, ran.stderr
    assert {path.name for path in ran.folder.iterdir()} == {"rank0.jsonl", "rank1.jsonl"}
    for rank in (0, 1):
        assert ran.summary(rank)["loop_role"] == "training"
        assert ran.summary(rank)["steps"] == 50
        run_record = of_kind(ran.records(rank), "run")[0]
        assert (run_record["world_size"], run_record["ranks_on_node"]) == (2, 2)
    assert ran.stderr.count("headspace  ") == 1


def test_ranks_that_a_program_spawns_itself_are_one_run(program: Programs) -> None:
    ran = run(program, "spawns.py", timeout=240.0)

    assert ran.exit_code == 0, ran.stderr
    assert {path.name for path in ran.folder.iterdir()} == {"rank0.jsonl", "rank1.jsonl"}


def test_a_script_without_headspace_on_its_path_is_measured(
    program: Programs, tmp_path: Path
) -> None:
    """The command may be installed in another environment. headspace is then loaded from there."""
    hidden = tmp_path / "hides"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(
        "import sys\n"
        "class Hides:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'headspace':\n"
        "            raise ModuleNotFoundError('No module named headspace', name='headspace')\n"
        "if 'headspace' not in sys.orig_argv:\n"
        "    sys.meta_path.insert(0, Hides())\n"
    )
    ran = run(program, "trains.py", "--epochs", 1, env={"PYTHONPATH": str(hidden)})

    assert ran.exit_code == 0, ran.stderr
    assert ran.summary()["steps"] == 50
