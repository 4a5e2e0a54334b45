// Pay a Farthing relay for storing a Nostr event, from a browser or from Node 20 and newer.
//
//   import { pay } from './pay.js'
//   const receipt = await pay('wss://relay.example.org', signedEvent, { token, maxAmount: 10_000n })
//
// One file without dependencies. It asks for a quote, writes the event as TOON, puts it into an ILP
// packet, sends the packet over HTTP, and checks that the fulfillment in the answer fits the condition.
// The caller signs events and keeps keys.

const FIELDS = ['id', 'pubkey', 'created_at', 'kind', 'tags', 'content', 'sig']
const TYPE_PREPARE = 12
const TYPE_FULFILL = 13
const TYPE_REJECT = 14
const MAX_DATA = 32767
const MAX_MESSAGE = 8191
const MAX_ADDRESS = 1023
const MAX_U64 = 2n ** 64n - 1n
const MAX_ANSWER_BYTES = 64 * 1024
const EXPIRY_SECONDS = 30
const MARGIN_SECONDS = 5
const TRIES = 4 // each try adds the fee on the last increase, which gets smaller every time
const AUTHOR_LABEL = 'farthing/ilp/v1'
const ADDRESS = /^(g|private|example|peer|self|test[1-3]?|local)([.][a-zA-Z0-9_~-]+)+$/
const OCTETS = 'application/octet-stream'

const utf8 = new TextEncoder()

/** The payment could not be made, or its outcome is unknown; the message says why. */
export class PaymentFailed extends Error {
  name = 'PaymentFailed'
}

/** A connector or the relay has rejected the packet. Nothing was paid. */
export class PaymentRejected extends PaymentFailed {
  name = 'PaymentRejected'

  /** @param {{code: string, triggeredBy: string, message: string, data: Uint8Array}} reject */
  constructor(reject) {
    super(`${reject.code} ${reject.message} (by ${reject.triggeredBy || 'unknown'})`)
    this.code = reject.code
    this.triggeredBy = reject.triggeredBy
    this.reason = reject.message
    this.data = reject.data
  }
}

/**
 * Pay for one signed event.
 *
 * @param {string} relay  URL of the relay, by any of the schemes wss, ws, https and http
 * @param {object} event  the signed event
 * @param {object} options
 * @param {string} options.token  bearer token at the connector
 * @param {bigint|number} options.maxAmount  the most that may be paid, fees included
 * @param {string} [options.connector]  URL that takes the packet; the relay's own if left out
 * @param {(relayPubkey: string) => Uint8Array|Promise<Uint8Array>} [options.ecdh]  x-coordinate of the
 *   Diffie-Hellman point of the author's key and the relay's. With it the scheme is `author`, without
 *   it `quote`, which needs no key.
 * @param {object} [options.quote]  an earlier quote; requested if left out
 * @param {typeof fetch} [options.fetch]
 * @param {() => number} [options.now]  milliseconds since 1970
 * @returns {Promise<{eventId: string, amount: bigint, destination: string, scheme: string,
 *   fulfillment: Uint8Array, data: Uint8Array}>}
 */
export async function pay(relay, event, options) {
  const ask = options.fetch ?? fetch
  const now = options.now ?? Date.now
  const most = amountOf(options.maxAmount, 'maxAmount')
  const data = encodeToon(event)
  const quote = checkedQuote(options.quote ?? (await askQuote(relay, event, { fetch: ask })), event)
  const endpoint = options.connector ?? ownEndpoint(relay, quote)
  const condition = options.ecdh
    ? await sha256(await authorFulfillment(await options.ecdh(quote.pubkey), data))
    : quote.condition

  let amount = quote.price
  for (let tries = 1; ; tries += 1) {
    if (amount > most) throw new PaymentFailed(`the price is ${amount}, and at most ${most} may be paid`)
    const expiresAt = new Date(now() + EXPIRY_SECONDS * 1000)
    const prepare = { amount, expiresAt, condition, destination: quote.destination, data }
    const reply = await sendPacket(endpoint, options.token, prepare, { fetch: ask })
    if (reply.type === TYPE_FULFILL) {
      const { fulfillment, data: told } = reply
      const scheme = options.ecdh ? 'author' : 'quote'
      return { eventId: event.id, amount, destination: quote.destination, scheme, fulfillment, data: told }
    }
    const kept = keptOnTheWay(reply)
    if (kept === 0n || tries === TRIES) throw new PaymentRejected(reply)
    amount += kept
  }
}

/** Ask for the price of storing an event, where to pay, and a condition. Nothing is stored. */
export async function askQuote(relay, event, { fetch: ask = fetch } = {}) {
  const response = await request(ask, `${httpUrl(relay)}/v1/quotes`, {
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ event: ordered(event) }),
    seconds: EXPIRY_SECONDS,
  })
  const body = await bodyOf(response)
  let answer
  try {
    answer = JSON.parse(new TextDecoder().decode(body))
  } catch {
    throw new PaymentFailed(`expected a quote in JSON, got HTTP ${response.status} without JSON`)
  }
  if (!response.ok) throw new PaymentFailed(`no quote: HTTP ${response.status}: ${answer?.detail ?? ''}`)
  return answer
}

/** Send a Prepare to a connector. Returns a Reject, or a Fulfill that has been checked. */
export async function sendPacket(endpoint, token, prepare, { fetch: ask = fetch } = {}) {
  const response = await request(ask, endpoint, {
    headers: { 'Content-Type': OCTETS, Accept: OCTETS, Authorization: `Bearer ${token}` },
    body: encodePrepare(prepare),
    seconds: EXPIRY_SECONDS + MARGIN_SECONDS,
  })
  if (response.status !== 200) throw new PaymentFailed(`expected a packet, got HTTP ${response.status}`)
  const reply = decodeReply(await bodyOf(response))
  if (reply.type === TYPE_FULFILL && !same(await sha256(reply.fulfillment), prepare.condition)) {
    throw new PaymentFailed('the fulfillment does not hash to the condition')
  }
  return reply
}

// Conditions

/**
 * The preimage that only the author and the relay can compute.
 *
 * @param {Uint8Array} shared  x-coordinate of ECDH, 32 bytes
 * @param {Uint8Array} data  the packet's data, exactly
 */
export async function authorFulfillment(shared, data) {
  if (shared.length !== 32) throw new PaymentFailed(`expected 32 bytes from ecdh, got ${shared.length}`)
  return hmac(await hmac(shared, utf8.encode(AUTHOR_LABEL)), data)
}

export async function sha256(octets) {
  return new Uint8Array(await crypto.subtle.digest('SHA-256', octets))
}

async function hmac(secret, octets) {
  const algorithm = { name: 'HMAC', hash: 'SHA-256' }
  const key = await crypto.subtle.importKey('raw', secret, algorithm, false, ['sign'])
  return new Uint8Array(await crypto.subtle.sign('HMAC', key, octets))
}

// Events as TOON

/** The event as TOON, byte for byte the same as the relay's own encoder writes. */
export function encodeToon(event) {
  const { id, pubkey, created_at: createdAt, kind, tags, content, sig } = ordered(event)
  const lines = [
    `id: ${toonText(id)}`,
    `pubkey: ${toonText(pubkey)}`,
    `created_at: ${toonNumber(createdAt)}`,
    `kind: ${toonNumber(kind)}`,
    ...toonTags(tags),
    `content: ${toonText(content)}`,
    `sig: ${toonText(sig)}`,
  ]
  return utf8.encode(lines.join('\n'))
}

function toonTags(tags) {
  if (!Array.isArray(tags)) throw new PaymentFailed('expected a list of tags')
  if (tags.length === 0) return ['tags: []']
  return [`tags[${tags.length}]:`, ...tags.map(toonTag)]
}

function toonTag(tag) {
  if (!Array.isArray(tag)) throw new PaymentFailed('expected a tag to be a list of texts')
  const values = tag.length === 0 ? '' : ` ${tag.map(toonText).join(',')}`
  return `  - [${tag.length}]:${values}`
}

function toonNumber(number) {
  if (!Number.isSafeInteger(number)) {
    throw new PaymentFailed(`expected a whole number, got ${number}`)
  }
  return String(number)
}

// A text needs quotes if a reader would take it for a number, a word of TOON, or the start of a list or
// a comment, or if it contains a separator.
const LIKE_NUMBER = /^\+?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$/
const WORD = /^(true|false|null)$/
const AWKWARD_ENDS = /^[ #-]|[ ]$/
const AWKWARD = /[\u0000-\u001f",:[\]{}\\]/
const ESCAPED = /[\u0000-\u001f"\\]/g
const SHORT = { '"': '\\"', '\\': '\\\\', '\n': '\\n', '\r': '\\r', '\t': '\\t' }

function toonText(text) {
  if (typeof text !== 'string') throw new PaymentFailed(`expected text, got ${typeof text}`)
  if (/\p{Surrogate}/u.test(text)) throw new PaymentFailed('expected Unicode, got a lone surrogate')
  const plain = text !== '' && ![LIKE_NUMBER, WORD, AWKWARD_ENDS, AWKWARD].some((each) => each.test(text))
  return plain ? text : `"${text.replace(ESCAPED, escapeOf)}"`
}

function escapeOf(character) {
  return SHORT[character] ?? `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`
}

function ordered(event) {
  const missing = FIELDS.filter((name) => event?.[name] === undefined)
  if (missing.length > 0) throw new PaymentFailed(`expected a signed event, got an event without ${missing[0]}`)
  return Object.fromEntries(FIELDS.map((name) => [name, event[name]]))
}

// ILP packets

/**
 * @param {{amount: bigint, expiresAt: Date, condition: Uint8Array, destination: string,
 *   data: Uint8Array}} prepare
 */
export function encodePrepare({ amount, expiresAt, condition, destination, data }) {
  if (amount < 0n || amount > MAX_U64) throw new PaymentFailed(`expected an amount of 64 bits, got ${amount}`)
  if (condition.length !== 32) throw new PaymentFailed('expected a condition of 32 bytes')
  if (!isAddress(destination)) throw new PaymentFailed('expected an ILP address as destination')
  if (data.length > MAX_DATA) {
    throw new PaymentFailed(`expected at most ${MAX_DATA} bytes of data, got ${data.length}`)
  }
  const fixed = new Uint8Array(8)
  new DataView(fixed.buffer).setBigUint64(0, amount)
  const body = joined(
    fixed,
    utf8.encode(expiresAt.toISOString().replace(/\D/g, '')),
    condition,
    withLength(utf8.encode(destination)),
    withLength(data),
  )
  return joined(Uint8Array.of(TYPE_PREPARE), withLength(body))
}

/** A Fulfill ({type: 13, fulfillment, data}) or a Reject ({type: 14, code, triggeredBy, message, data}). */
export function decodeReply(octets) {
  const envelope = new Reader(octets)
  const type = envelope.take(1)[0]
  const body = new Reader(envelope.takeWithLength(MAX_ANSWER_BYTES))
  envelope.end()
  const reply = readReply(type, body)
  body.end()
  return reply
}

function readReply(type, body) {
  if (type === TYPE_FULFILL) {
    return { type, fulfillment: body.take(32), data: body.takeWithLength(MAX_DATA) }
  }
  if (type !== TYPE_REJECT) throw new PaymentFailed(`expected a Fulfill or Reject, got type ${type}`)
  const code = ascii(body.take(3))
  const triggeredBy = ascii(body.takeWithLength(MAX_ADDRESS))
  if (triggeredBy !== '' && !isAddress(triggeredBy)) {
    throw new PaymentFailed('expected an ILP address in a Reject')
  }
  const message = text(body.takeWithLength(MAX_MESSAGE))
  return { type, code, triggeredBy, message, data: body.takeWithLength(MAX_DATA) }
}

/** Reads fields from the front. Refuses packets that are cut short, not canonical or followed by bytes. */
class Reader {
  #octets
  #at = 0

  constructor(octets) {
    this.#octets = octets
  }

  take(count) {
    const taken = this.#octets.slice(this.#at, this.#at + count)
    if (taken.length !== count) throw new PaymentFailed('expected a whole packet, got a part of one')
    this.#at += count
    return taken
  }

  takeWithLength(most) {
    const count = this.#length()
    if (count > most) throw new PaymentFailed(`expected at most ${most} bytes in a field, got ${count}`)
    return this.take(count)
  }

  #length() {
    const first = this.take(1)[0]
    if (first < 0x80) return first
    const size = first & 0x7f
    if (size < 1 || size > 4) throw new PaymentFailed('expected a length of at most four bytes')
    const digits = this.take(size)
    const value = digits.reduce((sum, digit) => sum * 256 + digit, 0)
    if (digits[0] === 0 || value < 0x80) throw new PaymentFailed('expected a length in its shortest form')
    return value
  }

  end() {
    if (this.#at !== this.#octets.length) throw new PaymentFailed('expected one packet, got bytes after it')
  }
}

function withLength(octets) {
  const count = octets.length
  if (count < 0x80) return joined(Uint8Array.of(count), octets)
  const digits = []
  for (let rest = count; rest > 0; rest = Math.floor(rest / 256)) digits.unshift(rest % 256)
  return joined(Uint8Array.of(0x80 | digits.length, ...digits), octets)
}

function joined(...parts) {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0))
  let at = 0
  for (const part of parts) {
    whole.set(part, at)
    at += part.length
  }
  return whole
}

function isAddress(address) {
  return address.length <= MAX_ADDRESS && ADDRESS.test(address)
}

function ascii(octets) {
  if (octets.some((octet) => octet > 0x7f)) throw new PaymentFailed('expected ASCII in a packet')
  return String.fromCharCode(...octets)
}

function text(octets) {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(octets)
  } catch {
    throw new PaymentFailed('expected UTF-8 in a packet')
  }
}

// The relay's answers

function checkedQuote(answer, event) {
  if (answer?.event_id !== event.id) throw new PaymentFailed('expected a quote for this event, got another')
  const { destination, endpoint, pubkey, condition } = answer
  if (![destination, endpoint, pubkey].every((each) => typeof each === 'string') || !isAddress(destination)) {
    throw new PaymentFailed('expected destination, endpoint and pubkey in the quote')
  }
  return { price: amountOf(answer.price, 'price'), destination, endpoint, pubkey, condition: hex(condition) }
}

// The token is for the connector that issued it. A relay must not be able to have it sent elsewhere.
function ownEndpoint(relay, quote) {
  if (!URL.canParse(quote.endpoint) || new URL(quote.endpoint).origin !== new URL(httpUrl(relay)).origin) {
    throw new PaymentFailed(`expected to pay at the relay's own host, got ${quote.endpoint}: name a connector`)
  }
  return quote.endpoint
}

/** The fees of connectors for a packet that arrived with less than the price, as its receiver says. */
function keptOnTheWay(reject) {
  if (reject.code !== 'F04') return 0n
  try {
    const { price, received } = JSON.parse(text(reject.data))
    const kept = amountOf(price, 'price') - amountOf(received, 'received')
    return kept > 0n ? kept : 0n
  } catch {
    return 0n
  }
}

function amountOf(value, name) {
  const isNumber = typeof value === 'bigint' || Number.isSafeInteger(value)
  const isDecimal = typeof value === 'string' && /^[0-9]+$/.test(value)
  if (!(isNumber || isDecimal) || BigInt(value) < 0n) throw new PaymentFailed(`expected ${name} to be a whole number, got ${value}`)
  return BigInt(value)
}

function hex(digits) {
  if (typeof digits !== 'string' || !/^[0-9a-f]{64}$/.test(digits)) {
    throw new PaymentFailed('expected a condition of 64 hexadecimal digits')
  }
  return Uint8Array.from(digits.match(/../g), (pair) => parseInt(pair, 16))
}

function same(one, other) {
  return one.length === other.length && one.every((octet, at) => octet === other[at])
}

function httpUrl(relay) {
  return relay.replace(/^ws/, 'http').replace(/\/+$/, '')
}

async function request(ask, url, { headers, body, seconds }) {
  const signal = AbortSignal.timeout(seconds * 1000)
  try {
    return await ask(url, { method: 'POST', headers, body, signal, redirect: 'error', credentials: 'omit' })
  } catch (error) {
    throw new PaymentFailed(`${url} does not answer: ${error.message}`, { cause: error })
  }
}

/** The body, if it is not larger than an answer may be. */
async function bodyOf(response) {
  const parts = []
  let size = 0
  const reader = response.body?.getReader()
  for (let part = await reader?.read(); part && !part.done; part = await reader.read()) {
    size += part.value.length
    if (size > MAX_ANSWER_BYTES) {
      await reader.cancel()
      throw new PaymentFailed(`expected at most ${MAX_ANSWER_BYTES} bytes in an answer, got more`)
    }
    parts.push(part.value)
  }
  return joined(...parts)
}
