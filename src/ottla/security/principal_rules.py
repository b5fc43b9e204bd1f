"""`ssl.principal.mapping.rules`: what a client is called, by the name in its certificate."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ottla.config import ConfigError

# As Java writes them; attributes that it has no short name for are numbers with their value in DER.
_SHORT = {
    "commonName": "CN",
    "countryName": "C",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
_IA5_STRING, _PRINTABLE_STRING, _UTF8_STRING = 0x16, 0x13, 0x0C
_NUMBERED = {
    "emailAddress": ("1.2.840.113549.1.9.1", _IA5_STRING),
    "serialNumber": ("2.5.4.5", _PRINTABLE_STRING),
    "surname": ("2.5.4.4", _UTF8_STRING),
    "givenName": ("2.5.4.42", _UTF8_STRING),
    "title": ("2.5.4.12", _UTF8_STRING),
}
_SPECIAL = re.compile(r'([,+"\\<>;])')
_RULE = re.compile(r"DEFAULT|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")


class _Rule(NamedTuple):
    pattern: re.Pattern[str] | None
    """None for the default: any name, as it is."""
    replacement: str
    case: str


class PrincipalRules:
    def __init__(self, text: str) -> None:
        """ConfigError for what is no list of rules."""
        self._rules = _parse(text)

    def principal(self, certificate: Mapping[str, Any]) -> str:
        """Of a certificate as `SSLObject.getpeercert` gives it."""
        return f"User:{self.name(distinguished_name(certificate.get('subject', ())))}"

    def name(self, distinguished: str) -> str:
        """LookupError where no rule fits: who has no name does not come in."""
        for rule in self._rules:
            if rule.pattern is None:
                return distinguished
            if (found := rule.pattern.fullmatch(distinguished)) is not None:
                name = found.expand(rule.replacement)
                return {"L": name.lower(), "U": name.upper()}.get(rule.case, name)
        raise LookupError(f"no rule of ssl.principal.mapping.rules fits {distinguished}")


def distinguished_name(subject: tuple[tuple[tuple[str, str], ...], ...]) -> str:
    """As RFC 2253 has it: the last part first."""
    return ",".join("+".join(_attribute(*pair) for pair in part) for part in reversed(subject))


def _attribute(name: str, value: str) -> str:
    if name in _NUMBERED:
        number, tag = _NUMBERED[name]
        content = value.encode()
        if len(content) < 128:
            return f"{number}=#{bytes((tag, len(content))).hex()}{content.hex()}"
    escaped = _SPECIAL.sub(r"\\\1", value)
    if escaped[:1] in ("#", " "):
        escaped = "\\" + escaped
    if escaped.endswith(" ") and len(escaped) > 1:
        escaped = escaped[:-1] + "\\ "
    return f"{_SHORT.get(name, name)}={escaped}"


def _parse(text: str) -> list[_Rule]:
    rules: list[_Rule] = []
    at = 0
    text = text.strip()
    while at < len(text):
        found = _RULE.match(text, at)
        if found is None:
            raise ConfigError(
                f"ssl.principal.mapping.rules={text}: must be DEFAULT and RULE:pattern/replacement/[LU], "
                f"separated by commas; what begins with {text[at : at + 20]!r} is neither"
            )
        if found[0] == "DEFAULT":
            rules.append(_Rule(None, "", ""))
        else:
            pattern = _pattern(text, found[1])
            rules.append(_Rule(pattern, _python_replacement(found[2], pattern.groups), found[3]))
        at = found.end()
        rest = text[at:].lstrip()
        if rest and not rest.startswith(","):
            raise ConfigError(f"ssl.principal.mapping.rules={text}: a comma must follow {found[0]}")
        at = len(text) - len(rest.removeprefix(",").lstrip())
    return rules or [_Rule(None, "", "")]


def _pattern(text: str, pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"ssl.principal.mapping.rules={text}: {pattern} is no pattern: {error}") from None


def _python_replacement(java: str, groups: int) -> str:
    """`$1` is `\\g<1>` here; of a group that there is not, it is just text."""

    def reference(found: re.Match[str]) -> str:
        return f"\\g<{found[1]}>" if int(found[1]) <= groups else found[0]

    return re.sub(r"\$(\d)", reference, java.replace("\\", "\\\\"))
