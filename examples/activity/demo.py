"""A broker, the site with its tracker, visitors, the pipeline, and a lake. Ctrl-C ends it and shows a report.

python demo.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from stage import Stage  # noqa: E402

TOPICS = dict.fromkeys(("page-views", "searches", "clicks", "visits", "top-pages", "funnel"), 2)


def main() -> int:
    with Stage(TOPICS, HERE) as stage:
        site, live, connect = (stage.free_port() for _ in range(3))
        lake = stage.directory / "lake"
        stage.run("tracker.py", "--port", str(site))
        stage.run("visitors.py", "--tracker", f"http://localhost:{site}")
        stage.run("live.py", "--port", str(live))
        stage.run_pipeline("pipeline.py")
        run_worker(stage, connect)
        print(f"http://localhost:{live} shows what is going on, once Spark is up", flush=True)
        print(f"http://localhost:{site} is the site", flush=True)
        make_connector(connect, lake)
        print(f"views go to {lake}; topics: {', '.join(TOPICS)} at {stage.bootstrap_servers}", flush=True)
        stage.stay()
        if any(lake.glob("date=*")):
            print("a report from the lake, on a Spark of its own; Ctrl-C again does without", flush=True)
            with suppress(KeyboardInterrupt):
                # Spark's log goes with the demo.
                environment = {**os.environ, "TMPDIR": str(stage.directory)}
                subprocess.run(
                    [sys.executable, "report.py", str(lake)], cwd=HERE, env=environment, check=False
                )
    return 0


def run_worker(stage: Stage, port: int) -> str:
    settings = {
        "listeners": f"http://localhost:{port}",
        "ottla.spark.checkpoint.dir": f"{stage.directory}/connect",
    }
    return stage.run_ottla("connect", *(f"--override={name}={value}" for name, value in settings.items()))


def make_connector(port: int, lake: Path) -> None:
    body = (HERE / "lake.json").read_text().replace("LAKE", str(lake)).encode()
    url = f"http://localhost:{port}/connectors/views-lake/config"
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method="PUT")
    while True:
        try:
            urllib.request.urlopen(request, timeout=60).close()
            return
        except urllib.error.HTTPError:
            raise
        except urllib.error.URLError:  # not up yet
            time.sleep(0.5)


if __name__ == "__main__":
    sys.exit(main())
