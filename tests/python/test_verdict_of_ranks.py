"""The first of several ranks prints the verdict on all of them when it ends."""

from __future__ import annotations

from pathlib import Path

from running import Programs, Started


def start_rank(program: Programs, runs: Path, rank: int, *options: str) -> Started:
    env = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "TORCHELASTIC_RUN_ID": "two",
        "HEADSPACE_INTERVAL": "0.1",
    }
    return program.start("loop.py", "--compute-ms=4", *options, env=env, runs=runs)


def words(text: str) -> str:
    return " ".join(text.split())


def test_the_first_rank_names_the_slow_one(program: Programs, tmp_path: Path) -> None:
    ranks = [
        start_rank(program, tmp_path / "runs", 0, "--steps=400", "--load-ms=1"),
        start_rank(program, tmp_path / "runs", 1, "--steps=220", "--load-ms=8"),
    ]
    first, second = (rank.finish() for rank in ranks)

    said = words(first.stderr)
    assert "2 of 2 read" in said, first.stderr
    assert "those of rank 1, the slowest of 2" in said, first.stderr
    assert "Rank 1, because of its data" in said, first.stderr
    assert "has no recorded end" not in said, first.stderr
    assert second.stderr == ""


def test_the_first_rank_does_not_wait_for_ranks_that_go_on(
    program: Programs, tmp_path: Path
) -> None:
    end = tmp_path / "end"
    # The output of a rank is only read when it ends.
    second = start_rank(program, tmp_path / "runs", 1, f"--until={end}", "--load-ms=8")
    first = start_rank(program, tmp_path / "runs", 0, "--steps=400", "--load-ms=1").finish()
    end.touch()

    assert first.exit_code == 0
    assert "Rank 1 has no recorded end" in words(first.stderr), first.stderr
    assert second.finish().exit_code == 0


def test_a_rank_whose_others_wrote_elsewhere_prints_its_own_verdict(
    program: Programs, tmp_path: Path
) -> None:
    first = start_rank(program, tmp_path / "runs", 0, "--steps=100").finish()

    assert "those of one rank of 2" in words(first.stderr), first.stderr
    assert "ranks  " not in first.stderr
