"""What a demo starts ends with it, however it is ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.integration.examples.test_log_examples import EXAMPLES

DEMO = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(EXAMPLES)!r})
from stage import Stage
with Stage({{"topic": 1}}, Path(sys.argv[1])) as stage:
    names = [stage.run("sleeper.py") for _ in range(2)]
    print(stage.directory, *names, flush=True)
    stage.stay()
"""
SLEEPER = "import os, time, pathlib, sys; pathlib.Path(f'{os.getpid()}.pid').touch(); time.sleep(600)"


def test_sigterm_ends_a_demo_and_all_it_started(tmp_path: Path) -> None:
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    demo = subprocess.Popen([sys.executable, "-c", DEMO, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert demo.stdout is not None
        logs, said = demo.stdout.readline(), demo.stdout.readline()
        directory, *names = said.split()
        assert f"{directory}/*.log" in logs
        assert names == ["sleeper.py", "sleeper.py-2"]
        deadline = time.monotonic() + 30
        while len(started := [int(path.stem) for path in tmp_path.glob("*.pid")]) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        demo.send_signal(signal.SIGTERM)
        assert demo.wait(60) == 0
        assert [pid for pid in started if _is_there(pid)] == []
        assert not Path(directory).exists()
    finally:
        demo.kill()
        demo.wait()


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
