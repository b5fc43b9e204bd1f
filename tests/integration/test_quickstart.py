"""`make quickstart` without the make: it runs, shows records going in and out, and leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples/quickstart.py"


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.xdist_group("spark")
def test_quickstart(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, str(SCRIPT)],
        check=False,
        cwd=tmp_path,
        env={"TMPDIR": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("key=alice  value=espresso\n") == 2
    assert "records/s" in run.stdout
    assert "each written exactly once" in run.stdout
    assert "ottla start server.properties" in run.stdout
    assert "/activate " in run.stdout, "what comes next are commands that are not found"
    assert list(tmp_path.iterdir()) == []
