// @platformatic/kafka as an agent: the newest versions of the protocol, topics by id.

import { CompressionAlgorithms, Consumer, Producer, compatibilityPartitioner } from '@platformatic/kafka'
import zlib from 'node:zlib'
import agent from './agent.js'

const { serve, encode, decode } = agent
const FETCH_BYTES_MAX = 16 * 1024 * 1024

// The client's only need of Node.js 22 that its older releases lack.
Promise.withResolvers ??= function () {
  let resolve, reject
  const promise = new Promise((...functions) => ([resolve, reject] = functions))
  return { promise, resolve, reject }
}

const client = { clientId: 'platformatic', bootstrapBrokers: [process.argv[2]] }

async function produce ({ topic, messages, acks, compression, idempotent }) {
  const producer = new Producer({ ...client, autocreateTopics: true, partitioner: compatibilityPartitioner })
  try {
    await producer.send({
      acks,
      compression,
      idempotent,
      messages: messages.map(message => ({
        topic,
        key: decode(message.key) ?? undefined,
        value: decode(message.value) ?? undefined,
        headers: new Map(message.headers.map(([name, value]) => [Buffer.from(name), decode(value)])),
        ...(message.timestamp !== null && { timestamp: BigInt(message.timestamp) }),
        ...(message.partition !== null && { partition: message.partition })
      }))
    })
  } finally {
    await producer.close()
  }
}

async function withConsumer (use) {
  const consumer = new Consumer({ ...client, groupId: 'unused' })
  try {
    return await use(consumer)
  } finally {
    await consumer.close(true)
  }
}

function read ({ topic, partition, offset, count, timeoutMs }) {
  return withConsumer(async consumer => {
    const metadata = await consumer.metadata({ topics: [topic] })
    const { id, partitions } = metadata.topics.get(topic)
    const received = []
    const deadline = Date.now() + timeoutMs
    let fetchOffset = BigInt(offset)
    while (received.length < count && Date.now() < deadline) {
      const { responses } = await consumer.fetch({
        node: partitions[partition].leader,
        minBytes: 1,
        maxBytes: FETCH_BYTES_MAX,
        maxWaitTime: 500,
        topics: [{
          topicId: id,
          partitions: [{
            partition,
            currentLeaderEpoch: partitions[partition].leaderEpoch,
            fetchOffset,
            lastFetchedEpoch: -1,
            partitionMaxBytes: FETCH_BYTES_MAX
          }]
        }]
      })
      for (const batch of responses[0]?.partitions[0].records ?? []) {
        for (const record of batch.records) {
          const at = batch.firstOffset + BigInt(record.offsetDelta)
          if (at < fetchOffset) continue
          received.push(readable(batch, record, at))
          fetchOffset = at + 1n
        }
      }
    }
    return received.slice(0, count)
  })
}

function readable (batch, record, offset) {
  const logAppendTime = (batch.attributes & 8) !== 0
  return {
    offset: String(offset),
    timestamp: String(logAppendTime ? batch.maxTimestamp : batch.firstTimestamp + record.timestampDelta),
    key: encode(record.key),
    value: encode(record.value),
    headers: record.headers.map(([name, value]) => [name.toString(), encode(value)])
  }
}

function offsetAt ({ topic, partition, timestamp }) {
  return withConsumer(async consumer => {
    const offsets = await consumer.listOffsets({ topics: [topic], timestamp: BigInt(timestamp) })
    return String(offsets.get(topic)[partition])
  })
}

const codecs = Object.values(CompressionAlgorithms)
  .filter(name => name !== 'none' && (name !== 'zstd' || typeof zlib.zstdCompressSync === 'function'))

serve({ codecs: async () => codecs, produce, read, offsetAt })
