"""An environment as `pip install 'ottla-….whl[extras]'` leaves it, in seconds and without a network.

pip builds and installs the wheel. What it requires is not downloaded again: of exactly the distributions that
the extras ask for, and those that these require, files are linked from the environment that the tests run in.
What a reader's install line does not bring is missing here, too. `test_fresh_install.py` downloads it all.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection, Iterator
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[3]


def build_wheel(directory: Path) -> Path:
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(directory), str(ROOT))
    [wheel] = directory.glob("ottla-*.whl")
    return wheel


def fresh_environment(directory: Path, wheel: Path, extras: set[str], also: Collection[str] = ()) -> Path:
    """The directory of its executables."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True)
    python = directory / "bin/python"
    pip("--python", str(python), "install", "--no-deps", "--no-index", str(wheel))
    [metadata] = directory.glob("lib/python*/site-packages/ottla-*.dist-info")
    for required in _required(PathDistribution(metadata), extras, also):
        _link(required, metadata.parent, python)
    return python.parent


def pip(*arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments],
        check=True,
        stdout=subprocess.PIPE,
    )


def _required(root: Distribution, extras: set[str], also: Collection[str]) -> Iterator[Distribution]:
    seen: set[tuple[str, str]] = set()
    waiting = [(root, extra) for extra in ("", *sorted(extras))]
    others = [distribution(name) for name in also]
    given = {other.name for other in others}
    yield from others
    waiting += [(other, "") for other in others]
    while waiting:
        parent, extra = waiting.pop()
        for line in parent.requires or []:
            requirement = Requirement(line)
            if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
                continue
            found = root if requirement.name == root.name else distribution(requirement.name)
            if found is not root and found.name not in given:
                given.add(found.name)
                yield found
            wanted = {(requirement.name, each) for each in ("", *requirement.extras)} - seen
            seen |= wanted
            waiting += [(found, each) for _, each in wanted]


def _link(required: Distribution, site_packages: Path, python: Path) -> None:
    for file in required.files or []:
        if ".." in file.parts:  # executables of the other environment
            continue
        link = site_packages / file
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(Path(str(required.locate_file(file))))
    for script in required.entry_points.select(group="console_scripts"):
        executable = python.parent / script.name
        executable.write_text(
            f"#!{python}\nimport sys\nfrom {script.module} import {script.attr.partition('.')[0]}\n"
            f"sys.exit({script.attr}())\n"
        )
        executable.chmod(0o755)
