"""What log lines of nginx, syslog and applications have in common."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime

LEVELS = ("debug", "info", "warn", "error")
ALIASES = {"trace": "debug", "warning": "warn", "critical": "error", "fatal": "error"}
AHEAD_MS_MAX = 3_600_000
NGINX = re.compile(
    r'(?P<client>\S+) \S+ \S+ \[(?P<at>[^]]+)\] "(?P<request>(?:[^"\\]|\\.)*)" (?P<status>\d{3}) (?:\d+|-)'
)
"""The format `combined`, and those that begin like it."""
SYSLOG = re.compile(
    r"<(?P<priority>\d{1,3})>1 (?P<at>\S+) \S+ (?P<program>\S+) \S+ \S+ (?:-|(?:\[.*?\])+) ?(?P<message>.*)"
)
"""RFC 5424; what rsyslog writes with the template RSYSLOG_SyslogProtocol23Format."""


@dataclass(frozen=True)
class Entry:
    """A line that was understood."""

    at_ms: int
    host: str
    service: str
    level: str
    message: str


def parse(host: str, raw: bytes, now_ms: int) -> Entry:
    """ValueError says why it is none."""
    line = raw.decode()
    if line.startswith("{"):
        entry = _application(host, line)
    elif (found := SYSLOG.fullmatch(line)) is not None:
        severity = int(found["priority"]) % 8
        level = "error" if severity <= 3 else "warn" if severity == 4 else "info" if severity < 7 else "debug"
        entry = Entry(_ms(found["at"]), host, found["program"], level, found["message"])
    elif (found := NGINX.match(line)) is not None:
        at = datetime.strptime(found["at"], "%d/%b/%Y:%H:%M:%S %z")
        level = "error" if found["status"] >= "500" else "warn" if found["status"] >= "400" else "info"
        message = f"{found['status']} {found['request']} {line[found.end() :].strip()}"
        entry = Entry(int(at.timestamp() * 1000), host, "nginx", level, message)
    else:
        raise ValueError("neither nginx's format, nor syslog's, nor JSON")
    if entry.at_ms < 0:
        raise ValueError("its time is before 1970")
    if entry.at_ms > now_ms + AHEAD_MS_MAX:
        # Windows close by the latest time seen: one wrong clock would make everybody else late.
        raise ValueError(f"its time is {(entry.at_ms - now_ms) // 1000} s ahead of the agent's")
    return entry


def _application(host: str, line: str) -> Entry:
    fields = json.loads(line)
    texts = {}
    for name in ("time", "service", "level", "message"):
        if not isinstance(value := fields.pop(name, None), str):
            raise ValueError(
                f"{name} is {value!r}; a line of JSON needs time, service, level and message as texts"
            )
        texts[name] = value
    level = texts["level"].lower()
    level = ALIASES.get(level, level)
    if level not in LEVELS:
        raise ValueError(f"level is {texts['level']!r}; choose one of {', '.join(LEVELS)}")
    rest = " ".join(f"{name}={value}" for name, value in fields.items())
    message = f"{texts['message']} {rest}".rstrip()
    f"{texts['service']}{message}".encode()  # JSON can spell what is no text: half a surrogate pair
    return Entry(_ms(texts["time"]), host, texts["service"], level, message)


def _ms(text: str) -> int:
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError(f"the time {text} has no time zone")
    return int(at.timestamp() * 1000)
