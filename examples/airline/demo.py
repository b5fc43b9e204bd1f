"""A broker, a day at the airport, passengers, the pipeline and the board. Ctrl-C ends it.

python demo.py
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from stage import Stage  # noqa: E402
from travel import topics  # noqa: E402

PARTITIONS = 2


def main() -> int:
    with Stage(dict.fromkeys(topics.ALL, PARTITIONS), HERE) as stage:
        port = stage.free_port()
        stage.run("board.py", "--port", str(port))
        stage.run("passengers.py")
        stage.run_pipeline("pipeline.py")
        stage.run("operations.py", "--every", "20")
        print(
            f"http://localhost:{port} is the board; offers begin some seconds after Spark is up", flush=True
        )
        print(f"topics: {', '.join(topics.ALL)} at {stage.bootstrap_servers}", flush=True)
        stage.stay()
    return 0


if __name__ == "__main__":
    sys.exit(main())
