"""A broker and a ledger: a second one takes over in the middle of transfers, and no cent is made or lost.

python demo.py
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from contextlib import suppress
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from confluent_kafka import KafkaException  # noqa: E402
from ledger import Ledger, Refused, history  # noqa: E402
from stage import Stage  # noqa: E402

PEOPLE = ("ann", "bob", "cleo", "dan")
TRANSFERS = 500
EACH_CENTS = 100_00


def transfers(ledger: Ledger, chance: random.Random, count: int) -> tuple[int, int]:
    """How many took place, and how many were refused."""
    refused = 0
    for _ in range(count):
        source, target = chance.sample(PEOPLE, 2)
        try:
            ledger.transfer(source, target, chance.randrange(1, EACH_CENTS))
        except Refused:
            refused += 1
    return count - refused, refused


def tell(what: str, ledger: Ledger) -> None:
    shown = "  ".join(f"{name} {cents / 100:.2f}" for name, cents in sorted(ledger.balances.items()))
    print(f"{what}: {shown}  together {sum(ledger.balances.values()) / 100:.2f}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--end", action="store_true", help="end when all has been shown")
    given = parser.parse_args()
    # The second is what Ctrl-C in the middle of a commit becomes in the client.
    with suppress(KeyboardInterrupt, SystemError):
        show(given.end)
    return 0


def show(is_all: bool) -> None:
    chance = random.Random(1)
    with Stage({}, HERE) as stage:
        servers = stage.bootstrap_servers
        with Ledger(servers) as first:
            for name in PEOPLE:
                first.deposit(name, EACH_CENTS)
            tell("deposited", first)
            done, refused = transfers(first, chance, TRANSFERS)
            tell(f"{done} transfers, {refused} refused", first)
            begun = time.monotonic()
            with Ledger(servers) as second:
                took = time.monotonic() - begun
                tell(
                    f"another one took over in {took:.2f} s by {second.replayed} events and snapshots", second
                )
                try:
                    first.deposit("ann", 1)
                except KafkaException as error:
                    print(f"the first one cannot go on: {error.args[0].str()}", flush=True)
                done, refused = transfers(second, chance, TRANSFERS)
                tell(f"{done} transfers more, {refused} refused", second)
        *_, last = history(servers, "ann")
        print(f"ann's last: {last.kind} {last.cents / 100:.2f} {last.note}", flush=True)
        print(f"python ledger.py --bootstrap-server {servers} history ann", flush=True)
        if not is_all:
            stage.stay()


if __name__ == "__main__":
    sys.exit(main())
