"""Guides are followed to the letter, in an environment with the wheel and what their install line brings."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.integration.guides.conftest import Environment
from tests.integration.guides.fresh_environment import ROOT
from tests.integration.guides.reader import Reader, blocks_of, extras_of

GUIDES = ROOT / "docs/guides"


def follow(page: Path, environment: Environment, tmp_path: Path) -> list[str]:
    """The names of the files that are left."""
    text = page.read_text()
    with Reader(environment(extras_of(text)), tmp_path) as reader:
        reader.follow(text)
        reader.wait_ended()
        return sorted(path.name for path in reader.directory.iterdir() if path.name != "__pycache__")


@pytest.mark.xdist_group("guides")
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("guide", "left"),
    [
        ("installing.md", []),
        ("operating.md", []),
        ("consuming.md", ["at_least_once.py", "at_most_once.py", "barista.py", "orders.py"]),
        ("exactly-once.md", ["exactly_once.py", "invoices.py", "read_invoices.py"]),
        ("moving.md", []),
        ("connect.md", ["countdown.py", "squares.py"]),
        ("console.md", []),
        ("running.md", []),
        ("schema-registry.md", ["read_orders.py", "write_orders.py"]),
    ],
)
def test_a_guide_works_from_the_wheel(
    environment: Environment, tmp_path: Path, guide: str, left: list[str]
) -> None:
    assert follow(GUIDES / guide, environment, tmp_path) == left


@pytest.mark.xdist_group("guides")
@pytest.mark.timeout(300)
def test_the_testing_guide_does_what_it_says(environment: Environment, tmp_path: Path) -> None:
    page = (GUIDES / "testing.md").read_text()
    blocks = [block.text for block in blocks_of(page) if block.language == "python"]
    for number, block in enumerate(blocks):
        (tmp_path / f"test_block_{number}.py").write_text(block)
    also = set(re.findall(r"`pip install ([a-z ]+)`", page))
    executables = environment(extras_of(page), {name for names in also for name in names.split()})
    run = subprocess.run(
        [executables / "pytest", "-p", "no:cacheprovider", "--rootdir", ".", "."],
        check=False,
        cwd=tmp_path,
        env={"PATH": f"{executables}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{len(blocks)} passed" in run.stdout


@pytest.mark.xdist_group("guides")
def test_the_wheel_has_the_examples(environment: Environment, tmp_path: Path) -> None:
    copy = [environment({"tools"}) / "ottla", "examples", "mine"]
    done = subprocess.run(copy, check=True, cwd=tmp_path, capture_output=True, text=True)
    assert "mine/streams/word_count.py" in done.stdout.split()
    original = ROOT / "examples/streams/word_count.py"
    assert (tmp_path / "mine/streams/word_count.py").read_text() == original.read_text()
    again = subprocess.run(copy, check=False, cwd=tmp_path, capture_output=True, text=True)
    assert again.returncode == 1
    assert "mine: is there already" in again.stderr


# The README below runs the first program of the streams guide from the wheel in every run.
@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(400)
@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java")
@pytest.mark.skipif(shutil.which("curl") is None, reason="the guide asks with curl")
def test_the_streams_guide_works_from_the_wheel(environment: Environment, tmp_path: Path) -> None:
    assert follow(GUIDES / "streams.md", environment, tmp_path) == ["start.py", "word_count.py"]


# The README below installs Spark from the wheel in every run; this one brings it into a second environment.
@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(400)
@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java")
def test_the_spark_guide_works_from_the_wheel(environment: Environment, tmp_path: Path) -> None:
    assert follow(GUIDES / "spark.md", environment, tmp_path) == ["thirds.py"]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(400)
@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java")
@pytest.mark.skipif(shutil.which("curl") is None, reason="the README asks with curl")
def test_the_readme_works_from_the_wheel(environment: Environment, tmp_path: Path) -> None:
    assert follow(ROOT / "README.md", environment, tmp_path) == ["hello.py", "word_count.py"]
