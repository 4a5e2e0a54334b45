// Runs pay.js for the tests: a question in JSON on each line in, the answer on each line out.
//
//   node driver.mjs PATH_OF_PAY_JS

import { createECDH } from 'node:crypto'
import { createInterface } from 'node:readline'
import { pathToFileURL } from 'node:url'

const library = await import(pathToFileURL(process.argv[2]))
const octets = (hex) => Uint8Array.from(Buffer.from(hex, 'hex'))
const hex = (bytes) => Buffer.from(bytes).toString('hex')

// Node has the curve; in a browser it comes from a library.
const ecdhBy = (secret) => (pubkey) => {
  const curve = createECDH('secp256k1')
  curve.setPrivateKey(secret, 'hex')
  return new Uint8Array(curve.computeSecret(`02${pubkey}`, 'hex'))
}

// Bytes as hex and amounts as text, for JSON.
const plain = (value) =>
  Object.fromEntries(
    Object.entries(value).map(([name, each]) => {
      if (each instanceof Uint8Array) return [name, hex(each)]
      return [name, typeof each === 'bigint' ? String(each) : each]
    }),
  )

const answers = {
  toon: ({ event }) => ({ hex: hex(library.encodeToon(event)) }),
  prepare: ({ amount, expiresAt, condition, destination, data }) => {
    const packet = { amount: BigInt(amount), expiresAt: new Date(expiresAt), destination }
    const encoded = library.encodePrepare({ ...packet, condition: octets(condition), data: octets(data) })
    return { hex: hex(encoded) }
  },
  reply: (question) => plain(library.decodeReply(octets(question.hex))),
  author: async ({ secret, pubkey, data }) => {
    const fulfillment = await library.authorFulfillment(ecdhBy(secret)(pubkey), octets(data))
    return plain({ fulfillment, condition: await library.sha256(fulfillment) })
  },
  pay: async ({ relay, event, secret, ...options }) => {
    const ecdh = secret ? ecdhBy(secret) : undefined
    return plain(await library.pay(relay, event, { ...options, ecdh }))
  },
}

for await (const line of createInterface({ input: process.stdin })) {
  const question = JSON.parse(line)
  let answer
  try {
    answer = await answers[question.op](question)
  } catch (error) {
    if (!(error instanceof library.PaymentFailed)) throw error
    answer = { error: error.name, message: error.message, code: error.code }
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`)
}
