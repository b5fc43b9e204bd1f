"""Names of topics that an expression on a command line includes."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ottla.cli.framework.errors import ToolError


def matching(names: Iterable[str], expression: str) -> list[str]:
    """Names that an expression includes as Apache Kafka's tools read it: regular, a comma means or."""
    pattern = expression.strip().replace(",", "|").replace(" ", "").strip("\"'")
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ToolError(f"{expression} is not a regular expression: {error}") from None
    return [name for name in names if compiled.fullmatch(name)]
