"""What files alone take: grep over the files of all hosts against the same question to the index.

python compare.py --hosts 20 --lines 100000
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from entries import parse
from hosts import invented
from index import BATCH, Index

SEED = 7


def timed(work: Callable[[], int], times: int = 5) -> tuple[int, float]:
    """What it gives, and the best of some times in milliseconds: files and index are in memory by then."""
    took, found = [], 0
    for _ in range(times):
        begun = time.perf_counter()
        found = work()
        took.append((time.perf_counter() - begun) * 1000)
    return found, min(took)


def rows_of(path: Path, host: str) -> Iterator[tuple[int, str, str, str, str]]:
    now_ms = int(time.time() * 1000)
    for line in path.read_bytes().splitlines():
        try:
            entry = parse(host, line, now_ms)
        except ValueError as error:
            yield now_ms, host, "dead-letter", "error", f"{line.decode()} [{error}]"
        else:
            yield entry.at_ms, entry.host, entry.service, entry.level, entry.message


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--hosts", type=int, default=20)
    parser.add_argument("--lines", type=int, default=100_000, help="of each host")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ottla-logs-") as name:
        directory = Path(name)
        for number in range(given.hosts):
            lines = itertools.islice(invented(f"host-{number}", SEED + number), given.lines)
            (directory / f"host-{number}.log").write_text("".join(f"{line}\n" for _, line in lines))
        files = sorted(directory.glob("*.log"))
        size = sum(path.stat().st_size for path in files)
        index = Index(str(directory / "logs.db"))
        begun = time.perf_counter()
        for path in files:
            rows = rows_of(path, path.stem)
            while batch := list(itertools.islice(rows, BATCH)):
                index.add(batch, {("log-entries", 0): 0})
        took_s = time.perf_counter() - begun
        of_index = sum(path.stat().st_size for path in directory.glob("logs.db*"))
        print(f"{given.hosts} hosts, {given.hosts * given.lines:,} lines, {size / 1e6:,.0f} MB")
        print(f"index: {of_index / 1e6:,.0f} MB, {given.hosts * given.lines / took_s:,.0f} lines/s")
        rare = f"{((SEED + given.hosts // 2) << 24) + given.lines // 2:08x}"
        for text in (rare, "checkout error", "favicon", "customer"):
            first, *others = text.split()
            found = " | ".join(
                [f"grep -hwF {first} *.log", *(f"grep -wF {word}" for word in others), "wc -l"]
            )

            def grep(command: str = found) -> int:
                return int(subprocess.check_output(command, shell=True, cwd=directory))

            in_files, files_ms = timed(grep)
            in_index, index_ms = timed(lambda text=text: index.search(text)[0])  # type: ignore[misc]
            print(f"{text!r}: {in_files:,} lines by grep in {files_ms:,.1f} ms, "
                  f"{in_index:,} by the index in {index_ms:,.2f} ms")  # fmt: skip
        index.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
