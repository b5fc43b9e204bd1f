"""Files with keys and passwords are for the eyes of their owner alone, whatever the umask says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli.main import main


@pytest.fixture(autouse=True)
def open_to_everybody() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def readable_by_others(directory: Path) -> set[str]:
    files = [path for path in directory.rglob("*") if path.is_file()]
    assert files
    return {str(path.relative_to(directory)) for path in files if path.stat().st_mode & 0o077}


def test_what_certs_create_makes(tmp_path: Path) -> None:
    (tmp_path / "broker.pem").write_text("of old, and for everybody to read")
    assert main(["certs", "create", "--dir", str(tmp_path), "--force"]) == 0
    assert not readable_by_others(tmp_path)


def test_credentials_to_begin_with(tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(f"node.id=1\nprocess.roles=broker,controller\nlog.dirs={tmp_path / 'data'}\n")
    properties.chmod(0o600)
    formatting = ["storage", "format", "-t", "4L6g3nShT-eMCtK--X86sw", "-c", str(properties), "--standalone"]
    assert main([*formatting, "--add-scram", "SCRAM-SHA-512=[name=alice,password=wonderland]"]) == 0
    with_credentials = {
        path.name
        for path in (tmp_path / "data").rglob("*")
        if path.is_file() and b"alice" in path.read_bytes()
    }
    assert with_credentials
    assert not with_credentials & {Path(name).name for name in readable_by_others(tmp_path / "data")}
