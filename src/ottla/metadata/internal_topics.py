"""Topics in which the broker keeps its own state: marked as internal, not for clients to create or trim."""

from __future__ import annotations

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"

INTERNAL_TOPICS = frozenset((OFFSETS_TOPIC, TRANSACTION_TOPIC, SHARE_STATE_TOPIC))
