"""Branches of a stream: each record goes to the first branch whose predicate holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.streams.dsl.functions import of_key_and_value
from ottla.streams.dsl.parameters import Branched
from ottla.streams.errors import TopologyError
from ottla.streams.operators.stateless import Branch, Function, PassThrough

if TYPE_CHECKING:
    from ottla.streams.dsl.kstream import KStream


class BranchedKStream:
    def __init__(self, source: KStream, named: str | None) -> None:
        self._source = source
        self._name = source.graph.name(named, "KSTREAM-BRANCH-")
        self._predicates: list[tuple[Function, str]] = []
        self._default: str | None = None
        self._streams: dict[str, KStream] = {}
        self._closed = False
        source.graph.add_processor(
            self._name, [source.name], lambda: Branch(tuple(self._predicates), self._default)
        )

    def branch(self, predicate: Any, branched: Branched | None = None) -> BranchedKStream:
        """Add a branch for records for which the predicate holds and no earlier one did."""
        name = self._add(branched or Branched(), str(len(self._predicates) + 1))
        self._predicates.append((of_key_and_value(predicate, "the predicate of a branch"), name))
        return self

    def default_branch(self, branched: Branched | None = None) -> dict[str, KStream]:
        """Add a branch for all other records; the branches by name."""
        self._default = self._add(branched or Branched(), "0")
        self._closed = True
        return self._streams

    def no_default_branch(self) -> dict[str, KStream]:
        """Drop all other records; the branches by name."""
        self._closed = True
        return self._streams

    def _add(self, branched: Branched, ordinal: str) -> str:
        from ottla.streams.dsl.kstream import KStream

        if self._closed:
            raise TopologyError(f"{self._name} has its default branch already: add other branches before it")
        graph, source = self._source.graph, self._source
        name = self._name + (branched.name or ordinal)
        graph.generate(name)
        graph.add_processor(name, [self._name], PassThrough())
        stream = KStream(
            graph,
            name,
            source.key_serde,
            source.value_serde,
            source.sources,
            repartition_required=source.repartition_required,
        )
        if branched.chain is None:
            self._streams[name] = stream
        else:
            result = branched.chain(stream)
            if result is not None:
                self._streams[name] = result
        return name
