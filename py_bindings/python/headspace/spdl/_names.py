"""Names the stages of SPDL's pipelines: by SPDL's names, with numbers where several are equal."""

from __future__ import annotations

import re

from spdl import pipeline as _spdl

#: Maximum number of pipelines of this process for which stages with equal names are numbered.
_PIPELINES = 64

#: By pipeline, the names of its stages, each with the ID of the stage.
_names: dict[int, dict[str, tuple[str, str]]] = {}

_OBJECT = re.compile(r"<(?:function )?(?:[\w<>]+\.)*(\w+)(?: object)? at 0x[0-9a-fA-F]+>")

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def remove_addresses(name: str) -> str:
    """Returns ``name`` without addresses of objects, because these differ between runs."""
    return _ADDRESS.sub("", _OBJECT.sub(r"\1", name))


def stage_name(info: _spdl.StageInfo) -> str:
    """Name of the stage: SPDL's name, with a number if several stages of the pipeline have the same name.

    If a pipeline is built again, for example for each epoch, its stages have the same names as before.
    """
    names = _names.get(info.pipeline_id)
    if names is None:
        while len(_names) >= _PIPELINES:
            del _names[next(iter(_names))]
        names = _names[info.pipeline_id] = {}
    plain, number = remove_addresses(info.stage_name), 1
    name = plain
    me = (info.stage_id, info.stage_name)
    while names.setdefault(name, me) != me:
        number += 1
        name = f"{plain}-{number}"
    return name
