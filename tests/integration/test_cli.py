"""The `ottla` command as a user runs it: real processes, exit codes, what is printed where."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

OTTLA = [sys.executable, "-m", "ottla.cli.main"]


def ottla(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*OTTLA, *arguments], check=False, capture_output=True, text=True, timeout=60, cwd=cwd
    )


@contextmanager
def started(*arguments: str, cwd: Path | None = None) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The running command and its banner."""
    command = [*OTTLA, "start", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd)
    try:
        assert process.stdout is not None
        banner = ""
        for line in process.stdout:
            banner += line
            if line.startswith("Cluster:"):
                break
        yield process, banner
    finally:
        process.kill()
        process.communicate()


def address(banner: str) -> tuple[str, int]:
    found = re.search(r"^Ready: (\S+):(\d+) in [\d.]+ s$", banner, re.MULTILINE)
    assert found is not None, banner
    return found[1], int(found[2])


def connects(host: str, port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex((host, port)) == 0


def test_help_and_version_are_instant() -> None:
    durations = []
    for _ in range(3):
        began = time.perf_counter()
        assert ottla("--help").returncode == 0
        durations.append(time.perf_counter() - began)
    assert ottla("--version").stdout == "ottla 0.1.0\n"
    # Whatever the machine, the broker itself must not be imported for this.
    modules = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "ottla.cli.main", "--help"],
        check=True,
        capture_output=True,
        text=True,
    ).stderr
    assert "asyncio" not in modules
    assert "kio" not in modules
    assert min(durations) < 1


def test_a_broker_that_is_alone_loads_nothing_to_ask_others_with() -> None:
    program = "import sys, ottla.cli.broker.serve; print(*sys.modules)"
    command = [sys.executable, "-c", program]
    modules = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    loaded = {"ottla.client.peer", "ottla.client.security", "ottla.membership.life", "ottla.security.tls"}
    assert not loaded & {*modules}


def test_a_broker_that_nobody_shares_records_at_loads_nothing_for_that() -> None:
    program = "import sys, ottla.cli.broker.serve, ottla.node; print(*sys.modules)"
    command = [sys.executable, "-c", program]
    modules = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    parts = ("ottla.coordinator.share", "ottla.replication.share")
    assert [name for name in modules if name.startswith(parts)] == []


def test_start_tells_address_data_directory_cluster_and_time(tmp_path: Path) -> None:
    with started("--port", "0", "--data-dir", f"{tmp_path}/data") as (process, banner):
        host, port = address(banner)
        assert host == "127.0.0.1"
        assert port > 0
        assert connects(host, port)
        assert f"Data: {tmp_path}/data\n" in banner
        assert re.search(r"^Cluster: [A-Za-z0-9_-]{22}$", banner, re.MULTILINE)
        assert (tmp_path / "data/ottla.pid").read_text() == f"{process.pid}\n"


def test_data_is_kept_in_the_working_directory_by_default(tmp_path: Path) -> None:
    with started("--port", "0", cwd=tmp_path) as (process, banner):
        assert f"Data: {tmp_path}/ottla-data\n" in banner
        stopped = ottla("stop", cwd=tmp_path)
        assert stopped.returncode == 0
        assert f"{tmp_path}/ottla-data" in stopped.stdout
        assert process.wait(10) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_syncs_and_ends_with_0(tmp_path: Path, number: signal.Signals) -> None:
    with started("--port", "0", "--data-dir", str(tmp_path)) as (process, banner):
        process.send_signal(number)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 0, errors
        assert "Traceback" not in errors
    assert not (tmp_path / "ottla.pid").exists()
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    with started("--port", "0", "--data-dir", str(tmp_path)) as (_, again):
        assert re.search("Cluster: .*", again)[0] == re.search("Cluster: .*", banner)[0]  # type: ignore[index]


def test_a_second_broker_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    with started("--port", "0", "--data-dir", str(tmp_path)) as (_, banner):
        second = ottla("start", "--port", "0", "--data-dir", str(tmp_path))
        assert second.returncode == 1
        assert second.stdout == ""
        assert second.stderr.count("\n") == 1
        assert str(tmp_path) in second.stderr
        assert "in use by another broker" in second.stderr
        assert connects(*address(banner))


def test_a_directory_of_another_node_is_refused(tmp_path: Path) -> None:
    with started("--port", "0", "--data-dir", str(tmp_path)):
        pass
    refused = ottla("start", "--port", "0", "--data-dir", str(tmp_path), "--set", "node.id=7")
    assert refused.returncode == 1
    assert "node.id=1, but this node is configured as 7" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        refused = ottla("start", "--port", str(port), "--data-dir", str(tmp_path))
    assert refused.returncode == 1
    assert f"cannot listen on PLAINTEXT://127.0.0.1:{port}: the port is in use" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_closed_listener_without_what_it_needs_is_refused_in_one_line(tmp_path: Path) -> None:
    refused = ottla("start", "--set", "listeners=SSL://127.0.0.1:0", cwd=tmp_path)
    assert refused.returncode == 1
    assert "it has no certificate; set ssl.keystore.location" in refused.stderr
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--set", "log.segment.bytes=100"), "ottla: log.segment.bytes=100: must be at least 1048576\n"),
        (("--set", "num.partitions=many"), "ottla: num.partitions=many: must be a whole number of 32 bits\n"),
        (("--set", "num.partitions"), "ottla: --set num.partitions: must be key=value\n"),
        (("missing.properties",), "ottla: missing.properties: No such file or directory\n"),
        (("--data-dir", "/dev/null/data"), "/dev/null/data"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    refused = ottla("start", "--port", "0", *arguments, cwd=tmp_path)
    assert refused.returncode == 1
    assert refused.stdout == ""
    assert message in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_broken_line_of_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.properties").write_text("num.partitions=1\nlog.dirs=\\u00zz\n")
    refused = ottla("start", "broken.properties", cwd=tmp_path)
    assert refused.returncode == 1
    assert "broken.properties: line 2" in refused.stderr


def test_flags_win_over_the_file_and_unknown_keys_are_named(tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text(
        "listeners=PLAINTEXT://127.0.0.1:1\n"
        "advertised.listeners=PLAINTEXT://localhost:1\n"
        "log.dirs=elsewhere\n"
        "zookeeper.connect=localhost:2181\n"
        "num.partition=3\n"
        "num.io.threads=8\n"
    )
    with started("server.properties", "--port", "0", "--data-dir", "here", cwd=tmp_path) as (process, banner):
        assert connects(*address(banner))
        assert f"Data: {tmp_path}/here\n" in banner
        process.terminate()
        _, errors = process.communicate(timeout=30)
    assert "num.partition (did you mean num.partitions?), zookeeper.connect" in errors
    assert "num.io.threads" not in errors
    assert not (tmp_path / "elsewhere").exists()


def test_stop_says_when_there_is_nothing_to_stop(tmp_path: Path) -> None:
    nothing = ottla("stop", "--data-dir", str(tmp_path))
    assert nothing.returncode == 1
    assert f"no broker serves {tmp_path}" in nothing.stderr


def test_stop_does_not_trust_a_pid_file_left_by_a_crash(tmp_path: Path) -> None:
    with started("--port", "0", "--data-dir", str(tmp_path)) as (process, _):
        process.kill()
        process.wait()
    # By now the number may belong to anyone: this test, for instance.
    (tmp_path / "ottla.pid").write_text(f"{os.getpid()}\n")
    assert ottla("stop", "--data-dir", str(tmp_path)).returncode == 1


def test_stop_waits_until_the_broker_has_ended(tmp_path: Path) -> None:
    with started("--port", "0", "--data-dir", str(tmp_path)) as (process, banner):
        stopped = ottla("stop", "--data-dir", str(tmp_path))
        assert stopped.returncode == 0, stopped.stderr
        assert f"process {process.pid}" in stopped.stdout
        assert process.poll() == 0
        assert not connects(*address(banner))


def test_a_binary_file_is_not_taken_for_settings(tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_bytes(b"node.id=1\nport\x00\x01\xff\xfe=2\n")
    refused = ottla("start", "server.properties", cwd=tmp_path)
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert "server.properties: line 2: byte 14 is 0x00" in refused.stderr


def test_every_interface_advertised_as_localhost_is_warned_about(tmp_path: Path) -> None:
    listeners = ["--set", "listeners=PLAINTEXT://0.0.0.0:0"]
    advertised = ["--set", "advertised.listeners=PLAINTEXT://localhost:9092"]
    with started(*listeners, *advertised, "--data-dir", "data", cwd=tmp_path) as (process, _):
        process.terminate()
        _, told = process.communicate(timeout=30)
    assert "PLAINTEXT://0.0.0.0:0 is advertised as localhost:9092" in told
    assert "set advertised.listeners=PLAINTEXT://HOST:9092" in told


def test_groups_begin_at_once_without_a_file(tmp_path: Path) -> None:
    from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

    (tmp_path / "server.properties").write_text("listeners=PLAINTEXT://127.0.0.1:0\n")

    def delay(*arguments: str) -> str:
        with started(*arguments, "--port", "0", cwd=tmp_path) as (_, banner):
            host, port = address(banner)
            admin = AdminClient({"bootstrap.servers": f"{host}:{port}"})
            resource = ConfigResource(ResourceType.BROKER, "1")
            described = admin.describe_configs([resource])[resource].result(timeout=30)
            return str(described["group.initial.rebalance.delay.ms"].value)

    assert delay() == "0"
    assert delay("--set", "group.initial.rebalance.delay.ms=7") == "7"
    assert delay("server.properties", "--data-dir", "other") == "3000"


@pytest.mark.parametrize("missing", ["pyspark", "numpy", "pyarrow"])
def test_run_names_the_extra_it_needs(missing: str) -> None:
    program = f"""
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {missing!r}:
            raise ModuleNotFoundError("No module named " + name, name=name)
sys.meta_path.insert(0, Missing())
from ottla.cli.main import main
sys.exit(main(["run", "nothing.py"]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert done.stderr == f"ottla run: needs the package {missing}: pip install 'ottla[spark]'\n"
