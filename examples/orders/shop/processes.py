"""All services of the shop as processes of this machine, which can be killed and started again."""

from __future__ import annotations

import socket
import sys
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE.parent))

from programs import OTTLA, Programs  # noqa: E402

PIPELINES = ("details", "fraud", "inventory", "aggregator", "payments", "notifications")
READY_S_MAX = 120.0


class Shop:
    """`with Shop("localhost:9092", directory) as shop:` with `separate`, a process per pipeline."""

    def __init__(
        self, bootstrap_servers: str, directory: Path, ports: Mapping[str, int], *, separate: bool = False
    ) -> None:
        self.directory = directory
        self.ports = ports
        self.mails = directory / "mails.jsonl"
        self._commands = _commands(bootstrap_servers, directory, ports, separate)
        self.programs = Programs(HERE, directory)

    @property
    def names(self) -> list[str]:
        return list(self._commands)

    @property
    def order_urls(self) -> list[str]:
        return [f"http://localhost:{self.ports[name]}" for name in ("orders-1", "orders-2")]

    def __enter__(self) -> Shop:
        try:
            for name in self._commands:
                self.start(name)
            self.wait_served("search")
            for name in ("orders-1", "orders-2", "connect"):
                self.wait_served(name)
            self._make_connector()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self, name: str) -> None:
        self.programs.start(name, self._commands[name])

    def kill(self, name: str) -> None:
        self.programs.kill(name)

    def raise_dead(self) -> None:
        self.programs.raise_dead()

    def wait_served(self, name: str) -> None:
        deadline = time.monotonic() + READY_S_MAX
        while time.monotonic() < deadline:
            self.raise_dead()
            try:
                socket.create_connection(("localhost", self.ports[name]), 1).close()
                return
            except OSError:
                time.sleep(0.1)
        raise RuntimeError(f"{name} does not listen on port {self.ports[name]}")

    def _make_connector(self) -> None:
        """Connect remembers it: this is done once, whatever is killed later."""
        url = f"http://localhost:{self.ports['connect']}/connectors/orders-search/config"
        body = (HERE / "search.json").read_text().replace("PORT", str(self.ports["search"])).encode()
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method="PUT")
        urllib.request.urlopen(request, timeout=60).close()

    def close(self) -> None:
        self.programs.close()


def _commands(
    bootstrap_servers: str, directory: Path, ports: Mapping[str, int], separate: bool
) -> dict[str, list[str]]:
    python = sys.executable
    to = ["--bootstrap-server", bootstrap_servers]
    run = [*OTTLA, "run", *to, "--state-dir", str(directory / "state")]
    commands = {
        "mailbox": [
            python, "mailbox.py", "--port", str(ports["mailbox"]), "--file", str(directory / "mails.jsonl")
        ],
        "search": [
            python, "search_index.py", "--port", str(ports["search"]), "--file", str(directory / "search.db")
        ],
        "orders-1": [python, "orders_service.py", *to, "--port", str(ports["orders-1"])],
        "orders-2": [python, "orders_service.py", *to, "--port", str(ports["orders-2"])],
        "email": [python, "email_service.py", *to, "--smtp", f"localhost:{ports['mailbox']}"],
        "connect": [*OTTLA, "connect", str(_worker(bootstrap_servers, directory, ports["connect"]))],
    }  # fmt: skip
    if separate:
        commands |= {name: [*run, f"{name}.py"] for name in PIPELINES}
    else:
        commands["pipelines"] = [*run, *(f"{name}.py" for name in PIPELINES)]
    return commands


def _worker(bootstrap_servers: str, directory: Path, port: int) -> Path:
    path = directory / "connect.properties"
    path.write_text(
        f"bootstrap.servers={bootstrap_servers}\n"
        "group.id=shop-connect\n"
        "config.storage.topic=shop-connect-configs\n"
        "offset.storage.topic=shop-connect-offsets\n"
        "status.storage.topic=shop-connect-status\n"
        "key.converter=org.apache.kafka.connect.storage.StringConverter\n"
        "value.converter=org.apache.kafka.connect.json.JsonConverter\n"
        "value.converter.schemas.enable=false\n"
        f"listeners=http://localhost:{port}\n"
        f"ottla.spark.checkpoint.dir={directory}/connect\n"
    )
    return path
