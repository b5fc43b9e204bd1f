"""Fields that the protocol leaves empty although its schemas, and so kio, have no word for that.

DescribeTransactions says -1 for the start of a transaction that has not begun; kio takes it for a moment
before 1970 and refuses to read it.
"""

from __future__ import annotations

import sys
from typing import Any

from ottla.wire.api import ApiKey

_NULLABLE = {ApiKey.DESCRIBE_TRANSACTIONS: ("TransactionState", "transaction_start_time")}


def allow_null(api_key: int, response_type: type[Any]) -> type[Any]:
    """To be called before kio makes a reader or writer of the type."""
    names = _NULLABLE.get(api_key)  # type: ignore[call-overload]
    if names is not None:
        entity = getattr(sys.modules[response_type.__module__], names[0])
        field = entity.__dataclass_fields__[names[1]]
        field.type |= None
    return response_type
