"""Stands in for a coding agent: `codex exec -`, a prompt of SPDL's autoresearch engine on stdin.

It edits the video example for each experiment, proposes three experiments in the first round of planning
and none later, and answers an analysis with the block in the evidence. It appends the kind of each prompt
to `asked.txt` in its folder.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

DEFAULTS = "parser.set_defaults(**asdict(Knobs()))"
STEP = "            steps += 1\n"

#: What an experiment changes in the script, by its name.
EDITS = {
    "mtp": (DEFAULTS, "parser.set_defaults(**asdict(Knobs(subprocess=True)))"),
    "mp_region": ("import argparse\n", "import argparse\n\nimport absent_module\n"),
    "mp_region_startup_retry_1": (DEFAULTS, "parser.set_defaults(**asdict(Knobs(pool='shared')))"),
    "decode": (DEFAULTS, "parser.set_defaults(**asdict(Knobs(decode_threads=2)))"),
    "crash": (
        STEP,
        STEP + "            if steps == 45:\n                raise MemoryError('of no use')\n",
    ),
    "stall": (STEP, STEP + "            if steps == 45:\n                time.sleep(3600)\n"),
}


def main() -> None:
    prompt = sys.stdin.read()
    for opening, (kind, answer) in KINDS.items():
        if opening in prompt[:1000]:
            with Path("asked.txt").open("a") as asked:
                print(kind, file=asked)
            print(answer(prompt))
            return
    sys.exit(f"not a prompt that is known here: {prompt[:200]}")


def analyze(prompt: str) -> str:
    evidence = prompt.split("### Pipeline Performance Stats", 1)[1]
    (block,) = re.findall(r"```json\n(.*?)\n```", evidence.split("\n## ", 2)[1], re.DOTALL)
    return f"As measured.\n\n```json\n{block}\n```\n"


def apply(prompt: str) -> str:
    (name,) = re.findall(r"^\*\*Experiment\*\*: (.*)$", prompt, re.MULTILINE)
    (script,) = re.findall(
        r"## Source Code to Modify.*?```python\n(.*?)\n```\n\n## Instructions", prompt, re.DOTALL
    )
    old, new = EDITS[name]
    assert script.count(old) == 1, (name, script.count(old))
    return f"```python\n{script.replace(old, new)}\n```\n"


def plan(prompt: str) -> str:
    (iteration,) = re.findall(r"^\*\*Iteration\*\*: (\d+) of", prompt, re.MULTILINE)
    (command,) = re.findall(r"^\*\*Base launch command\*\*: `(.*)`$", prompt, re.MULTILINE)
    names = ["decode", "crash", "stall"] if iteration == "1" else []
    experiments = [
        {
            "name": name,
            "changes": [name],
            "change_summary": name,
            "description": f"Apply the edit that is called {name}",
            "hypothesis": "one change at a time",
            "launch_command": command,
            "goto": None,
            "best_practices_tags": ["concurrency_tuning", "batch_size_tuning"],
        }
        for name in names
    ]
    action = "launch" if experiments else "stop"
    plan = {"action": action, "reasoning": "as written", "experiments": experiments}
    return f"```json\n{json.dumps(plan, indent=2)}\n```\n"


#: By a phrase of the prompt's first sentences.
KINDS = {
    "analyzing the results of a completed experiment": ("analyze", analyze),
    "apply a specific code change": ("apply", apply),
    "repair an experiment that failed during job startup": ("repair", apply),
    "planning the next iteration": ("plan", plan),
}

if __name__ == "__main__":
    main()
