// The page at `/`: information about the relay, prices and the live feed. The visitor's purse and the
// drawing of the routes are modules of their own, which are loaded when they are needed.

import { Relay, aboutHowMany, element, isEvent, money, named, npub, parseKey, part, relayUrl, replaceText, showNpub, unitOf, when, wireCopyButtons } from './nostr.js'

const $ = (id) => document.getElementById(id)
const MOST_SHOWN = 100
const MOST_CHARACTERS = 2000
const IMAGE = /^https:\/\/\S+\.(?:png|jpe?g|gif|webp|avif)(?:\?\S*)?$/i
const LOOK_MILLISECONDS = 60_000
const NOTE_CHARACTERS = 23 // of a typical short note

let information = null

function showStatus(text, kind) {
  $('status').textContent = text
  $('status').className = `badge ${kind}`
}

showStatus('Connecting…', '')
const relay = new Relay(relayUrl, (connected) => showStatus(connected ? 'Connected' : 'Connecting…', connected ? 'live' : 'down'))

async function start() {
  const response = await fetch('/', { headers: { Accept: 'application/nostr+json' } })
  if (!response.ok) throw new Error(`the relay answered ${response.status}`)
  information = await response.json()
  showWho()
  $('pricing').hidden = false
  showPriceOf($('text'), $('price'), $('price-more'))
  for (const id of ['account', 'purse-nav']) $(id).hidden = false
  $('filter').hidden = false
  follow()
  showNames().catch(() => {})
  const lookAgain = () => {
    if (document.hidden) return
    showRoutes().catch(() => {})
    dropRemoved().catch(() => {})
  }
  lookAgain()
  setInterval(lookAgain, LOOK_MILLISECONDS)
  document.addEventListener('visibilitychange', lookAgain)
}

/** The operator may have changed the name since the page was made. */
function showWho() {
  for (const id of ['name', 'description']) {
    if (typeof information[id] === 'string' && information[id]) $(id).textContent = information[id]
  }
  document.title = $('name').textContent
  $('nips').textContent = information.supported_nips.join(', ')
}

async function showRoutes() {
  const { drawRoutes } = await part(import('./routes.js'))
  await drawRoutes()
}

// Prices

async function priceOf(text, kind = 1) {
  const { encodeToon } = await part(import('./pay.js'))
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

function showPriceOf(input, output, more) {
  const { asset_code: code, asset_scale: scale } = information.ilp
  const show = async () => {
    const text = input.value
    try {
      const { price, size } = await priceOf(text)
      if (text !== input.value) return // the text has changed meanwhile
      output.textContent = price ? readable(price) : 'free'
      more.textContent = ` for ${size.toLocaleString()} bytes`
      if (price && unitOf(code, scale).scale && price < 10n ** BigInt(scale)) more.textContent += `: ${money(10n ** BigInt(scale), code, scale)} pays for some ${aboutHowMany(10n ** BigInt(scale), price)} like it`
    } catch (error) { // half an emoji, for example
      output.textContent = ''
      more.textContent = error.message
    }
  }
  input.addEventListener('input', show)
  show()
}

// Feed

const seen = new Set()
let paused = false
const FIELDS = ['f-kind', 'f-tag', 'f-author']
let newest = []

let names = null

async function showNames() {
  const { Names } = await part(import('./names.js'))
  names = new Names(relay, (key) => {
    for (const each of $('feed').querySelectorAll(`[data-author="${key}"]`)) each.replaceChildren(...shownAuthor(key))
  })
  for (const each of $('feed').querySelectorAll('[data-author]')) names.of(each.dataset.author)
}

function shownAuthor(key) {
  const [name, short] = [names?.of(key), `${npub(key).slice(0, 12)}…`]
  return name ? [element('bdi', {}, name), ` ${short}`] : [short]
}

function author(event) {
  const key = npub(event.pubkey)
  const only = () => { $('f-author').value = key; follow() }
  const attributes = { type: 'button', class: 'link', title: `Only ${key}`, 'data-author': event.pubkey, onclick: only }
  return element('button', attributes, ...shownAuthor(event.pubkey))
}

function timeOf(event) {
  const date = new Date(event.created_at * 1000)
  return element('time', Number.isNaN(date.getTime()) ? {} : { datetime: date.toISOString(), title: date.toLocaleString() }, when(event.created_at))
}

function content(event) {
  const box = element('p', { class: 'content', dir: 'auto' })
  const shown = event.content.length > MOST_CHARACTERS ? `${event.content.slice(0, MOST_CHARACTERS)}…` : event.content
  for (const [index, word] of shown.split(/(\s+)/).entries()) {
    if (index % 2 === 0 && IMAGE.test(word) && URL.canParse(word)) box.append(imageButton(word))
    else box.append(word)
  }
  return box
}

/** Images are loaded only on request: a request tells the image's host who reads this page. */
function imageButton(url) {
  const button = element('button', { type: 'button', class: 'plain', title: url }, `Show image from ${new URL(url).host}`)
  button.addEventListener('click', () => {
    const image = element('img', { src: url, alt: `Image from ${new URL(url).host}`, referrerpolicy: 'no-referrer' })
    image.addEventListener('error', () => image.replaceWith(element('span', { class: 'soft' }, 'The image could not be loaded.')))
    button.replaceWith(image)
  })
  return button
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
    element('div', { class: 'meta' }, author(event), element('span', {}, `kind ${event.kind}`), timeOf(event)),
    content(event))
  const next = feed.children[newest.indexOf(event)]
  feed.insertBefore(row, next ?? null)
  for (const each of dropped) feed.querySelector(`[data-id="${each.id}"]`)?.remove()
  $('feed-loading').hidden = true
  $('feed-empty').hidden = true
}

function showWhetherEmpty() {
  $('feed-loading').hidden = true
  $('feed-empty').hidden = newest.length > 0
}

const isEphemeral = ({ kind }) => kind >= 20_000 && kind < 30_000

let looking = false

/** Take events off the page that the relay has no more: banned, deleted, replaced or expired ones. A look that
 *  waits for the connection to come back puts off the next one. */
async function dropRemoved() {
  const ids = newest.filter((event) => !isEphemeral(event)).map(({ id }) => id)
  if (looking || !ids.length) return
  looking = true
  const found = await relay.stored([{ ids, limit: ids.length }]).finally(() => { looking = false })
  const kept = new Set(found.map((event) => event?.id))
  const removed = new Set(ids.filter((id) => !kept.has(id)))
  if (!removed.size) return
  newest = newest.filter(({ id }) => !removed.has(id))
  for (const id of removed) $('feed').querySelector(`[data-id="${id}"]`)?.remove()
  showWhetherEmpty()
}

let unfollow = () => {}

function follow() {
  const note = $('filter-note')
  note.textContent = ''
  let filter
  try {
    filter = typedFilter()
  } catch (error) {
    note.textContent = error.message
    return
  }
  unfollow()
  seen.clear()
  newest = []
  $('feed').replaceChildren()
  $('feed-empty').hidden = true
  $('feed-loading').hidden = false
  const filtered = FIELDS.some((id) => $(id).value.trim())
  $('all').hidden = !filtered
  $('feed-empty').textContent = filtered ? 'No stored event matches.' : 'There are no notes yet. A note appears here as soon as it is paid for.'
  unfollow = relay.subscribe([filter], {
    onEvent: (event) => { if (!paused) show(event) },
    onStored: showWhetherEmpty,
    onClosed: (reason) => {
      showWhetherEmpty()
      note.textContent = `The relay ended the feed: ${reason}`
    },
  })
}

function typedFilter() {
  const [kind, tag, typed] = FIELDS.map((id) => $(id).value.trim())
  const filter = { limit: 30 }
  if (typed) {
    const key = parseKey(typed)
    if (!key) throw new Error('Expected the author as npub or 64 hex digits.')
    filter.authors = [key]
  }
  if (kind) {
    if (!/^\d{1,5}$/.test(kind)) throw new Error('Expected the kind as a number.')
    filter.kinds = [Number(kind)]
  } else if (!typed && !tag) filter.kinds = [1]
  if (tag) {
    const match = /^#?([A-Za-z])[:=](.+)$/.exec(tag)
    if (!match) throw new Error('Expected the tag as a letter, a colon and a value.')
    filter[`#${match[1]}`] = [match[2]]
  }
  return filter
}

$('filter').addEventListener('submit', (submit) => { submit.preventDefault(); follow() })
$('all').addEventListener('click', () => {
  $('filter').reset()
  follow()
  $('f-author').focus()
})
$('pause').addEventListener('click', () => {
  paused = !paused
  $('pause').setAttribute('aria-pressed', String(paused))
  if (!paused) follow()
})

// Purse

async function login() {
  const note = $('login-note')
  if (!globalThis.nostr) {
    note.textContent = 'No Nostr extension (NIP-07) was found in this browser.'
    return
  }
  $('login').disabled = true
  note.textContent = 'Waiting for the extension…'
  try {
    const { openPurse } = await part(import('./purse.js'))
    const { price } = await priceOf('x'.repeat(NOTE_CHARACTERS))
    const me = await openPurse(relay, information, price)
    if (me !== information.pubkey) showPriceOf($('note'), $('note-price'), $('note-price-more'))
    $('logged-out').hidden = true
    $('logged-in').hidden = false
    $('purse-title').focus()
  } catch (error) {
    note.textContent = error.message
  } finally {
    $('login').disabled = false
  }
}

$('login').addEventListener('click', login)

/** Where the page names the relay's URL, it names the one that it uses. */
function showUrls() {
  const http = (url) => url.replace(/^ws/, 'http')
  for (const id of ['relay', 'c-relay', 'c-quote', 'c-peer']) {
    replaceText($(id), http(named), http(relayUrl))
    replaceText($(id), named, relayUrl)
  }
}

wireCopyButtons()
if (relayUrl !== named) showUrls()
showNpub(document.body.dataset.pubkey)
start().catch((error) => showStatus(`${error.message}; reload this page to try again`, 'down'))
