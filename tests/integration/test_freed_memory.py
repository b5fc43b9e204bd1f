"""Memory that a process has freed goes back to the system, even between blocks that are still in use."""

from __future__ import annotations

import subprocess
import sys

import pytest

# In a process of its own: what others have left in the heap would decide the outcome.
SCRIPT = """
import asyncio, threading
from ottla.runtime import freed_memory
from ottla.runtime.tasks import ThreadOffload

def resident_mib():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) // 1024

def leave_holes(kept):
    # Blocks of 100 kB come from the heap, and the small ones between them stay.
    freed = []
    for _ in range(1200):
        freed.append(bytearray(100_000))
        kept.append(bytearray(1_000))

async def main():
    kept = []
    leave_holes(kept)
    thread = threading.Thread(target=leave_holes, args=(kept,))
    thread.start()
    thread.join()
    print(resident_mib())
    offload = ThreadOffload()
    giving_back = asyncio.ensure_future(freed_memory.keep_giving_back(offload))
    for _ in range(1000):
        await asyncio.sleep(0.01)
        if resident_mib() < 50:
            break
    print(resident_mib(), len(kept))
    giving_back.cancel()
    offload.close()

freed_memory.INTERVAL_S = 0.05
freed_memory.share_one_heap()
asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc can be asked")
def test_what_is_freed_between_small_blocks_goes_back() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    held, left, _ = map(int, done.stdout.split())
    assert held > 100
    assert left < 50
