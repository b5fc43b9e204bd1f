"""A member of a share group that says it is there and reads nothing, of Ottla or Apache Kafka."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from console_site import Site

from ottla.client.cluster import GROUP, ClusterClient
from ottla.client.errors import raise_for_code
from ottla.runtime.net import AsyncioNetwork
from ottla.wire.api import ApiKey

JOIN, LEAVE = 0, -1
_HEARTBEAT_S = 0.5


@contextmanager
def member_of(bootstrap: str, group: str, *topics: str, client_id: str) -> Iterator[str]:
    """It says again and again that it is there: Apache Kafka gives a member its partitions with a later
    answer, and takes one that keeps silent for dead."""
    member = _Member(bootstrap, group, topics, client_id)
    asyncio.run(member.say(JOIN))
    assert member.epoch > 0
    leaving = threading.Event()

    def stay() -> None:
        while not leaving.wait(_HEARTBEAT_S):
            asyncio.run(member.say(member.epoch))

    staying = threading.Thread(target=stay)
    staying.start()
    try:
        yield member.id
    finally:
        leaving.set()
        staying.join()
        asyncio.run(member.say(LEAVE))


class _Member:
    def __init__(self, bootstrap: str, group: str, topics: Sequence[str], client_id: str) -> None:
        self.id = str(uuid4())
        self.epoch = JOIN
        self._bootstrap, self._group, self._topics, self._client_id = bootstrap, group, topics, client_id

    async def say(self, epoch: int) -> None:
        asked = {
            "group_id": self._group,
            "member_id": self.id,
            "member_epoch": epoch,
            "rack_id": None,
            "subscribed_topic_names": None if epoch == LEAVE else list(self._topics),
        }

        def check(answer: Any) -> None:
            raise_for_code(answer.error_code, answer.error_message, self._group)

        async with ClusterClient(AsyncioNetwork(), self._bootstrap, {"client.id": self._client_id}) as client:
            api = ApiKey.SHARE_GROUP_HEARTBEAT
            answer = await client.ask_coordinator(GROUP, self._group, api, asked, check, about="")
            self.epoch = int(answer.member_epoch)


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
