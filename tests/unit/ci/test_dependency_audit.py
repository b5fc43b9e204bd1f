"""What a build makes of pip-audit's findings: a vulnerability fails it, a missing network does not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[3] / ".ci/audit.py"
SAFE = {"name": "safe", "version": "1.0", "vulns": []}
SKIPPED = {"name": "unheard-of", "skip_reason": "Dependency not found on PyPI"}
FLAW = {"id": "PYSEC-1", "fix_versions": ["1.1"], "aliases": [], "description": "bad"}
VULNERABLE = {"name": "weak", "version": "1.0", "vulns": [FLAW]}


@pytest.mark.parametrize(
    "packages, code, said",
    [
        ([SAFE], 0, "Audited 1 of 1 packages: 0 vulnerable."),
        ([SAFE, VULNERABLE], 1, "weak 1.0: PYSEC-1, mended in 1.1"),
        ([SKIPPED], 0, "Audited 0 of 1 packages"),
        (None, 0, "Not audited: pip-audit gave no result"),
    ],
)
def test_findings(packages: list[dict[str, Any]] | None, code: int, said: str) -> None:
    found = "" if packages is None else json.dumps({"dependencies": packages, "fixes": []})
    ran = subprocess.run(
        [sys.executable, str(SCRIPT)], check=False, input=found, capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == code, ran.stderr
    assert said in ran.stdout
