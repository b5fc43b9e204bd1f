"""Records of transactions that were committed, aborted or are open, as a console tells them apart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Producer
from console_site import Site

OUTCOMES = {
    "kept": "committed",
    "dropped": "aborted",
    "waiting": "open",
    "kept behind it": "committed",
    "dropped behind it": "aborted",
    "plain": None,
}


@contextmanager
def records_of_every_outcome(bootstrap: str, topic: str) -> Iterator[None]:
    """In the one partition of a topic; one transaction stays open until the end."""
    ledger = _transactional(bootstrap, "of-ledger")
    _write(ledger, topic, "kept", commits=True)
    _write(ledger, topic, "dropped", commits=False)
    slow = _transactional(bootstrap, "of-the-slow-one")
    slow.begin_transaction()
    slow.produce(topic, "waiting")
    assert slow.flush(60) == 0
    _write(ledger, topic, "kept behind it", commits=True)
    _write(ledger, topic, "dropped behind it", commits=False)
    plain = Producer({"bootstrap.servers": bootstrap})
    plain.produce(topic, "plain")
    assert plain.flush(60) == 0
    try:
        yield
    finally:
        slow.abort_transaction(60)


def _transactional(bootstrap: str, transactional_id: str) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(60)
    return producer


def _write(producer: Producer, topic: str, value: str, *, commits: bool) -> None:
    producer.begin_transaction()
    producer.produce(topic, value)
    assert producer.flush(60) == 0
    (producer.commit_transaction if commits else producer.abort_transaction)(60)


def outcomes(site: Site, topic: str, **asked: Any) -> dict[str, str | None]:
    found = site.get("topics", topic, "records", start="oldest", **asked)["records"]
    return {each["value"]["text"]: each["batch"].get("transaction") for each in found}


def check_outcomes_are_told(site: Site, bootstrap: str, topic: str, monkeypatch: Any) -> None:
    with records_of_every_outcome(bootstrap, topic):
        # Who reads what is committed waits for the one that is open.
        assert outcomes(site, topic) == {"kept": "committed"}
        assert outcomes(site, topic, committed="false") == OUTCOMES
        newest = site.get("topics", topic, "records", committed="false")["records"]
        assert {each["value"]["text"]: each["batch"].get("transaction") for each in newest} == OUTCOMES
        # In answers of one batch each no marker comes with the records it is about.
        monkeypatch.setattr("ottla.console.records.scan.FETCH_BYTES", 1)
        monkeypatch.setattr("ottla.console.records.outcomes.LOOK_BYTES", 1)
        monkeypatch.setattr("ottla.console.records.outcomes.LOOKS_MAX", 10)
        assert outcomes(site, topic, committed="false") == OUTCOMES
        # Nor do more of them help where the log goes on and on: then the leader knows who is not done.
        monkeypatch.setattr("ottla.console.records.outcomes.LOOKS_MAX", 0)
        far = {**OUTCOMES, "kept behind it": "ended", "dropped behind it": "ended"}
        assert outcomes(site, topic, committed="false") == far
    assert outcomes(site, topic, committed="false") == {**OUTCOMES, "waiting": "aborted"}
