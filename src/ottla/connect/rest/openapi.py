"""A description of the routes for tools that read OpenAPI."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ottla import __version__

_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")


def described(operations: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for path, methods in operations.items():
        plain = _PARAMETER.sub(r"{\1}", path)
        parameters = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in _PARAMETER.findall(path)
        ]
        for method in methods:
            operation: dict[str, Any] = {"responses": {"default": {"description": "JSON"}}}
            if parameters:
                operation["parameters"] = parameters
            if method in {"POST", "PUT", "PATCH"}:
                operation["requestBody"] = {"content": {"application/json": {"schema": {"type": "object"}}}}
            paths.setdefault(plain, {})[method.lower()] = operation
    return {"openapi": "3.1.0", "info": {"title": "Connect", "version": __version__}, "paths": paths}
