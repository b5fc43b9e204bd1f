"""What older request versions said in fields the newest version no longer has.

Widening an old request to the newest class (see `messages`) fills in what it lacks; here is the opposite
case, the few requests whose old fields would otherwise be lost. One module per API, imported when needed; its
`upgrade` gets the request as received and as widened, and returns what the handler shall see.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, cast

from ottla.wire.api import ApiKey

_MODULES = {
    ApiKey.ADD_PARTITIONS_TO_TXN: "add_partitions_to_txn",
    ApiKey.ALTER_PARTITION: "alter_partition",
    ApiKey.METADATA: "metadata",
    ApiKey.DELETE_TOPICS: "delete_topics",
    ApiKey.UPDATE_FEATURES: "update_features",
}

# Requests whose older versions have another shape altogether: the handler gets them as they were sent.
AS_RECEIVED = frozenset((ApiKey.FIND_COORDINATOR, ApiKey.LEAVE_GROUP, ApiKey.OFFSET_FETCH))


def find_upgrade(api_key: int) -> Callable[[Any, Any], Any] | None:
    module = _MODULES.get(cast(ApiKey, api_key))
    if module is None:
        return None
    return cast(Callable[[Any, Any], Any], importlib.import_module(f"{__name__}.{module}").upgrade)
