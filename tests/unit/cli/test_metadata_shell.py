"""The commands of the metadata shell on a small tree, and metadata read from files."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from ottla.cli.files.metadata_source import MetadataSource
from ottla.cli.files.metadata_tree import Directory, root
from ottla.cli.files.shell_commands import Shell, completions, execute, glob_expression
from ottla.cli.framework.errors import ToolError
from ottla.metadata.access_records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import (
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    TopicRecord,
    encode_record,
)
from ottla.metadata.snapshot import write_snapshot
from ottla.records.records import Record, encode_batch
from ottla.runtime.disk import PosixDisk

TREE = Directory(
    {
        "fruit": lambda: Directory({"apple": lambda: "red", "banana": lambda: "yellow"}),
        "empty": lambda: Directory({}),
        "note": lambda: "a note",
    }
)


def shell(width: int | None = 40) -> Shell:
    return Shell(lambda: TREE, width)


def said(target: Shell, line: str) -> list[str]:
    lines = execute(target, line.split(" "))
    assert lines is not None
    return list(lines)


def test_ls() -> None:
    assert said(shell(), "ls") == ["empty  fruit  note"]
    assert said(shell(None), "ls") == ["empty", "fruit", "note"]
    assert said(shell(14), "ls") == ["empty  note", "fruit"]
    assert said(shell(), "ls note fruit empty") == ["note", "\nfruit:", "apple  banana"]
    assert said(shell(), "ls /f*/a* /gone") == ["ls: /gone: no such file or directory.", "apple"]


def test_cat_tree_and_find() -> None:
    assert said(shell(), "cat note fruit/{apple,banana} fruit gone") == [
        "a note",
        "red",
        "yellow",
        "cat: fruit: Is a directory",
        "cat: gone: No such file or directory.",
    ]
    assert said(shell(), "tree /") == [
        "empty:",
        "fruit:",
        "  apple:",
        "    red",
        "  banana:",
        "    yellow",
        "note:",
        "  a note",
    ]
    assert said(shell(), "find fruit nowhere") == [
        "fruit",
        "fruit/apple",
        "fruit/banana",
        "find: nowhere: no such file or directory.",
    ]


def test_directories_are_changed() -> None:
    walker = shell()
    assert said(walker, "cd fruit") == []
    assert said(walker, "pwd") == ["/fruit"]
    assert said(walker, "ls ../note ./apple") == ["note  apple"]
    assert said(walker, "cd apple") == ["cd: apple: not a directory."]
    assert said(walker, "cd gone") == ["cd: gone: no such directory."]
    assert said(walker, "cd") == []
    assert walker.directory == "/"


def test_commands_of_the_shell_alone() -> None:
    assert said(shell(None), "pwd") == ["invalid choice: 'pwd' (choose from 'cat', 'find', 'ls', 'tree')"]
    assert said(shell(), "man ls")[0] == "ls: List metadata nodes."
    assert said(shell(), "man no") == ["man: unknown command no. Type help to get a list of commands."]
    assert any("history" in line for line in said(shell(), "help"))
    assert execute(shell(), ["exit"]) is None
    assert said(shell(), "") == []
    assert said(shell(), "cat")[0].startswith("cat: ")


def test_completion() -> None:
    assert completions(shell(), "c") == ["cat", "cd"]
    assert completions(shell(), "ls f") == ["fruit/"]
    assert completions(shell(), "cat /fruit/") == ["/fruit/apple", "/fruit/banana"]
    assert completions(shell(), "cat note/x") == []
    assert completions(shell(), "man h") == ["help", "history"]


@pytest.mark.parametrize(
    ("glob", "names", "expected"),
    [
        ("a*", ["a", "ab", "b"], ["a", "ab"]),
        ("?.log", ["a.log", "ablog", "b.log"], ["a.log", "b.log"]),
        ("{a,b}c", ["ac", "bc", "cc"], ["ac", "bc"]),
        ("*\\*", ["a*", "ab"], ["a*"]),
    ],
)
def test_globs(glob: str, names: list[str], expected: list[str]) -> None:
    expression = glob_expression(glob)
    assert expression is not None
    assert [name for name in names if expression.fullmatch(name)] == expected


@pytest.mark.parametrize("plain", ["a", "a,b", "{a", "{a{b}}", "a\\*"])
def test_what_is_no_glob(plain: str) -> None:
    assert glob_expression(plain) is None


def batch(records: list[MetadataRecord], base_offset: int) -> bytes:
    stored = [Record(None, encode_record(record), 1_000) for record in records]
    return encode_batch(stored, base_offset=base_offset, leader_epoch=3)


def partition(topic_id: UUID) -> PartitionRecord:
    return PartitionRecord(
        partition_id=0,
        topic_id=topic_id,
        replicas=(1,),
        isr=(1,),
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        directories=(UUID(int=7),),
    )


def test_a_directory_is_its_newest_snapshot_and_what_came_after(tmp_path: Path) -> None:
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    before: list[MetadataRecord] = [
        FeatureLevelRecord(name="metadata.version", feature_level=27),
        TopicRecord(name="kept", topic_id=UUID(int=300)),
        partition(UUID(int=300)),
    ]
    after: list[MetadataRecord] = [
        TopicRecord(name="later", topic_id=UUID(int=301)),
        partition(UUID(int=301)),
        ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="2"),
    ]
    image = MetadataImage().apply_all(before, 2, 3)
    write_snapshot(PosixDisk(), str(directory), image, last_timestamp_ms=1_500, now_ms=2_000)
    log = directory / "00000000000000000000.log"
    log.write_bytes(batch(before, 0) + batch(after, 3))

    source = MetadataSource(str(tmp_path))
    reader = Shell(lambda: root(source.current()))
    assert said(reader, "ls /image/topics/byName") == ["kept", "later"]
    assert said(reader, "cat /image/configs/BROKER/*") == ["2"]
    assert said(reader, "cat /image/provenance") == ["offset 5, epoch 3, time 1970-01-01T00:00:01Z[UTC]"]
    log.write_bytes(log.read_bytes() + batch([TopicRecord(name="live", topic_id=UUID(int=302))], 6) + b"half")
    assert said(reader, "ls /image/topics/byName") == ["kept", "later", "live"]

    snapshot = next(directory.glob("*.checkpoint"))
    alone = MetadataSource(str(snapshot))
    assert said(Shell(lambda: root(alone.current())), "ls /image/topics/byName") == ["kept"]
    assert said(Shell(lambda: root(alone.current())), "cat /image/provenance") == [
        "offset 2, epoch 3, time 1970-01-01T00:00:01.5Z[UTC]"
    ]


def test_rules_come_and_go(tmp_path: Path) -> None:
    rules = [
        AccessControlEntryRecord(
            id=UUID(int=number),
            resource_type=3,
            resource_name="g",
            pattern_type=3,
            principal="User:x",
            host="*",
            operation=2,
            permission_type=2,
        )
        for number in (1, 2)
    ]
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes(batch([*rules, RemoveAccessControlEntryRecord(id=UUID(int=1))], 0))
    source = MetadataSource(str(log))
    assert said(Shell(lambda: root(source.current())), "tree /image/acls/byId") == [
        "AAAAAAAAAAAAAAAAAAAAAg:",
        "  StandardAcl[resourceType=GROUP, resourceName=g, patternType=LITERAL, principal=User:x, host=*, "
        "operation=ALL, permissionType=DENY]",
    ]


def test_what_holds_no_metadata_is_said(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="holds no metadata of a cluster"):
        MetadataSource(str(tmp_path)).current()
    with pytest.raises(ToolError, match="No such file"):
        MetadataSource(str(tmp_path / "gone")).current()
    middle = tmp_path / "00000000000000000009.log"
    middle.write_bytes(batch([TopicRecord(name="t", topic_id=UUID(int=300))], 9))
    with pytest.raises(ToolError, match="begins in the middle of the log"):
        MetadataSource(str(middle)).current()
