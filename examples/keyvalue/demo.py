"""A broker and three nodes: a write here is read there, one of two wins, and who was killed catches up.

python demo.py
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from stage import Stage  # noqa: E402

NODES = 3
READY_S_MAX = 60.0
WRITES = 500


def ask(url: str, method: str = "GET", body: Any = None) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=35) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def wait_served(stage: Stage, url: str) -> None:
    deadline = time.monotonic() + READY_S_MAX
    while True:
        stage.raise_dead()
        try:
            ask(f"{url}/status")
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def tell(what: str, answer: tuple[int, Any]) -> None:
    print(f"{what}: {answer[0]} {json.dumps(answer[1])}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--end", action="store_true", help="end when all has been shown")
    given = parser.parse_args()
    with Stage({}, HERE) as stage:
        ports = [stage.free_port() for _ in range(NODES)]
        urls = [f"http://localhost:{port}" for port in ports]
        names = [stage.run("node.py", "--port", str(port)) for port in ports]
        try:
            for url in urls:
                wait_served(stage, url)
            one, two, three = urls
            tell("green, written to node 1", ask(f"{one}/keys/colour", "PUT", {"value": "green"}))
            version = ask(f"{one}/keys/colour")[1]["version"]
            for colour, url in (("blue", two), ("red", three)):
                body = {"value": colour, "version": version}
                what = f"{colour}, written to node {urls.index(url) + 1} if it is still version {version}"
                tell(what, ask(f"{url}/keys/colour", "PUT", body))
            print(f"killing node 3; {WRITES} writes to node 1", flush=True)
            stage.kill(names[2])
            for number in range(WRITES):
                ask(f"{one}/keys/key-{number % 50}", "PUT", {"value": number})
            begun = time.monotonic()
            stage.run("node.py", "--port", str(ports[2]))
            wait_served(stage, three)
            print(f"node 3 is back after {time.monotonic() - begun:.1f} s, and has read the log", flush=True)
            for number, url in enumerate(urls, 1):
                tell(f"node {number}", ask(f"{url}/status"))
            print(f"nodes: {', '.join(urls)}; the broker is at {stage.bootstrap_servers}", flush=True)
            if not given.end:
                stage.stay()
        except KeyboardInterrupt:
            pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
