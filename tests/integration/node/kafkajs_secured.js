// Lists topics with KafkaJS by each way that standard input names, and prints what kept it out.

'use strict'

const fs = require('node:fs')
const { Kafka, logLevel } = require('kafkajs')

async function visit (way) {
  const { server, protocol, authority, identity, mechanism, username, password, token } = way
  const certificate = identity ? fs.readFileSync(identity, 'utf8') : undefined
  const ssl = { ca: [fs.readFileSync(authority, 'utf8')], cert: certificate, key: certificate }
  const login = token
    ? { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: token }) }
    : { mechanism: mechanism.toLowerCase(), username, password }
  const admin = new Kafka({
    brokers: [server],
    clientId: 'kafkajs',
    logLevel: logLevel.NOTHING,
    retry: { retries: 0 },
    ssl: protocol.endsWith('SSL') && ssl,
    sasl: mechanism ? login : undefined
  }).admin()
  try {
    await admin.connect()
    await admin.listTopics()
    return ''
  } catch (error) {
    return `${error.name}: ${error.message}`
  } finally {
    await admin.disconnect()
  }
}

async function main () {
  const ways = Object.entries(JSON.parse(fs.readFileSync(0, 'utf8')))
  const outcomes = await Promise.all(ways.map(async ([name, way]) => [name, await visit(way)]))
  console.log(JSON.stringify(Object.fromEntries(outcomes)))
}

main().catch(error => {
  console.error(error)
  process.exit(1)
})
