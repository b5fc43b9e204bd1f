"""What the streams guide shows beside its first program, which is followed from the wheel, works, too."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

GUIDE = Path(__file__).parents[3] / "docs/guides/streams.md"


def blocks() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.DOTALL | re.MULTILINE)


def program() -> dict[str, Any]:
    found = re.search(
        r"^```python file=word_count.py\n(.*?)^```$", GUIDE.read_text(), re.DOTALL | re.MULTILINE
    )
    assert found is not None
    namespace: dict[str, Any] = {}
    exec(found[1], namespace)
    return namespace


def test_the_test_of_the_guide_passes() -> None:
    [block] = [block for block in blocks() if "TopologyTestDriver" in block]
    exec(block, program())


def test_other_topologies_of_the_guide_can_be_built() -> None:
    shown = [block for block in blocks() if "StreamsBuilder()" in block]
    assert shown
    for block in shown:
        namespace: dict[str, Any] = {}
        exec(block, namespace)
        assert namespace["builder"].build().describe()
