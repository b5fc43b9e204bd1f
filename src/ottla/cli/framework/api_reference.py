"""Writes the pages of docs/reference/api from the docstrings of the packages that programs import."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

_MADE = "<!-- Made by `python -m ottla.cli.framework.api_reference docs/reference/api`. Do not edit. -->"
_Function = ast.FunctionDef | ast.AsyncFunctionDef

PAGES: dict[str, tuple[str, ...]] = {
    "streams": ("ottla.streams", "ottla.streams.run", "ottla.streams.testing"),
    "spark": ("ottla.spark.session", "ottla.spark.sink"),
    "testing": ("ottla.testing", "ottla.testing.plugin"),
}


def pages() -> dict[str, str]:
    """Texts by file name."""
    return {f"{name}.md": "\n".join(_page(name, modules)) for name, modules in PAGES.items()}


def _page(name: str, modules: tuple[str, ...]) -> Iterator[str]:
    yield f"# ottla.{name}\n\n{_MADE}\n"
    for module_name in modules:
        module = importlib.import_module(module_name)
        yield f"## {module_name}\n\n{_text(module)}\n"
        for public in _public(module):
            yield from _described(public, getattr(module, public))


def _public(module: Any) -> list[str]:
    """What it says is public, or else what it defines itself."""
    if hasattr(module, "__all__"):
        return sorted(module.__all__)
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    )


def _described(name: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value):
        yield from _class(name, value)
        return
    # What pytest makes of a fixture keeps the function.
    function = inspect.unwrap(getattr(value, "_fixture_function", value))
    if inspect.isfunction(function):
        node = _node(function)
        yield f"### {name}\n\n```python\n{_signature(node)}\n```\n\n{_paragraph(node)}"


def _class(name: str, value: type) -> Iterator[str]:
    own = [each for each in value.__mro__ if each.__module__.startswith("ottla.")]
    bodies = [node for each in own if isinstance(node := _node(each), ast.ClassDef)]
    yield f"### {name}\n\n{_paragraph(bodies[0])}"
    fields: dict[str, str] = {}
    methods: dict[str, _Function] = {}
    for body in bodies:
        for statement in body.body:
            match statement:
                case ast.AnnAssign(target=ast.Name(id=field)) if not field.startswith("_"):
                    fields.setdefault(field, ast.unparse(statement))
                case ast.Assign(targets=[ast.Name(id=field)]) if not field.startswith("_"):
                    fields.setdefault(field, ast.unparse(statement))
                case ast.FunctionDef() | ast.AsyncFunctionDef() if _is_public(statement):
                    methods.setdefault(statement.name, statement)
    if fields:
        yield "```python\n" + "\n".join(fields.values()) + "\n```\n"
    for method in methods.values():
        yield f"- `{_signature(method)}`{_behind(method)}"
    if methods:
        yield ""


def _is_public(method: _Function) -> bool:
    return not method.name.startswith("_") or method.name == "__init__"


def _node(value: Any) -> Any:
    return ast.parse(textwrap.dedent(inspect.getsource(value))).body[0]


def _signature(function: _Function) -> str:
    kinds = {ast.unparse(decorator) for decorator in function.decorator_list}
    returned = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    if "property" in kinds:
        return f"{function.name}{returned.replace(' -> ', ': ')}"
    arguments = ast.unparse(function.args)
    for first in ("self", "cls"):
        arguments = arguments.removeprefix(first).removeprefix(", ")
    if function.name == "__init__":
        return f"({arguments})"
    return f"{function.name}({arguments}){returned}"


def _paragraph(node: _Function | ast.ClassDef) -> str:
    text = ast.get_docstring(node)
    return f"{_as_markdown(text)}\n" if text else ""


def _behind(method: _Function) -> str:
    text = ast.get_docstring(method)
    return ": " + _as_markdown(" ".join(text.partition("\n\n")[0].split())) if text else ""


def _text(module: Any) -> str:
    return _as_markdown(inspect.getdoc(module) or "")


def _as_markdown(text: str) -> str:
    """Double backticks are what Python's documents use for code."""
    return text.replace("``", "`")


def main(directory: str) -> None:
    os.makedirs(directory, exist_ok=True)
    for name, text in pages().items():
        with open(f"{directory}/{name}", "w", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    main(sys.argv[1])
