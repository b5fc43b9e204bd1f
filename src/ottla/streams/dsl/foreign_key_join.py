"""Builds the nodes of a foreign-key join: subscriptions go to the foreign key's partition, answers come
back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.streams.dsl.functions import of_key_and_both, of_key_and_value
from ottla.streams.dsl.parameters import Materialized, TableJoined
from ottla.streams.dsl.tables import SourceTable
from ottla.streams.operators.foreign_key import (
    Answer,
    AnswerSubscribers,
    AnswerSubscription,
    ReceiveSubscription,
    ResolveAnswer,
    SendSubscription,
    answer_serde,
    subscription_serde,
)
from ottla.streams.operators.table import TableSource
from ottla.streams.plan.plan import RepartitionTopic, SinkNode, SourceNode
from ottla.streams.state.spec import StoreKind, StoreSpec

if TYPE_CHECKING:
    from ottla.streams.dsl.ktable import KTable

_FK_JOIN = "KTABLE-FK-JOIN-"
_REGISTRATION = _FK_JOIN + "SUBSCRIPTION-REGISTRATION-"
_SUBSCRIPTION = _FK_JOIN + "SUBSCRIPTION-PROCESSOR-"
_RESPONSE = _FK_JOIN + "SUBSCRIPTION-RESPONSE-"
_RESOLVER = _FK_JOIN + "SUBSCRIPTION-RESPONSE-RESOLVER-PROCESSOR-"


def back_to_primary(topic: str, key: Any, answer: Answer, partitions: int) -> int | None:
    """An answer returns to the partition its subscription came from, however the left table is
    partitioned."""
    return answer.primary_partition


def join_on_foreign_key(
    left_table: KTable,
    right_table: KTable,
    foreign_key: Any,
    joiner: Any,
    materialized: Materialized | None,
    joined: TableJoined,
    *,
    left: bool,
) -> KTable:
    from ottla.streams.dsl.ktable import KTable

    graph, name = left_table.graph, joined.name
    extractor = of_key_and_value(foreign_key, "the foreign-key extractor")
    function = of_key_and_both(joiner)
    left_state, right_state = left_table.state, right_table.state
    right_state.enable_old(force=True)
    left_state.enable_old(force=True)
    left_state.view()
    right_state.view()
    primary_key = left_table.key_serde or graph.default_key
    primary_value = left_table.value_serde or graph.default_value
    right_key = right_table.key_serde or graph.default_key
    right_value = right_table.value_serde or graph.default_value

    registration = graph.name(name, _REGISTRATION, "-subscription-registration") + "-topic"
    send = graph.name(name, _REGISTRATION, "-subscription-registration-processor")
    operator = SendSubscription(extractor, right_key, primary_value, left)
    graph.add_processor(send, [left_table.name], operator)
    subscription = subscription_serde(primary_key)
    graph.add_internal_topic(RepartitionTopic(registration))
    sink = graph.name(name, "KTABLE-SINK-", "-subscription-registration-sink")
    graph.add_sink(SinkNode(sink, registration, right_key, subscription), [send])
    source = graph.name(name, "KTABLE-SOURCE-", "-subscription-registration-source")
    graph.add_source(SourceNode(source, (registration,), right_key, subscription))
    graph.require_copartitioning(right_table.sources, frozenset({source}))

    store = graph.name(name, _FK_JOIN + "SUBSCRIPTION-STATE-STORE-", "-subscription-store")
    spec = StoreSpec(store, StoreKind.SUBSCRIPTIONS, right_key, subscription)
    receive = graph.name(name, _SUBSCRIPTION, "-subscription-receive")
    graph.add_processor(receive, [source], ReceiveSubscription(store), owned=lambda: (spec,))
    answer_one = graph.name(name, _SUBSCRIPTION, "-subscription-join-foreign")
    graph.add_processor(
        answer_one, [receive], lambda: AnswerSubscription(right_state.view()), used=right_state.view_stores
    )
    answer_all = graph.name(name, _SUBSCRIPTION, "-foreign-join-subscription")
    graph.add_processor(answer_all, [right_table.name], AnswerSubscribers(store), owned=lambda: (spec,))

    response = graph.name(name, _RESPONSE, "-subscription-response") + "-topic"
    graph.add_internal_topic(RepartitionTopic(response))
    answer = answer_serde(right_value)
    response_sink = graph.name(name, "KTABLE-SINK-", "-subscription-response-sink")
    graph.add_sink(
        SinkNode(response_sink, response, primary_key, answer, back_to_primary), [answer_one, answer_all]
    )
    response_source = graph.name(name, "KTABLE-SOURCE-", "-subscription-response-source")
    graph.add_source(SourceNode(response_source, (response,), primary_key, answer))
    sources = graph.require_copartitioning(left_table.sources, frozenset({response_source}))

    resolver = graph.name(name, _RESOLVER, "-subscription-response-resolver")
    graph.add_processor(
        resolver,
        [response_source],
        lambda: ResolveAnswer(left_state.view(), primary_value, function, left),
        used=left_state.view_stores,
    )
    materialized = materialized or Materialized()
    result = graph.name(name, _FK_JOIN + "OUTPUT-", "-result")
    result_store = materialized.name or graph.generate_store(_FK_JOIN + "OUTPUT-")
    key = materialized.key or primary_key
    result_spec = StoreSpec(
        result_store,
        StoreKind.KEY_VALUE,
        key,
        materialized.value or graph.default_value,
        queryable=materialized.name is not None,
        logged=materialized.logged,
    )
    state = SourceTable(result_spec, stored=materialized.name is not None)
    graph.add_processor(
        result,
        [resolver],
        lambda: TableSource(result_store if state.stored else None, state.send_old),
        owned=lambda: (result_spec,) if state.stored else (),
    )
    return KTable(graph, result, key, materialized.value, sources, state)
