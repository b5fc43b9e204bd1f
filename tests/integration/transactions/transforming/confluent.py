"""The transformer with confluent-kafka."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from transforming.work import ABORT_CHANCE, RECORDS_PER_TRANSACTION, Report, Work, transformed


def run(work: Work, report: Report) -> None:
    chance = work.chance()
    network = {
        "bootstrap.servers": work.bootstrap_servers,
        # How long a request waits that was queued for a connection which is gone.
        "socket.timeout.ms": 2_000,
        "reconnect.backoff.max.ms": 200,
        "log_level": 0,
    }
    producer = Producer(
        {
            **network,
            "transactional.id": work.transactional_id,
            "transaction.timeout.ms": work.transaction_timeout_ms,
            "linger.ms": 0,
            "retry.backoff.ms": 20,
        }
    )
    # A static member of a classic group takes its predecessor's place at once.
    member = {"group.instance.id": "transformer", "session.timeout.ms": 30_000}
    if work.protocol == "consumer":
        member = {"group.protocol": "consumer"}
    consumer = Consumer(
        {
            **network,
            **member,
            "group.id": work.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 20,
        }
    )
    producer.init_transactions(20)
    report("initialised")
    consumer.subscribe([work.source])
    while True:
        messages = consumer.consume(RECORDS_PER_TRANSACTION, 0.25)
        if not messages:
            report("idle")
            continue
        for message in messages:
            if message.error():
                raise KafkaException(message.error())
        aborted = chance.random() < ABORT_CHANCE
        producer.begin_transaction()
        report("begun")
        for message in messages:
            producer.produce(
                work.target,
                transformed(message.partition(), message.offset(), aborted=aborted),
                partition=message.partition(),
            )
        producer.poll(0)
        report("sent")
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 20
        )
        report("offsets")
        if aborted:
            producer.flush(20)
            producer.abort_transaction(20)
            for partition in {message.partition() for message in messages}:
                first = min(m.offset() for m in messages if m.partition() == partition)
                consumer.seek(TopicPartition(work.source, partition, first))
            report("aborted")
        else:
            producer.commit_transaction(20)
            report("committed")
