"""When rank 0 of several ends, it prints the verdict on all of them."""

from __future__ import annotations

from pathlib import Path

from running import Programs, Started, rank_environment, words


def start_rank(program: Programs, runs: Path, rank: int, *options: str) -> Started:
    env = {**rank_environment(rank), "HEADSPACE_INTERVAL": "0.1"}
    return program.start("loop.py", "--compute-ms=4", *options, env=env, runs=runs)


def test_rank_0_waits_until_the_others_have_ended_and_names_the_slow_one(
    program: Programs, tmp_path: Path
) -> None:
    # The sleeps of rank 0 take 2.2 s, those of rank 1 take 3.1 s. Rank 0 waits at most 2 s.
    steps = ("--steps=90", "--compute-ms=20")
    slow = start_rank(program, tmp_path / "runs", 1, *steps, "--load-ms=15")
    first = start_rank(program, tmp_path / "runs", 0, *steps, "--load-ms=5").finish()

    assert slow.finish().stderr == ""
    said = words(first.stderr)
    assert "2 of 2 read" in said, first.stderr
    assert "those of rank 1, the slowest of 2" in said, first.stderr
    assert "Rank 1, because of its data" in said, first.stderr


def test_rank_0_does_not_wait_for_ranks_that_train_on(program: Programs, tmp_path: Path) -> None:
    end = tmp_path / "end"
    trains_on = ("--say=20", f"--until={end}", "--load-ms=8")
    second = start_rank(program, tmp_path / "runs", 1, *trains_on)
    second.wait_for("ready")
    first = start_rank(program, tmp_path / "runs", 0, "--steps=200", "--load-ms=1").finish()
    still_trains = second.process.poll() is None
    end.touch()

    assert still_trains
    assert first.exit_code == 0
    assert "Rank 1 has no recorded end" in words(first.stderr), first.stderr
    assert second.finish().exit_code == 0


def test_a_rank_whose_others_wrote_elsewhere_prints_its_own_verdict(
    program: Programs, tmp_path: Path
) -> None:
    first = start_rank(program, tmp_path / "runs", 0, "--steps=100").finish()

    assert "those of one rank of 2" in words(first.stderr), first.stderr
    assert "ranks  " not in first.stderr
