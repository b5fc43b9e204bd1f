"""What each route is for: as OpenAPI for programs, as a page for people."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any, Final

from ottla import __version__

PAGE: Final = "/openapi"
DOCUMENT: Final = "/openapi.json"
_PARAMETER: Final = re.compile(r"\{(\w+)\}")
_STYLE: Final = (
    ":root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;"
    "padding:0 1rem}section{border-top:1px solid #8886;padding:.6rem 0}h2{font-size:1rem;margin:0}"
    "b{display:inline-block;min-width:4.5rem}p{margin:.2rem 0}dl{margin:.3rem 0 0 4.5rem}dt{float:left;"
    "clear:left;margin-right:.6rem}dd{margin:0}"
)


@dataclass(frozen=True, slots=True)
class Operation:
    summary: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: str = ""
    """What the JSON object of the request is, if there is one."""


_CONFIG: Final = "the configuration: names of settings and their values"
_OFFSETS: Final = 'as GET answers: {"offsets": [{"partition": …, "offset": …}]}'

OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("GET", "/"): Operation("Version of the worker and id of its Kafka cluster."),
    ("GET", "/health"): Operation("Whether the worker has started and can read its topics."),
    ("GET", "/metrics"): Operation("Metrics for Prometheus."),
    ("GET", PAGE): Operation("This page."),
    ("GET", DOCUMENT): Operation("The same for programs."),
    ("GET", "/connectors"): Operation(
        "Names of the connectors.",
        {"expand": "status or info, or both: objects with these instead of names; may be repeated"},
    ),
    ("POST", "/connectors"): Operation(
        "Make a connector.", body="name, config, and initial_state: RUNNING, PAUSED or STOPPED"
    ),
    ("GET", "/connectors/{name}"): Operation("Configuration, type and tasks."),
    ("DELETE", "/connectors/{name}"): Operation("Stop and remove the connector. Its offsets stay."),
    ("GET", "/connectors/{name}/config"): Operation("Its configuration."),
    ("PUT", "/connectors/{name}/config"): Operation(
        "Make it, or give it another configuration.", body=_CONFIG
    ),
    ("PATCH", "/connectors/{name}/config"): Operation(
        "Change some settings.", body="settings to be changed; null removes one"
    ),
    ("GET", "/connectors/{name}/status"): Operation("States of connector and tasks, and on which workers."),
    ("GET", "/connectors/{name}/logs"): Operation(
        "Newest lines of its log, of all workers. Apache Kafka's workers have no such route."
    ),
    ("GET", "/connectors/{name}/topics"): Operation("Topics that it has used."),
    ("PUT", "/connectors/{name}/topics/reset"): Operation("Forget which topics it has used."),
    ("PUT", "/connectors/{name}/pause"): Operation("Pause: tasks stay, and do nothing."),
    ("PUT", "/connectors/{name}/resume"): Operation("Go on after a pause or a stop."),
    ("PUT", "/connectors/{name}/stop"): Operation("Stop: tasks end, the configuration stays."),
    ("POST", "/connectors/{name}/restart"): Operation(
        "Restart the connector.",
        {"includeTasks": "true: its tasks, too", "onlyFailed": "true: only what has failed"},
    ),
    ("GET", "/connectors/{name}/tasks"): Operation("Its tasks and their configurations."),
    ("GET", "/connectors/{name}/tasks/{task}/status"): Operation("State of a task."),
    ("POST", "/connectors/{name}/tasks/{task}/restart"): Operation("Restart a task."),
    ("GET", "/connectors/{name}/offsets"): Operation("How far it has come."),
    ("PATCH", "/connectors/{name}/offsets"): Operation("Set offsets of a stopped connector.", body=_OFFSETS),
    ("DELETE", "/connectors/{name}/offsets"): Operation("Forget the offsets of a stopped connector."),
    ("GET", "/connector-plugins"): Operation(
        "Plugins of the worker.", {"connectorsOnly": "false: also converters, transforms and predicates"}
    ),
    ("GET", "/connector-plugins/{plugin}/config"): Operation("Settings of a plugin."),
    ("PUT", "/connector-plugins/{plugin}/config/validate"): Operation(
        "What is wrong with a configuration, setting by setting.", body=_CONFIG
    ),
    ("GET", "/admin/loggers"): Operation("Loggers and their levels."),
    ("GET", "/admin/loggers/{logger}"): Operation("Level of a logger."),
    ("PUT", "/admin/loggers/{logger}"): Operation(
        "Set the level of a logger.",
        {"scope": "cluster: on all workers"},
        "level: such as DEBUG",
    ),
}


def described() -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for (method, path), operation in OPERATIONS.items():
        parameters = [_parameter(name, "path") for name in _PARAMETER.findall(path)]
        parameters += [_parameter(name, "query", text) for name, text in operation.query.items()]
        shown: dict[str, Any] = {
            "summary": operation.summary,
            "parameters": parameters,
            "responses": {"default": {"description": "JSON; errors have error_code and message"}},
        }
        if operation.body:
            content = {"application/json": {"schema": {"type": "object", "description": operation.body}}}
            shown["requestBody"] = {"content": content, "required": True}
        paths.setdefault(path, {})[method.lower()] = shown
    return {"openapi": "3.1.0", "info": {"title": "Ottla Connect", "version": __version__}, "paths": paths}


def page() -> str:
    title = f"Ottla Connect {__version__}"
    sections = "".join(_section(*key, operation) for key, operation in OPERATIONS.items())
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style><h1>{title}</h1>'
        "<p>The REST API of Kafka Connect. Requests and answers are JSON; what fails is answered with "
        "<code>error_code</code> and <code>message</code>. "
        f'For programs: <a href="{DOCUMENT}">{DOCUMENT}</a>.</p>{sections}'
    )


def _section(method: str, path: str, operation: Operation) -> str:
    told: Iterable[tuple[str, str]] = [*operation.query.items()]
    if operation.body:
        told = [*told, ("body", operation.body)]
    rows = "".join(f"<dt><code>{escape(name)}</code></dt><dd>{escape(text)}</dd>" for name, text in told)
    return (
        f"<section><h2><b>{method}</b> <code>{escape(path)}</code></h2><p>{escape(operation.summary)}</p>"
        f"{f'<dl>{rows}</dl>' if rows else ''}</section>"
    )


def _parameter(name: str, place: str, text: str = "") -> dict[str, Any]:
    return {
        "name": name,
        "in": place,
        "required": place == "path",
        "schema": {"type": "string"},
        **({"description": text} if text else {}),
    }
