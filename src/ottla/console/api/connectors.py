"""Connectors of a Connect cluster: what they are, how they do, and what their plugins want to be told."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Annotated, Any

from ottla.console.api.typed import check_typed
from ottla.console.asked import Secret
from ottla.console.clusters import Cluster
from ottla.console.endpoints import endpoint
from ottla.console.problems import EXPECTED, Refused, problem_of
from ottla.console.rest import Rest
from ottla.wire.acls import Operation
from ottla.wire.api import ApiKey

CLASS = "connector.class"
DEAD_LETTERS = "errors.deadletterqueue.topic.name"
HIDDEN = "(hidden)"
LINES_MAX = 500
_NO_LOG = (
    "these workers do not tell what they log; those of Apache Kafka write it to a file or to standard output"
)
# Of plugins that do not declare what is secret.
_SECRET_NAME = re.compile(r"password|secret|credential|jaas|private.?key|token", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FindConnectors:
    q: Annotated[str, "a part of the name"] = ""


@dataclass(frozen=True, slots=True)
class NoQuestion:
    pass


@dataclass(frozen=True, slots=True)
class OneConnector:
    connector: Annotated[str, "its name"]


@dataclass(frozen=True, slots=True)
class FindLines:
    connector: Annotated[str, "its name"]
    q: Annotated[str, "a part of the text"] = ""
    task: Annotated[int | None, "only of this task"] = None
    limit: Annotated[int, f"how many of the newest, at most {LINES_MAX}"] = 100


@dataclass(frozen=True, slots=True)
class OnePlugin:
    plugin: Annotated[str, "the class of a connector"]


@dataclass(frozen=True, slots=True)
class CheckSettings:
    plugin: Annotated[str, "the class of a connector"]
    set: Annotated[dict[str, str], "settings by name", Secret] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreateConnector:
    connector: Annotated[str, "its name"]
    set: Annotated[dict[str, str], "settings by name, connector.class among them", Secret]


@dataclass(frozen=True, slots=True)
class AlterConnector:
    connector: Annotated[str, "its name"]
    set: Annotated[dict[str, str], "new values by name", Secret] = field(default_factory=dict)
    delete: Annotated[list[str], "names of settings that get their defaults back"] = field(
        default_factory=list
    )


@dataclass(frozen=True, slots=True)
class Restart:
    connector: Annotated[str, "its name"]
    include_tasks: Annotated[bool, "its tasks, too"] = True
    only_failed: Annotated[bool, "only what has failed"] = False


@dataclass(frozen=True, slots=True)
class RestartTask:
    connector: Annotated[str, "its name"]
    task: Annotated[int, "the number of the task"]


@dataclass(frozen=True, slots=True)
class ConfirmConnector:
    connector: Annotated[str, "its name"]
    confirm: Annotated[str, "the name once more, as typed by whoever is sure"]


# Looking


@endpoint("GET", "/connectors", "Connectors, with their state and that of their tasks")
async def find_connectors(cluster: Cluster, asked: FindConnectors) -> Any:
    found = await _rest(cluster).ask("GET", "connectors", query=[("expand", "status"), ("expand", "info")])
    part = asked.q.strip().lower()
    return {
        "address": _rest(cluster).address,
        "connectors": [
            _summary(name, each["status"], each.get("info", {}))
            for name, each in sorted(found.items())
            if part in name.lower() and "status" in each
        ],
    }


@endpoint("GET", "/connectors/{connector}", "One connector: tasks, errors, settings, topics and offsets")
async def connector(cluster: Cluster, asked: OneConnector) -> Any:
    rest, name = _rest(cluster), asked.connector
    info, status = await asyncio.gather(
        rest.ask("GET", "connectors", name), _or_problem(rest.ask("GET", "connectors", name, "status"))
    )
    if "error" in status:
        # Just made: no worker has taken it yet.
        status = {"connector": {"state": "UNASSIGNED"}, "tasks": []}
    settings, topics, offsets = await asyncio.gather(
        _settings(rest, info["config"]),
        _or_problem(rest.ask("GET", "connectors", name, "topics")),
        _or_problem(rest.ask("GET", "connectors", name, "offsets")),
    )
    return {
        **_summary(name, status, info),
        "trace": status["connector"].get("trace"),
        "taskStates": [
            {
                "task": task["id"],
                "state": task["state"],
                "worker": task.get("worker_id", ""),
                "trace": task.get("trace"),
            }
            for task in status["tasks"]
        ],
        "topics": topics[name]["topics"] if "error" not in topics else [],
        "offsets": offsets.get("offsets", []),
        "offsetsError": offsets.get("error"),
        "deadLetters": info["config"].get(DEAD_LETTERS) or None,
        "settings": settings,
    }


@endpoint("GET", "/connectors/{connector}/log", "The newest lines that a connector and its tasks have logged")
async def connector_log(cluster: Cluster, asked: FindLines) -> Any:
    found = await _or_problem(_rest(cluster).ask("GET", "connectors", asked.connector, "logs"))
    if found.get("status") == HTTPStatus.NOT_FOUND:
        # A worker of Apache Kafka has no such route; or there is no such connector, which this says.
        await _rest(cluster).ask("GET", "connectors", asked.connector)
        return {"lines": [], "missing": [_NO_LOG]}
    if "error" in found:
        return {"lines": [], "missing": [found["error"]]}
    part = asked.q.lower()
    lines = [
        {
            "time": each["time_ms"],
            "level": each["level"],
            "worker": each["worker"],
            "task": each["task"],
            "logger": each["logger"],
            "text": each["text"],
        }
        for each in found["lines"]
        if part in each["text"].lower() and asked.task in (None, each["task"])
    ]
    return {
        "lines": lines[-min(max(asked.limit, 1), LINES_MAX) :][::-1],
        "missing": list(found["missing"].values()),
    }


@endpoint("GET", "/connector-plugins", "Plugins that connectors are made from")
async def find_plugins(cluster: Cluster, asked: NoQuestion) -> Any:
    found = await _rest(cluster).ask("GET", "connector-plugins")
    return {"plugins": [each for each in found if each.get("type") in {"source", "sink"}]}


@endpoint("GET", "/connector-plugins/{plugin}", "What a plugin wants to be told, and what it means")
async def plugin(cluster: Cluster, asked: OnePlugin) -> Any:
    checked = await _validated(_rest(cluster), asked.plugin, {})
    return {"plugin": asked.plugin, "groups": checked["groups"], "settings": _declared(checked)}


# Changing


@endpoint(
    "POST", "/connector-plugins/{plugin}/check", "What is wrong with settings, if anything", only_looks=True
)
async def check_settings(cluster: Cluster, asked: CheckSettings) -> Any:
    checked = await _validated(_rest(cluster), asked.plugin, asked.set)
    errors = {
        each["value"]["name"]: each["value"]["errors"]
        for each in checked["configs"]
        if each["value"]["errors"]
    }
    return {"errors": errors, "count": len(errors)}


@endpoint("PUT", "/connectors/{connector}", "Create a connector")
async def create_connector(cluster: Cluster, asked: CreateConnector) -> Any:
    await _check_may_change(cluster)
    if not asked.connector.strip():
        raise Refused("connector is empty: give it a name")
    body = {"name": asked.connector, "config": {**asked.set, "name": asked.connector}}
    await _rest(cluster).ask("POST", "connectors", body=body)
    return {"created": asked.connector, "go": ["connectors", asked.connector]}


@endpoint("PATCH", "/connectors/{connector}/settings", "Change settings of a connector")
async def alter_connector(cluster: Cluster, asked: AlterConnector) -> Any:
    await _check_may_change(cluster)
    if not asked.set and not asked.delete:
        raise Refused("nothing is to be changed: give set or delete")
    rest = _rest(cluster)
    config = await rest.ask("GET", "connectors", asked.connector, "config")
    changed = {**{name: value for name, value in config.items() if name not in asked.delete}, **asked.set}
    await rest.ask("PUT", "connectors", asked.connector, "config", body=changed)
    return {"set": sorted(asked.set), "deleted": list(asked.delete)}


@endpoint("POST", "/connectors/{connector}/restart", "Start a connector and its tasks anew")
async def restart_connector(cluster: Cluster, asked: Restart) -> Any:
    flags = {
        "includeTasks": str(asked.include_tasks).lower(),
        "onlyFailed": str(asked.only_failed).lower(),
    }
    return await _told(cluster, "POST", asked.connector, "restart", query=flags)


@endpoint("POST", "/connectors/{connector}/tasks/{task}/restart", "Start one task anew")
async def restart_task(cluster: Cluster, asked: RestartTask) -> Any:
    return await _told(cluster, "POST", asked.connector, "tasks", str(asked.task), "restart")


@endpoint("POST", "/connectors/{connector}/pause", "Let tasks wait, and keep what they hold")
async def pause_connector(cluster: Cluster, asked: OneConnector) -> Any:
    return await _told(cluster, "PUT", asked.connector, "pause")


@endpoint("POST", "/connectors/{connector}/resume", "Let a connector go on that was paused or stopped")
async def resume_connector(cluster: Cluster, asked: OneConnector) -> Any:
    return await _told(cluster, "PUT", asked.connector, "resume")


@endpoint("POST", "/connectors/{connector}/stop", "End the tasks, and keep settings and offsets")
async def stop_connector(cluster: Cluster, asked: OneConnector) -> Any:
    return await _told(cluster, "PUT", asked.connector, "stop")


@endpoint("DELETE", "/connectors/{connector}/offsets", "Forget how far a stopped connector has come")
async def reset_connector_offsets(cluster: Cluster, asked: ConfirmConnector) -> Any:
    check_typed("the name of the connector", asked.connector, asked.confirm)
    return await _told(cluster, "DELETE", asked.connector, "offsets")


@endpoint("DELETE", "/connectors/{connector}", "Delete a connector")
async def delete_connector(cluster: Cluster, asked: ConfirmConnector) -> Any:
    check_typed("the name of the connector", asked.connector, asked.confirm)
    await _told(cluster, "DELETE", asked.connector)
    return {"deleted": asked.connector, "go": ["connectors"]}


ENDPOINTS = (
    find_connectors,
    connector,
    connector_log,
    find_plugins,
    plugin,
    check_settings,
    create_connector,
    alter_connector,
    restart_connector,
    restart_task,
    pause_connector,
    resume_connector,
    stop_connector,
    reset_connector_offsets,
    delete_connector,
)


def _rest(cluster: Cluster) -> Rest:
    if cluster.connect is None:
        raise Refused("the console does not know where Connect is; start it with --connect URL", 501)
    return cluster.connect


async def _told(cluster: Cluster, method: str, name: str, *action: str, query: Any = ()) -> dict[str, Any]:
    await _check_may_change(cluster)
    await _rest(cluster).ask(method, "connectors", name, *action, query=query)
    return {"connector": name}


async def _check_may_change(cluster: Cluster) -> None:
    """Connect does not know the cluster's users. Of those who log in here, whoever may alter the cluster may
    change what moves its records."""
    if not cluster.settings.login:
        return
    answer = await cluster.client.ask(
        None, ApiKey.DESCRIBE_CLUSTER, {"include_cluster_authorized_operations": True}, about=""
    )
    if not answer.cluster_authorized_operations & (1 << Operation.ALTER):
        raise Refused("to change connectors one has to be allowed to ALTER the cluster, and you are not", 403)


async def _validated(rest: Rest, plugin_class: str, settings: Mapping[str, str]) -> Any:
    # It has a name when it is made; what is asked here is about the rest.
    body = {"name": "unnamed", **settings, CLASS: plugin_class}
    return await rest.ask("PUT", "connector-plugins", plugin_class, "config", "validate", body=body)


async def _settings(rest: Rest, config: Mapping[str, str]) -> list[dict[str, Any]]:
    """As declared by the plugin where it can be asked, with the values that were given."""
    try:
        declared = _declared(await _validated(rest, config[CLASS], config))
    except EXPECTED:
        # The plugin may be gone; what was given is there all the same.
        declared = []
    except KeyError:
        declared = []
    known = {each["name"] for each in declared}
    declared += [_undeclared(name) for name in sorted(config) if name not in known]
    for each in declared:
        given = config.get(each["name"])
        each["isGiven"] = given is not None
        each["value"] = (HIDDEN if each["isSecret"] else given) if given is not None else each["default"]
    declared.sort(key=lambda each: not each["isGiven"])
    return declared


def _declared(checked: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = []
    for each in checked["configs"]:
        definition, value = each["definition"], each["value"]
        found.append(
            {
                "name": definition["name"],
                "title": definition.get("display_name") or definition["name"],
                "type": definition["type"],
                "isRequired": definition["required"],
                "isSecret": definition["type"] == "PASSWORD" or _is_secret(definition["name"]),
                "default": definition.get("default_value"),
                "importance": definition["importance"],
                "doc": definition.get("documentation") or "",
                "group": definition.get("group") or "",
                "order": definition.get("order_in_group", -1),
                "recommended": value.get("recommended_values") or [],
                "errors": value.get("errors") or [],
            }
        )
    return found


def _undeclared(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "title": name,
        "type": "STRING",
        "isRequired": False,
        "isSecret": _is_secret(name),
        "default": None,
        "importance": "LOW",
        "doc": "",
        "group": "",
        "order": -1,
        "recommended": [],
        "errors": [],
    }


def _is_secret(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None


def _summary(name: str, status: Mapping[str, Any], info: Mapping[str, Any]) -> dict[str, Any]:
    states = [task["state"] for task in status["tasks"]]
    return {
        "name": name,
        "type": status.get("type") or info.get("type") or "",
        "class": info.get("config", {}).get(CLASS, ""),
        "state": status["connector"]["state"],
        "worker": status["connector"].get("worker_id", ""),
        "tasks": len(states),
        "running": states.count("RUNNING"),
        "failed": states.count("FAILED"),
    }


async def _or_problem(asking: Any) -> Any:
    """What some workers do not tell, or not of every connector, must not keep the rest from being seen."""
    try:
        return await asking
    except EXPECTED as error:
        problem = problem_of(error)
        return {"error": problem.text, "status": problem.status}
