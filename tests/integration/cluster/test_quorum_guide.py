"""The guide to a quorum that grows, shrinks and loses a disk, command by command, on directories."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.cluster.faults import wait_in_sync
from tests.integration.cluster.machines import Block, Machine, Site, sections

GUIDES = Path(__file__).parents[3] / "docs/guides"
STALE_ID = re.compile(r"(?<=-d )\S+")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    try:
        yield made
    finally:
        for machine in made.machines.values():
            machine.kill()


def directory_id(machine: Machine) -> str:
    text = (machine.root / "var/lib/ottla/meta.properties").read_text()
    found = re.search(r"^directory\.id=(\S+)", text, re.MULTILINE)
    assert found is not None
    return found[1]


def follow(site: Site, blocks: list[Block], removed: str = "") -> list[str]:
    """What was said; of a directory id that the guide shows it is told which one it is here."""
    said = []
    for block in blocks:
        if "file" in block.marks:
            site.put(block)
        elif "on" in block.marks:
            said.append(site.run(block._replace(text=STALE_ID.sub(removed, block.text))))
            site.cluster_id = site.cluster_id or said[0].strip()
    return said


def voters(said: str) -> dict[str, str]:
    """Directory ids by node, of `describe --replication`."""
    rows = [line.split() for line in said.splitlines() if line.split()[-1:] in (["Leader"], ["Follower"])]
    return {row[0]: row[1] for row in rows}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_quorum_guide_does_what_it_says(site: Site) -> None:
    parts = sections(GUIDES / "quorum.md")
    [unit] = [block for block in sections(GUIDES / "cluster.md")["With systemd"] if block.kind == "ini"]
    site.put(unit)
    describe = parts["From one to three"][-1]

    *_, added, shown = follow(site, parts["From one to three"])
    assert added.startswith("Added controller 3 with directory id")
    ids = {name[-1]: directory_id(site.machines[name]) for name in ("kafka1", "kafka2", "kafka3")}
    assert voters(shown) == ids

    follow(site, parts["Back again"], ids["3"])
    assert voters(site.run(describe)).keys() == {"1", "2"}

    [again] = [block for block in parts["From one to three"] if "add-controller" in block.text]
    site.run(again._replace(marks={"on": "kafka3"}))
    site.machines["kafka2"].kill()
    shutil.rmtree(site.machines["kafka2"].root / "var/lib/ottla")
    follow(site, parts["A disk is lost"], ids["2"])
    new = voters(site.run(describe))
    assert new == ids | {"2": directory_id(site.machines["kafka2"])}
    assert new["2"] != ids["2"]
    wait_in_sync(site.servers)
