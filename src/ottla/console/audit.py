"""One line for every change that somebody made, or tried to make, through the console."""

from __future__ import annotations

import json
import logging
from typing import Any

log = logging.getLogger("ottla.console.audit")


def note_change(
    *, who: str, address: str, cluster: str, what: str, asked: dict[str, Any], outcome: str
) -> None:
    """As JSON, so that nothing in a name can look like another line or another field."""
    line = {
        "who": who,
        "from": address,
        "cluster": cluster,
        "change": what,
        "asked": asked,
        "outcome": outcome,
    }
    log.info("%s", json.dumps(line, ensure_ascii=True, default=str))
