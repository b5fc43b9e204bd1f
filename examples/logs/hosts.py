"""Pretends to be some hosts: writes what nginx, sshd and a shop would log there, and rotates the files.

On the first of them `checkout` fails often in the second half of every minute. A line in 500 is broken.

    python hosts.py --directory /tmp/hosts --hosts 3 --rate 100
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

PAGES = ("/", "/lamps", "/teapots", "/desks", "/basket")
PEOPLE = [f"customer-{number}" for number in range(50)]
ROTATED_KEPT = 3


def nginx(chance: random.Random, at: datetime, number: int) -> str:
    status = chance.choices((200, 304, 404, 500), (80, 10, 8, 2))[0]
    client, request = f"10.0.0.{chance.randrange(1, 255)}", f"GET {chance.choice(PAGES)} HTTP/1.1"
    size = chance.randrange(200, 9000)
    return (
        f'{client} - - [{at:%d/%b/%Y:%H:%M:%S %z}] "{request}" {status} {size} "-" "Mozilla/5.0" {number:08x}'
    )


def syslog(chance: random.Random, at: datetime, number: int, host: str) -> str:
    priority, text = chance.choice(
        ((86, "Accepted publickey for deploy"), (84, "Failed password for root"), (86, "session closed"))
    )
    where = f"10.0.0.{chance.randrange(1, 255)}"
    return f"<{priority}>1 {at.isoformat()} {host} sshd {number} - - {text} from {where} session {number:08x}"


def application(chance: random.Random, at: datetime, number: int, failing: float) -> str:
    entry = {"time": at.isoformat(), "service": "checkout", "level": "info", "message": "order taken"}
    if chance.random() < failing:
        entry |= {"level": "error", "message": "payment timed out"}
    return json.dumps(entry | {"customer": chance.choice(PEOPLE), "request": f"{number:08x}"})


def invented(host: str, seed: int) -> Iterator[tuple[str, str]]:
    """Files and lines for them, for ever."""
    chance = random.Random(seed)
    for number in itertools.count(seed << 24):
        at = datetime.now(UTC)
        file = chance.choices(("access", "app", "syslog"), (6, 3, 1))[0]
        if chance.random() < 0.002:
            line = "Traceback (most recent call last):"
        elif file == "access":
            line = nginx(chance, at, number)
        elif file == "syslog":
            line = syslog(chance, at, number, host)
        else:
            line = application(chance, at, number, 0.3 if seed == 0 and at.second >= 30 else 0.02)
        yield f"{file}.log", line


def write(directory: Path, name: str, line: str, bytes_max: int) -> None:
    path = directory / name
    with path.open("a") as file:
        file.write(line + "\n")
        size = file.tell()
    if size > bytes_max:
        rotate(path)


def rotate(path: Path) -> None:
    """As logrotate does: .log becomes .log.1, and so on; the oldest goes."""
    for number in range(ROTATED_KEPT - 1, 0, -1):
        if (older := path.with_name(f"{path.name}.{number}")).exists():
            older.replace(path.with_name(f"{path.name}.{number + 1}"))
    path.replace(path.with_name(f"{path.name}.1"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bootstrap-server", help="taken and not needed: nothing here knows of topics")
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--hosts", type=int, default=3)
    parser.add_argument("--rate", type=float, default=100, help="lines a second, of all hosts")
    parser.add_argument("--rotate", type=int, default=200_000, metavar="BYTES")
    parser.add_argument(
        "--silent", type=float, default=0, metavar="SECONDS", help="at the end of each minute"
    )
    given = parser.parse_args()
    sources = []
    for seed in range(given.hosts):
        (directory := given.directory / f"host-{seed}").mkdir(parents=True, exist_ok=True)
        sources.append((directory, invented(directory.name, seed)))
    begun = due = time.monotonic()
    for written, (directory, source) in enumerate(itertools.cycle(sources), 1):
        write(directory, *next(source), given.rotate)
        due += 1 / given.rate
        if (due - begun) % 60 > 60 - given.silent:
            due += given.silent
        if (early := due - time.monotonic()) > 0:
            (given.directory / "counting").write_text(str(written))
            (given.directory / "counting").replace(given.directory / "written")
            time.sleep(early)


if __name__ == "__main__":
    main()
