"""RE2's syntax, which is what Kafka's brokers take for subscriptions, parsed into a small tree.

Topic names use 65 characters, so a class of characters is simply the set of those it contains. What RE2
leaves out because it cannot be matched in linear time (look-around, back-references) is an error here too.
"""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

ALPHABET = frozenset(string.ascii_letters + string.digits + "._-")
WORD = frozenset(string.ascii_letters + string.digits + "_")
_DIGITS = frozenset(string.digits)
_NOTHING: frozenset[str] = frozenset()
_REPEAT_MAX = 1000
_NESTING_MAX = 100
_CODE_POINT_MAX = 0x10FFFF

_PERL = {"d": _DIGITS, "w": WORD, "s": _NOTHING}
_POSIX = {
    "alnum": str.isalnum,
    "alpha": str.isalpha,
    "ascii": str.isascii,
    "blank": lambda c: c in " \t",
    "cntrl": lambda c: not c.isprintable(),
    "digit": str.isdigit,
    "graph": lambda c: c in ALPHABET,
    "lower": str.islower,
    "print": str.isprintable,
    "punct": lambda c: c in string.punctuation,
    "space": str.isspace,
    "upper": str.isupper,
    "word": lambda c: c in WORD,
    "xdigit": lambda c: c in string.hexdigits,
}
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_QUANTIFIERS = ("*", "+", "?", "{")
_ASSERTIONS = {"A": "^", "z": "$", "b": "b", "B": "B"}


class RegexError(ValueError):
    """Not RE2 syntax; the text says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Chars:
    accepted: frozenset[str]


@dataclass(frozen=True, slots=True)
class Sequence:
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    item: Node
    minimum: int
    maximum: int | None


@dataclass(frozen=True, slots=True)
class Assertion:
    kind: str
    """`^` and `$` for the ends of the name, `b` and `B` for a word boundary and its absence."""


Node: TypeAlias = Chars | Sequence | Choice | Repeat | Assertion


def parse(pattern: str) -> Node:
    parser = _Parser(pattern)
    node = parser.choice(0)
    if parser.at < len(pattern):
        raise RegexError("unexpected ): `)`")
    return node


class _Parser:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.ignore_case = False

    def choice(self, depth: int) -> Node:
        if depth > _NESTING_MAX:
            raise RegexError(f"more than {_NESTING_MAX} nested groups")
        options = [self._sequence(depth)]
        while self._take("|"):
            options.append(self._sequence(depth))
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _sequence(self, depth: int) -> Node:
        items: list[Node] = []
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            if self._take("\\Q"):
                end = self.pattern.find("\\E", self.at)
                literal = self.pattern[self.at : end] if end >= 0 else self.pattern[self.at :]
                self.at = end + 2 if end >= 0 else len(self.pattern)
                items.extend(self._literal(char) for char in literal)
            else:
                items.append(self._atom(depth))
            if items and self._peek() in _QUANTIFIERS:
                items[-1] = self._repeated(items[-1])
        return Sequence(tuple(items))

    def _atom(self, depth: int) -> Node:
        char = self.pattern[self.at]
        self.at += 1
        match char:
            case "(":
                return self._group(depth)
            case "[":
                return self._char_class()
            case ".":
                return Chars(ALPHABET)
            case "^" | "$":
                return Assertion(char)
            case "\\":
                if self._peek() in _ASSERTIONS:
                    self.at += 1
                    return Assertion(_ASSERTIONS[self.pattern[self.at - 1]])
                return Chars(self._escape())
            case "*" | "+" | "?":
                raise RegexError(f"missing argument to repetition operator: `{char}`")
            case _:
                return self._literal(char)

    def _repeated(self, node: Node) -> Node:
        start = self.at
        bounds = self._quantifier()
        if bounds is None:
            return Sequence((node, self._literal("{")))  # a brace that bounds nothing stands for itself
        self._take("?")  # greedy or not, the whole name matches or it does not
        following = self._peek()
        if following in _QUANTIFIERS and (following != "{" or self._looks_like_bounds()):
            operator = self.pattern[start : self.at + 1]
            raise RegexError(f"invalid nested repetition operator: `{operator}`")
        return Repeat(node, *bounds)

    def _quantifier(self) -> tuple[int, int | None] | None:
        char = self.pattern[self.at]
        if char == "{" and not self._looks_like_bounds():
            self.at += 1
            return None
        self.at += 1
        if char != "{":
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
        end = self.pattern.index("}", self.at)
        text = self.pattern[self.at : end]
        self.at = end + 1
        low, _, high = text.partition(",")
        minimum = int(low)
        maximum = (int(high) if high else None) if "," in text else minimum
        if max(minimum, maximum or 0) > _REPEAT_MAX or (maximum is not None and maximum < minimum):
            raise RegexError(f"invalid repeat count: `{{{text}}}`")
        return minimum, maximum

    def _looks_like_bounds(self) -> bool:
        end = self.pattern.find("}", self.at)
        low, _, high = self.pattern[self.at + 1 : max(end, 0)].partition(",")
        return end > 0 and low.isdecimal() and low.isascii() and (not high or high.isdecimal())

    def _group(self, depth: int) -> Node:
        outer_case = self.ignore_case
        if self._take("?"):
            if self._take("P<") or (
                self._peek() == "<" and self._peek(1) not in ("=", "!") and self._take("<")
            ):
                name, found, _ = self.pattern[self.at :].partition(">")
                if not found or not name.isidentifier():
                    raise RegexError(f"invalid named capture: `(?P<{name}`")
                self.at += len(name) + 1
            elif self._flags():
                return Sequence(())
        node = self.choice(depth + 1)
        if not self._take(")"):
            raise RegexError(f"missing closing ): `{self.pattern}`")
        self.ignore_case = outer_case
        return node

    def _flags(self) -> bool:
        """Whether the flags hold for the rest of the group around them: `(?i)` rather than `(?i:…)`."""
        start = self.at
        value = True
        while True:
            char = self._peek()
            self.at += 1
            match char:
                case "i":
                    self.ignore_case = value
                case "m" | "s" | "U":
                    pass  # lines, newlines and greed make no difference to whole topic names
                case "-" if value:
                    value = False
                case ":" | ")":
                    return char == ")"
                case _:
                    syntax = self.pattern[start - 2 : self.at]
                    raise RegexError(f"invalid or unsupported Perl syntax: `{syntax}`")

    def _char_class(self) -> Node:
        start = self.at - 1
        negated = self._take("^")
        accepted: set[str] = set()
        first = True
        while first or self._peek() != "]":
            if self.at >= len(self.pattern):
                raise RegexError(f"missing closing ]: `{self.pattern[start:]}`")
            first = False
            accepted |= self._class_item()
        self.at += 1
        folded = self._fold(frozenset(accepted))
        return Chars(ALPHABET - folded if negated else folded & ALPHABET)

    def _class_item(self) -> frozenset[str]:
        if self._take("[:"):
            name, found, _ = self.pattern[self.at :].partition(":]")
            test = _POSIX.get(name.removeprefix("^"))
            if not found or test is None:
                raise RegexError(f"invalid character class range: `[:{name}`")
            self.at += len(name) + 2
            return _members(test, name.startswith("^"))
        low = self._class_char()
        if isinstance(low, frozenset):
            return low
        if self._peek() == "-" and self._peek(1) not in ("]", ""):
            self.at += 1
            high = self._class_char()
            if isinstance(high, frozenset) or high < low:
                raise RegexError(f"invalid character class range: `{low}-`")
            return frozenset(c for c in ALPHABET if low <= c <= high)
        return frozenset(low)

    def _class_char(self) -> str | frozenset[str]:
        char = self.pattern[self.at]
        self.at += 1
        if char != "\\":
            return char
        accepted = self._escape(fold=False)
        return next(iter(accepted)) if len(accepted) == 1 else accepted

    def _escape(self, *, fold: bool = True) -> frozenset[str]:
        char = self._peek()
        self.at += 1
        if char.lower() in _PERL:
            accepted = _PERL[char.lower()]
            return ALPHABET - accepted if char.isupper() else accepted
        if char in ("p", "P"):
            return self._unicode_class(negated=char == "P")
        if char == "x":
            literal = self._code_point()
        elif char in _CONTROL:
            literal = _CONTROL[char]
        elif char == "0":
            literal = "\0"
        elif char and (not char.isalnum() or not char.isascii()):
            literal = char
        else:
            raise RegexError(f"invalid escape sequence: `\\{char}`")
        return self._fold(frozenset(literal)) if fold else frozenset(literal)

    def _unicode_class(self, *, negated: bool) -> frozenset[str]:
        if self._take("{"):
            name, found, _ = self.pattern[self.at :].partition("}")
            self.at += len(name) + 1
        else:
            name, found = self._peek(), "}"
            self.at += 1
        if name.startswith("^"):
            name, negated = name[1:], not negated
        if not found or name not in ("L", "Lu", "Ll", "N", "Nd", "P", "Pc", "Pd", "Po", "Latin", "Any"):
            raise RegexError(f"invalid character class range: `\\p{{{name}}}`")
        category = {"Latin": "L", "Any": ""}.get(name, name)
        return _members(lambda c: unicodedata.category(c).startswith(category), negated)

    def _code_point(self) -> str:
        if self._take("{"):
            digits, found, _ = self.pattern[self.at :].partition("}")
            self.at += len(digits) + 1
        else:
            digits, found = self.pattern[self.at : self.at + 2], "}"
            self.at += 2
        if not found or not digits or any(c not in string.hexdigits for c in digits):
            raise RegexError(f"invalid escape sequence: `\\x{digits}`")
        code = int(digits, 16)
        if code > _CODE_POINT_MAX:
            raise RegexError(f"invalid escape sequence: `\\x{{{digits}}}`")
        return chr(code)

    def _literal(self, char: str) -> Chars:
        return Chars(self._fold(frozenset(char)) & ALPHABET)

    def _fold(self, chars: frozenset[str]) -> frozenset[str]:
        return chars | {c.swapcase() for c in chars} if self.ignore_case else chars

    def _peek(self, ahead: int = 0) -> str:
        return self.pattern[self.at + ahead : self.at + ahead + 1]

    def _take(self, text: str) -> bool:
        if self.pattern.startswith(text, self.at):
            self.at += len(text)
            return True
        return False


def _members(test: Callable[[str], bool], negated: bool) -> frozenset[str]:
    return frozenset(char for char in ALPHABET if test(char) != negated)
