"""Moments in the patterns of Java's `SimpleDateFormat`, in UTC: written and read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

from ottla.connect.errors import SettingError

_MONTHS: Final = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
_DAYS: Final = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
_LETTERS: Final = frozenset("yMdHhKkmsSEaDzZXu")
_RUN: Final = re.compile(r"'(?:[^']|'')*'|([A-Za-z])\1*|[^A-Za-z']+")
_OFFSET: Final = re.compile(r"Z|GMT|UTC|([+-])(\d\d):?(\d\d)?")


class JavaFormat:
    """Raises SettingError for what is no pattern, or one with letters that are not known here."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._parts = list(_parts(pattern))

    def format(self, moment: datetime) -> str:
        utc = moment.astimezone(UTC)
        return "".join(
            text if letter is None else _written(letter, len(text), utc) for letter, text in self._parts
        )

    def parse(self, text: str) -> datetime:
        """ValueError where the text does not match; what follows behind a match is left alone, as
        Java does."""
        found: dict[str, int] = {}
        at = 0
        for index, (letter, run) in enumerate(self._parts):
            if letter is None:
                if not text.startswith(run, at):
                    raise ValueError(text)
                at += len(run)
                continue
            is_joined = index + 1 < len(self._parts) and self._parts[index + 1][0] is not None
            at = _read(letter, len(run), text, at, found, is_joined)
        return _moment(found)


def _parts(pattern: str) -> Iterator[tuple[str | None, str]]:
    at = 0
    for match in _RUN.finditer(pattern):
        if match.start() != at:
            raise SettingError(f"Unterminated quote in the date pattern {pattern}")
        at = match.end()
        run = match[0]
        if run.startswith("'"):
            yield None, "'" if run == "''" else run[1:-1].replace("''", "'")
        elif run[0].isalpha():
            if run[0] not in _LETTERS:
                raise SettingError(f"Illegal pattern character '{run[0]}' in the date pattern {pattern}")
            yield run[0], run
        else:
            yield None, run
    if at != len(pattern):
        raise SettingError(f"Unterminated quote in the date pattern {pattern}")


def _written(letter: str, width: int, moment: datetime) -> str:
    match letter:
        case "y":
            return f"{moment.year % 100:02d}" if width == 2 else f"{moment.year:0{width}d}"
        case "M" if width > 2:
            name = _MONTHS[moment.month - 1]
            return name if width > 3 else name[:3]
        case "E":
            name = _DAYS[moment.weekday()]
            return name if width > 3 else name[:3]
        case "a":
            return "AM" if moment.hour < 12 else "PM"
        case "z":
            return "UTC"
        case "Z":
            return "+0000"
        case "X":
            return "Z"
        case _:
            return f"{_number(letter, moment):0{width}d}"


def _number(letter: str, moment: datetime) -> int:
    numbers = {
        "M": moment.month,
        "d": moment.day,
        "H": moment.hour,
        "k": moment.hour or 24,
        "K": moment.hour % 12,
        "h": moment.hour % 12 or 12,
        "m": moment.minute,
        "s": moment.second,
        "S": moment.microsecond // 1000,
        "D": moment.timetuple().tm_yday,
        "u": moment.isoweekday(),
    }
    return numbers[letter]


def _read(letter: str, width: int, text: str, at: int, found: dict[str, int], is_joined: bool) -> int:
    """Where to go on; `is_joined` numbers have exactly as many digits as letters."""
    if letter in "zZX":
        match = _OFFSET.match(text, at)
        if match is None:
            raise ValueError(text)
        minutes = int(match[2] or 0) * 60 + int(match[3] or 0)
        found["zone"] = -minutes if match[1] == "-" else minutes
        return match.end()
    names = {"M": _MONTHS if width > 2 else (), "E": _DAYS, "a": ("AM", "PM")}.get(letter, ())
    for number, name in enumerate(names):
        for form in (name, name[:3]):
            if text[at : at + len(form)].lower() == form.lower():
                found[letter] = number + (letter == "M")
                return at + len(form)
    if names:
        raise ValueError(text)
    digits = re.compile(rf"\d{{{width}}}" if is_joined else r"[+-]?\d+").match(text, at)
    if digits is None:
        raise ValueError(text)
    number = int(digits[0])
    if letter == "y" and width == 2 and len(digits[0]) == 2:
        # Java's window: from 80 years ago to 20 years ahead.
        year = datetime.now(UTC).year
        century = year - year % 100
        number += century if century + number <= year + 19 else century - 100
    found[letter] = number
    return digits.end()


def _moment(found: dict[str, int]) -> datetime:
    hour = found.get("H", found.get("k", 0) % 24)
    if "h" in found or "K" in found:
        hour = found.get("K", found.get("h", 0) % 12) + 12 * found.get("a", 0)
    zone = timezone(timedelta(minutes=found.get("zone", 0)))
    start = datetime(found.get("y", 1970), 1, 1, tzinfo=zone)
    # Java is lenient: the 32nd of a month is in the next one.
    months = found.get("M", 1) - 1
    first = start.replace(year=start.year + months // 12, month=months % 12 + 1)
    day = (
        timedelta(days=found["D"] - 1)
        if "D" in found and "d" not in found
        else timedelta(days=found.get("d", 1) - 1)
    )
    clock = timedelta(
        hours=hour, minutes=found.get("m", 0), seconds=found.get("s", 0), milliseconds=found.get("S", 0)
    )
    return (first + day + clock).astimezone(UTC)
