"""Values as Java writes them, for output that has to be the same."""

from __future__ import annotations

from decimal import Decimal


def double(value: float) -> str:
    """With an exponent from ten millions on."""
    if 1e-3 <= abs(value) < 1e7 or value == 0:
        return repr(float(value))
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    first, *rest = map(str, digits)
    assert isinstance(exponent, int)
    return f"{'-' * sign}{first}.{''.join(rest) or 0}E{exponent + len(rest)}"
