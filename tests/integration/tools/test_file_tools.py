"""Tools for data directories and the files in them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ottla.testing import InProcessBroker

FIRST = "00000000000000000000"


def write_config(directory: Path, **more: str) -> str:
    path = directory / "server.properties"
    lines = {"node.id": "7", "log.dirs": f"{directory}/a,{directory}/b", **more}
    path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    return str(path)


def test_storage_is_formatted_once(tool: Any, tmp_path: Path) -> None:
    config = write_config(tmp_path)
    unformatted = tool("storage", "info", "-c", config)
    assert unformatted.status == 1
    assert f"  {tmp_path}/a does not exist" in unformatted.lines
    drawn = tool("storage", "random-uuid").out.strip()
    assert re.fullmatch(r"[A-Za-z0-9_-]{22}", drawn)
    formatted = tool("storage", "format", "--standalone", "-t", drawn, "-c", config)
    assert formatted.lines == [
        f"Formatting dynamic metadata voter directory {tmp_path}/a with metadata.version 4.1-IV1.",
        f"Formatting data directory {tmp_path}/b with metadata.version 4.1-IV1.",
    ]
    info = tool("storage", "info", "-c", config)
    assert info.status == 0
    assert f"cluster.id={drawn}" in info.out
    again = tool("storage", "format", "-t", drawn, "-c", config)
    assert again.status == 1
    assert "is already formatted. Use --ignore-formatted" in again.err
    ignored = tool("storage", "format", "-t", drawn, "-c", config, "--ignore-formatted")
    assert ignored.out == "All of the log directories are already formatted.\n"
    other = tool("storage", "random-uuid").out.strip()
    foreign = tool("storage", "format", "-t", other, "-c", config, "--ignore-formatted")
    assert "belongs to another cluster" in foreign.err
    assert "(rm -r " in foreign.err
    with InProcessBroker({"node.id": 7}, f"{tmp_path}/a") as broker:
        assert broker.cluster_id == drawn


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-t", "short"), "--cluster-id: 'short'"),
        (("-t", "4L6g3nShT-eMCtK--X86sw", "-r", "3.9"), "new clusters have metadata.version 4.1-IV1"),
        (
            ("-t", "4L6g3nShT-eMCtK--X86sw", "--add-scram", "x"),
            "Failed to find equals sign in SCRAM",
        ),
    ],
)
def test_what_cannot_be_formatted(
    tool: Any, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    refused = tool("storage", "format", "-c", write_config(tmp_path), *arguments)
    assert refused.status == 1
    assert message in refused.err
    assert not (tmp_path / "a").exists()


def test_segments_and_indexes_are_dumped(tool: Any, tmp_path: Path) -> None:
    settings = {"log.index.interval.bytes": 1}
    with InProcessBroker(settings, str(tmp_path)) as broker:
        server = ("--bootstrap-server", broker.bootstrap_servers)
        for value in ("one", "two", "three"):
            tool("console-producer", "--topic", "dumped", *server, stdin=f"{value}\n")
    log = f"{tmp_path}/dumped-0/{FIRST}.log"
    shallow = tool("dump-log", "--files", log)
    assert shallow.lines[:2] == [f"Dumping {log}", "Log starting offset: 0"]
    assert re.fullmatch(
        r"baseOffset: 2 lastOffset: 2 count: 1 baseSequence: -1 .* magic: 2 compresscodec: none "
        r"crc: \d+ isvalid: true",
        shallow.lines[4],
    )
    deep = tool("dump-log", "--files", log, "--print-data-log")
    assert deep.lines[-1].startswith("| offset: 2 CreateTime: ")
    assert deep.lines[-1].endswith("keySize: -1 valueSize: 5 sequence: -1 headerKeys: [] payload: three")
    bare = tool("dump-log", "--files", log, "--print-data-log", "--skip-record-metadata")
    assert bare.lines[-1] == "| payload: three"

    index = f"{tmp_path}/dumped-0/{FIRST}.index"
    times = f"{tmp_path}/dumped-0/{FIRST}.timeindex"
    shown = tool("dump-log", "--files", f"{index},{times}")
    assert re.search(r"^offset: 2 position: \d+$", shown.out, re.MULTILINE)
    assert re.search(r"^timestamp: \d+ offset: 2$", shown.out, re.MULTILINE)
    assert shown.err == ""
    assert (
        tool("dump-log", "--files", index, "--index-sanity-check").lines[-1]
        == f"{index} passed sanity check."
    )
    data = Path(log).read_bytes()
    Path(log).write_bytes(data[:-1] + bytes([data[-1] ^ 1]) + b"xyz")
    damaged = tool("dump-log", "--files", log)
    assert damaged.lines[4].endswith("isvalid: false")
    assert damaged.lines[5] == f"Found 3 invalid bytes at the end of {FIRST}.log"


def test_the_metadata_log_is_dumped(tool: Any, tmp_path: Path) -> None:
    with InProcessBroker(data_dir=str(tmp_path)) as broker:
        tool("topics", "--create", "--topic", "named", "--bootstrap-server", broker.bootstrap_servers)
    log = f"{tmp_path}/__cluster_metadata-0/{FIRST}.log"
    shown = tool("dump-log", "--cluster-metadata-decoder", "--files", log)
    assert 'LeaderChange: {"version":0,"leaderId":1,"voters":[{"voterId":1}]' in shown.out
    assert '{"type":"TOPIC_RECORD","version":0,"data":{"name":"named","topicId":"' in shown.out
    assert '{"type":"PARTITION_RECORD","version":2,"data":{"partitionId":0,' in shown.out
    missing = tool("dump-log", "--files", f"{tmp_path}/missing.log")
    assert missing.status == 1


def test_offsets_are_dumped(tool: Any, tmp_path: Path) -> None:
    with InProcessBroker(data_dir=str(tmp_path)) as broker:
        server = ("--bootstrap-server", broker.bootstrap_servers)
        tool("console-producer", "--topic", "t", *server, stdin="x\n")
        reading = ("--from-beginning", "--max-messages", "1", "--group", "readers")
        tool("console-consumer", "--topic", "t", *reading, *server)
    shown = tool("dump-log", "--offsets-decoder", "--files", f"{tmp_path}/__consumer_offsets-0/{FIRST}.log")
    assert 'key: {"type":"1","data":{"group":"readers","topic":"t","partition":0}}' in shown.out
    assert '"data":{"offset":1,' in shown.out
