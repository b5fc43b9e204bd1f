"""The Python in the guides runs: every block is a test module, as a reader would paste it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

GUIDES = Path(__file__).parents[2] / "docs/guides"


def test_the_testing_guide_does_what_it_says(tmp_path: Path) -> None:
    blocks = re.findall(
        r"^```python\n(.*?)^```$", (GUIDES / "testing.md").read_text(), re.DOTALL | re.MULTILINE
    )
    assert len(blocks) == 4
    for number, block in enumerate(blocks):
        (tmp_path / f"test_block_{number}.py").write_text(block)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir", ".", "."],
        check=False,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert run.returncode == 0, run.stdout
    assert "4 passed" in run.stdout
