"""The package's own structure: its modules import each other in one direction."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import headspace

PACKAGE = Path(headspace.__file__).parent
#: Scripts of the start of Python, which nothing imports.
PATH_ENTRY = PACKAGE / "_injection/path_entry"


def modules() -> dict[str, Path]:
    """Each module of the package, by its name."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        if PATH_ENTRY not in path.parents:
            parts = ("headspace", *path.relative_to(PACKAGE).with_suffix("").parts)
            found[".".join(part for part in parts if part != "__init__")] = path
    return found


def statements(body: list[ast.stmt], *, in_functions: bool = False) -> Iterator[ast.stmt]:
    """Statements that run when the module is imported, apart from those for type checkers."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If) and ast.unparse(statement.test).endswith("TYPE_CHECKING"):
            continue
        is_function = isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef))
        if is_function and not in_functions:
            continue
        for field in ("body", "orelse", "finalbody"):
            yield from statements(getattr(statement, field, []), in_functions=in_functions)
        for handler in getattr(statement, "handlers", []):
            yield from statements(handler.body, in_functions=in_functions)


def imports(path: Path, known: dict[str, Path], *, in_functions: bool = False) -> set[str]:
    """Modules of the package that this one imports when it is imported itself.

    With `in_functions`, also those that its functions import when they are called.

    The packages above an imported module count only if their names are taken from them: their
    `__init__` may be running.
    """
    found = set()
    body = ast.parse(path.read_text()).body
    for statement in statements(body, in_functions=in_functions):
        if isinstance(statement, ast.Import):
            found.update(alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            assert statement.level == 0, f"{path}: relative imports hide where a name comes from"
            for alias in statement.names:
                if (PACKAGE / f"{alias.name}.pyi").exists():
                    continue  # The extension module imports nothing while it is imported.
                submodule = f"{statement.module}.{alias.name}"
                found.add(submodule if submodule in known else str(statement.module))
    return found & known.keys()


def cycle(graph: dict[str, set[str]]) -> list[str] | None:
    """A cycle of the graph, or None."""
    done: set[str] = set()

    def search(node: str, path: list[str]) -> list[str] | None:
        if node in path:
            return [*path[path.index(node) :], node]
        if node in done:
            return None
        for target in sorted(graph.get(node, ())):
            found = search(target, [*path, node])
            if found is not None:
                return found
        done.add(node)
        return None

    for node in sorted(graph):
        found = search(node, [])
        if found is not None:
            return found
    return None


def test_the_search_for_cycles_finds_a_known_cycle() -> None:
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["b", "c", "b"]
    assert cycle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) is None


def test_no_modules_import_each_other_in_a_cycle() -> None:
    known = modules()
    graph = {name: imports(path, known) for name, path in known.items()}

    assert graph["headspace._loops.wrap"] >= {"headspace._loops.proxy", "headspace._settings"}
    assert cycle(graph) is None


def test_no_modules_import_each_other_inside_functions() -> None:
    known = modules()
    # A package's `__init__` imports its modules on request, and they import the package.
    graph = {
        name: {
            target
            for target in imports(path, known, in_functions=True)
            if not f"{name}.".startswith(f"{target}.") and not f"{target}.".startswith(f"{name}.")
        }
        for name, path in known.items()
    }

    assert "headspace._loops.accelerate" in graph["headspace._loops.proxy"]
    assert cycle(graph) is None


def test_the_private_packages_import_each_other_in_one_direction() -> None:
    known = modules()
    graph: dict[str, set[str]] = {}
    for name, path in known.items():
        package = ".".join(name.split(".")[:2])
        targets = {".".join(target.split(".")[:2]) for target in imports(path, known)}
        if package != "headspace":
            graph.setdefault(package, set()).update(targets - {package, "headspace"})

    assert "headspace._session" in graph["headspace._loops"]
    assert cycle(graph) is None


def test_every_private_package_has_a_docstring() -> None:
    packages = [path.parent for path in PACKAGE.glob("*/__init__.py")]

    assert PACKAGE / "_loops" in packages
    for package in packages:
        assert ast.get_docstring(ast.parse((package / "__init__.py").read_text())), package
