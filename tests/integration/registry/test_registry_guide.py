"""The guide to the registry does what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from registry_process import RegistryProcess

from ottla.testing.in_process import InProcessBroker

pytestmark = pytest.mark.xdist_group("registry")

GUIDE = (Path(__file__).parents[3] / "docs/guides/schema-registry.md").read_text()


def test_the_guides_programs_and_commands_run(
    cluster: InProcessBroker, registry: RegistryProcess, tmp_path: Path
) -> None:
    programs = dict(re.findall(r"^```python file=(\S+)\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE))
    assert programs.keys() == {"write_orders.py", "read_orders.py"}
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
    environment = os.environ | {
        "BOOTSTRAP_SERVERS": cluster.bootstrap_servers,
        "SCHEMA_REGISTRY": registry.url,
    }
    subprocess.run(
        [sys.executable, "write_orders.py"], check=True, cwd=tmp_path, env=environment, timeout=100
    )
    reader = subprocess.Popen(
        [sys.executable, "read_orders.py"], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        assert reader.stdout is not None
        read = [reader.stdout.readline().strip() for _ in range(3)]
    finally:
        reader.kill()
        reader.communicate()
    assert read == [f"Order(id='order {number}', cents={100 * number})" for number in range(3)]

    blocks = re.findall(r"^```sh\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)
    script = next(block for block in blocks if "curl" in block).replace("curl", "curl -sS")
    script = script.replace("localhost:8081", registry.url.removeprefix("http://"))
    ran = subprocess.run(["sh", "-ec", script], check=True, capture_output=True, text=True, timeout=100)
    told = ran.stdout
    assert told.startswith('{"compatibility":"FULL"}{"is_compatible":false,"messages":[')
    assert "TYPE_MISMATCH" in told
    assert told.endswith("[1]")
