"""Where records go."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class JsonLines:
    """JSON lines in a folder, one folder a run, one file a rank.

        headspace.start(to=JsonLines("/data/runs"))

    Args:
        path: The folder that holds the run folders; made where it is missing. By default
            ``HEADSPACE_DIR``, else ``headspace-runs`` in the working directory.
    """

    path: str | os.PathLike[str] | None = None

    def _export(self) -> None:
        """Nothing besides the run folder."""


#: What `headspace.start(to=)` takes.
Destination: TypeAlias = "JsonLines | str | os.PathLike[str]"
