"""The documentation site: its reference is complete, its links lead to pages, and it loads nothing from other servers."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from running import clean_environment

import headspace

if TYPE_CHECKING:
    from browser import Browser

pytestmark = pytest.mark.slow
pytest_plugins = ["browser_fixtures"]

ROOT = Path(__file__).parents[2]
HOOKS = ROOT / "docs/_site"

#: Attributes with addresses that a browser loads by itself.
LOADED = {
    ("script", "src"),
    ("img", "src"),
    ("img", "srcset"),
    ("source", "src"),
    ("source", "srcset"),
    ("iframe", "src"),
    ("embed", "src"),
    ("object", "data"),
    ("video", "src"),
    ("video", "poster"),
    ("audio", "src"),
    ("use", "href"),
    ("link", "href"),
}
#: Kinds of `<link>` that a browser does not load.
NAMED_ONLY = {"prev", "next", "canonical"}

EXTERNAL = re.compile(r"(?:[a-z]+:)?//", re.IGNORECASE)


class Page(HTMLParser):
    """A page of the site."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        #: Text after each anchor, up to the next one.
        self.sections: defaultdict[str, str] = defaultdict(str)
        self.headings: dict[str, str] = {}
        self.links: dict[str, str] = {}
        self.loaded: list[str] = []
        self.styles: list[str] = []
        self._anchor = ""
        self._heading: str | None = None
        self._link: str | None = None
        self._in_style = False
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if re.fullmatch("h[1-6]", tag) and "id" in values:
            self._anchor = self._heading = values["id"]
        if tag == "a":
            self._link = values.get("href")
        if tag == "link" and set(values.get("rel", "").split()) <= NAMED_ONLY:
            return
        self.loaded += [value for name, value in values.items() if (tag, name) in LOADED]
        self.styles.append(values.get("style", ""))
        self._in_style = tag == "style"

    def handle_endtag(self, tag: str) -> None:
        if re.fullmatch("h[1-6]", tag):
            self._heading = None
        if tag == "a":
            self._link = None
        if tag == "style":
            self._in_style = False

    def handle_data(self, data: str) -> None:
        self.sections[self._anchor] += data
        if self._heading is not None:
            self.headings[self._heading] = self.headings.get(self._heading, "") + data
        if self._link is not None:
            self.links[data] = self._link
        if self._in_style:
            self.styles.append(data)


def words(text: str) -> str:
    """The text on one line, without Markdown markup. The page shows links of rustdoc (in brackets) as code."""
    text = re.sub(r"\[(`[^`]+`)\]", r"\1", text)
    return " ".join(re.sub(r":[a-z]+:(?=`)|[`*]", "", text).split())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("material", reason="requirements/docs.txt is not installed (`make docs`)")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, env=clean_environment(), capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_public_name_has_its_docstring_on_the_python_page(site: Path) -> None:
    page = Page(site / "reference/python.html")
    missing = []
    for name in headspace.__all__:
        if name == "__version__":  # The docstring of a string is that of `str`.
            expected = "__version__"
        else:
            docstring = inspect.getdoc(getattr(headspace, name))
            assert docstring, f"headspace.{name} has no docstring"
            expected = docstring.split("\n\n")[0]
        if words(expected) not in words(page.sections[f"headspace.{name}"]):
            missing.append(name)
    assert not missing


def test_every_command_has_a_section_with_its_help(site: Path) -> None:
    page = Page(site / "reference/commands.html")
    help_text = headspace_help()
    listed = help_text.partition("Commands:\n")[2].partition("\n\n")[0]
    names = re.findall(r"^  ([a-z]+) ", listed, re.MULTILINE)
    assert {"run", "report", "tune", "demo"} <= set(names)
    missing = [
        name
        for name in names
        if name != "help"
        and words(headspace_help(name)) not in words(page.sections[f"headspace-{name}"])
    ]
    assert not missing


def headspace_help(*command: str) -> str:
    environment = {**clean_environment(), "COLUMNS": "90", "NO_COLOR": "1"}
    done = subprocess.run(
        [Path(sys.executable).with_name("headspace"), *command, "--help"],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout


@pytest.mark.parametrize(
    ("schema", "page"),
    [
        ("headspace-1.schema.json", "reference/records.html"),
        ("headspace-compare-1.schema.json", "reference/comparison.html"),
    ],
)
def test_every_definition_of_a_schema_has_a_section_with_each_field(
    site: Path, schema: str, page: str
) -> None:
    shown = Page(site / page)
    assert shown.links["JSON schema"] == f"../schema/{schema}"
    definitions = json.loads((ROOT / "docs/schema" / schema).read_text())["$defs"]
    missing = []
    for name, definition in definitions.items():
        anchors = [
            anchor for anchor, text in shown.headings.items() if re.search(rf"\b{name}\b", text)
        ]
        assert len(anchors) == 1, f"{name}: {anchors}"
        text = words(shown.sections[anchors[0]])
        missing += [
            f"{name}.{field}: {what['description']}"
            for field, what in definition.get("properties", {}).items()
            if not re.search(rf"\b{field}\b", text) or words(what["description"]) not in text
        ]
        missing += [
            f"{name}: {value['const']}"
            for value in definition.get("oneOf", [])
            if not re.search(rf"\b{value['const']}\b", text)
        ]
    assert missing == []


def test_no_page_loads_a_script_a_style_sheet_a_font_or_an_image_from_another_server(
    site: Path,
) -> None:
    external = []
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 40
    for path in pages:
        page = Page(path)
        assert page.loaded, path
        styles = re.findall(r"(?:url\(|@import)\s*['\"]?([^'\")\s]+)", "\n".join(page.styles))
        external += [
            f"{path.relative_to(site)}: {url}"
            for url in [*page.loaded, *styles]
            if EXTERNAL.match(url.strip())
        ]
    for path in sorted(site.rglob("*.css")):
        urls = re.findall(r"(?:url\(|@import)\s*['\"]?([^'\")\s]+)", path.read_text())
        external += [
            f"{path.relative_to(site)}: {url}" for url in urls if EXTERNAL.match(url.strip())
        ]
    assert not external


def test_links_of_the_readme_lead_to_pages_of_the_site(site: Path) -> None:
    links = Page(site / "index.html").links
    assert links["headspace run"] == "run.html"
    assert links["one more argument"] == "integrations.html#spdl"
    assert links["ARCHITECTURE.md"] == "ARCHITECTURE.html"
    assert links["decisions"] == "adr/index.html"
    assert links["schema"] == "reference/records.html"
    # A file of the repository that is no page.
    assert "MIT" not in links


def test_each_link_inside_the_site_has_a_target(site: Path) -> None:
    """MkDocs checks the links of Markdown. This also checks the navigation and the docstrings."""
    pages = {path: Page(path) for path in site.rglob("*.html")}
    broken = []
    for path, page in pages.items():
        if path.name == "404.html":  # Its links begin at the root of a server.
            continue
        for url in page.links.values():
            link = urlsplit(url)
            if link.scheme or link.netloc:
                continue
            target = (path.parent / link.path).resolve() if link.path else path
            if not target.is_file():
                broken.append(f"{path.relative_to(site)}: {url}")
            elif link.fragment and target in pages:
                ids = set(re.findall(r'id="([^"]+)"', target.read_text()))
                if link.fragment not in ids:
                    broken.append(f"{path.relative_to(site)}: {url}")
    assert not broken


def test_the_search_works_in_a_page_that_is_opened_as_a_file(site: Path, browser: Browser) -> None:
    browser.look(1200, 900)
    browser.open((site / "index.html").as_uri())
    browser.run(
        "document.querySelector('.md-search__input').focus();"
        "document.querySelector('.md-search__input').value = 'page-locked';"
        "document.querySelector('.md-search__input').dispatchEvent(new Event('keyup'));"
    )
    found = "return [...document.querySelectorAll('.md-search-result__link')].map((a) => a.href)"
    browser.wait(lambda: browser.run(found), "the search has results")
    assert any("reference/python.html" in url for url in browser.run(found))
    assert browser.requested_hosts() == set()
    assert browser.errors() == []


def test_the_copy_button_copies_commands_without_their_prompt(site: Path, browser: Browser) -> None:
    browser.look(1200, 900)
    browser.open((site / "tutorial.html").as_uri())
    # The script of the theme marks a block with this attribute while it reads what to copy.
    copied = browser.run(
        "const button = document.querySelector('[data-clipboard-target]');"
        "const block = document.querySelector(button.dataset.clipboardTarget);"
        "const shown = block.innerText;"
        "block.setAttribute('data-md-copying', '');"
        "return [shown, block.innerText];"
    )
    shown, text = (value.splitlines() for value in copied)
    assert shown[0].startswith("$ ")
    assert [line.lstrip() for line in text] == [line.removeprefix("$ ") for line in shown]


def hook(name: str) -> ModuleType:
    """A module of the hooks."""
    pytest.importorskip("mkdocs", reason="requirements/docs.txt is not installed (`make docs`)")
    sys.path.insert(0, str(HOOKS))
    try:
        return __import__(name)
    finally:
        sys.path.remove(str(HOOKS))


def test_a_link_to_a_file_that_does_not_exist_is_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    links = hook("repository_links").Links(ROOT)
    links.add("docs/run.md", "run.md")
    links.add("README.md", "README.md")
    links.page = "run.md"
    assert links.convert("../README.md#use") == "README.md#use"
    assert links.convert("../Makefile") is None
    assert not caplog.records
    # The site has README.md beside run.md, the repository does not.
    assert links.convert("README.md") is None
    assert caplog.messages == ["docs/run.md links to docs/README.md, which does not exist"]
    links.repository_url = "https://example.org/headspace/"
    assert links.convert("../Makefile") == "https://example.org/headspace/blob/HEAD/Makefile"


def test_lists_keep_their_levels() -> None:
    markdown = pytest.importorskip("markdown")
    text = "Text\n- a\n  more of a\n  1. b\n\n     of b\n  2. c\n\nText\n"
    html = markdown.markdown(hook("list_indents").indent_lists(text), extensions=["sane_lists"])
    plain = re.sub(r"\s+", " ", re.sub(r"</?p>", "", html)).replace("> ", ">").replace(" <", "<")
    assert plain == "Text<ul><li>a more of a<ol><li>b of b</li><li>c</li></ol></li></ul>Text"


def test_indented_examples_of_docstrings_become_blocks_of_python() -> None:
    pytest.importorskip("griffe", reason="requirements/docs.txt is not installed (`make docs`)")
    text = "Summary.\n\n    loader = wrap(loader)\n\nArgs:\n    loader: The loader.\n\n    other: Another."
    marked = hook("docstrings").mark_examples(text)
    assert "```python\nloader = wrap(loader)\n```" in marked
    assert marked.endswith("Args:\n    loader: The loader.\n\n    other: Another.")
