"""The page of the reference that says which permission each API needs."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.handlers.authorization import CONTROLLER_RULES, RULES
from ottla.handlers.authorized import REFUSALS
from ottla.handlers.registry import REGISTRY


def render() -> str:
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# Permissions"
    yield ""
    yield "<!-- Written from the table that the broker decides by; do not edit. -->"
    yield ""
    yield (
        "What each API asks the authorizer for, and what a client without the permission gets: the same as "
        "in Apache Kafka. `Describe` is implied by `Read`, `Write`, `Delete` and `Alter`; `DescribeConfigs` "
        "by `AlterConfigs`."
    )
    for title, rules in (
        ("On the listeners of brokers", RULES),
        ("On the listeners of controllers", CONTROLLER_RULES),
    ):
        yield ""
        yield f"## {title}"
        yield ""
        yield "| API | operation | on | otherwise |"
        yield "|---|---|---|---|"
        for rule in sorted(rules.values(), key=lambda rule: rule.api):
            if rules is RULES and rule.api not in REGISTRY:
                continue
            api = _camel(rule.api.name)
            if not rule.checks:
                yield f"| {api} | none | | |"
            for check in rule.checks:
                otherwise = check.otherwise or REFUSALS[check.kind].code.name.upper()
                yield f"| {api} | `{_camel(check.operation.name)}` | {check.which} | {otherwise} |"


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


if __name__ == "__main__":
    print(render(), end="")
