"""Topics in which the broker keeps its own state: marked as internal, not for clients to create or trim."""

from __future__ import annotations

INTERNAL_TOPICS = frozenset(("__consumer_offsets", "__transaction_state", "__share_group_state"))
