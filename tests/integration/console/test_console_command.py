"""`ottla console` as it is typed."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

from ottla.cli.main import main


def test_the_command_serves_the_clusters_of_a_file_until_it_is_stopped(tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text("client.id=me\n")
    clusters = tmp_path / "clusters.toml"
    clusters.write_text(
        '[home]\nbootstrap-server = "127.0.0.1:1"\ncommand-config = "client.properties"\n'
        '[work]\nbootstrap-server = "127.0.0.1:1"\nread-only = true\n'
    )
    command = [sys.executable, "-m", "ottla.cli.main", "console", "--clusters", str(clusters), "--port", "0"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            found = re.search(r"http://localhost:\d+", line)
            assert found is not None, line
            # The socket listens before the line is written; connections wait until it is served.
            with urlopen(f"{found[0]}/api/clusters", timeout=60) as answer:
                text = answer.read().decode()
        finally:
            process.terminate()
        assert process.wait(60) == 0
    assert '"home"' in text and '"readOnly":true' in text


def test_a_broker_has_its_console_beside_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ottla.cli.main", "start", "--port", "0", "--console", "0"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [*command, "--data-dir", str(tmp_path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stderr is not None
        try:
            found = None
            for line in process.stderr:
                if (found := re.search(r"http://localhost:(\d+)", line)) is not None:
                    break
            assert found is not None
            with urlopen(f"{found[0]}/api/clusters/cluster/overview", timeout=60) as answer:
                assert len(json.load(answer)["brokers"]) == 1
        finally:
            process.terminate()
        assert process.wait(60) == 0
    # The console ends with its broker.
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", int(found[1])), 10).close()


def test_a_console_that_dies_is_started_again_and_one_that_cannot_begin_is_not(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ottla.cli.main", "start", "--port", "0", "--data-dir", str(tmp_path)]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for said in ("is not served; all else goes on", "was ended by SIGKILL; starting it again"):
            with subprocess.Popen(
                [*command, "--console", str(port)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            ) as process:
                assert process.stderr is not None
                try:
                    for line in process.stderr:
                        if "ottla console: http" in line:
                            (console,) = children_of(process.pid, "console")
                            os.kill(console, signal.SIGKILL)
                        if said in line:
                            break
                    else:
                        raise AssertionError(said)
                    if "again" in said:
                        assert any("ottla console: http" in line for line in process.stderr)
                finally:
                    process.terminate()
                    process.stderr.read()
            assert process.returncode == 0
            taken.close()


def children_of(parent: int, word: str) -> list[int]:
    found = []
    for each in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        if word in Path(f"/proc/{each}/cmdline").read_bytes().decode().split("\0"):
            found.append(int(each))
    return found


def test_a_console_that_would_not_get_in_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sasl = [
        "--set=listeners=SASL_PLAINTEXT://127.0.0.1:0",
        "--set=sasl.enabled.mechanisms=SCRAM-SHA-256",
        "--set=security.inter.broker.protocol=SASL_PLAINTEXT",
    ]
    command = [sys.executable, "-m", "ottla.cli.main", "start", "--data-dir", str(tmp_path), "--console"]
    refused = subprocess.run([*command, *sasl], check=False, capture_output=True, text=True, timeout=60)
    assert refused.returncode == 1 and "ottla console --command-config" in refused.stderr
    assert main(["console", "--login"]) == 1
    assert "security.protocol=SASL_SSL" in capsys.readouterr().err


def test_a_port_that_is_taken_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["console", "--port", str(port)]) == 1
    assert f"127.0.0.1:{port}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no cluster"),
        ("[a]\nbootstrap = 1\n", "bootstrap-server"),
        ('[a]\nbootstrap-server = "h:1"\ncolour = "red"\n', "colour"),
        ('[a]\nbootstrap-server = "nowhere"\n', "host:port"),
        ('[a]\nbootstrap-server = "h:1"\ncommand-config = "missing"\n', "missing"),
        ("[a\n", "clusters.toml"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    path = tmp_path / "clusters.toml"
    path.write_text(text)
    assert main(["console", "--clusters", str(path)]) == 1
    assert said in capsys.readouterr().err
