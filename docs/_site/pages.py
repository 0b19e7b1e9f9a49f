"""The hook of MkDocs that makes the pages of the site.

A page comes from one of three places: a document in docs/; a document elsewhere in the repository, under its own path,
if `nav` names it; or the build itself, which reads what the page describes (`GENERATED`). Documents are written for
GitHub. So their links, their lists and their pictures are changed on the way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from command_page import command_page
from list_indents import indent_lists
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from repository_links import LinkExtension, Links
from schema_page import schema_page

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]

#: Files of this folder that pages load.
ASSETS = ("favicon.svg", "iframe-worker.js", "site.css")

#: Schemas, by path in docs/, with the page that describes each.
SCHEMAS = {
    "schema/headspace-1.schema.json": "reference/records.md",
    "schema/headspace-compare-1.schema.json": "reference/comparison.md",
}

#: Heading of the section that is also a page, and the document that has it.
ENVIRONMENT = ("Environment variables", "docs/commands.md")
ENVIRONMENT_PAGE = "reference/environment.md"

#: A picture with a version for each colour mode.
PICTURE = re.compile(
    r'<picture>\s*<source media="\(prefers-color-scheme: dark\)" srcset="(?P<dark>[^"]+)">'
    r'\s*<img alt="(?P<alt>[^"]+)"\s+src="(?P<light>[^"]+)">\s*</picture>'
)

links = Links(ROOT)


def section_page(heading: str, document: str) -> str:
    """A section of a document as a page."""
    text = (ROOT / document).read_text()
    section = re.search(rf"(?ms)^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text)
    if section is None:
        raise PluginError(f"{document} has no section `{heading}` (docs/_site/pages.py)")
    return f"# {heading}\n{section[1]}"


def _schema_page(schema: str) -> Callable[[], str]:
    return lambda: schema_page(ROOT / "docs" / schema, f"../{schema}")


#: Pages that the build makes, by path in the site.
GENERATED: dict[str, Callable[[], str]] = {
    "reference/commands.md": command_page,
    ENVIRONMENT_PAGE: lambda: section_page(*ENVIRONMENT),
    "reference/python.md": lambda: (FOLDER / "python.md").read_text(),
    **{page: _schema_page(schema) for schema, page in SCHEMAS.items()},
}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Lets the links of each document be changed when it is converted."""
    links.repository_url = config.repo_url
    config.markdown_extensions.append(LinkExtension(links))
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are not in docs/, and what pages load."""
    links.forget()
    for file in files:
        links.add(f"docs/{file.src_uri}", file.src_uri)
    for path in _paths(config.nav):
        if path in GENERATED:
            files.append(File.generated(config, path, content=GENERATED[path]()))
            links.add_target(path, path)
        elif files.get_file_from_path(path) is None and (ROOT / path).is_file():
            files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
            links.add(path, path)
    for schema, page in SCHEMAS.items():
        links.add_target(f"docs/{schema}", page)
    links.add_excerpt(ENVIRONMENT[1], ENVIRONMENT_PAGE)
    for name in ASSETS:
        files.append(File.generated(config, f"assets/{name}", abs_src_path=str(FOLDER / name)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Changes what GitHub shows otherwise than the site."""
    links.page = page.file.src_uri
    if links.page == ENVIRONMENT_PAGE:
        page.meta["search"] = {"exclude": True}  # The search finds the document.
    elif links.page in GENERATED:
        return markdown
    if page.is_homepage:
        page.meta["hide"] = ["navigation"]
        markdown = _add_start(markdown)
    elif "\n## " not in markdown:
        page.meta["hide"] = ["toc"]  # Its place is for the tables.
    return indent_lists(PICTURE.sub(_for_each_mode, markdown))


def _for_each_mode(picture: re.Match[str]) -> str:
    """The two versions of a picture. The style sheet of the theme shows one of them."""
    alt = " ".join(picture["alt"].split())
    return f"![{alt}]({picture['light']}#only-light)\n![{alt}]({picture['dark']}#only-dark)"


def _add_start(markdown: str) -> str:
    """The home page, with the ways into the documents after its first paragraph."""
    start = (FOLDER / "start.md").read_text()
    heading, lead, rest = markdown.split("\n\n", 2)
    return "\n\n".join((heading, lead, start, rest))


def _paths(nav: Any) -> Iterator[str]:
    """Paths in the navigation."""
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, (list, dict)):
        for part in nav.values() if isinstance(nav, dict) else nav:
            yield from _paths(part)
