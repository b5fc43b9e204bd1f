"""Rules for Prometheus as they are written to a file."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ottla.cli.monitoring.alerts import ALERTS, rules


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs Prometheus: apt-get install prometheus")
@pytest.mark.parametrize("job", ["ottla", 'a "job"', "back\\slash", "zwölf\n"])
def test_a_job_may_have_any_name(tmp_path: Path, job: str) -> None:
    path = tmp_path / "rules.yml"
    path.write_text(rules(job))
    checked = subprocess.run(
        ["promtool", "check", "rules", path], check=False, capture_output=True, text=True
    )
    assert f"{len(ALERTS)} rules found" in checked.stdout, checked.stderr
