"""A real Prometheus, which scrapes brokers and evaluates rules twice a second."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

from ottla.runtime.net import free_ports

IS_INSTALLED = shutil.which("prometheus") is not None and shutil.which("promtool") is not None


class Prometheus:
    def __init__(self, directory: Path, targets: Sequence[str], rules: str) -> None:
        self._directory = directory
        (port,) = free_ports("127.0.0.1", 1)
        self.url = f"http://127.0.0.1:{port}"
        self._address = f"127.0.0.1:{port}"
        (directory / "rules.yml").write_text(rules)
        (directory / "prometheus.yml").write_text(
            "global: {scrape_interval: 500ms, evaluation_interval: 500ms, scrape_timeout: 500ms}\n"
            "rule_files: [rules.yml]\n"
            "scrape_configs:\n"
            f"  - {{job_name: ottla, static_configs: [{{targets: {json.dumps(list(targets))}}}]}}\n"
        )

    def __enter__(self) -> Prometheus:
        self._process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={self._directory}/prometheus.yml",
                f"--storage.tsdb.path={self._directory}/data",
                f"--web.listen-address={self._address}",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_until(self._is_ready, 30)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(30)

    def _is_ready(self) -> bool:
        try:
            with urlopen(f"{self.url}/-/ready", timeout=5):
                return True
        except OSError:
            return False

    def ask(self, path: str, **parameters: str) -> Any:
        with urlopen(f"{self.url}/api/v1/{path}?{urlencode(parameters)}", timeout=20) as reply:
            answer = json.load(reply)
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, expression: str) -> list[float]:
        """The values of all that it finds."""
        return [float(found["value"][1]) for found in self.ask("query", query=expression)["result"]]

    def firing(self) -> set[str]:
        alerts = self.ask("alerts")["alerts"]
        return {each["labels"]["alertname"] for each in alerts if each["state"] == "firing"}


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.1)
