"""A PostgreSQL server of one's own: Debian's binaries, a fresh directory, any free port."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from bench.maven import PeerUnavailable

START_S = 60.0
PASSWORD = "a secret"


def binaries() -> Path | None:
    """Debian keeps them out of the path, a directory for each version."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    named = shutil.which("initdb")
    return found[-1].parent if found else Path(named).parent if named else None


class PostgresServer:
    def __init__(self, home: Path, bin_dir: Path) -> None:
        # The server does not run as root.
        self._user = "postgres" if os.geteuid() == 0 else None
        if self._user is not None:
            shutil.chown(home, self._user)
        self._home, self._bin = home, bin_dir
        self._data = home / "data"
        secret = home / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        subprocess.run(
            [
                bin_dir / "initdb",
                "-D",
                self._data,
                "-U",
                "postgres",
                "-A",
                "scram-sha-256",
                "-N",
                "--pwfile",
                secret,
                "-E",
                "UTF8",
                "--locale",
                "C",
            ],
            user=self._user,
            cwd=home,
            check=True,
            capture_output=True,
        )
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        options = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": "",
            "wal_level": "logical",
            "fsync": "off",
            "max_wal_senders": 20,
            "max_replication_slots": 20,
            "shared_buffers": "32MB",
        }
        argv = [str(self._bin / "postgres"), "-D", str(self._data)]
        for name, value in options.items():
            argv += ["-c", f"{name}={value}"]
        with (self._home / "log").open("ab") as log:
            self._process = subprocess.Popen(argv, user=self._user, cwd=self._home, stdout=log, stderr=log)
        deadline = time.monotonic() + START_S
        while True:
            try:
                self.connect().close()
                return
            except psycopg.OperationalError:
                assert self._process.poll() is None, (self._home / "log").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.05)

    def stop(self, how: int = signal.SIGINT) -> None:
        """SIGINT ends it in good order, SIGQUIT at once, as a crash would."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(START_S)
            self._process = None

    def connect(self, database: str = "postgres") -> psycopg.Connection[Any]:
        return psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user="postgres",
            password=PASSWORD,
            dbname=database,
            autocommit=True,
        )

    def settings(self, database: str = "postgres") -> dict[str, str]:
        return {
            "database.hostname": "127.0.0.1",
            "database.port": str(self.port),
            "database.user": "postgres",
            "database.password": PASSWORD,
            "database.dbname": database,
        }


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """PeerUnavailable where PostgreSQL is not installed."""
    bin_dir = binaries()
    if bin_dir is None:
        raise PeerUnavailable("PostgreSQL is not installed (Debian: postgresql)")
    if os.geteuid() == 0:
        try:
            pwd.getpwnam("postgres")
        except KeyError:
            raise PeerUnavailable("PostgreSQL does not run as root, and there is no user postgres") from None
    home = Path(tempfile.mkdtemp(prefix="ottla-postgres-"))
    try:
        server = PostgresServer(home, bin_dir)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(home, ignore_errors=True)
