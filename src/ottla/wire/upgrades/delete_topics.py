"""DeleteTopics: before version 6 topics were a plain list of names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState


def upgrade(old: Any, widened: DeleteTopicsRequest) -> DeleteTopicsRequest:
    return replace(widened, topics=tuple(DeleteTopicState(name=n, topic_id=None) for n in old.topic_names))
