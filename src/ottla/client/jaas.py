"""Lines of `sasl.jaas.config`: a login module, a flag and its options, as Kafka's files have them."""

from __future__ import annotations

import re

_OPTION = re.compile(r"""([\w.-]+)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;]+)""")


def jaas_options(line: str) -> dict[str, str]:
    return {name: _unquoted(value) for name, value in _OPTION.findall(line)}


def _unquoted(value: str) -> str:
    if value[0] in "\"'":
        return re.sub(r"\\(.)", r"\1", value[1:-1])
    return value
