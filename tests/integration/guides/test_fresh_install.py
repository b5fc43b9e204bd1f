"""Guides again, in environments into which pip has downloaded all of it, as a reader's install line does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.guides.fresh_environment import ROOT, build_wheel
from tests.integration.guides.reader import Reader, extras_of


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", ["docs/guides/consuming.md", "docs/guides/spark.md", "README.md"])
def test_a_page_works_after_its_install_line(tmp_path: Path, page: str) -> None:
    text = (ROOT / page).read_text()
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    wheel = build_wheel(tmp_path)
    executables = tmp_path / "env/bin"
    install = [executables / "pip", "install", "--quiet", f"{wheel}[{','.join(sorted(extras_of(text)))}]"]
    subprocess.run(install, check=True)
    with Reader(executables, tmp_path) as reader:
        reader.follow(text)
        reader.wait_ended()
