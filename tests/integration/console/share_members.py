"""A member of a share group that says it is there and reads nothing, of Ottla or Apache Kafka."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from console_site import Site

from ottla.client.cluster import GROUP, ClusterClient
from ottla.client.errors import raise_for_code
from ottla.runtime.net import AsyncioNetwork
from ottla.wire.api import ApiKey

JOIN, LEAVE = 0, -1


@contextmanager
def member_of(bootstrap: str, group: str, *topics: str, client_id: str) -> Iterator[str]:
    member = str(uuid4())
    epoch = asyncio.run(_heartbeat(bootstrap, client_id, group, member, JOIN, topics))
    try:
        assert epoch > 0
        yield member
    finally:
        asyncio.run(_heartbeat(bootstrap, client_id, group, member, LEAVE, None))


async def _heartbeat(bootstrap: str, client_id: str, group: str, member: str, epoch: int, topics: Any) -> int:
    asked = {
        "group_id": group,
        "member_id": member,
        "member_epoch": epoch,
        "rack_id": None,
        "subscribed_topic_names": topics,
    }

    def check(answer: Any) -> None:
        raise_for_code(answer.error_code, answer.error_message, group)

    async with ClusterClient(AsyncioNetwork(), bootstrap, {"client.id": client_id}) as client:
        api = ApiKey.SHARE_GROUP_HEARTBEAT
        answer = await client.ask_coordinator(GROUP, group, api, asked, check, about="")
        return int(answer.member_epoch)


def check_a_share_group_is_shown_set_and_deleted(site: Site, bootstrap: str) -> None:
    site.change("POST", "topics", name="shared", partitions=2)
    until = time.monotonic() + 60
    while site.ask("GET", site.path("topics", "shared"))[0] != 200:
        # Apache Kafka's brokers hear of a topic some time after its controller has answered.
        assert time.monotonic() < until
    for partition in (0, 1):
        site.change("POST", "topics", "shared", "records", value="x", repeat=10, partition=partition)
    with member_of(bootstrap, "sharers", "shared", client_id="a-sharer") as member:
        while True:
            found = site.get("groups", "sharers")
            if found["members"] and found["members"][0]["assigned"]:
                break
            assert time.monotonic() < until, found
        assert found["type"] == "Share" and found["members"][0]["id"] == member
        assert found["members"][0]["assigned"] == [{"topic": "shared", "partitions": [0, 1]}]
        assert [each["clients"] for each in found["partitions"]] == [["a-sharer"]] * 2
        assert "a-sharer" in site.page("groups", "sharers")
        moved = {"topic": "shared", "to": "earliest", "preview": False}
        assert site.refused("POST", "groups", "sharers", "offsets", **moved)[0] in {400, 409}
    preview = site.change("POST", "groups", "sharers", "offsets", topic="shared", to="offset", offset=4)
    assert [each["to"] for each in preview["partitions"]] == [4, 4]
    site.change("POST", "groups", "sharers", "offsets", topic="shared", to="offset", offset=4, preview=False)
    found = site.get("groups", "sharers")
    assert [(each["offset"], each["lag"]) for each in found["partitions"]] == [(4, 6), (4, 6)], found
    assert "Done before" in site.page("groups", "sharers")
    while {group["name"]: group["lag"] for group in site.get("groups", q="sharers")["groups"]} != {
        "sharers": 12
    }:
        assert time.monotonic() < until
    (consumer,) = site.get("topics", "shared", "consumers")["consumers"]
    assert consumer["group"] == "sharers" and consumer["lag"] == 12
    state = site.get("topics", "__share_group_state", "records", key="sharers", limit=100)["records"]
    assert {record["key"]["as"] for record in state} == {"__share_group_state"}
    assert '"startOffset": 4' in state[0]["value"]["text"]
    site.change("DELETE", "groups", "sharers", confirm="sharers")
    assert site.refused("GET", "groups", "sharers")[0] == 404
