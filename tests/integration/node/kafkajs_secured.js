// Lists topics with KafkaJS through TLS and a login; ends with 1 and the reason where it is not let in.

'use strict'

const fs = require('node:fs')
const { Kafka, logLevel } = require('kafkajs')

const { brokers, ca, mechanism, username, password } = JSON.parse(process.argv[2])
const kafka = new Kafka({
  brokers,
  clientId: 'kafkajs',
  logLevel: logLevel.NOTHING,
  retry: { retries: 0 },
  ssl: { ca: [fs.readFileSync(ca)] },
  sasl: { mechanism, username, password }
})

async function main () {
  const admin = kafka.admin()
  await admin.connect()
  console.log(JSON.stringify(await admin.listTopics()))
  await admin.disconnect()
}

main().catch(error => {
  console.error(`${error.name}: ${error.message}`)
  process.exit(1)
})
