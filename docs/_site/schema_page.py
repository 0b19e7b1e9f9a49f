"""A page from a JSON schema: a table of fields, or of values, for each kind of record and for each definition."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from pymdownx.slugs import slugify

Schema = dict[str, Any]

#: Units, by the last part of a field's name.
UNITS = {
    "_bytes_per_s": "B/s",
    "_bytes": "B",
    "_ms": "ms",
    "_nano": "ns",
    "_pct": "%",
    "_s": "s",
}

KINDS = """
## Kinds of records

| `kind` | content |
|---|---|
"""

FIELDS = """
| field | type | meaning |
|---|---|---|
"""

VALUES = """
| value | meaning |
|---|---|
"""

anchor_of = slugify(case="lower")


def schema_page(path: Path, link: str) -> str:
    """The page, in Markdown.

    Args:
        path: The schema.
        link: Where the page finds the schema in the site.
    """
    schema = json.loads(path.read_text())
    return _Page(schema).text(link)


class _Page:
    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._definitions: dict[str, Schema] = schema["$defs"]
        #: The kind that each definition of a record describes.
        self._kinds = {
            _name(record): record["properties"]["kind"]["const"]
            for record in schema.get("oneOf", [])
        }

    def text(self, link: str) -> str:
        title = self._schema["title"]
        about = (
            f"# {title}\n\n{_sentence(self._schema)}\n\nThis page is made from the "
            f"[JSON schema]({link}). A field is always present, unless it is marked as optional.\n"
        )
        everywhere = self._fields(self._schema)
        if not self._kinds:
            return "".join([about, everywhere, "\n## Definitions\n", *self._sections(3)])
        about += "\n## Fields of every record\n" + everywhere
        return "".join(
            [about, self._overview(), *self._records(), "\n## Definitions\n", *self._sections(3)]
        )

    def _overview(self) -> str:
        rows = [
            f"| [`{record['properties']['kind']['const']}`](#{anchor_of(self._heading(_name(record)), '-')}) "
            f"| {_cell(record)} |\n"
            for record in self._schema["oneOf"]
        ]
        return KINDS + "".join(rows)

    def _records(self) -> list[str]:
        return [
            f"\n### {self._heading(name)}\n\n{_sentence(self._definitions[name])}\n"
            + self._fields(self._definitions[name])
            for name in self._kinds
        ]

    def _sections(self, level: int) -> list[str]:
        return [
            f"\n{'#' * level} {name}\n\n{_sentence(definition)}\n{self._content(definition)}"
            for name, definition in sorted(self._definitions.items())
            if name not in self._kinds
        ]

    def _heading(self, name: str) -> str:
        return f"`{self._kinds[name]}`: {name}" if name in self._kinds else name

    def _content(self, definition: Schema) -> str:
        if "properties" in definition:
            return self._fields(definition)
        if "oneOf" in definition:
            rows = (f"| `{value['const']}` | {_cell(value)} |\n" for value in definition["oneOf"])
            return VALUES + "".join(rows)
        return f"\nType: {self._type(definition)}\n"

    def _fields(self, definition: Schema) -> str:
        required = definition.get("required", [])
        rows = []
        for name, field in definition["properties"].items():
            kind = self._type(field)
            unit = next((unit for end, unit in UNITS.items() if name.endswith(end)), None)
            kind += f", {unit}" if unit else ""
            kind += "" if name in required else ", optional"
            rows.append(f"| `{name}` | {kind} | {_cell(field)} |\n")
        return FIELDS + "".join(rows)

    def _type(self, schema: Schema) -> str:
        """What values a field has, in words, with links to definitions."""
        if "$ref" in schema:
            name = _name(schema)
            return f"[{name}](#{anchor_of(self._heading(name), '-')})"
        if "anyOf" in schema:
            return " or ".join(map(self._type, schema["anyOf"]))
        if "const" in schema:
            return f"`{json.dumps(schema['const'])}`"
        kinds = schema["type"]
        return " or ".join(
            self._plain(kind, schema) for kind in ([kinds] if isinstance(kinds, str) else kinds)
        )

    def _plain(self, kind: str, schema: Schema) -> str:
        if kind == "array" and "prefixItems" in schema:
            return "list: " + ", ".join(map(self._type, schema["prefixItems"]))
        if kind == "array":
            return f"list of {self._type(schema['items'])}"
        if kind == "object" and "additionalProperties" in schema:
            return f"object with values of type {self._type(schema['additionalProperties'])}"
        return kind


def _name(schema: Schema) -> str:
    """Name of the definition to which the schema refers."""
    name: str = schema["$ref"].removeprefix("#/$defs/")
    return name


def _sentence(schema: Schema) -> str:
    """The description. Links of rustdoc, such as [`Type`], become code."""
    return re.sub(r"\[(`[^`]+`)\]", r"\1", " ".join(schema["description"].split()))


def _cell(schema: Schema) -> str:
    """The description in a table: `|` outside of code would end the cell."""
    parts = re.split(r"(`[^`]*`)", _sentence(schema))
    return "".join(part if part.startswith("`") else part.replace("|", "&#124;") for part in parts)
