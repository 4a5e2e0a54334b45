// The operator's console: figures from GET /v1/operator, moderation by NIP-86, every request signed.

import { element, money, npub, parseKey, signedFetch } from '/assets/nostr.js'

const $ = (id) => document.getElementById(id)
const owner = document.body.dataset.pubkey
const REFRESH_MILLISECONDS = 10_000
let state = null

const readable = (units) => money(units, state.relay.asset_code, state.relay.asset_scale)

async function manage(method, ...params) {
  const answer = await signedFetch('/', { method: 'POST', body: JSON.stringify({ method, params }), type: 'application/nostr+json+rpc' })
  if (answer.error) throw new Error(answer.error)
  return answer.result
}

const act = (action) => signedFetch('/v1/operator', { method: 'POST', body: JSON.stringify(action) })

/** Do something and say how it went; then show what has changed. */
async function doing(what, work) {
  const note = $('note')
  note.className = ''
  note.textContent = `${what}…`
  try {
    await work()
    note.className = 'good'
    note.textContent = `${what}: done.`
    await refresh()
  } catch (error) {
    note.className = 'error'
    note.textContent = `${what}: ${error.message}`
  }
}

const button = (label, onclick) => element('button', { type: 'button', class: 'plain', onclick }, label)
const cell = (...children) => element('td', {}, ...children)
const number = (value) => element('td', { class: 'number' }, value)
const rows = (id, list, row) => $(id).replaceChildren(...list.map((each) => element('tr', {}, ...row(each))))

function tile(name, value) {
  return element('div', { class: 'tile' }, element('b', {}, value), element('span', {}, name))
}

async function refresh() {
  state = await signedFetch('/v1/operator')
  const totals = state.totals
  const bytes = state.events.recent.reduce((sum, row) => sum + row.bytes, 0)
  const tiles = [
    tile('events stored in all', state.events.numbered.toLocaleString()),
    tile('bytes of the newest thousand', bytes.toLocaleString()),
    tile('reports to look at', String(state.moderation.waiting)),
  ]
  if ('Revenue' in totals) {
    tiles.push(
      tile('revenue since the start', readable(totals.Revenue)),
      tile('events stored since the start', totals.EventsStored.toLocaleString()),
      tile('events refused', totals.EventsRefused.toLocaleString()),
      tile('packets fulfilled', totals.PacketsFulfilled.toLocaleString()))
  }
  if (state.connections !== undefined) tiles.push(tile('connections', String(state.connections)))
  $('tiles').replaceChildren(...tiles)
  rows('kinds', state.events.recent, (row) => [cell(String(row.kind)), number(row.events.toLocaleString()), number(row.bytes.toLocaleString())])
  const codes = Object.entries(totals).filter(([name]) => name.startsWith('PacketsRejected.'))
  rows('refusals', codes, ([name, count]) => [cell(name.split('.')[1]), number(count.toLocaleString())])
  rows('peers', state.peers, peerRow)
  rows('purses', state.purses, purseRow)
  showWork()
}

function peerRow(peer) {
  const limit = element('input', { size: 16, inputmode: 'numeric', 'aria-label': `Limit of ${peer.id}`, value: peer.max_balance ?? '', placeholder: 'default' })
  const save = () => doing(`Limit of ${peer.id}`, () => act({ action: 'set_peer', id: peer.id, max_balance: limit.value === '' ? null : limit.value }))
  const toggle = () => doing(`${peer.active ? 'Stop' : 'Start'} ${peer.id}`, () => act({ action: 'set_peer', id: peer.id, active: !peer.active }))
  return [cell(peer.id), number(readable(peer.posted)), number(readable(peer.pending)), number(readable(peer.payable)), cell(limit),
    cell(peer.active ? 'yes' : 'no'), cell(button('Save', save), ' ', button(peer.active ? 'Stop' : 'Start', toggle))]
}

function purseRow(purse) {
  const freeze = () => doing(`${purse.frozen ? 'Thaw' : 'Freeze'} a purse`, () => act({ action: 'freeze', key: purse.key, frozen: !purse.frozen }))
  return [cell(element('code', { title: npub(purse.key) }, `${npub(purse.key).slice(0, 16)}…`)), number(readable(purse.left)), number(readable(purse.filled)),
    number(readable(purse.granted)), number(readable(purse.drawn)), cell(button(purse.frozen ? 'Thaw' : 'Freeze', freeze))]
}

function showWork() {
  const work = state.work ?? []
  $('queues-section').hidden = !work.length
  rows('work', work, (row) => [cell(row.what), cell(row.state)])
}

async function refreshModeration() {
  const [reported, banned] = [await manage('listeventsneedingmoderation'), await manage('listbannedpubkeys')]
  rows('reported', reported, (row) => [cell(element('code', {}, row.id)), cell(row.reason ?? ''), cell(
    button('Ban', () => doing('Ban an event', async () => { await manage('banevent', row.id, row.reason ?? ''); await refreshModeration() })), ' ',
    button('Keep', () => doing('Keep an event', async () => { await manage('allowevent', row.id); await refreshModeration() })))])
  rows('banned', banned, (row) => [cell(element('code', {}, npub(row.pubkey))), cell(row.reason ?? ''), cell(
    button('Unban', () => doing('Unban a key', async () => { await manage('unbanpubkey', row.pubkey); await refreshModeration() })))])
}

function onSubmit(id, work) {
  $(id).addEventListener('submit', (submit) => { submit.preventDefault(); work() })
}

onSubmit('grant', () => doing('Grant', async () => {
  const key = parseKey($('g-key').value)
  if (!key) throw new Error('a key is an npub or 64 hex digits')
  await act({ action: 'grant', key, amount: $('g-amount').value.trim(), mark: crypto.randomUUID() })
}))

onSubmit('ban', () => doing('Ban', async () => {
  const method = $('b-kind').value
  const typed = $('b-what').value.trim()
  const value = method === 'banpubkey' ? parseKey(typed) : typed
  if (!value) throw new Error('a key is an npub or 64 hex digits')
  await manage(method, value, $('b-reason').value)
  await refreshModeration()
}))

onSubmit('profile', () => doing('Change', () => manage($('p-field').value, $('p-text').value)))

async function login() {
  const note = $('gate-note')
  if (!globalThis.nostr) {
    note.textContent = 'No Nostr extension (NIP-07) was found in this browser.'
    return
  }
  try {
    const key = await globalThis.nostr.getPublicKey()
    if (key !== owner) throw new Error('this is not the owner’s key')
    await refresh()
    await refreshModeration()
    $('gate').hidden = true
    $('console').hidden = false
    setInterval(() => { if (!document.hidden) refresh().catch((error) => { $('note').textContent = error.message }) }, REFRESH_MILLISECONDS)
  } catch (error) {
    note.textContent = error.message
  }
}

$('login').addEventListener('click', login)
