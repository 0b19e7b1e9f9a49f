"""Changes and adds files inside a wheel, and their lines in the wheel's list of files (`RECORD`)."""

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
    files = read_wheel(wheel)
    write_wheel(
        wheel,
        files,
        {info.filename: change(data) for info, data in files if info.filename.endswith(ending)},
    )


def add_license(wheel: Path, name: str, text: str) -> None:
    """Adds a file to the licences of a wheel, and names it in the metadata."""
    files = read_wheel(wheel)
    (metadata,) = (one for one in files if one[0].filename.endswith(".dist-info/METADATA"))
    info, old = metadata
    folder = info.filename.removesuffix("METADATA")
    header, _, description = old.decode().partition("\n\n")
    new = f"{header.rstrip()}\nLicense-File: {name}\n\n{description}"
    added = zipfile.ZipInfo(f"{folder}licenses/{name}", info.date_time)
    added.external_attr = info.external_attr
    files.insert(files.index(metadata), (added, b""))
    write_wheel(wheel, files, {added.filename: text.encode(), info.filename: new.encode()})


def read_wheel(wheel: Path) -> list[tuple[zipfile.ZipInfo, bytes]]:
    with zipfile.ZipFile(wheel) as archive:
        return [(info, archive.read(info)) for info in archive.infolist()]


def write_wheel(
    wheel: Path, files: list[tuple[zipfile.ZipInfo, bytes]], contents: dict[str, bytes]
) -> None:
    """Writes the wheel again, with these contents of the named files."""
    fresh = wheel.with_suffix(".new")
    with zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for info, data in files:
            if info.filename.endswith(".dist-info/RECORD"):
                data = update_record(data.decode(), contents).encode()
            archive.writestr(info, contents.get(info.filename, data), zipfile.ZIP_DEFLATED, 9)
    fresh.replace(wheel)


def update_record(record: str, changed: dict[str, bytes]) -> str:
    """The list of files with the hashes and sizes of the changed and the new ones."""
    rows = list(csv.reader(record.splitlines()))
    known = {name for name, *_ in rows}
    rows += [[name, "", ""] for name in changed if name not in known]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for name, old_hash, old_size in rows:
        if name in changed:
            digest = hashlib.sha256(changed[name]).digest()
            text = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            writer.writerow((name, f"sha256={text}", len(changed[name])))
        else:
            writer.writerow((name, old_hash, old_size))
    return out.getvalue()
