"""The commands of the guide, as a reader would type them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from principals import Servers

from ottla.cli.main import main

GUIDE = Path(__file__).parents[3] / "docs/guides/access.md"


def commands() -> list[list[str]]:
    blocks = re.findall(r"^```sh\n(.*?)^```$", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [shlex.split(line) for line in lines if line and not line.startswith("#")]


def test_the_commands_of_the_guide_do_what_they_say(
    servers: Servers, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(commands()) == 12
    for name, *arguments in commands():
        words = [servers["admin"] if word == "localhost:9092" else word for word in arguments]
        if "--remove" in words:
            words.append("--force")
        assert main([name.removeprefix("kafka-"), *words]) == 0, capsys.readouterr().err
    said = capsys.readouterr().out
    assert "(principal=User:eve, host=*, operation=ALL, permissionType=DENY)" in said
    assert "ResourcePattern(resourceType=TOPIC, name=invoices-, patternType=PREFIXED)" in said
    assert "Quota configs for user-principal 'alice' are producer_byte_rate=1048576.0" in said
