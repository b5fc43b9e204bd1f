"""Fields that the protocol leaves empty although its schemas, and so kio, have no word for that.

DescribeTransactions says -1 for the start of a transaction that has not begun, as do refusals of delegation
tokens for their times; kio takes it for a moment before 1970 and refuses to read it.
"""

from __future__ import annotations

import sys
from typing import Any

from ottla.wire.api import ApiKey

_NULLABLE = {
    ApiKey.DESCRIBE_TRANSACTIONS: ("TransactionState", "transaction_start_time"),
    ApiKey.CREATE_DELEGATION_TOKEN: (
        "CreateDelegationTokenResponse",
        "issue_timestamp",
        "expiry_timestamp",
        "max_timestamp",
    ),
    ApiKey.RENEW_DELEGATION_TOKEN: ("RenewDelegationTokenResponse", "expiry_timestamp"),
    ApiKey.EXPIRE_DELEGATION_TOKEN: ("ExpireDelegationTokenResponse", "expiry_timestamp"),
}


def allow_null(api_key: int, response_type: type[Any]) -> type[Any]:
    """To be called before kio makes a reader or writer of the type."""
    found: tuple[str, ...] | None = _NULLABLE.get(api_key)  # type: ignore[call-overload]
    if found is not None:
        name, *fields = found
        entity = getattr(sys.modules[response_type.__module__], name)
        for field in fields:
            entity.__dataclass_fields__[field].type |= None
    return response_type
