"""How quick the console is where there is much: `python -m bench.console`.

    pages     10,000 topics, 1,000 groups, a topic of 10 million records on one broker: every page and every
              answer of the API that a page is made of, while the console measures the cluster for its charts
    search    a value in a million records, and how soon a search stops that nobody listens to any more
    tail      50,000 records a second for two minutes, looked at in Chromium: memory of console and page,
              and how far the page is behind

Filling takes a minute or two; with `--keep DIR` it is done once (`--fill` does nothing else).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from urllib.parse import urlencode

from bench import console_load as load
from bench.brokers import RunningBroker, free_port, ottla, started
from bench.chromium import Browser, browser, executable
from bench.process import cpu_seconds, memory_alone
from bench.report import print_aligned

PAGE_MS_MAX = 300
CLUSTER = "cluster"
ROUNDS_MIN = 10
MIB = 1 << 20
LOOK_S = 4.0
STARTED_WITHIN_S = 120.0
PARTS = ("pages", "search", "tail")

_COMMAND = (
    f"{Path(sys.executable).with_name('ottla')} start --port {{port}} --data-dir {{dir}} "
    "--set authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer "
    "--set super.users=User:ANONYMOUS"
)
"""Access rules are only told where there is an authorizer. Tokens need a log-in: they are left out."""

_PAGES: dict[str, str] = {
    "overview": "",
    "broker": "/brokers/1",
    "balance": "/balance",
    "topics": "/topics",
    "topics, the largest first": "/topics?sort=size&down=true",
    "topics, the last page": "/topics?page=201",
    "topics with 99 in their names": "/topics?q=99",
    "topic": f"/topics/{load.LONG}",
    "topic, its settings": f"/topics/{load.LONG}?part=settings",
    "topic, its consumers (all groups)": f"/topics/{load.LONG}?part=consumers",
    "records": f"/topics/{load.LONG}/records",
    "groups": "/groups",
    "groups, the furthest behind first": "/groups?sort=lag&down=true",
    "group": "/groups/group-0001",
    "transactions": "/transactions",
    "pipelines": "/pipelines",
    "access rules": "/acls",
    "users": "/users",
    "quotas": "/quotas",
}
_ANSWERS: dict[str, str] = {
    "overview": "/overview",
    "broker": "/brokers/1",
    "history": "/history",
    "leaders": "/leaders",
    "reassignments": "/reassignments",
    "topics, 50": "/topics",
    "topics, 500": "/topics?limit=500",
    "topic": f"/topics/{load.LONG}",
    "topic, its history": f"/topics/{load.LONG}/history",
    "topic, its settings": f"/topics/{load.LONG}/settings",
    "topic, its consumers": f"/topics/{load.LONG}/consumers",
    "records, the newest": f"/topics/{load.LONG}/records",
    "records, the oldest": f"/topics/{load.LONG}/records?start=oldest",
    "records from an offset": f"/topics/{load.LONG}/records?start=offset&offset=1000000",
    "records from a time": f"/topics/{load.LONG}/records?start=time&time=1",
    "records, 1,000 of the newest": f"/topics/{load.LONG}/records?limit=1000",
    "groups, 50": "/groups",
    "groups, 500": "/groups?limit=500",
    "group": "/groups/group-0001",
    "group, its history": "/groups/group-0001/history",
    "transactions": "/transactions",
    "pipelines": "/pipelines",
    "access rules": "/acls",
    "users": "/users",
    "quotas": "/quotas",
}


class Console:
    """`ottla console` as a process, and a connection to it."""

    def __init__(self, port: int, pid: int) -> None:
        self.port, self.pid = port, pid
        self._connection = HTTPConnection("127.0.0.1", port, timeout=120)

    def get(self, path: str) -> tuple[float, bytes]:
        """Milliseconds until the whole answer was there, and the answer."""
        begin = time.perf_counter()
        self._connection.request("GET", path)
        answer = self._connection.getresponse()
        data = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path} answered {answer.status}: {data[:300]!r}")
        return (time.perf_counter() - begin) * 1000, data

    def api(self, path: str) -> str:
        return f"/api/clusters/{CLUSTER}{path}"

    def cpu_s(self) -> float:
        return cpu_seconds(self.pid)


@contextmanager
def console_of(broker: RunningBroker, *more: str) -> Iterator[Console]:
    port = free_port()
    script = Path(sys.executable).with_name("ottla")
    command = [
        str(script),
        "console",
        "--bootstrap-server",
        load.bootstrap(broker),
        "--port",
        str(port),
        *more,
    ]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            until = time.monotonic() + STARTED_WITHIN_S
            while True:
                console = Console(port, process.pid)
                try:
                    console.get("/api/clusters")
                    break
                except OSError:
                    if process.poll() is not None or time.monotonic() > until:
                        output.seek(0)
                        raise RuntimeError(output.read().decode()) from None
                    time.sleep(0.05)
            yield console
        finally:
            process.terminate()
            process.wait(30)


def measure_pages(broker: RunningBroker, seconds: float) -> bool:
    """Whether all were quick enough."""
    with console_of(broker) as console:
        first_ms, _ = console.get(f"/c/{CLUSTER}")
        print(f"first look at a console that was just started: {first_ms:,.0f} ms")
        wanted = {f"page {title}": f"/c/{CLUSTER}{path}" for title, path in _PAGES.items()}
        wanted |= {f"API {title}": console.api(path) for title, path in _ANSWERS.items()}
        samples: dict[str, list[float]] = {title: [] for title in wanted}
        measured_before = _measured(console)
        begin, rounds = time.monotonic(), 0
        while rounds < ROUNDS_MIN or time.monotonic() - begin < seconds:
            for title, path in wanted.items():
                samples[title].append(console.get(path)[0])
            rounds += 1
        times = _measured(console) - measured_before
        print(f"{rounds} rounds, during which the cluster was measured {times} times; {_memory(console)}")
    rows = [["", "median ms", "worst ms"]]
    rows += [
        [title, f"{statistics.median(each):,.1f}", f"{max(each):,.1f}"] for title, each in samples.items()
    ]
    print_aligned(rows, words=1)
    slow = [title for title, each in samples.items() if max(each) > PAGE_MS_MAX]
    print(f"over {PAGE_MS_MAX} ms at least once: {', '.join(slow) or 'none'}")
    return not slow


def _measured(console: Console) -> int:
    return len(json.loads(console.get(console.api("/history"))[1])["times"])


def _memory(console: Console) -> str:
    return f"the console holds {memory_alone(console.pid).private / MIB:,.0f} MiB"


def measure_search(broker: RunningBroker, records: int) -> None:
    rows = [["search", "found", "records/s", "first progress ms", "progress events", "CPU s"]]
    with console_of(broker) as console:
        for title, asked in (
            ("a text in the value", {"value": "Vaduz"}),
            ("an expression", {"value": r'/"city": "Va.uz"/'}),
            ("a path", {"path": '$.city = "Vaduz"'}),
        ):
            cpu_s, begin = console.cpu_s(), time.monotonic()
            first_s, steps, found, looked = 0.0, 0, 0, 0
            for kind, data in _events(console, "search", {"start": "oldest", **asked}):
                if kind == "progress":
                    steps += 1
                    first_s = first_s or time.monotonic() - begin
                elif kind == "done":
                    found, looked = data["found"], data["looked"]
            took_s = time.monotonic() - begin
            # A search ends with its thousandth find.
            if looked < records * 0.9:
                raise RuntimeError(f"{title}: only {looked} records were looked at")
            cells = (
                f"{looked / took_s:,.0f}",
                f"{first_s * 1000:,.0f}",
                steps,
                f"{console.cpu_s() - cpu_s:.1f}",
            )
            rows.append([title, f"{found:,}", *map(str, cells)])
        print_aligned(rows, words=1)
        stream = _opened(console, "search", {"start": "oldest", "value": "nowhere"})
        for _ in range(10):
            stream.readline()
        stream.close()
        begin, cpu_s = time.monotonic(), console.cpu_s()
        while time.sleep(0.1) or (spent_s := console.cpu_s() - cpu_s) > 0.03:
            cpu_s += spent_s
        print(f"stopped after a moment: the console was at rest {time.monotonic() - begin - 0.1:.1f} s later")


def _opened(console: Console, kind: str, asked: dict[str, str]) -> HTTPResponse:
    connection = HTTPConnection("127.0.0.1", console.port, timeout=120)
    connection.request("GET", console.api(f"/topics/{load.SEARCHED}/records/{kind}?{urlencode(asked)}"))
    return connection.getresponse()


def _events(console: Console, kind: str, asked: dict[str, str]) -> Iterator[tuple[str, dict[str, int]]]:
    name = ""
    with _opened(console, kind, asked) as stream:
        for line in stream:
            if line.startswith(b"event: "):
                name = line[7:].strip().decode()
            elif line.startswith(b"data: "):
                yield name, json.loads(line[6:])


# The longest wait for a frame since it was last asked for: what one feels when a page is slow.
_WATCH_FRAMES = """(() => {
  window.longestFrame = 0;
  let last = performance.now();
  const next = (now) => {
    window.longestFrame = Math.max(window.longestFrame, now - last);
    last = now;
    requestAnimationFrame(next);
  };
  requestAnimationFrame(next);
})()"""
_LOOK = """(() => {
  const newest = document.querySelector('#records .record time');
  const found = {
    behind: newest ? Date.now() - Date.parse(newest.textContent.replace(' ', 'T') + 'Z') : -1,
    frame: window.longestFrame,
    rows: document.querySelectorAll('#records .record').length,
    told: document.querySelector('#progress').textContent,
  };
  window.longestFrame = 0;
  return found;
})()"""


def measure_tail(broker: RunningBroker, per_second: int, seconds: float) -> None:
    rows = [["second", "console MiB", "page MiB", "elements", "rows", "behind ms", "longest frame ms"]]
    with ExitStack() as stack:
        console = stack.enter_context(console_of(broker))
        page = stack.enter_context(browser())
        page.open(f"http://127.0.0.1:{console.port}/c/{CLUSTER}/topics/{load.LIVE}/records")
        page.click("[data-stream=tail]")
        page.wait_for("document.querySelector('#progress').textContent.includes('live')")
        page.run(_WATCH_FRAMES)
        writer = multiprocessing.Process(
            target=load.write_steadily, args=(broker.port, per_second, seconds), daemon=True
        )
        writer.start()
        begin, cpu_s = time.monotonic(), console.cpu_s()
        told = ""
        while writer.is_alive():
            time.sleep(LOOK_S)
            if not writer.is_alive():
                break
            second = time.monotonic() - begin
            found = page.run(_LOOK)
            told = found["told"]
            heap, elements = _page_memory(page)
            cells = (
                f"{second:.0f}",
                f"{memory_alone(console.pid).private / MIB:,.1f}",
                f"{heap / MIB:.2f}",
                f"{elements:,}",
                str(found["rows"]),
                f"{found['behind']:,}",
                f"{found['frame']:.0f}",
            )
            rows.append(list(cells))
        took_s = time.monotonic() - begin
        print_aligned(rows, words=0)
        print(f"{told}; the console took {(console.cpu_s() - cpu_s) / took_s:.2f} of a core")


def _page_memory(page: Browser) -> tuple[float, int]:
    page.command("HeapProfiler.collectGarbage")
    return float(page.run("performance.memory.usedJSHeapSize")), int(
        page.command("Memory.getDOMCounters")["nodes"]
    )


def main() -> int:
    options = _parse()
    with ExitStack() as stack:
        home = Path(options.keep or stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-bench-")))
        home.mkdir(parents=True, exist_ok=True)
        broker = stack.enter_context(started(ottla(_COMMAND), str(home / "data"), home / "output"))
        load.make_topics(broker, options.topics)
        load.make_groups(broker, options.groups, options.topics)
        load.fill_long(broker, options.records)
        load.fill_searched(broker, options.searched)
        if options.fill:
            return 0
        is_quick = True
        if "pages" in options.only:
            is_quick = measure_pages(broker, options.seconds_of_pages)
        if "search" in options.only:
            measure_search(broker, options.searched)
        if "tail" in options.only:
            if executable() is None:
                print("not measured: the tail needs Chromium", file=sys.stderr)
            else:
                measure_tail(broker, options.rate, options.seconds)
    return 0 if is_quick else 1


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.console",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", type=lambda text: text.split(","), default=PARTS, help=", ".join(PARTS))
    parser.add_argument("--keep", metavar="DIR", help="what is there already is not filled again")
    parser.add_argument("--fill", action="store_true", help="only that")
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--records", type=int, default=10_000_000, help="in the long topic")
    parser.add_argument("--searched", type=int, default=1_000_000, help="in the topic that is searched")
    parser.add_argument(
        "--seconds-of-pages", type=float, default=60, help="how long pages are asked for, at least"
    )
    parser.add_argument("--rate", type=int, default=50_000, help="live records a second")
    parser.add_argument("--seconds", type=float, default=120, help="of the tail")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
