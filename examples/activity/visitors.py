"""Visitors who come, look, search and sometimes click: load for the tracker.

python visitors.py --tracker http://localhost:8096 --rate 20
"""

from __future__ import annotations

import argparse
import json
import random
import time
import urllib.request
from collections.abc import Iterator

PAGES = ["home", "lamps", "teapots", "desks", "about"]
SHARES = [50, 20, 15, 10, 5]


def events(seed: int, visitors: int) -> Iterator[dict[str, str]]:
    chance = random.Random(seed)
    while True:
        visitor = f"visitor-{chance.randrange(visitors)}"
        page = chance.choices(PAGES, SHARES)[0]
        match chance.choices(["view", "search", "click"], [80, 15, 5])[0]:
            case "search":
                yield {"kind": "search", "visitor": visitor, "text": page}
            case kind:
                yield {"kind": kind, "visitor": visitor, "page": page}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bootstrap-server", help="not used: visitors know the site alone")
    parser.add_argument("--tracker", default="http://localhost:8096")
    parser.add_argument("--rate", type=float, default=20.0)
    parser.add_argument("--visitors", type=int, default=200)
    given = parser.parse_args()
    due = time.monotonic()
    for event in events(1, given.visitors):
        try:
            request = urllib.request.Request(f"{given.tracker}/events", json.dumps(event).encode())
            urllib.request.urlopen(request, timeout=5).close()
        except OSError as error:
            print(f"{given.tracker}: {error}", flush=True)
            time.sleep(1)
        due = max(due + 1 / given.rate, time.monotonic() - 1)
        time.sleep(max(0.0, due - time.monotonic()))


if __name__ == "__main__":
    main()
