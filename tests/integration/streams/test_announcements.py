"""Applications that are served over HTTP are found on the cluster, and asked by `ottla run --status`."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra ottla[spark]")
pytest.importorskip("prometheus_client", reason="needs the extra ottla[metrics]")
pytest.importorskip("uvicorn", reason="needs the extra ottla[streams]")

from ottla.cli.main import main
from ottla.client.applications import Announcement, announce, announced, withdraw
from ottla.spark.connection import Connection
from ottla.streams import StreamsBuilder
from ottla.streams.run import StreamsApplication, StreamsConfig
from ottla.streams.serving import served
from ottla.testing import InProcessBroker


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with InProcessBroker() as broker:
        yield broker.bootstrap_servers


def application(name: str, bootstrap: str, tmp_path: Path) -> StreamsApplication:
    builder = StreamsBuilder()
    builder.stream("in").filter(lambda key, value: bool(value)).to("out")
    return StreamsApplication(builder.build(), StreamsConfig(name, bootstrap, state_dir=str(tmp_path)))


def asked(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


def test_the_last_word_of_an_application_counts(bootstrap: str) -> None:
    connection = Connection(bootstrap, {})
    first = Announcement("first", "http://one:1", "one", 1, 10)
    again = Announcement("first", "http://two:2", "two", 2, 20)
    other = Announcement("other", "http://one:1", "one", 3, 10)
    assert connection.run(announced(connection.cluster)) == []
    for each in (first, other, again):
        connection.run(announce(connection.cluster, each))
    assert connection.run(announced(connection.cluster)) == [again, other]
    connection.run(withdraw(connection.cluster, "first", 30))
    assert connection.run(announced(connection.cluster)) == [other]
    connection.run(withdraw(connection.cluster, "other", 30))


def test_status_asks_who_is_announced(
    bootstrap: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    app = application("asked", bootstrap, tmp_path)
    status = ["run", "--status", "--bootstrap-server", bootstrap]
    with served([app]) as url:
        (shown,) = json.loads(asked(f"{url}/topology"))["applications"]
        assert (shown["applicationId"], shown["state"]) == ("asked", "CREATED")
        assert "Source: KSTREAM-SOURCE-0000000000 (topics: [in])" in shown["description"]
        assert json.loads(asked(f"{url}/topology/asked")) == shown
        assert 'ottla_streams_state{application="asked",state="CREATED"} 1.0' in asked(f"{url}/metrics")
        capfd.readouterr()
        assert main([*status, "--json"]) == 0
        (told,) = json.loads(capfd.readouterr().out)
        assert (told["applicationId"], told["url"], told["state"]) == ("asked", url, "CREATED")
        assert main([*status, "--application-id", "somebody"]) == 1
        assert "somebody is not announced on" in capfd.readouterr().err
    assert main(status) == 0
    assert capfd.readouterr().out == "no application is announced; those that run with --http are\n"


def test_an_application_that_was_killed_is_told_to_be_gone(
    bootstrap: str, capfd: pytest.CaptureFixture[str]
) -> None:
    connection = Connection(bootstrap, {})
    gone = Announcement("gone", "http://127.0.0.1:1", "here", 7, 10)
    connection.run(announce(connection.cluster, gone))
    capfd.readouterr()
    assert main(["run", "--status", "--bootstrap-server", bootstrap]) == 1
    assert capfd.readouterr().out.startswith(
        "gone: UNREACHABLE, process 7 on here: http://127.0.0.1:1 does not answer"
    )
    connection.run(withdraw(connection.cluster, "gone", 20))
