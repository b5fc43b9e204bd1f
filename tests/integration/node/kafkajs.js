// KafkaJS as an agent. Its consumer only works in groups; records are read with its own cluster and fetch
// protocol underneath, which is the part of it that a broker meets.

'use strict'

const { Kafka, CompressionTypes, CompressionCodecs, Partitioners, logLevel } = require('kafkajs')
const Batch = require('kafkajs/src/consumer/batch')
const snappy = require('kafkajs-snappy')
const { serve, encode, decode } = require('./agent')

CompressionCodecs[CompressionTypes.Snappy] = snappy

const CODECS = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy }
const FETCH_BYTES_MAX = 16 * 1024 * 1024
const READ_UNCOMMITTED = 0

const kafka = new Kafka({ brokers: [process.argv[2]], clientId: 'kafkajs', logLevel: logLevel.NOTHING })
const createCluster = Object.getOwnPropertySymbols(kafka)
  .find(symbol => symbol.description === 'private:Kafka:createCluster')

async function produce ({ topic, messages, acks, compression, idempotent }) {
  const producer = kafka.producer({ idempotent, createPartitioner: Partitioners.DefaultPartitioner })
  await producer.connect()
  try {
    await producer.send({
      topic,
      acks,
      compression: CODECS[compression],
      messages: messages.map(message => ({
        key: decode(message.key),
        value: decode(message.value),
        headers: headerObject(message.headers),
        ...(message.timestamp !== null && { timestamp: message.timestamp }),
        ...(message.partition !== null && { partition: message.partition })
      }))
    })
  } finally {
    await producer.disconnect()
  }
}

function headerObject (pairs) {
  const headers = {}
  for (const [name, value] of pairs) {
    headers[name] = name in headers ? [].concat(headers[name], decode(value)) : decode(value)
  }
  return headers
}

async function read ({ topic, partition, offset, count, timeoutMs }) {
  const cluster = kafka[createCluster]({ allowAutoTopicCreation: false, isolationLevel: READ_UNCOMMITTED })
  await cluster.connect()
  try {
    await cluster.addTargetTopic(topic)
    const { leader } = cluster.findTopicPartitionMetadata(topic).find(item => item.partitionId === partition)
    const broker = await cluster.findBroker({ nodeId: leader })
    const received = []
    const deadline = Date.now() + timeoutMs
    while (received.length < count && Date.now() < deadline) {
      const { responses } = await broker.fetch({
        maxWaitTime: 500,
        minBytes: 1,
        maxBytes: FETCH_BYTES_MAX,
        isolationLevel: READ_UNCOMMITTED,
        topics: [{ topic, partitions: [{ partition, fetchOffset: offset, maxBytes: FETCH_BYTES_MAX }] }]
      })
      const { messages } = new Batch(topic, offset, responses[0].partitions[0])
      received.push(...messages)
      if (messages.length > 0) offset = String(BigInt(messages[messages.length - 1].offset) + 1n)
    }
    return received.slice(0, count).map(message => ({
      offset: message.offset,
      timestamp: message.timestamp,
      key: encode(message.key),
      value: encode(message.value),
      headers: Object.entries(message.headers)
        .flatMap(([name, value]) => [].concat(value).map(item => [name, encode(item)]))
    }))
  } finally {
    await cluster.disconnect()
  }
}

async function offsetAt ({ topic, partition, timestamp }) {
  const admin = kafka.admin()
  await admin.connect()
  try {
    if (BigInt(timestamp) < 0n) {
      const offsets = await admin.fetchTopicOffsets(topic)
      const { low, high } = offsets.find(item => item.partition === partition)
      return timestamp === '-1' ? high : low
    }
    const offsets = await admin.fetchTopicOffsetsByTimestamp(topic, Number(timestamp))
    return offsets.find(item => item.partition === partition).offset
  } finally {
    await admin.disconnect()
  }
}

serve({ codecs: async () => ['gzip', 'snappy'], produce, read, offsetAt })
