// What the pages share: a relay connection that comes back by itself, logging in, keys as text, money.

const BECH32 = 'qpzry9x8gf2tvdw0s3jn54khce6mua7l'

function polymod(values) {
  let checksum = 1
  for (const value of values) {
    const top = checksum >>> 25
    checksum = ((checksum & 0x1ffffff) << 5) ^ value
    for (const [bit, generator] of [0x3b6a57b2, 0x26508e6d, 0x1ea119fa, 0x3d4233dd, 0x2a1462b3].entries()) {
      if ((top >>> bit) & 1) checksum ^= generator
    }
  }
  return checksum >>> 0
}

const expanded = (prefix) => [...[...prefix].map((c) => c.charCodeAt(0) >> 5), 0, ...[...prefix].map((c) => c.charCodeAt(0) & 31)]

function regroup(values, from, to, pad) {
  const out = []
  let buffer = 0
  let bits = 0
  for (const value of values) {
    buffer = (buffer << from) | value
    bits += from
    while (bits >= to) {
      bits -= to
      out.push((buffer >> bits) & ((1 << to) - 1))
    }
    buffer &= (1 << bits) - 1
  }
  if (pad && bits) out.push((buffer << (to - bits)) & ((1 << to) - 1))
  return out
}

/** A public key as npub (NIP-19). */
export function npub(hex) {
  const data = regroup(hex.match(/../g).map((pair) => parseInt(pair, 16)), 8, 5, true)
  const check = polymod([...expanded('npub'), ...data, 0, 0, 0, 0, 0, 0]) ^ 1
  const sum = [0, 1, 2, 3, 4, 5].map((i) => (check >>> (5 * (5 - i))) & 31)
  return 'npub1' + [...data, ...sum].map((value) => BECH32[value]).join('')
}

/** The hex key in text that a person has typed, or null. */
export function parseKey(text) {
  const typed = text.trim().replace(/^nostr:/, '')
  if (/^[0-9a-f]{64}$/.test(typed)) return typed
  const match = /^npub1([qpzry9x8gf2tvdw0s3jn54khce6mua7l]{58})$/.exec(typed)
  if (!match) return null
  const values = [...match[1]].map((c) => BECH32.indexOf(c))
  if (polymod([...expanded('npub'), ...values]) !== 1) return null
  return regroup(values.slice(0, -6), 5, 8, false).map((byte) => byte.toString(16).padStart(2, '0')).join('')
}

const SIGNS = { USD: '$', EUR: '€', GBP: '£' }

/** An amount of units as people read it. */
export function money(amount, code, scale) {
  const units = BigInt(amount)
  if (code === 'BTC' && scale === 11) return `${units} msat`
  const digits = units.toString().padStart(scale + 1, '0')
  const whole = scale ? digits.slice(0, -scale) : digits
  const part = scale ? digits.slice(-scale).replace(/0+$/, '') : ''
  const number = part ? `${whole}.${part}` : whole
  return SIGNS[code] ? `${SIGNS[code]}${number}` : `${number} ${code}`
}

export const when = (seconds) => {
  const date = new Date(seconds * 1000)
  return Number.isNaN(date.getTime()) ? `second ${seconds}` : date.toLocaleString()
}

const hex = (buffer) => [...new Uint8Array(buffer)].map((byte) => byte.toString(16).padStart(2, '0')).join('')

/** The Authorization header of a request that the extension signs (NIP-98). */
export async function authorization(url, method, body) {
  const tags = [['u', url], ['method', method]]
  if (body !== undefined) tags.push(['payload', hex(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(body)))])
  const unsigned = { kind: 27235, created_at: Math.floor(Date.now() / 1000), tags, content: '' }
  const event = await globalThis.nostr.signEvent(unsigned)
  return `Nostr ${btoa(unescape(encodeURIComponent(JSON.stringify(event))))}`
}

/** A request that the extension signs; the answer as JSON. Throws an Error that a person can read. */
export async function signedFetch(path, { method = 'GET', body, type = 'application/json' } = {}) {
  const url = new URL(path, location.origin).href
  const headers = { Authorization: await authorization(url, method, body) }
  if (body !== undefined) headers['Content-Type'] = type
  const response = await fetch(url, { method, headers, body, redirect: 'error', cache: 'no-store' })
  const answer = await response.json().catch(() => ({}))
  if (!response.ok) throw new Error(answer.detail || `the relay answered ${response.status}`)
  return answer
}

const FIRST_WAIT = 500
const LONGEST_WAIT = 30_000

/** A connection to a relay. Subscriptions are opened again whenever the connection comes back. */
export class Relay {
  constructor(url, onStatus) {
    this.url = url
    this.onStatus = onStatus
    this.subscriptions = new Map()
    this.waiting = new Map()
    this.wait = FIRST_WAIT
    this.login = false
    this.connect()
  }

  connect() {
    const socket = new WebSocket(this.url)
    this.socket = socket
    socket.onopen = () => {
      this.wait = FIRST_WAIT
      this.onStatus(true)
      for (const [id, { filters }] of this.subscriptions) this.send(['REQ', id, ...filters])
    }
    socket.onmessage = ({ data }) => this.receive(data)
    socket.onclose = () => {
      this.onStatus(false)
      for (const { reject } of this.waiting.values()) reject(new Error('the connection was lost'))
      this.waiting.clear()
      setTimeout(() => this.connect(), this.wait * (0.5 + Math.random()))
      this.wait = Math.min(2 * this.wait, LONGEST_WAIT)
    }
  }

  send(message) {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message))
  }

  subscribe(id, filters, onEvent, onStored = () => {}) {
    this.subscriptions.set(id, { filters, onEvent, onStored })
    this.send(['REQ', id, ...filters])
  }

  /** Publish an event; what the relay says beside true. */
  publish(event, verb = 'EVENT') {
    return new Promise((resolve, reject) => {
      this.waiting.set(event.id, { resolve, reject })
      this.send([verb, event])
    })
  }

  async authenticate() {
    this.login = true
    if (!this.challenge) return
    const tags = [['relay', this.url], ['challenge', this.challenge]]
    const unsigned = { kind: 22242, created_at: Math.floor(Date.now() / 1000), tags, content: '' }
    await this.publish(await globalThis.nostr.signEvent(unsigned), 'AUTH')
  }

  receive(text) {
    let message
    try {
      message = JSON.parse(text)
    } catch {
      return
    }
    if (!Array.isArray(message)) return
    const [verb, id] = message
    const subscription = this.subscriptions.get(id)
    if (verb === 'EVENT' && subscription) subscription.onEvent(message[2])
    else if (verb === 'EOSE' && subscription) subscription.onStored()
    else if (verb === 'OK' && this.waiting.has(id)) {
      const { resolve, reject } = this.waiting.get(id)
      this.waiting.delete(id)
      if (message[2]) resolve(String(message[3] ?? ''))
      else reject(new Error(String(message[3] ?? 'refused')))
    } else if (verb === 'AUTH') {
      this.challenge = String(id)
      if (this.login) this.authenticate().catch(() => {})
    }
  }
}

/** An element with text or children; nothing of a stranger's ever becomes markup. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name)
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith('on')) made.addEventListener(key.slice(2), value)
    else made.setAttribute(key, value)
  }
  made.append(...children)
  return made
}

/** Buttons that copy the text of the element that they name. */
export function wireCopyButtons() {
  for (const button of document.querySelectorAll('[data-copy]')) {
    button.addEventListener('click', async () => {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent)
      const before = button.textContent
      button.textContent = 'Copied'
      setTimeout(() => { button.textContent = before }, 1500)
    })
  }
}
