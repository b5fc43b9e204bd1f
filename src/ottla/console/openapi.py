"""The API as an OpenAPI document, made from the declarations of its operations."""

from __future__ import annotations

import re
from typing import Any

from ottla import __version__
from ottla.console.api.all import FAMILIES
from ottla.console.asked import fields_of, schema_of
from ottla.console.endpoints import Endpoint

BASE = "/api/clusters/{cluster}"
_NAMED = re.compile(r"\{(\w+)\}")


def document() -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for family, endpoints in FAMILIES.items():
        for endpoint in endpoints:
            operation = _operation(family, endpoint)
            paths.setdefault(BASE + endpoint.path, {})[endpoint.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Ottla console",
            "version": __version__,
            "description": (
                "What the pages of the console do. Requests that change anything need the cookie and the "
                "token of GET /api/token, the token in the header X-CSRF-Token, and a body in JSON."
            ),
        },
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": {"type": "apiKey", "in": "header", "name": "X-CSRF-Token"},
            }
        },
    }


def _operation(family: str, endpoint: Endpoint[Any]) -> dict[str, Any]:
    in_path = set(_NAMED.findall(endpoint.path))
    fields = fields_of(endpoint.asked)
    parameters: list[dict[str, Any]] = [
        {"name": "cluster", "in": "path", "required": True, "schema": {"type": "string"}}
    ]
    body: dict[str, Any] = {}
    required: list[str] = []
    for field in fields:
        schema = schema_of(field.kind)
        if field.name in in_path or not endpoint.has_body:
            place = "path" if field.name in in_path else "query"
            if field.default not in (None, "", [], {}):
                schema["default"] = field.default
            is_list = schema.get("type") == "array"
            parameters.append(
                {
                    "name": field.name,
                    "in": place,
                    "required": field.required,
                    "description": field.doc,
                    "schema": schema,
                    **({"style": "form", "explode": False} if is_list else {}),
                }
            )
        else:
            body[field.name] = {**schema, "description": field.doc}
            required += [field.name] if field.required else []
    operation: dict[str, Any] = {
        "tags": [family],
        "operationId": endpoint.answer.__name__,
        "summary": endpoint.summary,
        "parameters": parameters,
        "responses": {
            "200": {"description": "done"},
            "default": {
                "description": "what went wrong, and Apache Kafka's name of the error where a broker refused",
                "content": {
                    "application/json": {
                        "schema": {
                            "type": "object",
                            "properties": {"error": {"type": "string"}, "code": {"type": ["string", "null"]}},
                        }
                    }
                },
            },
        },
    }
    if endpoint.has_body:
        operation["security"] = [{"token": []}]
        schema = {"type": "object", "properties": body, "required": required}
        operation["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    return operation
