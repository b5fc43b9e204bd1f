"""What PySpark hides behind an underscore is asked for in one file, which meets another version first."""

from __future__ import annotations

import re
from pathlib import Path

import ottla

SOURCE = Path(ottla.__file__).parent
DOOR = SOURCE / "spark" / "engine.py"
PRIVATE = re.compile(
    r"\._(?:jvm|jsc|jsq|jdf|jsparkSession|gateway|active_spark_context|instantiatedSession|ensure_initialized"
    r"|streamingCheckpointManager)\b|pyspark\.java_gateway"
)


def test_only_one_file_asks_for_them() -> None:
    assert PRIVATE.search(DOOR.read_text())
    users = [path for path in SOURCE.rglob("*.py") if path != DOOR and PRIVATE.search(path.read_text())]
    assert users == []
