"""Where Spark remembers how far a connector is."""

from __future__ import annotations

from pathlib import Path

from ottla.connect.running.spark_query import checkpoint_of
from ottla.connect.worker_settings import worker_settings


def test_checkpoints_of_connectors_on_spark_are_beside_each_other_whatever_these_are_called() -> None:
    settings = worker_settings({"bootstrap.servers": "x:1", "ottla.spark.checkpoint.dir": "/checkpoints"})
    names = ["plain-1.a_b", "../other", "..", ".", "a/b", "a", "a=2Fb", "größe", "...", "=2E=2E"]
    places = [Path(checkpoint_of(settings, name)) for name in names]
    assert {place.parent for place in places} == {Path("/checkpoints")}
    assert len(set(places)) == len(names)
    assert not {".", ".."} & {place.name for place in places}
    assert places[0].name == "plain-1.a_b"
