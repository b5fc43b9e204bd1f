// KafkaJS as members of groups, several to a process. Commands come from standard input, one JSON object a line:
// {"join": NAME, "group": ..., "topics": [...]} and {"leave": NAME}; what happens to each member is written, one
// JSON object a line, with times of the system's monotonic clock.

'use strict'

const readline = require('node:readline')
const { Kafka, logLevel } = require('kafkajs')

const POLL_TIMEOUT_MS = 100
const HEARTBEAT_INTERVAL_MS = 100
const SESSION_TIMEOUT_MS = 2000
const REBALANCE_TIMEOUT_MS = 10000

const kafka = new Kafka({
  brokers: [process.argv[2]],
  clientId: 'kafkajs',
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 50, maxRetryTime: 500 }
})
const consumers = {}

async function join ({ join: member, group, topics }) {
  const emit = (event, details) => {
    const at = Number(process.hrtime.bigint()) / 1e9
    process.stdout.write(JSON.stringify({ group, member, event, at, ...details }) + '\n')
  }
  const consumer = kafka.consumer({
    groupId: group,
    maxWaitTimeInMs: POLL_TIMEOUT_MS,
    heartbeatInterval: HEARTBEAT_INTERVAL_MS,
    sessionTimeout: SESSION_TIMEOUT_MS,
    rebalanceTimeout: REBALANCE_TIMEOUT_MS
  })
  consumers[member] = { consumer, emit }
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    const partitions = Object.entries(payload.memberAssignment)
      .flatMap(([topic, numbers]) => numbers.map(number => [topic, number]))
    emit('assigned', { partitions })
  })
  consumer.on(consumer.events.CRASH, ({ payload }) => {
    if (!payload.restart) emit('failed', { reason: payload.error.stack })
  })
  await consumer.connect()
  await consumer.subscribe({ topics, fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachBatch: async ({ batch, resolveOffset, heartbeat, isStale, commitOffsetsIfNecessary }) => {
      // Fetched before a rebalance took the partition away.
      if (isStale()) return
      const { topic, partition } = batch
      const last = batch.lastOffset()
      emit('delivered', { records: batch.messages.map(({ offset }) => [topic, partition, Number(offset)]) })
      resolveOffset(last)
      const offset = String(BigInt(last) + 1n)
      try {
        await commitOffsetsIfNecessary({ topics: [{ topic, partitions: [{ partition, offset }] }] })
      } catch (error) {
        emit('refused', { reason: error.type ?? String(error) })
        // It is the consumer that has to know: it joins again.
        throw error
      }
      emit('committed', { positions: [[topic, partition, Number(offset)]] })
      await heartbeat()
    }
  })
}

async function leave ({ leave: member }) {
  const { consumer, emit } = consumers[member]
  await consumer.disconnect()
  emit('left')
}

readline.createInterface({ input: process.stdin }).on('line', line => {
  const command = JSON.parse(line)
  const done = 'join' in command ? join(command) : leave(command)
  done.catch(error => consumers[command.join ?? command.leave].emit('failed', { reason: error.stack }))
}).on('close', () => process.exit(0))
