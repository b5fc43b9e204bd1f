"""The connector: one task, since the changes of a database are one stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ottla.connect.connectors.postgres.position import position_of
from ottla.connect.connectors.postgres.settings import SETTINGS
from ottla.connect.connectors.postgres.task import PostgresSourceTask
from ottla.connect.plugin import Config, SourceConnector
from ottla.connect.settings.definition import Settings


class PostgresSource(SourceConnector):
    settings: ClassVar[Settings] = SETTINGS
    task_class = PostgresSourceTask
    guarantee: ClassVar[str] = (
        "Exactly once where the worker has `exactly.once.source.support=enabled`, else at least once: a "
        "change and the place behind it in the server's log are written in one transaction, the server is "
        "told to forget a change only after that, and of a transaction that it sends again what was written "
        "is left out. An interrupted first read repeats the rows of the table it was in."
    )

    @classmethod
    def task_name(cls) -> str:
        return "io.debezium.connector.postgresql.PostgresConnectorTask"

    def task_configs(self, tasks_max: int) -> Sequence[Config]:
        return [self.given]

    def is_exactly_once(self, given: Config) -> bool:
        return True

    def validate(self, given: Config) -> Mapping[str, Sequence[str]]:
        errors: dict[str, Sequence[str]] = {}
        for what in ("table", "schema", "column"):
            if given.get(f"{what}.include.list") and given.get(f"{what}.exclude.list"):
                errors[f"{what}.exclude.list"] = [
                    f"{what}.include.list is already specified: name what is wanted or what is not"
                ]
        return errors

    def alter_offsets(
        self, given: Config, offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]
    ) -> None:
        for _, offset in offsets:
            if offset is not None:
                position_of(offset)
