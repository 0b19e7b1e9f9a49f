"""`headspace run`: every kind of loader is measured once, as the training loop iterates it, and delivers
the same batches as without headspace."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from headspace_run import run
from running import Programs, Ran

#: By kind: the needed packages, the name of the loop, the type of the loader, and recorded stages.
KINDS: dict[str, tuple[tuple[str, ...], str, str, set[str]]] = {
    "spdl pipeline": (("spdl",), "Pipeline", "spdl.", {"decode"}),
    "spdl apart": (("spdl",), "SubprocessIterable", "spdl.", {"decode"}),
    "spdl loader": (("spdl",), "DataLoader", "spdl.", {"decode"}),
    "spdl torch": (("spdl", "torch"), "PyTorchDataLoader", "spdl.", set()),
    "hf": (("datasets",), "Dataset", "datasets.", set()),
    "hf batches": (("datasets",), "Dataset", "datasets.", set()),
    "hf stream": (("datasets",), "IterableDataset", "datasets.", set()),
    "hf in torch": (("datasets", "torch"), "DataLoader", "torch.", {"fetch"}),
    "hf in workers": (("datasets", "torch"), "DataLoader", "torch.", {"fetch"}),
    "web": (("webdataset", "torch"), "WebDataset", "webdataset.", set()),
    "web loader": (("webdataset", "torch"), "WebLoader", "webdataset.", {"fetch"}),
    "web workers": (("webdataset", "torch"), "WebLoader", "webdataset.", {"fetch"}),
    "litdata": (("litdata",), "StreamingDataset", "litdata.", set()),
    "litdata combined": (("litdata",), "CombinedStreamingDataset", "litdata.", set()),
    "litdata loader": (("litdata",), "StreamingDataLoader", "litdata.", {"fetch"}),
    "litdata workers": (("litdata",), "StreamingDataLoader", "litdata.", {"fetch"}),
    "mosaic": (("streaming",), "StreamingDataset", "streaming.", set()),
    "mosaic loader": (("streaming",), "StreamingDataLoader", "streaming.", {"fetch"}),
    "ray dataset": (("ray", "torch"), "Dataset", "ray.data.", set()),
    "monai": (("monai", "torch"), "ThreadDataLoader", "monai.", {"fetch"}),
    "grain map": (("grain",), "BatchMapDataset", "grain.", set()),
    "grain iter": (("grain",), "BatchIterDataset", "grain.", set()),
    "grain loader": (("grain",), "DataLoader", "grain.", set()),
    "grain workers": (("grain",), "DataLoader", "grain.", set()),
    "tf": (("tensorflow",), "PrefetchDataset", "tensorflow.", set()),
    "wrapped": (("torch",), "mine", "torch.", {"mine fetch"}),
    "anew": (("torch",), "DataLoader", "torch.", {"fetch"}),
    "subclass": (("torch",), "Mine", "__main__.", {"fetch"}),
}

#: By kind: facts about the loader. The datasets have the attributes of a torch loader around them.
FACTS: dict[str, dict[str, int | None]] = {
    "litdata": {"batch_size": 1, "workers": None},
    "litdata combined": {"batch_size": 1, "workers": None},
    "litdata workers": {"batch_size": 2, "workers": 1},
    "mosaic": {"batch_size": 1, "workers": None},
    "mosaic loader": {"batch_size": 2, "workers": 0},
    "ray dataset": {"batch_size": 2},
}


def ran(program: Programs, kind: str, *packages: str) -> Ran:
    for package in packages:
        if find_spec(package) is None:
            # TensorFlow takes 1.3 GB, so it is not in the requirements.
            optional = "platform: " if package == "tensorflow" else ""
            pytest.skip(f"{optional}{package} is not installed")
    ran = run(program, "iterates.py", kind)
    assert ran.exit_code == 0, ran.stderr
    assert "not everything is measured" not in ran.stderr
    return ran


@pytest.mark.parametrize("kind", KINDS)
def test_a_loader_is_measured_once_and_gives_the_same_batches(program: Programs, kind: str) -> None:
    packages, name, type_name, stages = KINDS[kind]
    watched = ran(program, kind, *packages)
    off = {"HEADSPACE": "0"} if kind == "wrapped" else {}
    bare = program("iterates.py", kind, env=off, timeout=120.0)

    assert watched.stdout == bare.stdout
    assert bare.folders == []
    summary = watched.summary()
    assert (summary["loop"], summary["steps"], summary["epochs"]) == (name, 120, 2)
    assert summary.get("other_loops", []) == []
    loader = watched.kind("run")[0]["loader"]
    assert loader["type"].startswith(type_name)
    facts = FACTS.get(kind, {})
    assert {fact: loader.get(fact) for fact in facts} == facts
    assert stages <= {stage["name"] for stage in summary["stages"]}


def test_a_tensorflow_iterator_is_unchanged_inside_a_compiled_function(program: Programs) -> None:
    watched = ran(program, "tf function", "tensorflow")

    assert watched.stdout == "120 14280\n"
    assert watched.folders == []
    assert "no training loop was seen" in watched.stderr


def test_operators_of_ray_data_are_stages_with_their_tasks(program: Programs) -> None:
    watched = ran(program, "ray dataset", "ray", "torch")
    stages = [stage for tick in watched.kind("tick") for stage in tick.get("stages", [])]

    names = {stage["name"] for stage in stages}
    (keep,) = [name for name in names if "MapBatches(keep)" in name]
    of_keep = [stage for stage in stages if stage["name"] == keep]
    # The loop iterates 120 rows twice. `take` may end before its tasks do.
    assert sum(stage.get("items_out", stage["time"]["count"]) for stage in of_keep) >= 240
    assert {stage["concurrency"] for stage in of_keep} == {1}
    assert all(0 < stage["cpu_ms"][0] <= stage["cpu_ms"][1] for stage in of_keep)


def test_the_thread_that_ray_train_starts_for_training_is_no_background_thread(
    program: Programs,
) -> None:
    watched = ran(program, "ray train", "ray", "torch")

    # Ray ends this process without its exit handlers, so its last summary is not a final one.
    (loader,) = [run["loader"] for run in watched.kind("run")]
    assert (loader["name"], loader.get("role")) == ("DataIterator", None)


def test_operators_of_a_ray_dataset_that_is_split_count_for_the_lowest_rank(
    program: Programs,
) -> None:
    watched = ran(program, "ray ranks", "ray", "torch")

    def operators(rank: int) -> set[str]:
        ticks = watched.kind("tick", rank)
        assert ticks
        return {stage["name"] for tick in ticks for stage in tick.get("stages", [])}

    assert any("MapBatches(keep)" in name for name in operators(0))
    assert not operators(1)


@pytest.mark.alone  # If other tests use the cores, the loop waits for the thread of the loader.
def test_waits_of_a_loader_thread_are_not_waits_of_the_loop(program: Programs) -> None:
    # Loading takes 1 ms and a step takes 4 ms, so batches are ready before the loop needs them.
    summary = ran(program, "monai", "monai", "torch").summary()

    assert summary["wait_pct"] < 20
    assert summary["compute_ms"] > 3.5


def test_a_loader_iterated_on_another_thread_of_the_program_reports_no_wait(
    program: Programs,
) -> None:
    watched = ran(program, "beside", "torch")
    summary = watched.summary()

    assert summary["loop_role"] == "background"
    assert summary["wait_ms"] is None
    assert summary["headspace_upper_bound_pct"] is None
    assert "on a background thread" in watched.stderr


def test_two_loaders_side_by_side_are_two_loops(program: Programs) -> None:
    summary = ran(program, "pairs", "torch").summary()

    names = {summary["loop"], *(other["name"] for other in summary["other_loops"])}
    assert names == {"DataLoader", "DataLoader-2"}
    assert [other["steps"] for other in summary["other_loops"]] == [120]
