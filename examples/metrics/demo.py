"""A broker, five pretended hosts, the pipeline and the page. Ctrl-C ends it.

python demo.py
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from stage import Stage  # noqa: E402

TOPICS = {"host-metrics": 2, "host-minutes": 2, "host-alerts": 2}


def main() -> int:
    with Stage(TOPICS, HERE) as stage:
        port = stage.free_port()
        stage.run("agent.py", "--pretend", "5")
        stage.run("dashboard.py", "--port", str(port))
        stage.run_pipeline("pipeline.py")
        print(f"http://localhost:{port} shows the hosts, some seconds after Spark is up", flush=True)
        stage.stay()
    return 0


if __name__ == "__main__":
    sys.exit(main())
