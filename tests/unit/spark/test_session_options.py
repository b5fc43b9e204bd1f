"""What the virtual machine of a session is started with."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="needs the extra ottla[spark]")

from ottla.spark.session import _collector_options


def test_a_collector_is_chosen_unless_somebody_named_one() -> None:
    assert _collector_options("-Xss4m", {"JAVA_TOOL_OPTIONS": "-Dx=y"}) == ["-XX:+UseParallelGC"]
    assert _collector_options("-Xss4m -XX:+UseZGC", {}) == []
    assert _collector_options("", {"JAVA_TOOL_OPTIONS": "-XX:+UseG1GC -Dx=y"}) == []
