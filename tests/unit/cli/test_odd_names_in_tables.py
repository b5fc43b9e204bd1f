"""Names that others chose, in tables of a terminal."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from ottla.cli.framework.output import Table, rich_table


def test_a_name_neither_commands_a_terminal_nor_is_markup() -> None:
    drawn = StringIO()
    names = ["[/red]", "[bold]x[/bold]", "\x1b[2J\x1b]0;title\x07", "two\nlines", "żółw"]
    Console(file=drawn, width=120).print(rich_table(Table(("Group",), [(name,) for name in names], "Groups")))
    shown = drawn.getvalue()
    assert "\x1b" not in shown and "\x07" not in shown
    for text in ("[/red]", "[bold]x[/bold]", r"\x1b[2J\x1b]0;title\x07", r"two\nlines", "żółw"):
        assert text in shown


def test_a_long_name_leaves_the_other_columns_in_sight() -> None:
    table = Table(("Topic", "Partitions", "On disk"), [("t" * 249, 12, "3.4 kB"), ("orders", 3, "0 B")], "")
    for width in (40, 60, 80, 400):
        drawn = StringIO()
        Console(file=drawn, width=width).print(rich_table(table, width=width))
        rows = drawn.getvalue().splitlines()
        (long,) = (row for row in rows if "ttt" in row)
        assert "12" in long and "3.4 kB" in long
        assert all(len(row) <= width for row in rows)
