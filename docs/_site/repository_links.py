"""Links of documents, from paths in the repository to pages of the site.

A link to a file that is a page becomes a link to that page. Other files of the repository are not in the site. A link to
one of them becomes a link to the repository's own site, if `repo_url` is set. Otherwise its text stays.
"""

from __future__ import annotations

import logging
import posixpath
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit
from xml.etree.ElementTree import Element

from markdown import Markdown
from markdown.extensions import Extension
from markdown.treeprocessors import Treeprocessor

# A warning of a logger under `mkdocs` is an error with `--strict`.
log = logging.getLogger("mkdocs.headspace")

#: Runs after the links were parsed (20), and before headings get links (5) and MkDocs checks all links (0).
PRIORITY = 10


class Links:
    """Which file of the repository is which page.

    Args:
        root: Folder of the repository.
        repository_url: Address under which the repository's files can be read. None if there is none.
    """

    def __init__(self, root: Path, repository_url: str | None = None) -> None:
        self.root = root
        self.repository_url = repository_url
        #: The page that is converted now, by its path in the site.
        self.page = ""
        self.forget()

    def forget(self) -> None:
        """Forgets the pages of an earlier build."""
        self._pages: dict[str, str] = {}
        self._documents: dict[str, str] = {}
        self._excerpts: set[str] = set()

    def add(self, document: str, page: str) -> None:
        """Adds a document that is a page.

        Args:
            document: Path of the document in the repository.
            page: Path in the site.
        """
        self._pages[document] = page
        self._documents[page] = document

    def add_target(self, file: str, page: str) -> None:
        """Adds a page that the build makes: links to the file lead to it. Its own links are those of the site."""
        self._pages[file] = page

    def add_excerpt(self, document: str, page: str) -> None:
        """Adds a page that is a part of a document. Links to the document do not lead to this page."""
        self._documents[page] = document
        self._excerpts.add(page)

    def convert(self, url: str) -> str | None:
        """The address of a link of the current page in the site. None if the link has no target there."""
        scheme, netloc, path, query, anchor = urlsplit(url)
        document = self._documents.get(self.page)
        if scheme or netloc or path.startswith("/") or document is None:
            return url
        if not path and self.page not in self._excerpts:
            return url
        target = posixpath.normpath(posixpath.join(posixpath.dirname(document), unquote(path)))
        if not path:
            target = document
        page = self._pages.get(target) or self._pages.get(f"{target}/README.md")
        if page is not None:
            relative = posixpath.relpath(page, posixpath.dirname(self.page) or ".")
            return urlunsplit(("", "", relative, query, anchor))
        if not (self.root / target).exists() or target.startswith(".."):
            log.warning("%s links to %s, which does not exist", document, target)
            return None
        if self.repository_url:
            return f"{self.repository_url.rstrip('/')}/blob/HEAD/{target}"
        return None


class LinkExtension(Extension):
    """The extension of Python-Markdown that converts the links of a page."""

    def __init__(self, links: Links) -> None:
        super().__init__()
        self._links = links

    def extendMarkdown(self, md: Markdown) -> None:
        md.treeprocessors.register(_LinkProcessor(self._links), "repository_links", PRIORITY)


class _LinkProcessor(Treeprocessor):
    def __init__(self, links: Links) -> None:
        super().__init__()
        self._links = links

    def run(self, root: Element) -> None:
        for element in root.iter():
            attribute = {"a": "href", "img": "src"}.get(element.tag)
            url = element.get(attribute) if attribute else None
            if attribute is None or url is None:
                continue
            converted = self._links.convert(url)
            if converted is not None:
                element.set(attribute, converted)
            else:
                element.tag = "span"
                del element.attrib[attribute]
