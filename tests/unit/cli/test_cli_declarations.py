"""What is declared of tools: pages, completion and executables follow from it."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import pytest

from ottla.cli.framework import api_reference, catalogue, reference
from ottla.cli.framework.tool import parse
from ottla.cli.main import main

ROOT = Path(__file__).parents[3]


def test_reference_pages_are_current() -> None:
    """If this fails: python -m ottla.cli.framework.reference docs/reference/tools"""
    directory = ROOT / "docs/reference/tools"
    pages = reference.pages()
    assert {path.name for path in directory.iterdir()} == set(pages)
    for name, text in pages.items():
        assert (directory / name).read_text() == text, name


def test_api_pages_are_current() -> None:
    """If this fails: python -m ottla.cli.framework.api_reference docs/reference/api"""
    directory = ROOT / "docs/reference/api"
    pages = api_reference.pages()
    assert {path.name for path in directory.iterdir()} == set(pages)
    for name, text in pages.items():
        assert (directory / name).read_text() == text, name
    assert "- `group_by_key(" in pages["streams.md"]
    assert "### ottla_cluster" in pages["testing.md"]


def test_executables_are_declared() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    for name in catalogue.EXECUTABLES:
        assert scripts[name] == scripts[f"{name}.sh"] == "ottla.cli.main:kafka_tool"


@pytest.mark.parametrize("name", catalogue.NAMES)
def test_every_tool_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    tool = catalogue.load(name)
    assert tool.name == name
    with pytest.raises(SystemExit) as ended:
        parse(tool, f"kafka-{name}", ["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert tool.description.split()[0] in shown
    for option in tool.options:
        assert f"--{option.name}" in shown


def test_overview_lists_every_tool_under_a_purpose(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    assert "Work with topics:" in shown
    for name in catalogue.NAMES:
        assert f"\n  {name} " in shown


def test_completion_of_bash(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "ottla.bash"
    script.write_text(capsys.readouterr().out)
    probe = 'source "$0"; COMP_WORDS=(kafka-topics.sh --if); COMP_CWORD=1; _ottla; echo "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", probe, script], check=True, capture_output=True, text=True)
    assert done.stdout == "--if-exists --if-not-exists\n"
    probe = probe.replace("kafka-topics.sh --if", "ottla start --da").replace("COMP_CWORD=1", "COMP_CWORD=2")
    done = subprocess.run(["bash", "-c", probe, script], check=True, capture_output=True, text=True)
    assert done.stdout == "--data-dir\n"


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_of_other_shells(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "under-min-isr-partitions" in capsys.readouterr().out
