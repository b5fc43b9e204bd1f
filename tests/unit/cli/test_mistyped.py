"""A command or option that there is not: what was meant, and what there is."""

from __future__ import annotations

import pytest

from ottla.cli.framework import catalogue
from ottla.cli.main import main


def test_a_mistyped_command_is_answered_with_the_nearest_and_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topcs"]) == 2
    told = capsys.readouterr().err
    assert told.splitlines()[0] == "ottla: there is no command topcs; did you mean topics?"
    for name in ("start", "stop", *catalogue.NAMES):
        assert f"\n  {name} " in told


def test_a_command_like_no_other_is_answered_with_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zzzzzzz"]) == 2
    told = capsys.readouterr().err
    assert told.splitlines()[0] == "ottla: there is no command zzzzzzz."
    assert "\n  topics " in told


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["topics", "--bootstrap-sever", "localhost:9092", "--list"], "did you mean --bootstrap-server?"),
        (["topics", "--list", "--bootstrap-server=localhost:9092", "--tpoic=x"], "did you mean --topic?"),
        (["storage", "format", "--cluter-id", "x"], "did you mean --cluster-id?"),
        (["start", "--prot", "9092"], "did you mean --port?"),
        (["stop", "--data-dri", "x"], "did you mean --data-dir?"),
        (["topics", "--qqqqqqqqqqq"], "there is no option --qqqqqqqqqqq. See ottla topics --help"),
    ],
)
def test_a_mistyped_option_is_named_with_the_nearest(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code in {1, 2}
    captured = capsys.readouterr().err
    assert told in captured
    assert captured.count("\n") == 1


@pytest.mark.parametrize(
    ("class_name", "option"),
    [
        ("kafka.tools.GetOffsetShell", "--topic-partitions"),
        ("org.apache.kafka.tools.GetOffsetShell", "--topic-partitions"),
        ("kafka.admin.ConsumerGroupCommand", "--reset-offsets"),
        ("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--reset-offsets"),
        ("kafka.tools.DumpLogSegments", "--print-data-log"),
        ("kafka.admin.TopicCommand", "--partitions"),
        ("ConsoleConsumer", "--from-beginning"),
    ],
)
@pytest.mark.parametrize("name", ["run-class", "kafka-run-class", "kafka-run-class.sh"])
def test_classes_stand_for_tools(
    name: str, class_name: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, class_name, "--help"])
    assert ended.value.code == 0
    assert option in capsys.readouterr().out


@pytest.mark.parametrize("class_name", ["kafka.tools.GetOffsetShel", "com.example.GetOffsetShell"])
def test_a_class_without_a_tool_is_named(class_name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run-class", class_name, "--anything"]) == 1
    told = capsys.readouterr().err
    assert f"there is no tool for the class {class_name}; did you mean GetOffsetShell?" in told
    assert "DumpLogSegments" in told
