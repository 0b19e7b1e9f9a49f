"""Answers prompts for measurement edits with the unchanged script, and passes all others to the agent.

The engine asks its coding agent to add timing to the script, to rewrite it around a cache for the
headspace experiment, and to return the unchanged script for the baseline. This module answers all three
with the script as it is.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

_log = logging.getLogger(__name__)

#: The engine's names of the prompts that ask for measurement edits.
_MEASURING = ("instrument", "headspace")
#: The engine's name of the experiment with the unchanged script.
_BASELINE = "baseline"

_KNOWLEDGE = """

# Measured by headspace

Experiments run under `headspace run`, which measures the unchanged script. Do not add timing code to
scripts. The evidence of an experiment begins with the JSON block that the analysis must return. headspace
filled it from the records: copy its numbers, and do not estimate others. `null` means not measured.
`headspace_cache` is a probe of the unchanged script: its step time is the floor, the step time if data
were free. Each remedy names a stage and a setting, and predicts a step time. Compare the prediction with
the outcome. An improvement that is smaller than the interval of a run is noise.
"""


class _Kept(str):
    """A prompt that is answered without the agent, with the unchanged script."""

    __slots__ = ("script",)
    script: str


class Agent:
    """Wraps the engine's coding agent, which gets only the prompts that need it."""

    def __init__(self, agent: Any) -> None:
        self._agent = agent

    def _load_prompt(self, name: str, **values: str) -> str:
        prompt: str = self._agent._load_prompt(name, **values)
        is_baseline = name == "apply_changes" and values.get("EXPERIMENT_NAME") == _BASELINE
        if name not in _MEASURING and not is_baseline:
            return prompt
        kept = _Kept(prompt)
        kept.script = values.get("PIPELINE_CODE", "")
        return kept

    def _load_knowledge(self) -> str:
        knowledge: str = self._agent._load_knowledge()
        return knowledge + _KNOWLEDGE

    def run(self, prompt: str, workdir: Path, phase: str) -> str:
        """Returns the unchanged script, or the answer of the agent.

        Raises:
            ValueError: If a line of the script begins with three backticks. The engine would truncate
                the script there.
        """
        if not isinstance(prompt, _Kept):
            answer: str = self._agent.run(prompt, workdir, phase)
            return answer
        if "\n```" in prompt.script:
            raise ValueError(
                "a line of the pipeline script begins with ```, and the engine would truncate the script "
                "there (indent the line)"
            )
        _log.info("headspace: `%s` returns the unchanged script, without the agent", phase)
        return f"```python\n{prompt.script}\n```\n"

    def _extract_json_block(self, text: str) -> dict[str, Any] | None:
        block: dict[str, Any] | None = self._agent._extract_json_block(text)
        return block
