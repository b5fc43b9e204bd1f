"""JSON of strangers, of which nothing is taken that could not be written again."""

from __future__ import annotations

import json
import re
from typing import Any, Final

_MAY_BE_HALF: Final = re.compile(r"\\u[dD]")


def read_json(text: str) -> Any:
    """Raises ValueError, also for halves of characters (surrogates) and NaN, and RecursionError."""
    found = json.loads(text, parse_constant=_refuse)
    if _MAY_BE_HALF.search(text):
        json.dumps(found, ensure_ascii=False).encode()
    return found


def _refuse(name: str) -> Any:
    # Python reads and writes them, and nobody else does.
    raise ValueError(f"{name} is no JSON")
