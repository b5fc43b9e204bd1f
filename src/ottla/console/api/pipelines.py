"""Streams applications that announce themselves on the cluster: what each does, as it says itself."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any

from ottla.client.applications import Announcement, announced
from ottla.console.clusters import Cluster
from ottla.console.endpoints import endpoint
from ottla.console.problems import EXPECTED, Refused, problem_of
from ottla.console.rest import Rest, check_address

ASKED_AT_ONCE = 8
ASKED_MAX = 100
"""Whoever may write the topic may announce thousands."""
NODES_MAX, EDGES_MAX = 2000, 10_000
_TIMEOUT_S = 5.0
_NUMBER_MAX = 1 << 62


@dataclass(frozen=True, slots=True)
class FindPipelines:
    q: Annotated[str, "a part of the application id"] = ""


@dataclass(frozen=True, slots=True)
class OnePipeline:
    application: Annotated[str, "its application id"]


@endpoint("GET", "/pipelines", "Streams applications, with what they do at present")
async def find_pipelines(cluster: Cluster, asked: FindPipelines) -> Any:
    part = asked.q.strip().lower()
    found = [each for each in await announced(cluster.client) if part in each.application_id.lower()]
    wanted = found[:ASKED_MAX]
    limit = asyncio.Semaphore(ASKED_AT_ONCE)

    async def of(each: Announcement) -> dict[str, Any]:
        try:
            async with limit:
                found = await _ask(each)
        except EXPECTED as error:
            # It was killed, or is out of reach: both are worth to be seen.
            return {**_known(each), "state": "UNKNOWN", "error": problem_of(error).text, "queries": []}
        return {**_known(each), "state": found["state"], "error": None, "queries": found["queries"]}

    return {"total": len(found), "pipelines": await asyncio.gather(*map(of, wanted))}


@endpoint("GET", "/pipelines/{application}", "One application: its topology with live numbers")
async def pipeline(cluster: Cluster, asked: OnePipeline) -> Any:
    for each in await announced(cluster.client):
        if each.application_id == asked.application:
            return {**_known(each), **await _ask(each)}
    raise Refused(f"no application {asked.application} has announced itself on this cluster", 404)


ENDPOINTS = (find_pipelines, pipeline)


class _Number:
    """A number that can be shown, or nothing."""


_COUNTS = {"*": _Number}
_QUERY = {
    "query": str,
    "kind": str,
    "state": str,
    "topics": [str],
    "batches": _Number,
    "lag": _Number,
    "restarts?": _Number,
    "failure?": str,
    "lastBatch?": {"rowsPerSecond?": _Number, "durationMs?": _Number},
    "stateRows?": _Number,
    "stateBytes?": _Number,
}
_NODE = {
    "name": str,
    "type": str,
    "topics": [str],
    "stores": [str],
    "children": [str],
    "records?": _Number,
    "dropped?": _COUNTS,
    "failed?": _COUNTS,
}
_STORE = {"query": str, "name": str, "kind": str, "changelog?": str}
_APPLICATION = {
    "applicationId": str,
    "state": str,
    "paused?": bool,
    "queries": [_QUERY],
    "nodes": [_NODE],
    "stores?": [_STORE],
}
"""What is read of an answer. A name with a question mark may be missing, or be null; `*` is any name."""


def _fits(found: Any, shape: Any) -> bool:
    match shape:
        case {"*": inner}:
            return isinstance(found, dict) and all(_fits(each, inner) for each in found.values())
        case dict():
            return isinstance(found, dict) and all(
                _fits(found[key], inner)
                if (key := name.rstrip("?")) in found and found[key] is not None
                else name.endswith("?") or (inner is _Number and key in found)
                for name, inner in shape.items()
            )
        case [inner]:
            is_list = isinstance(found, list) and len(found) <= NODES_MAX
            return is_list and all(_fits(each, inner) for each in found)
    if shape is _Number:
        return isinstance(found, int | float) and abs(found) < _NUMBER_MAX
    return isinstance(found, shape)


async def _ask(each: Announcement) -> Any:
    """The address stands in a topic, so whoever may write that can choose it: it is only ever read from, and
    what does not answer as an application does is not shown."""
    try:
        check_address(each.url)
    except ValueError as error:
        raise Refused(str(error), 502) from None
    is_none = f"what answers at {each.url} is no Streams application"
    try:
        found = await Rest("the application", each.url, _TIMEOUT_S).ask(
            "GET", "topology", each.application_id
        )
    except Refused as error:
        # Not in the words of whatever it is: they may be meant for others.
        raise error if error.status == HTTPStatus.SERVICE_UNAVAILABLE else Refused(is_none, 502) from None
    if not _fits(found, _APPLICATION) or sum(len(node["children"]) for node in found["nodes"]) > EDGES_MAX:
        raise Refused(is_none, 502)
    return found


def _known(each: Announcement) -> dict[str, Any]:
    return {
        "applicationId": each.application_id,
        "url": each.url,
        "host": each.host,
        "pid": each.pid,
        "startedMs": each.started_ms,
    }
