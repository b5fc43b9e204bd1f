"""Each chapter of the tutorial is followed to the letter, in a directory and with a broker of its own."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path

import pytest
from tests.integration.guides.conftest import Environment
from tests.integration.guides.fresh_environment import ROOT
from tests.integration.guides.reader import Reader

TUTORIAL = ROOT / "docs/tutorial"
WITH_SPARK = "09-streams.md"
LAST = "10-operating.md"


def follow(environment: Environment, extras: set[str], chapter: str, tmp_path: Path) -> None:
    with Reader(environment(extras), tmp_path) as reader:
        reader.follow((TUTORIAL / chapter).read_text())
        reader.wait_ended()


def chapters() -> list[str]:
    return sorted(path.name for path in TUTORIAL.glob("[01]*.md"))


@pytest.mark.xdist_group("guides")
@pytest.mark.parametrize("chapter", [name for name in chapters() if name not in {WITH_SPARK, LAST}])
def test_a_chapter(environment: Environment, tmp_path: Path, chapter: str) -> None:
    follow(environment, {"tools"}, chapter, tmp_path)


@pytest.mark.xdist_group("guides")
@pytest.mark.skipif(shutil.which("curl") is None, reason="the chapter asks with curl")
def test_the_last_chapter(environment: Environment, tmp_path: Path) -> None:
    follow(environment, {"connect", "metrics"}, LAST, tmp_path)


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(400)
@pytest.mark.skipif(shutil.which("curl") is None, reason="the chapter asks with curl")
def test_the_chapter_with_spark(environment: Environment, tmp_path: Path) -> None:
    follow(environment, {"streams"}, WITH_SPARK, tmp_path)


def test_there_are_ten_and_all_are_listed() -> None:
    assert len(chapters()) == 10
    listed = (TUTORIAL / "README.md").read_text()
    assert all(f"]({name})" in listed for name in chapters())


def test_pictures_are_as_drawn() -> None:
    drawn = runpy.run_path(str(TUTORIAL / "pictures.py"))["PICTURES"]
    assert {name: draw() for name, draw in drawn.items()} == {
        path.name: path.read_text() for path in TUTORIAL.glob("*.svg")
    }
