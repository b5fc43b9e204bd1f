"""A broker, three pretended hosts with their agents, the pipeline, the index and its page. Ctrl-C ends it.

An agent and the index are killed on the way. Hosts write for 40 seconds and are silent for 20:
then it shows whether each line that was written is found, once.

python demo.py
"""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from stage import Stage  # noqa: E402

TOPICS = {"log-lines": 3, "log-entries": 3, "log-rates": 3, "log-dead": 1}
HOSTS = 3
LOOK_S = 2.0


class Logs:
    """All programs but the hosts; each can be killed, and goes on where it was."""

    def __init__(self, stage: Stage, directory: Path) -> None:
        self._stage = stage
        self._port = str(stage.free_port())
        self.url = f"http://localhost:{self._port}"
        self._commands = {
            f"agent of host-{number}": self._agent(directory, number) for number in range(HOSTS)
        }
        self._commands["index"] = [
            "index.py",
            "--file",
            str(stage.directory / "logs.db"),
            "--port",
            self._port,
        ]
        self._names = {what: stage.run(*command) for what, command in self._commands.items()}
        self._names["pipeline"] = stage.run_pipeline("pipeline.py")

    @staticmethod
    def _agent(directory: Path, number: int) -> list[str]:
        host = f"host-{number}"
        return ["agent.py", "--directory", str(directory / host), "--host", host]

    def kill(self, what: str) -> None:
        self._stage.kill(self._names[what])

    def start(self, what: str) -> None:
        if what == "pipeline":
            self._names[what] = self._stage.run_pipeline("pipeline.py")
        else:
            self._names[what] = self._stage.run(*self._commands[what])

    def found(self) -> int:
        try:
            with urllib.request.urlopen(f"{self.url}/search?q=", timeout=10) as answer:
                count: int = json.load(answer)["count"]
                return count
        except urllib.error.URLError:
            return 0  # not up


def main() -> int:
    with Stage(TOPICS, HERE) as stage:
        directory = stage.directory / "hosts"
        stage.run("hosts.py", "--directory", str(directory), "--hosts", str(HOSTS), "--silent", "20")
        logs = Logs(stage, directory)
        print(f"{logs.url} finds lines; hosts write, agents follow them, and Spark starts", flush=True)
        victims = ["agent of host-1", "index"]
        try:
            while True:
                stage.look()
                found = logs.found()
                written = (directory / "written").read_text() if (directory / "written").exists() else "0"
                print(f"{written} lines written, {found} found", flush=True)
                time.sleep(LOOK_S)
                if found and victims:
                    victim = victims.pop(0)
                    print(f"killing the {victim}", flush=True)
                    logs.kill(victim)
                    time.sleep(LOOK_S)
                    logs.start(victim)
                    time.sleep(LOOK_S)
        except KeyboardInterrupt:
            print("ending …", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
