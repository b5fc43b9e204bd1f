"""The log example on Spark: lines of files become entries, rates and dead letters, and all are found."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.examples.logs_example import agent, index, pipeline
from tests.spark.processes import wait_until

from ottla.streams import TableView
from ottla.testing import InProcessBroker

# Of one minute, and recent: or retention would delete the entries while they are read.
BEGUN = (datetime.now(UTC) - timedelta(minutes=30)).replace(second=0, microsecond=0)


def line(number: int) -> str:
    at = BEGUN + timedelta(seconds=number)
    entry = {"time": at.isoformat(), "service": "shop", "message": f"m{number}"}
    return json.dumps(entry | {"level": "error" if number % 3 == 0 else "info"}) + "\n"


@pytest.mark.slow
def test_lines_are_parsed_counted_and_found(spark: Any, tmp_path: Path) -> None:
    from ottla.streams.run import StreamsApplication, StreamsConfig

    hosts = {name: tmp_path / name for name in ("web", "db")}
    for directory in hosts.values():
        directory.mkdir()
        (directory / "app.log").write_text("".join(map(line, range(60))) + "nonsense\n")
    with InProcessBroker() as broker:
        servers = broker.bootstrap_servers
        topics = {"log-lines": 2, "log-entries": 2, "log-rates": 2, "log-dead": 1}
        admin = AdminClient({"bootstrap.servers": servers})
        for made in admin.create_topics([NewTopic(*topic) for topic in topics.items()]).values():
            made.result(30)
        for name, directory in hosts.items():
            assert agent.Agent(servers, name, directory).step() == 61
        config = StreamsConfig(
            pipeline.APPLICATION_ID, servers, state_dir=str(tmp_path / "state"),
            on_error=pipeline.ON_ERROR, dead_letter_topic=pipeline.DEAD_LETTER_TOPIC,
        )  # fmt: skip
        app = StreamsApplication(pipeline.build(), config)
        app.start(spark)
        is_closing = threading.Event()
        searched = index.Index(str(tmp_path / "logs.db"))

        def follow() -> None:
            filled = index.Index(str(tmp_path / "logs.db"))
            index.follow(servers, filled, is_closing)
            filled.close()

        follower = threading.Thread(target=follow)
        follower.start()
        try:
            app.process_all_available()
            with TableView(servers, "log-rates", key=str, value=dict) as rates:
                wait_until(lambda: searched.search("")[0] >= 122, 60, "all lines in the index")
                wait_until(
                    lambda: (
                        [(entry.value["lines"], entry.value["errors"]) for entry in rates.all()]
                        == [(120, 40)]
                    ),
                    60,
                    "the rates of the minute",
                )
        finally:
            app.stop()
            is_closing.set()
            follower.join()
    assert searched.search("")[0] == 122
    assert searched.search("web error m3")[0] == 1
    dead = searched.search("nonsense dead-letter")[1]
    assert sorted(line["host"] for line in dead) == ["db", "web"]
    assert "neither nginx" in dead[0]["message"]
    searched.close()
