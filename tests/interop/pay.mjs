// Pays a purse with npm `@interledger/pay`, Rafiki's sender.
// Request:
//   url, token                          ILP over HTTP of a connector account, and its bearer token
//   destinationAddress, sharedSecret    STREAM credentials (the secret in base64), or
//   spspUrl                             where to ask for them (http or https, any port), or
//   pointer                             a payment pointer or https URL that the library resolves
//   amountToSend | amountToDeliver      decimal strings
//   sourceAsset                         {code, scale}; the destination's by default
//   slippage                            0 to 1, default 0
//   maxPacketAmount                     the sender's own largest packet; by default the path's
//   minDeliveryAmount                   replaces the quote's minimum
//   minExchangeRate                     [numerator, denominator] replaces the quote's minimum rate
//   mediaType                           default application/octet-stream
//   close                               whether to close the connection, default true
// Answer: {ok, error?, amountSent, amountDelivered, destinationAsset, quote, packets, codes}, where
// `codes` counts the replies: {"fulfill": n, "F99": n, ...}.
import { createRequire } from 'node:module'
import { answer } from './request.mjs'

const require = createRequire(import.meta.url)
const { setupPayment, startQuote, pay, closeConnection, Ratio, Int } = require('@interledger/pay')
const { deserializeIlpReply, isFulfill } = require('ilp-packet')

class HttpPlugin {
  constructor ({ url, token, mediaType = 'application/octet-stream' }) {
    this.url = url
    this.headers = { authorization: `Bearer ${token}`, 'content-type': mediaType, accept: mediaType }
    this.packets = 0
    this.codes = {}
  }

  async sendData (prepare) {
    this.packets++
    const response = await fetch(this.url, { method: 'POST', headers: this.headers, body: prepare })
    const body = Buffer.from(await response.arrayBuffer())
    if (response.status !== 200) throw new Error(`HTTP ${response.status}: ${body}`)
    const reply = deserializeIlpReply(body)
    const code = isFulfill(reply) ? 'fulfill' : reply.code
    this.codes[code] = (this.codes[code] ?? 0) + 1
    return body
  }

  async connect () {}
  async disconnect () {}
  isConnected () { return true }
  registerDataHandler () {}
  deregisterDataHandler () {}
}

// The library asks payment pointers by https at port 443 only.
async function credentials ({ destinationAddress, sharedSecret, spspUrl, pointer }) {
  if (pointer) return { destinationAccount: pointer }
  if (!spspUrl) return { destinationAddress, sharedSecret: Buffer.from(sharedSecret, 'base64') }
  const response = await fetch(spspUrl, { headers: { accept: 'application/spsp4+json' } })
  if (response.status !== 200) throw new Error(`SPSP answered ${response.status}`)
  const found = await response.json()
  return {
    destinationAddress: found.destination_account,
    sharedSecret: Buffer.from(found.shared_secret, 'base64')
  }
}

await answer(async (request) => {
  const plugin = new HttpPlugin(request)
  const seen = {}
  try {
    const destination = await setupPayment({ plugin, ...await credentials(request) })
    seen.destinationAsset = destination.destinationAsset
    const { amountToSend, amountToDeliver, slippage = 0 } = request
    const quote = await startQuote({
      plugin,
      destination,
      slippage,
      sourceAsset: request.sourceAsset ?? destination.destinationAsset,
      ...(amountToSend && { amountToSend: BigInt(amountToSend) }),
      ...(amountToDeliver && { amountToDeliver: BigInt(amountToDeliver) })
    })
    if (request.maxPacketAmount) quote.maxPacketAmount = BigInt(request.maxPacketAmount)
    if (request.minDeliveryAmount) quote.minDeliveryAmount = BigInt(request.minDeliveryAmount)
    if (request.minExchangeRate) {
      quote.minExchangeRate = Ratio.of(...request.minExchangeRate.map((each) => Int.from(each)))
    }
    seen.quote = {
      maxPacketAmount: quote.maxPacketAmount,
      maxSourceAmount: quote.maxSourceAmount,
      minDeliveryAmount: quote.minDeliveryAmount
    }
    const { error, amountSent, amountDelivered } = await pay({ plugin, destination, quote })
    Object.assign(seen, { error, amountSent, amountDelivered })
    if (request.close ?? true) await closeConnection(plugin, destination)
  } catch (error) {
    seen.error = String(error?.message ?? error)
  }
  return { ok: !seen.error, ...seen, packets: plugin.packets, codes: plugin.codes }
})
