"""Brings the program's own modules to Spark's workers: what is not installed there travels with the
functions.

A function of an installed package is sent as its name. One of the program itself, a script or a module
beside it, has to be sent as it is, since a worker, maybe on another machine, could not import it.
"""

from __future__ import annotations

import dataclasses
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from types import FunctionType, MethodType, ModuleType
from typing import Any

from ottla.streams.plan.plan import Plan


def ship_modules(plan: Plan) -> list[str]:
    """Have the modules that a plan's functions are from sent along; their names."""
    from pyspark import cloudpickle

    names = sorted(_roots(_modules([*plan.nodes.values(), *plan.stores.values()])))
    for name in names:
        cloudpickle.register_pickle_by_value(sys.modules[name])  # type: ignore[no-untyped-call]
    return names


def _roots(modules: Iterable[ModuleType]) -> set[str]:
    """The modules that are the program's own. A package travels whole."""
    names: set[str] = set()
    for module in modules:
        root = module.__name__.partition(".")[0]
        is_program = root not in {"__main__", "builtins", "ottla"} and not _is_installed(module)
        if is_program:
            names.add(root if root in sys.modules else module.__name__)
    return names


def _is_installed(module: ModuleType) -> bool:
    path = getattr(module, "__file__", None)
    if path is None:
        return True
    places = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return any(str(path).startswith(place) for place in places if place)


def _modules(things: Iterable[Any]) -> Iterable[ModuleType]:
    """Modules of all functions and classes that can be reached."""
    waiting = list(things)
    seen: set[int] = set()
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        match thing:
            case FunctionType():
                yield from _module_of(thing)
                waiting += [cell.cell_contents for cell in thing.__closure__ or () if _is_filled(cell)]
                waiting += thing.__defaults__ or ()
                names = thing.__code__.co_names
                waiting += [thing.__globals__[name] for name in names if name in thing.__globals__]
            case MethodType():
                waiting += [thing.__func__, thing.__self__]
            case type():
                yield from _module_of(thing)
            case ModuleType():
                yield thing
            case Mapping():
                waiting += thing.values()
            case list() | tuple() | set() | frozenset():
                waiting += thing
            case _ if dataclasses.is_dataclass(thing):
                waiting += [getattr(thing, field.name) for field in dataclasses.fields(thing)]
            case _ if callable(thing):
                waiting.append(type(thing))


def _module_of(thing: Any) -> Iterable[ModuleType]:
    module = sys.modules.get(thing.__module__)
    return () if module is None else (module,)


def _is_filled(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True
