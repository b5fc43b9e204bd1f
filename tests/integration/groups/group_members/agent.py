"""Runs members of groups on threads of one process: `agent.py CLIENT BOOTSTRAP_SERVERS`.

Takes commands from standard input, one JSON object a line: `{"join": NAME, "group": ..., "topics": [...]}`
and `{"leave": NAME}`. Writes what happens to each member, one JSON object a line. Times are of the system's
monotonic clock, which is the same in every process.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
import traceback
from typing import Any

from group_members.consumers import SESSION_TIMEOUT_MS, At, CommitRefused, join

_writing = threading.Lock()


def emit(group: str, member: str, event: str, **details: object) -> None:
    line = json.dumps({"group": group, "member": member, "event": event, "at": time.monotonic(), **details})
    with _writing:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


class Member:
    def __init__(self, client: str, bootstrap_servers: str, command: dict[str, Any]) -> None:
        self._client = client
        self._bootstrap_servers = bootstrap_servers
        self._command = command
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def leave(self) -> None:
        self._leaving.set()

    def wait_left(self) -> None:
        self._thread.join()

    def _emit(self, event: str, **details: object) -> None:
        emit(self._command["group"], self._command["join"], event, **details)

    def _run(self) -> None:
        try:
            self._consume()
        except BaseException:
            self._emit("failed", reason=traceback.format_exc())

    def _consume(self) -> None:
        command = self._command
        consumer = join(
            self._client,
            self._bootstrap_servers,
            command["group"],
            command["topics"],
            command.get("assignor"),
        )
        owned: list[tuple[str, int]] | None = None
        last_seen = time.monotonic()
        while not self._leaving.is_set():
            received = consumer.poll()
            if received:
                self._emit("delivered", records=received)
                self._commit(consumer, received)
            before, last_seen = last_seen, time.monotonic()
            # One that was frozen was taken for gone, so it says again what it owns.
            was_frozen = last_seen - before > SESSION_TIMEOUT_MS / 1000
            if owned != (now := sorted(consumer.assignment())) or was_frozen:
                owned = now
                self._emit("assigned", partitions=owned)
        consumer.close()
        self._emit("left")

    def _commit(self, consumer: Any, received: list[At]) -> None:
        next_offsets = {(at.topic, at.partition): at.offset + 1 for at in received}
        positions = [At(*where, offset) for where, offset in next_offsets.items()]
        try:
            consumer.commit(positions)
        except CommitRefused as refusal:
            self._emit("refused", reason=str(refusal))
        else:
            self._emit("committed", positions=positions)


def main() -> None:
    logging.disable(logging.CRITICAL)
    client, bootstrap_servers = sys.argv[1:]
    members: dict[str, Member] = {}
    for line in sys.stdin:
        command = json.loads(line)
        if "join" in command:
            members[command["join"]] = Member(client, bootstrap_servers, command)
        else:
            members[command["leave"]].leave()
    os._exit(0)


if __name__ == "__main__":
    main()
