"""What axe-core, from npm, finds wrong with a page for people who cannot see, or cannot use a mouse."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from bench.chromium import Browser

_PACKAGE = "axe-core@4"
_FETCH_S = 60


@cache
def axe_core() -> str:
    """Its script; the test is skipped where it cannot be had."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("needs npm, to fetch axe-core: apt-get install npm")
    with tempfile.TemporaryDirectory() as folder:
        command = [npm, "pack", _PACKAGE, "--silent"]
        try:
            done = subprocess.run(command, cwd=folder, check=False, capture_output=True, timeout=_FETCH_S)
        except subprocess.TimeoutExpired:
            pytest.skip("axe-core cannot be fetched from npm: no answer")
        archives = list(Path(folder).glob("*.tgz"))
        if done.returncode or not archives:
            pytest.skip(f"axe-core cannot be fetched from npm: {done.stderr.decode()[-200:]}")
        with tarfile.open(archives[0]) as archive:
            script = archive.extractfile("package/axe.min.js")
            assert script is not None
            return script.read().decode()


def faults(page: Browser) -> list[str]:
    """One line each: what is wrong, how bad it is, and where first."""
    page.run(axe_core() + "\n;true")
    # By the rules of WCAG 2.2, levels A and AA, and by what is known to be good practice.
    found: dict[str, Any] = page.run(
        "axe.run(document, {resultTypes: ['violations']}).then((result) => ({violations: result.violations}))"
    )
    return [
        f"{each['id']} ({each['impact']}): {each['help']}: {each['nodes'][0]['html'][:160]} "
        f"{each['nodes'][0]['failureSummary'][:240]}"
        for each in found["violations"]
    ]
