// The page at `/`: prices, the live feed, the purse of whoever logs in, and the routes from here.

import { Relay, element, money, npub, parseKey, signedFetch, when, wireCopyButtons } from '/assets/nostr.js'

const $ = (id) => document.getElementById(id)
const relayUrl = (document.body.dataset.relay || location.origin.replace(/^http/, 'ws')).replace(/\/$/, '')
const relayKey = document.body.dataset.pubkey
const MOST_SHOWN = 100
const MOST_CHARACTERS = 2000
const IMAGE = /^https:\/\/\S+\.(?:png|jpe?g|gif|webp|avif)(?:\?\S*)?$/i

let information = null
let me = null

// Status and prices

const relay = new Relay(relayUrl, (connected) => {
  const badge = $('status')
  badge.textContent = connected ? 'Connected' : 'Connecting…'
  badge.className = `badge ${connected ? 'live' : 'down'}`
})

async function priceOf(text, kind = 1) {
  const { encodeToon } = await import('/assets/pay.js')
  const event = {
    id: 'a'.repeat(64), pubkey: 'b'.repeat(64), created_at: Math.floor(Date.now() / 1000), kind,
    tags: [], content: text, sig: 'c'.repeat(128),
  }
  const size = encodeToon(event).length
  const fees = information.fees ?? {}
  const flat = (fees.publication ?? []).find((fee) => fee.kinds.includes(kind))
  const price = flat ? BigInt(flat.amount) : BigInt(size) * BigInt(fees.publication_per_byte?.amount ?? 0)
  return { price, size }
}

const readable = (amount) => money(amount, information.ilp.asset_code, information.ilp.asset_scale)

function showPriceOf(input, output) {
  const show = async () => {
    const { price, size } = await priceOf(input.value)
    output.textContent = price ? `${readable(price)} for ${size} bytes (${price} units)` : 'free'
  }
  input.addEventListener('input', show)
  show()
}

async function start() {
  const response = await fetch('/', { headers: { Accept: 'application/nostr+json' } })
  information = await response.json()
  $('pricing').hidden = false
  showPriceOf($('text'), $('price'))
  $('account').hidden = false
  $('filter').hidden = false
  follow()
  showRoutes()
}

// Feed

const seen = new Set()
let paused = false
let newest = []

function author(event) {
  return element('span', { title: npub(event.pubkey) }, `${npub(event.pubkey).slice(0, 12)}…`)
}

function content(event) {
  const box = element('p', { class: 'content', dir: 'auto' })
  const shown = event.content.length > MOST_CHARACTERS ? `${event.content.slice(0, MOST_CHARACTERS)}…` : event.content
  for (const [index, word] of shown.split(/(\s+)/).entries()) {
    if (index % 2 === 0 && IMAGE.test(word)) box.append(imageButton(word))
    else box.append(word)
  }
  return box
}

/** Images are loaded when somebody asks for them: a request tells their host who reads this page. */
function imageButton(url) {
  const button = element('button', { type: 'button', class: 'plain', title: url }, `Show image from ${new URL(url).host}`)
  button.addEventListener('click', () => {
    button.replaceWith(element('img', { src: url, alt: '', referrerpolicy: 'no-referrer', loading: 'lazy' }))
  })
  return button
}

function isEvent(event) {
  return event && typeof event === 'object' && typeof event.content === 'string' && /^[0-9a-f]{64}$/.test(event.pubkey)
    && /^[0-9a-f]{64}$/.test(event.id) && Number.isInteger(event.created_at) && Number.isInteger(event.kind)
}

function show(event) {
  if (!isEvent(event) || seen.has(event.id)) return
  seen.add(event.id)
  newest.push(event)
  newest.sort((a, b) => b.created_at - a.created_at || (a.id < b.id ? -1 : 1))
  const dropped = newest.splice(MOST_SHOWN)
  if (dropped.includes(event)) return
  const feed = $('feed')
  const row = element('li', { 'data-id': event.id },
    element('div', { class: 'meta' }, author(event), element('span', {}, `kind ${event.kind}`), element('time', {}, when(event.created_at))),
    content(event))
  const next = feed.children[newest.indexOf(event)]
  feed.insertBefore(row, next ?? null)
  for (const each of dropped) feed.querySelector(`[data-id="${each.id}"]`)?.remove()
}

function follow() {
  const filter = { limit: 30 }
  const kind = $('f-kind').value.trim()
  const tag = $('f-tag').value.trim()
  const typed = $('f-author').value.trim()
  const note = $('filter-note')
  note.textContent = ''
  if (typed) {
    const key = parseKey(typed)
    if (!key) { note.textContent = 'An author is an npub or 64 hex digits.'; return }
    filter.authors = [key]
  }
  if (kind) {
    if (!/^\d{1,5}$/.test(kind)) { note.textContent = 'A kind is a number.'; return }
    filter.kinds = [Number(kind)]
  } else if (!typed && !tag) filter.kinds = [1]
  if (tag) {
    const match = /^#?([A-Za-z])[:=](.+)$/.exec(tag)
    if (!match) { note.textContent = 'A tag is a letter, a colon and a value.'; return }
    filter[`#${match[1]}`] = [match[2]]
  }
  seen.clear()
  newest = []
  $('feed').replaceChildren()
  relay.subscribe('feed', [filter], (event) => { if (!paused) show(event) })
}

$('filter').addEventListener('submit', (submit) => { submit.preventDefault(); follow() })
$('pause').addEventListener('click', () => {
  paused = !paused
  $('pause').setAttribute('aria-pressed', String(paused))
  $('pause').textContent = paused ? 'Go on' : 'Pause'
  if (!paused) follow()
})

// Purse

async function login() {
  const note = $('login-note')
  if (!globalThis.nostr) {
    note.textContent = 'No Nostr extension (NIP-07) was found in this browser.'
    return
  }
  try {
    me = await globalThis.nostr.getPublicKey()
    await relay.authenticate()
    await showPurse()
    $('logged-out').hidden = true
    $('logged-in').hidden = false
    showPriceOf($('note'), $('note-price'))
    setInterval(() => { if (!document.hidden) showPurse().catch(() => {}) }, 15_000)
  } catch (error) {
    note.textContent = error.message
  }
}

async function showPurse() {
  const purse = await signedFetch(`/v1/purses/${me}`)
  const amount = (value) => `${readable(value)} (${value} units)`
  $('my-npub').textContent = npub(me)
  $('left').textContent = amount(purse.left) + (purse.frozen ? ' — frozen by the operator' : '')
  $('filled').textContent = amount(BigInt(purse.filled) + BigInt(purse.granted))
  $('drawn').textContent = amount(purse.drawn)
  $('purse-link').href = purse.url
  $('fill-command').textContent = `farthing purse fill ${npub(me)} AMOUNT`
  if ($('pointer').textContent !== purse.pointer) {
    $('pointer').textContent = purse.pointer
    const { drawQr } = await import('/assets/qr.js')
    drawQr($('qr'), purse.pointer)
  }
  $('movements').replaceChildren(...purse.movements.map((movement) => element('tr', {},
    element('td', {}, when(movement.time)),
    element('td', {}, `${movement.kind} (${movement.way})`),
    element('td', { class: 'number' }, readable(movement.amount)))))
}

async function post(submit) {
  submit.preventDefault()
  const note = $('post-note')
  const button = $('post').querySelector('button')
  button.disabled = true
  note.className = ''
  note.textContent = 'Signing…'
  try {
    const unsigned = { kind: 1, created_at: Math.floor(Date.now() / 1000), tags: [], content: $('note').value }
    const event = await globalThis.nostr.signEvent(unsigned)
    await relay.publish(event)
    note.className = 'good'
    note.textContent = 'Stored.'
    $('note').value = ''
    await showPurse()
  } catch (error) {
    note.className = 'error'
    note.textContent = error.message
  } finally {
    button.disabled = false
  }
}

$('login').addEventListener('click', login)
$('post').addEventListener('submit', post)

// Routes

const MOST_DRAWN = 40

function showRoutes() {
  if (!relayKey) return
  relay.subscribe('routes', [{ kinds: [10033, 3], authors: [relayKey], limit: 2 }], drawRoutes)
}

const known = { peers: [], routes: [] }

function drawRoutes(event) {
  if (!isEvent(event) || !Array.isArray(event.tags)) return
  const named = (name) => event.tags.filter((tag) => tag[0] === name && typeof tag[1] === 'string')
  if (event.kind === 3) known.peers = named('p').map((tag) => tag[1]).filter((key) => /^[0-9a-f]{64}$/.test(key))
  else known.routes = named('route').map(([, prefix, fee, distance]) => ({ prefix, fee: String(fee ?? ''), distance: String(distance ?? '') }))
  $('graph-section').hidden = !known.peers.length && !known.routes.length
  $('routes').replaceChildren(...known.routes.map((route) => element('tr', {},
    element('td', {}, route.prefix), element('td', {}, route.fee), element('td', {}, route.distance))))
  $('graph').replaceChildren(picture())
}

function picture() {
  const nodes = [
    ...known.routes.map((route) => ({ label: route.prefix.slice(-14), title: `${route.prefix}, fee ${route.fee}, ${route.distance}`, near: route.distance === 'direct', fee: route.fee })),
    ...known.peers.map((key) => ({ label: `${npub(key).slice(0, 10)}…`, title: npub(key), near: true, fee: '' })),
  ].slice(0, MOST_DRAWN)
  const svg = (name, attributes, ...children) => {
    const made = document.createElementNS('http://www.w3.org/2000/svg', name)
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value)
    made.append(...children)
    return made
  }
  const drawing = svg('svg', { viewBox: '-260 -200 520 400', role: 'img', 'aria-label': `${nodes.length} agents around this one` })
  const marks = nodes.map((node, index) => {
    const angle = (2 * Math.PI * index) / nodes.length - Math.PI / 2
    const radius = node.near ? 110 : 165
    const [x, y] = [radius * 1.25 * Math.cos(angle), radius * Math.sin(angle)]
    drawing.append(svg('line', { x1: 0, y1: 0, x2: x, y2: y }))
    return svg('g', {}, svg('title', {}, node.title),
      svg('circle', { cx: x, cy: y, r: node.near ? 7 : 5, class: node.near ? '' : 'far' }),
      svg('text', { x, y: y + 20, 'text-anchor': 'middle' }, node.fee ? `${node.label} · ${node.fee}` : node.label))
  })
  drawing.append(...marks, svg('circle', { cx: 0, cy: 0, r: 12 }), svg('text', { x: 0, y: 28, 'text-anchor': 'middle' }, 'this agent'))
  return drawing
}

wireCopyButtons()
start().catch((error) => { $('status').textContent = error.message })
