"""Streams applications that announce themselves on the cluster: what each does, as it says itself."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated, Any

from ottla.client.applications import Announcement, announced
from ottla.console.clusters import Cluster
from ottla.console.endpoints import endpoint
from ottla.console.problems import EXPECTED, Refused, problem_of
from ottla.console.rest import Rest, check_address

ASKED_AT_ONCE = 8
_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class FindPipelines:
    q: Annotated[str, "a part of the application id"] = ""


@dataclass(frozen=True, slots=True)
class OnePipeline:
    application: Annotated[str, "its application id"]


@endpoint("GET", "/pipelines", "Streams applications, with what they do at present")
async def find_pipelines(cluster: Cluster, asked: FindPipelines) -> Any:
    part = asked.q.strip().lower()
    wanted = [each for each in await announced(cluster.client) if part in each.application_id.lower()]
    limit = asyncio.Semaphore(ASKED_AT_ONCE)

    async def of(each: Announcement) -> dict[str, Any]:
        try:
            async with limit:
                found = await _ask(each)
        except EXPECTED as error:
            # It was killed, or is out of reach: both are worth to be seen.
            return {**_known(each), "state": "UNKNOWN", "error": problem_of(error).text, "queries": []}
        return {**_known(each), "state": found["state"], "error": None, "queries": found["queries"]}

    return {"pipelines": await asyncio.gather(*map(of, wanted))}


@endpoint("GET", "/pipelines/{application}", "One application: its topology with live numbers")
async def pipeline(cluster: Cluster, asked: OnePipeline) -> Any:
    for each in await announced(cluster.client):
        if each.application_id == asked.application:
            return {**_known(each), **await _ask(each)}
    raise Refused(f"no application {asked.application} has announced itself on this cluster", 404)


ENDPOINTS = (find_pipelines, pipeline)


async def _ask(each: Announcement) -> Any:
    """The address stands in a topic, so whoever may write that can choose it: it is only ever read from, and
    what does not answer as an application does is not shown."""
    try:
        check_address(each.url)
    except ValueError as error:
        raise Refused(str(error), 502) from None
    found = await Rest("the application", each.url, _TIMEOUT_S).ask("GET", "topology", each.application_id)
    if not isinstance(found, dict) or not {"applicationId", "state", "queries", "nodes"} <= found.keys():
        raise Refused(f"what answers at {each.url} is no Streams application", 502)
    return found


def _known(each: Announcement) -> dict[str, Any]:
    return {
        "applicationId": each.application_id,
        "url": each.url,
        "host": each.host,
        "pid": each.pid,
        "startedMs": each.started_ms,
    }
