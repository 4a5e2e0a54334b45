// Pay a Farthing relay for storing a signed event, which is read from stdin as JSON.
//
//   FARTHING_TOKEN=<bearer token> [NOSTR_SECRET_KEY=<64 hex digits>] \
//       node docs/examples/pay.mjs http://127.0.0.1:7777 10000 < event.json
//
// With the author's key the scheme is `author`, without it `quote`. The second argument is the most that
// may be paid.

import { createECDH } from 'node:crypto'
import { text } from 'node:stream/consumers'

import { PaymentFailed, pay } from '../../infra/web/pay.js'

const [relay, maxAmount] = process.argv.slice(2)
const { FARTHING_TOKEN: token, NOSTR_SECRET_KEY: secret } = process.env

// Node has the curve itself. `docs/developers.md` has the same for browsers.
function ecdh(pubkey) {
  const curve = createECDH('secp256k1')
  curve.setPrivateKey(secret, 'hex')
  return curve.computeSecret(`02${pubkey}`, 'hex')
}

function parseEvent(json) {
  try {
    return JSON.parse(json)
  } catch {
    throw new PaymentFailed('expected a signed event as JSON on stdin')
  }
}

try {
  if (!relay || !maxAmount || !token) {
    throw new PaymentFailed('expected FARTHING_TOKEN, the URL of a relay and the most to pay')
  }
  const event = parseEvent(await text(process.stdin))
  const receipt = await pay(relay, event, { token, maxAmount, ecdh: secret && ecdh })
  const fulfillment = Buffer.from(receipt.fulfillment).toString('hex')
  console.log(JSON.stringify({ ...receipt, amount: String(receipt.amount), fulfillment, data: undefined }, null, 2))
} catch (error) {
  if (!(error instanceof PaymentFailed)) throw error
  console.error(`not paid: ${error.message}`)
  process.exitCode = 1
}
