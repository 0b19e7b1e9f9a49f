"""The blocks of a page and their commands are found, so that no block of the documentation stays untested."""

from __future__ import annotations

from doc_blocks import SHELLS, blocks_of, commands_of, read_blocks

PAGE = """\
# Title

```python
print(1)
```

- in a list:

  ```python
  def f():
      pass
  ```

```console
$ make demo            # without an installation
headspace  1000 steps
$ spdl engine \\
    --workdir ../search \\
    -- python train.py
$ headspace run [--mode MODE]
                [--quiet]
                -- COMMAND
```

```sh
# a comment
pip install .
headspace tune \\
    --knob a=1..2
```
"""


def test_blocks_are_numbered_by_language_and_lose_the_indent_of_their_list() -> None:
    first, second = blocks_of("page.md", PAGE, ("python",))

    assert (first.number, first.where, first.text) == (0, "page.md:3", "print(1)\n")
    assert (second.number, second.text) == (1, "def f():\n    pass\n")


def test_commands_are_joined_over_lines_and_lose_their_comment() -> None:
    console, sh = blocks_of("page.md", PAGE, SHELLS)

    assert commands_of(console) == [
        "make demo",
        "spdl engine --workdir ../search -- python train.py",
        "headspace run [--mode MODE] [--quiet] -- COMMAND",
    ]
    assert commands_of(sh) == ["pip install .", "headspace tune --knob a=1..2"]


def test_the_pages_include_the_readme_and_pages_in_folders() -> None:
    pages = {block.page for block in read_blocks("python", *SHELLS)}

    assert {"README.md", "docs/run.md", "examples/README.md", "examples/grafana/README.md"} <= pages
