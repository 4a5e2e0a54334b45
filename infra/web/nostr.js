// Shared by the pages: a relay connection that reconnects by itself, logging in, keys as text, money.

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

/** The 32 bytes (as hex) of a bech32 text with this prefix, or of hex; null for any other text. */
function parse32(text, prefix) {
  const typed = text.trim().replace(/^nostr:/, '')
  if (/^[0-9a-f]{64}$/.test(typed)) return typed
  if (!typed.startsWith(`${prefix}1`) || typed.length !== prefix.length + 59) return null
  const values = [...typed.slice(prefix.length + 1)].map((c) => BECH32.indexOf(c))
  if (values.includes(-1) || polymod([...expanded(prefix), ...values]) !== 1) return null
  return regroup(values.slice(0, -6), 5, 8, false).map((byte) => byte.toString(16).padStart(2, '0')).join('')
}

/** The hex key in text that a person has typed, or null. */
export const parseKey = (text) => parse32(text, 'npub')

/** The event id in text that a person has typed, or null. */
export const parseEventId = (text) => parse32(text, 'note')

/** The relay's URL, as it names itself. */
export const named = document.body.dataset.relay.replace(/\/$/, '')
const here = location.origin.replace(/^http/, 'ws')
/** The URL that is used: a relay without a public one names an address that only its own machine can reach. */
export const relayUrl = /^ws:\/\/(127\.|localhost[:/]|\[::1\])/.test(`${named}/`) ? here : named

const SIGNS = { USD: '$', EUR: '€', GBP: '£' }

/** The unit in which amounts of an asset are shown and typed, with its number of decimals. */
export const unitOf = (code, scale) => (code === 'BTC' && scale === 11 ? { name: 'msat', scale: 0 } : { name: code, scale })

/** An amount of units as a decimal number. */
export function decimal(amount, code, scale) {
  const places = unitOf(code, scale).scale
  const exact = BigInt(amount)
  const digits = (exact < 0n ? -exact : exact).toString().padStart(places + 1, '0')
  const part = places ? digits.slice(-places).replace(/0+$/, '') : ''
  const whole = places ? digits.slice(0, -places) : digits
  return `${exact < 0n ? '-' : ''}${whole}${part ? '.' : ''}${part}`
}

/** An amount of units as people read it. */
export function money(amount, code, scale) {
  const number = decimal(amount, code, scale)
  return SIGNS[code] ? number.replace(/^-?/, `$&${SIGNS[code].replace('$', '$$$$')}`) : `${number} ${unitOf(code, scale).name}`
}

/** The units of an amount that a person has typed, or null: "0.05" at scale 9 is 50000000. */
export function units(typed, code, scale) {
  const places = unitOf(code, scale).scale
  const match = /^(\d{1,18})(?:\.(\d+))?$/.exec(typed.trim().replace(/^[$€£]\s*/, ''))
  const part = match?.[2]?.replace(/0+$/, '') ?? ''
  if (!match || part.length > places) return null
  return BigInt(match[1] + part.padEnd(places, '0'))
}

/** About how many things of this price an amount pays for: "280,000". */
export function aboutHowMany(amount, price) {
  const many = BigInt(amount) / BigInt(price)
  const step = 10n ** BigInt(Math.max(0, many.toString().length - 2))
  return (many / step * step).toLocaleString('en')
}

/** A duration in words: "3 days". */
export function span(seconds) {
  for (const [size, name] of [[86400, 'day'], [3600, 'hour'], [60, 'minute'], [1, 'second']]) {
    const count = Math.floor(seconds / size)
    if (count >= 1) return `${count} ${name}${count > 1 ? 's' : ''}`
  }
  return 'no time'
}

/** A time for people. The year stands there only if it is another one. */
export const when = (seconds) => {
  const date = new Date(seconds * 1000)
  if (Number.isNaN(date.getTime())) return `second ${seconds}`
  const year = date.getFullYear() === new Date().getFullYear() ? {} : { year: 'numeric' }
  return date.toLocaleString(undefined, { ...year, month: 'short', day: 'numeric', hour: 'numeric', minute: '2-digit' })
}

/** Ask the visitor's extension (NIP-07). Some reject with a text, or with nothing at all. */
async function asked(method, ...parameters) {
  try {
    return await globalThis.nostr[method](...parameters)
  } catch (reason) {
    const why = typeof reason === 'string' ? reason : reason?.message
    throw new Error(why || 'the extension has refused')
  }
}

export const publicKey = () => asked('getPublicKey')
export const signEvent = (unsigned) => asked('signEvent', unsigned)

const hex = (buffer) => [...new Uint8Array(buffer)].map((byte) => byte.toString(16).padStart(2, '0')).join('')

/** The Authorization header of a request that the extension signs (NIP-98). */
export async function authorization(url, method, body) {
  const tags = [['u', url], ['method', method]]
  if (body !== undefined && !crypto.subtle) throw new Error('open this page by https: without it the browser cannot sign requests')
  if (body !== undefined) tags.push(['payload', hex(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(body)))])
  const unsigned = { kind: 27235, created_at: Math.floor(Date.now() / 1000), tags, content: '' }
  const event = await signEvent(unsigned)
  return `Nostr ${btoa(unescape(encodeURIComponent(JSON.stringify(event))))}`
}

const SIGNED_MILLISECONDS = 30_000
const signed = new Map()

/** A signature counts for a minute. One that only reads is used again, since extensions may ask each time. */
async function readingAuthorization(url) {
  const known = signed.get(url)
  if (known && Math.abs(Date.now() - known.at) < SIGNED_MILLISECONDS) return known.header
  const header = await authorization(url, 'GET')
  signed.set(url, { header, at: Date.now() })
  return header
}

/** Send a request that the extension signs for the relay's own URL, which may not be the one of this page: an
 *  operator may come through a tunnel. Returns the answer as JSON, or throws a readable Error. */
export async function signedFetch(path, { method = 'GET', body, type = 'application/json' } = {}) {
  const url = new URL(path, relayUrl.replace(/^ws/, 'http')).href
  const headers = { Authorization: method === 'GET' ? await readingAuthorization(url) : await authorization(url, method, body) }
  if (body !== undefined) headers['Content-Type'] = type
  const response = await fetch(new URL(path, location.origin), { method, headers, body, redirect: 'error', cache: 'no-store' })
    .catch(() => { throw new Error('the relay does not answer') })
  const answer = await response.json().catch(() => ({}))
  if (!response.ok) throw new Error(answer.detail || `the relay answered ${response.status}`)
  return answer
}

const FIRST_WAIT = 500
const LONGEST_WAIT = 30_000

/** Whether a value that a relay has sent has the form of an event. */
export function isEvent(event) {
  return event && typeof event === 'object' && typeof event.content === 'string' && /^[0-9a-f]{64}$/.test(event.pubkey)
    && /^[0-9a-f]{64}$/.test(event.id) && Number.isInteger(event.created_at) && Number.isInteger(event.kind)
}

/** A connection to a relay. Subscriptions are opened again whenever the connection comes back. */
export class Relay {
  constructor(url, onStatus) {
    this.url = url
    this.onStatus = onStatus
    this.subscriptions = new Map()
    this.opened = 0
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

  /** Ask for events. Returns a function that ends this. Each subscription has an id of its own, so that
   *  events for an earlier one, which are still on their way, are not taken for this one's. */
  subscribe(filters, { onEvent, onStored, onClosed }) {
    const id = `page-${++this.opened}`
    this.subscriptions.set(id, { filters, onEvent, onStored, onClosed })
    this.send(['REQ', id, ...filters])
    return () => {
      if (this.subscriptions.delete(id)) this.send(['CLOSE', id])
    }
  }

  /** The stored events that match, asked for once. */
  stored(filters) {
    return new Promise((resolve, reject) => {
      const found = []
      const end = this.subscribe(filters, {
        onEvent: (event) => found.push(event),
        onStored: () => { end(); resolve(found) },
        onClosed: (reason) => reject(new Error(reason)),
      })
    })
  }

  /** Publish an event. Returns the relay's message if it accepts the event. */
  publish(event, verb = 'EVENT') {
    return new Promise((resolve, reject) => {
      if (this.socket.readyState !== WebSocket.OPEN) {
        reject(new Error('not connected to the relay; trying to reconnect'))
        return
      }
      this.waiting.set(event.id, { resolve, reject })
      this.send([verb, event])
    })
  }

  async authenticate() {
    this.login = true
    if (!this.challenge) return
    const tags = [['relay', this.url], ['challenge', this.challenge]]
    const unsigned = { kind: 22242, created_at: Math.floor(Date.now() / 1000), tags, content: '' }
    await this.publish(await signEvent(unsigned), 'AUTH')
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
    else if (verb === 'CLOSED' && subscription) {
      this.subscriptions.delete(id)
      subscription.onClosed(String(message[2] ?? ''))
    }
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

/** A module that is loaded when it is needed. After an upgrade the relay has it under another name. */
export const part = (loading) => loading.catch(() => { throw new Error('a part of this page could not be loaded: reload the page') })

/** An element with text or children. Text from strangers never becomes markup. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name)
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith('on')) made.addEventListener(key.slice(2), value)
    else made.setAttribute(key, value)
  }
  made.append(...children)
  return made
}

/** A button for what cannot be taken back: the first press asks, in these words, and the second one does it. */
export function confirmedButton(label, question, action, about = label) {
  const made = element('button', { type: 'button', class: 'plain', 'aria-label': about }, label)
  made.addEventListener('click', () => {
    if (made.dataset.asked) {
      action(made)
      return
    }
    made.dataset.asked = 'yes'
    made.textContent = question
    made.removeAttribute('aria-label')
  })
  return made
}

/** Fill a table's body with rows, or with one line that says there are none. A row is a list of cells. */
export function fillTable(id, cells, empty = 'None.') {
  const body = document.getElementById(id)
  const heads = [...body.closest('table').querySelectorAll('th')]
  const one = (row) => element('tr', { role: 'row' }, ...row.map((content, index) => {
    const parts = Array.isArray(content) ? content : [content]
    // On a phone a row is shown as a card, and each cell has the name of its column.
    const named = { role: 'cell', class: heads[index].className, 'data-label': heads[index].textContent }
    return element('td', named, ...(parts.every((part) => part === '') ? [] : [element('div', {}, ...parts)]))
  }))
  const none = () => element('tr', { role: 'row' }, element('td', { role: 'cell', class: 'empty', colspan: heads.length }, empty))
  body.replaceChildren(...(cells.length ? cells.map(one) : [none()]))
}

/** Show the relay's key as npub where the page has it as hex: in the cloud only AWS knows the key when
 *  the page is made. */
export function showNpub(hex) {
  for (const each of document.querySelectorAll('[data-npub]')) replaceText(each, hex, npub(hex))
}

/** Replace text in an element. The elements inside of it stay. */
export function replaceText(element, old, text) {
  for (const child of element.childNodes) {
    if (child.nodeType === Node.TEXT_NODE) child.data = child.data.replace(old, text)
    else replaceText(child, old, text)
  }
}

/** Make each button with `data-copy` copy the text of the element that it names. */
export function wireCopyButtons() {
  for (const button of document.querySelectorAll('[data-copy]')) {
    button.hidden = false
    button.addEventListener('click', async () => {
      const source = document.getElementById(button.dataset.copy)
      try {
        await navigator.clipboard.writeText(source.textContent)
        button.textContent = 'Copied'
      } catch { // without TLS a browser has no clipboard for pages
        getSelection().selectAllChildren(source)
        button.textContent = 'Press Ctrl+C'
      }
      setTimeout(() => { button.textContent = 'Copy' }, 1500)
    })
  }
}
