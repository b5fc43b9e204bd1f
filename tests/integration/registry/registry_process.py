"""A registry as users run it, and its API with nothing between."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from http.client import HTTPConnection
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"


class RegistryProcess:
    def __init__(self, bootstrap: str, *options: str) -> None:
        argv = [sys.executable, "-m", "ottla.cli.main", "schema-registry", "--bootstrap-server", bootstrap]
        handle, log = tempfile.mkstemp(prefix="registry-", suffix=".log")
        self._log = Path(log)
        self._process = subprocess.Popen(
            [*argv, "--listen", "0", "--json", *options], stdout=subprocess.PIPE, stderr=handle, text=True
        )
        os.close(handle)
        self.url = ""

    def wait_ready(self) -> Self:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self.log
        self.url = json.loads(line)["ready"]
        return self

    @property
    def log(self) -> str:
        return self._log.read_text()

    def call(self, method: str, path: str, body: Any = None, timeout_s: float = 60) -> tuple[int, Any]:
        return call(self.url, method, path, body, timeout_s)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> int:
        self._process.terminate()
        return self._process.wait(30)

    def __enter__(self) -> Self:
        return self.wait_ready()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.unlink()


def call(url: str, method: str, path: str, body: Any = None, timeout_s: float = 60) -> tuple[int, Any]:
    address = urlsplit(url)
    connection = HTTPConnection(address.hostname or "", address.port, timeout=timeout_s)
    try:
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, {"Content-Type": MEDIA_TYPE})
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text else None
    finally:
        connection.close()


def avro(*names: str, name: str = "Order") -> dict[str, str]:
    """A body that registers a record; a name in capitals is a field with a default."""
    fields: list[dict[str, Any]] = [
        {"name": each.lower(), "type": "string"} | ({"default": ""} if each.isupper() else {})
        for each in names
    ]
    return {"schema": json.dumps({"type": "record", "name": name, "fields": fields})}
