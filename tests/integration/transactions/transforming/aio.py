"""The transformer with aiokafka."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from transforming.work import ABORT_CHANCE, RECORDS_PER_TRANSACTION, Report, Work, transformed


def run(work: Work, report: Report) -> None:
    asyncio.run(_run(work, report))


async def _run(work: Work, report: Report) -> None:
    chance = work.chance()
    producer = AIOKafkaProducer(
        bootstrap_servers=work.bootstrap_servers,
        transactional_id=work.transactional_id,
        transaction_timeout_ms=work.transaction_timeout_ms,
        retry_backoff_ms=20,
    )
    consumer = AIOKafkaConsumer(
        work.source,
        bootstrap_servers=work.bootstrap_servers,
        group_id=work.group,
        group_instance_id="transformer",
        session_timeout_ms=30_000,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        fetch_max_wait_ms=20,
        retry_backoff_ms=20,
    )
    await producer.start()
    report("initialised")
    await consumer.start()
    while True:
        fetched = await consumer.getmany(timeout_ms=250, max_records=RECORDS_PER_TRANSACTION)
        messages = [message for batch in fetched.values() for message in batch]
        if not messages:
            report("idle")
            continue
        aborted = chance.random() < ABORT_CHANCE
        await producer.begin_transaction()
        report("begun")
        sent = [
            await producer.send(
                work.target,
                transformed(message.partition, message.offset, aborted=aborted),
                partition=message.partition,
            )
            for message in messages
        ]
        report("sent")
        offsets = {partition: batch[-1].offset + 1 for partition, batch in fetched.items()}
        await producer.send_offsets_to_transaction(offsets, work.group)
        report("offsets")
        if aborted:
            await asyncio.gather(*sent)
            await producer.abort_transaction()
            for partition, batch in fetched.items():
                consumer.seek(TopicPartition(work.source, partition.partition), batch[0].offset)
            report("aborted")
        else:
            await producer.commit_transaction()
            report("committed")
