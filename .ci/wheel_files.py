"""Changes a file inside a wheel, and its line in the wheel's list of files (`RECORD`)."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import zipfile
from collections.abc import Callable
from pathlib import Path


def rewrite(wheel: Path, ending: str, change: Callable[[bytes], bytes]) -> None:
    """Changes the files whose names end with `ending`. The others stay unchanged, with their times and permissions."""
    with zipfile.ZipFile(wheel) as archive:
        files = [(info, archive.read(info)) for info in archive.infolist()]
    changed = {
        info.filename: change(data) for info, data in files if info.filename.endswith(ending)
    }
    fresh = wheel.with_suffix(".new")
    with zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for info, data in files:
            if info.filename.endswith(".dist-info/RECORD"):
                data = update_record(data.decode(), changed).encode()
            archive.writestr(info, changed.get(info.filename, data), compresslevel=9)
    fresh.replace(wheel)


def update_record(record: str, changed: dict[str, bytes]) -> str:
    """The list of files with the hashes and sizes of the changed ones."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for name, old_hash, old_size in csv.reader(record.splitlines()):
        if name in changed:
            digest = hashlib.sha256(changed[name]).digest()
            text = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            writer.writerow((name, f"sha256={text}", len(changed[name])))
        else:
            writer.writerow((name, old_hash, old_size))
    return out.getvalue()
