"""HTML whose text is always escaped: elements are functions, and only they make what is taken as it is.

p("by ", a(name, href=link("topics", name)), class_="quiet")
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from html import escape
from typing import TypeAlias
from urllib.parse import quote, urlencode

_VOID = {"br", "circle", "hr", "img", "input", "line", "link", "meta", "rect"}


class Html(str):
    """Markup that is safe to put into a page."""

    __slots__ = ()


Child: TypeAlias = "Html | str | int | float | Iterable[Child] | None"
Attribute: TypeAlias = str | int | float | bool | None
Element: TypeAlias = "Callable[..., Html]"


def element(tag: str) -> Element:
    def build(*children: Child, **attributes: Attribute) -> Html:
        written = "".join(map(_attribute, attributes.items()))
        if tag in _VOID:
            # With a slash: shapes of a picture would contain what follows them without.
            return Html(f"<{tag}{written}/>")
        return Html(f"<{tag}{written}>{''.join(map(_text, children))}</{tag}>")

    return build


def together(*children: Child) -> Html:
    return Html("".join(map(_text, children)))


def link(*segments: str | int, **query: object) -> str:
    """An address within the console; each segment is one, whatever characters it has."""
    path = "/" + "/".join(quote(str(segment), safe="") for segment in segments)
    asked = {name: value for name, value in query.items() if value not in (None, "", False)}
    return f"{path}?{urlencode(asked)}" if asked else path


def _text(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Html):
        return child
    if isinstance(child, str | int | float):
        return escape(str(child))
    return "".join(map(_text, child))


def _attribute(item: tuple[str, Attribute]) -> str:
    name, value = item
    if value is None or value is False:
        return ""
    name = name.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'


a = element("a")
button = element("button")
code = element("code")
dd = element("dd")
details = element("details")
dialog = element("dialog")
div = element("div")
dl = element("dl")
dt = element("dt")
footer = element("footer")
form = element("form")
h1 = element("h1")
h2 = element("h2")
h3 = element("h3")
header = element("header")
input_ = element("input")
label = element("label")
li = element("li")
main = element("main")
meta = element("meta")
nav = element("nav")
ol = element("ol")
option = element("option")
output = element("output")
p = element("p")
pre = element("pre")
section = element("section")
select = element("select")
small = element("small")
span = element("span")
strong = element("strong")
summary = element("summary")
table = element("table")
tbody = element("tbody")
td = element("td")
textarea = element("textarea")
th = element("th")
thead = element("thead")
time_ = element("time")
tr = element("tr")
ul = element("ul")
