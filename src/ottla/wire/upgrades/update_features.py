"""UpdateFeatures before version 1 had a flag that allows downgrades; of those, only the safe ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kio.static.primitive import i8

_UPGRADE = i8(1)
_SAFE_DOWNGRADE = i8(2)


def upgrade(old: Any, widened: Any) -> Any:
    if old.__version__ > 0:
        return widened
    return replace(
        widened,
        feature_updates=tuple(
            replace(update, upgrade_type=_SAFE_DOWNGRADE if before.allow_downgrade else _UPGRADE)
            for before, update in zip(old.feature_updates, widened.feature_updates, strict=True)
        ),
    )
