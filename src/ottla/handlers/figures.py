"""What requests leave behind to be told of: how many there were, which errors they got, how long they took.

The hot ones pay one addition each, to an attribute in a slot, which is the cheapest there is, and no clock:
who scrapes metrics has some of them timed, see `server.metrics.sampling`. Of all others every one is timed.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque

from ottla.wire.api import ApiKey

RECENT_MAX = 1024


class Durations:
    """Of one kind of request: all of them as a sum, the last of them one by one."""

    __slots__ = ("count", "recent", "seconds")

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        self.recent: deque[float] = deque(maxlen=RECENT_MAX)

    def note(self, seconds: float) -> None:
        self.count += 1
        self.seconds += seconds
        self.recent.append(seconds)


class RequestFigures:
    """Of one node, since it started."""

    __slots__ = (
        "commits",
        "counts",
        "errors",
        "failed_fetches",
        "fetches",
        "follower_fetches",
        "local",
        "produces",
        "remote",
        "total",
    )

    def __init__(self) -> None:
        self.produces = 0
        self.fetches = 0
        self.commits = 0
        """Of offsets."""
        self.counts: Counter[int] = Counter()
        """The other requests, by API key."""
        self.follower_fetches = 0
        """Of the fetches, those of other brokers that were answered."""
        self.errors: Counter[tuple[int, int]] = Counter()
        """By API key and error code."""
        self.failed_fetches: Counter[str] = Counter()
        """Partitions that a fetch got an error for, by topic."""
        self.total: defaultdict[str, Durations] = defaultdict(Durations)
        """From a request that is there to its answer, by the name that `name_of` gives."""
        self.local: defaultdict[str, Durations] = defaultdict(Durations)
        """Of that, what the broker worked before it answered or waited for something."""
        self.remote: defaultdict[str, Durations] = defaultdict(Durations)
        """Of that, the rest: what was waited for. Both of the hot requests alone."""

    def requests(self) -> dict[str, int]:
        """All of them by name."""
        counted = {name_of(key): count for key, count in self.counts.items()}
        return counted | {"Produce": self.produces, "Fetch": self.fetches, "OffsetCommit": self.commits}

    def answered(self, key: int, began: float, now: float) -> None:
        self.total[name_of(key)].note(now - began)


_NAMES = {key.value: "".join(word.capitalize() for word in key.name.split("_")) for key in ApiKey}


def name_of(key: int) -> str:
    """As Apache Kafka calls the API in its metrics."""
    return _NAMES.get(key, str(key))
