"""What a demo starts ends with it, however it is ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.integration.examples.test_log_examples import EXAMPLES
from tests.spark.processes import wait_until

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
# Leaves a directory behind, as Spark does with its log.
SLEEPER = """
import os, pathlib, tempfile, time
pathlib.Path(f"{os.getpid()}.making").write_text(tempfile.mkdtemp())
pathlib.Path(f"{os.getpid()}.making").rename(f"{os.getpid()}.pid")
time.sleep(600)
"""
# Ends only when it may.
SLOW_TO_END = """
import os, pathlib, signal, time
def end(*_):
    pathlib.Path(f"{os.getpid()}.ending").touch()
    while not pathlib.Path("may-end").exists():
        time.sleep(0.01)
    os._exit(0)
signal.signal(signal.SIGTERM, end)
pathlib.Path(f"{os.getpid()}.pid").touch()
time.sleep(600)
"""


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
        assert not any(Path(path.read_text()).exists() for path in tmp_path.glob("*.pid"))
    finally:
        demo.kill()
        demo.wait()


def test_a_second_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "sleeper.py").write_text(SLOW_TO_END)
    demo = subprocess.Popen([sys.executable, "-c", DEMO, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert demo.stdout is not None
        demo.stdout.readline()
        directory = demo.stdout.readline().split()[0]
        wait_until(lambda: len(list(tmp_path.glob("*.pid"))) == 2, 30, "two programs")
        demo.send_signal(signal.SIGINT)
        wait_until(lambda: len(list(tmp_path.glob("*.ending"))) == 2, 30, "programs that are told to end")
        demo.send_signal(signal.SIGINT)
        (tmp_path / "may-end").touch()
        assert demo.wait(60) == 0
        assert [path for path in tmp_path.glob("*.pid") if _is_there(int(path.stem))] == []
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
