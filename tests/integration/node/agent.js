// Serves commands from standard input, one JSON object a line, strictly one after the other.

'use strict'

const readline = require('node:readline')

function serve (commands) {
  let last = Promise.resolve()
  readline.createInterface({ input: process.stdin }).on('line', line => {
    last = last.then(async () => {
      let answer
      try {
        const { command, ...args } = JSON.parse(line)
        answer = { result: (await commands[command](args)) ?? null }
      } catch (error) {
        answer = { error: describe(error) }
      }
      process.stdout.write(JSON.stringify(answer) + '\n')
    })
  }).on('close', () => process.exit(0))
}

function describe (error) {
  const causes = [...(error.errors ?? []), ...(error.cause ? [error.cause] : [])]
  return [error.stack ?? String(error), ...causes.map(describe)].join('\ncaused by ')
}

const encode = bytes => (bytes == null ? null : Buffer.from(bytes).toString('base64'))
const decode = text => (text === null ? null : Buffer.from(text, 'base64'))

module.exports = { serve, encode, decode }
