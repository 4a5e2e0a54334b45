// The operator's console: figures from GET /v1/operator, rules by NIP-86, every request signed.

import { confirmedButton, decimal, element, fillTable, money, npub, parseEventId, parseKey, publicKey, showNpub, signedFetch, span, unitOf, units, when } from './nostr.js'

const $ = (id) => document.getElementById(id)
const owner = document.body.dataset.pubkey
const REFRESH_MILLISECONDS = 10_000
const CODES = {
  F00: 'bad request', F01: 'not a packet', F02: 'no route to the address', F03: 'invalid amount', F04: 'amount below the price',
  F05: 'wrong condition', F06: 'unexpected payment', F07: 'cannot be received', F08: 'amount too large', F99: 'the receiver’s own reason',
  T00: 'internal error', T01: 'next hop does not answer', T02: 'next hop is busy', T03: 'connector is busy', T04: 'credit is used up',
  T05: 'too many packets', T99: 'the receiver’s own reason, for now', R00: 'expired', R01: 'amount too small to forward',
  R02: 'not enough time left to forward', R99: 'the receiver’s own reason, for this amount or time', Other: 'codes that ILPv4 does not know',
}
const KINDS = {
  0: 'profile', 1: 'note', 3: 'follow list', 4: 'direct message', 5: 'deletion', 6: 'repost', 7: 'reaction', 62: 'request to vanish',
  1059: 'gift wrap', 1984: 'report', 9735: 'zap receipt', 10002: 'relay list', 10032: 'ILP address and prices', 10033: 'routes',
  30023: 'article',
}
const readKind = (typed) => (/^\d{1,5}$/.test(typed) ? Number(typed) : null)
// The kinds of rules: methods that add, list and remove them, and how to type a value.
const RULES = [
  { about: 'ban a key', shown: 'banned key', add: 'banpubkey', list: 'listbannedpubkeys', drop: 'unbanpubkey', field: 'pubkey', read: parseKey, expects: 'npub or hex' },
  { about: 'ban an event', shown: 'banned event', add: 'banevent', list: 'listbannedevents', drop: 'unbanevent', field: 'id', read: parseEventId, expects: 'note1… or hex' },
  { about: 'let a key write for free', shown: 'free key', add: 'allowpubkey', list: 'listallowedpubkeys', drop: 'unallowpubkey', field: 'pubkey', read: parseKey, expects: 'npub or hex' },
  { about: 'accept only allowed kinds', shown: 'allowed kind', add: 'allowkind', list: 'listallowedkinds', drop: 'disallowkind', read: readKind, expects: 'a number' },
  { about: 'refuse a kind', shown: 'refused kind', add: 'disallowkind', list: 'listdisallowedkinds', drop: 'allowkind', read: readKind, expects: 'a number' },
  { shown: 'kept event', list: 'listallowedevents', drop: 'unallowevent', field: 'id' },
  { about: 'block an address', shown: 'blocked address', add: 'blockip', list: 'listblockedips', drop: 'unblockip', field: 'ip', read: (typed) => typed, expects: 'an IP address' },
]
let state = null
let supported = []
let live = true

const asset = () => [state.relay.asset_code, state.relay.asset_scale]
const readable = (amount) => money(amount, ...asset())
const plain = (amount) => (amount === null ? '' : decimal(amount, ...asset()))

function typedUnits(input) {
  const amount = units(input.value, ...asset())
  if (amount === null) throw new Error(`expected a number like ${unitOf(...asset()).scale ? '0.01' : '1000'}, got ${input.value || 'nothing'}`)
  return String(amount)
}
const many = (number) => Number(number).toLocaleString()

async function manage(method, ...params) {
  const answer = await signedFetch('/', { method: 'POST', body: JSON.stringify({ method, params }), type: 'application/nostr+json+rpc' })
  if (answer.error) throw new Error(answer.error)
  return answer.result
}

const act = (action) => signedFetch('/v1/operator', { method: 'POST', body: JSON.stringify(action) })

/** Do some work, refresh the page and show the result in the note. */
async function doing(what, work, { rules = false } = {}) {
  const note = $('note')
  note.className = ''
  note.textContent = `${what}…`
  try {
    await work()
    await Promise.all([refresh(true), ...(rules ? [refreshRules()] : [])])
    note.className = 'good'
    note.textContent = `${what}: done.`
  } catch (error) {
    note.className = 'error'
    note.textContent = `${what}: ${error.message}`
  }
}

const button = (label, onclick, about = '') => element('button', { type: 'button', class: 'plain', onclick, ...(about && { 'aria-label': about }) }, label)
const shortKey = (key) => element('code', { title: npub(key) }, `${npub(key).slice(0, 16)}…`)
const shortId = (id) => element('code', { title: id }, `${id.slice(0, 16)}…`)

/** Fill a table, unless the operator is typing in it or has just pressed a button there. */
function table(id, rows, empty, forced = true) {
  const body = $(id)
  const changed = [...body.querySelectorAll('input')].some((input) => input.value !== input.defaultValue)
  if (!forced && (changed || body.contains(document.activeElement))) return
  fillTable(id, rows, empty)
}

async function refresh(forced = false) {
  state = await signedFetch('/v1/operator')
  table('reported', state.moderation.reported.map(reportedRow), 'Nothing is reported.', forced)
  $('unit').textContent = unitOf(...asset()).name
  showFigures()
  table('peers', state.peers.map(peerRow), 'None.', forced)
  table('purses', state.purses.map(purseRow), 'There are no purses.', forced)
  showWork(forced)
}

/** Counts of this process since its start, or of all containers within hours, from CloudWatch. */
function counts() {
  const figures = state.figures
  if (state.alone || !figures) return { found: state.totals, since: 'since the start' }
  return { found: figures.counts, since: `in ${figures.hours} hours` }
}

function showFigures() {
  const { found, since } = counts()
  const tile = (value, name) => element('div', { class: 'tile' }, element('b', {}, value), element('span', {}, name))
  const tiles = [tile(many(state.events.numbered), 'events stored in all')]
  if (state.connections !== undefined) tiles.unshift(tile(many(state.connections), 'connections'))
  const figure = (key, name, show = many) => { if (found[key] !== undefined) tiles.push(tile(show(found[key]), `${name} ${since}`)) }
  figure('Connections', 'connections')
  figure('Messages', 'messages')
  figure('Requests', 'requests')
  figure('Revenue', 'revenue', readable)
  figure('EventsStored', 'events stored')
  figure('EventsRefused', 'events refused')
  figure('EventsDelivered', 'events sent to subscriptions')
  figure('PacketsFulfilled', 'packets fulfilled')
  figure('InternalErrors', 'internal errors')
  tiles.push(tile(many(state.moderation.waiting), 'reports to look at'))
  $('tiles').replaceChildren(...tiles)
  const trouble = state.figures?.trouble ? ` ${state.figures.trouble}.` : ''
  const read = !state.alone && state.figures?.read_at ? ` Figures of ${state.figures.source}, ${when(state.figures.read_at)}.` : ''
  $('as-of').textContent = `As of ${new Date(state.time * 1000).toLocaleTimeString()}.${read}${trouble}`
  fillTable('kinds', state.events.recent.map((row) => [String(row.kind), KINDS[row.kind] ?? '', many(row.events), many(row.bytes)]), 'No events yet.')
  const refused = Object.entries(found).filter(([name]) => name.startsWith('PacketsRejected.')).map(([name, number]) => [name.split('.')[1], number])
  fillTable('refusals', refused.map(([code, number]) => [code, CODES[code] ?? '', many(number)]), `None ${since}.`)
}

function peerRow(peer) {
  const limit = (name, about, inherited) => element('input', {
    size: 12, inputmode: 'decimal', 'aria-label': `${about} ${peer.id}`, value: plain(peer[name]), placeholder: plain(inherited),
    onkeydown: ({ key }) => { if (key === 'Enter') save() },
  })
  const balance = limit('max_balance', 'The most that may be owed by', state.limits.max_balance)
  const packet = limit('max_packet', 'The largest packet of', state.limits.max_packet)
  const given = (input) => (input.value.trim() === '' ? null : typedUnits(input))
  const save = () => doing(`Limits of ${peer.id}`, () => act({ action: 'set_peer', id: peer.id, max_balance: given(balance), max_packet: given(packet) }))
  const toggle = () => doing(`${peer.active ? 'Stop' : 'Start'} ${peer.id}`, () => act({ action: 'set_peer', id: peer.id, active: !peer.active }))
  const name = element('span', { title: peer.address }, peer.id)
  return [[name, peer.active ? '' : ' (stopped)'], readable(peer.posted), readable(peer.pending), readable(peer.payable), balance, packet,
    [button('Save', save, `Save the limits of ${peer.id}`), button(peer.active ? 'Stop' : 'Start', toggle, `${peer.active ? 'Stop' : 'Start'} ${peer.id}`)]]
}

function purseRow(purse) {
  const does = purse.frozen ? 'Thaw' : 'Freeze'
  const freeze = () => doing(`${does} a purse`, () => act({ action: 'freeze', key: purse.key, frozen: !purse.frozen }))
  return [[shortKey(purse.key), purse.frozen ? ' (frozen)' : ''], readable(purse.left), readable(purse.filled), readable(purse.granted), readable(purse.drawn),
    button(does, freeze, `${does} the purse of ${npub(purse.key).slice(0, 16)}`)]
}

function showWork(forced) {
  const states = (found) => Object.entries(found).map(([name, number]) => `${number} ${name}`).join(', ')
  fillTable('broadcasts', state.broadcasts.map((each) => [shortId(each.id), when(each.time), states(each.states), each.last_failure, readable(each.spent)]), 'None.')
  table('subscriptions', state.subscriptions.map(subscriptionRow), 'None.', forced)
  const figures = state.figures ?? { waiting: {}, given_up: {} }
  const names = [...new Set([...Object.keys(figures.waiting), ...Object.keys(figures.given_up).map((name) => name.replace(/-failures$/, ''))])]
  const shown = (number) => (number === undefined ? '–' : many(number))
  fillTable('queues', names.map((name) => [name, shown(figures.waiting[name]), shown(figures.given_up[`${name}-failures`] ?? figures.given_up[name])]), 'None.')
  $('queues-note').textContent = state.alone
    ? 'Records that wait for the consumers of this process, and records given up since the start.'
    : 'Messages that wait, and messages that were given up. To retry those, run farthing redrive.'
  const errors = Object.entries(figures.errors ?? {})
  $('errors-part').hidden = !errors.length
  fillTable('errors', errors.map(([name, number]) => [name, many(number)]))
}

function subscriptionRow(each) {
  const [sort, id] = [each.owner.slice(0, 4), each.owner.replace(/^(key|peer):/, '')]
  const who = sort === 'key:' ? shortKey(id) : `peer ${id}`
  const ended = each.ending !== undefined
  const close = () => doing(`End ${each.id}`, () => act({ action: 'close', owner: each.owner, id: each.id }))
  return [who, each.id, [each.status, ended ? `: ${each.ending}` : ''], many(each.events), readable(ended ? 0 : each.credit),
    ended ? '' : span(each.expires_at - state.time), ended ? '' : confirmedButton('End', 'End it?', close, `End ${each.id}`)]
}

function reportedRow(row) {
  const short = row.id.slice(0, 16)
  const decide = (what, method, value) => () => doing(what, () => manage(method, value, row.reason), { rules: true })
  const text = row.content ? element('p', { class: 'content', dir: 'auto' }, row.content) : element('p', { class: 'soft' }, 'no text')
  return [[element('span', { class: 'soft' }, `kind ${row.kind} by `), shortKey(row.pubkey), text], element('span', { dir: 'auto' }, row.reason),
    [
      confirmedButton('Ban event', 'Remove this event?', decide('Ban event', 'banevent', row.id), `Ban event: ${short}`),
      confirmedButton('Ban author', 'Remove all of this author?', decide('Ban author', 'banpubkey', row.pubkey), `Ban author: ${short}`),
      button('Keep', decide('Keep', 'allowevent', row.id), `Keep: ${short}`),
    ]]
}

/** To take the last allowed kind off its list refuses this kind by name, and that ends as well. */
async function takeBack(rule, value) {
  await manage(rule.drop, value)
  if (rule.drop === 'disallowkind' && (await manage('listdisallowedkinds')).includes(value)) await manage('allowkind', value)
}

async function refreshRules() {
  const rows = []
  for (const rule of RULES.filter((each) => supported.includes(each.list))) {
    for (const found of await manage(rule.list)) {
      const value = rule.field ? found[rule.field] : found
      const shown = rule.field === 'pubkey' ? npub(value) : String(value)
      const drop = () => doing('Take a rule back', () => takeBack(rule, value), { rules: true })
      rows.push([rule.shown, element('code', {}, shown), found.reason ?? '', button('Take back', drop, `Take back: ${rule.shown} ${shown.slice(0, 16)}`)])
    }
  }
  fillTable('rules', rows, 'None.')
}

function onSubmit(id, work) {
  $(id).addEventListener('submit', (submit) => { submit.preventDefault(); work(submit.target) })
}

onSubmit('grant', (form) => doing('Grant', async () => {
  const key = parseKey($('g-key').value)
  if (!key) throw new Error('expected a key as npub or 64 hex digits')
  const amount = typedUnits($('g-amount'))
  // A grant that is sent again because no answer came has the same mark, and counts once.
  if (grant.key !== key || grant.amount !== amount) grant = { key, amount, mark: mark() }
  const { granted } = await act({ action: 'grant', key, amount, mark: grant.mark })
  grant = {}
  if (granted === '0') throw new Error('this was granted before')
  form.reset()
}))

let grant = {}
const mark = () => [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, '0')).join('')

onSubmit('rule', () => doing('Add a rule', async () => {
  const rule = RULES.find((each) => each.add === $('r-kind').value)
  const value = rule.read($('r-value').value.trim())
  if (value === null) throw new Error(`expected ${rule.expects}`)
  await manage(rule.add, value, $('r-reason').value)
  $('r-value').value = ''
  $('r-reason').value = ''
}, { rules: true }))

$('r-kind').addEventListener('change', () => { $('r-value').placeholder = RULES.find((each) => each.add === $('r-kind').value).expects })

onSubmit('profile', () => doing('Change', () => manage($('p-field').value, $('p-text').value)))

$('live').addEventListener('click', () => {
  live = !live
  $('live').setAttribute('aria-pressed', String(live))
  if (live) readAgain()
})

let reading = false
let trouble = ''

/** A reading that is still under way puts off the next one. */
async function readAgain() {
  if (reading) return
  reading = true
  try {
    await refresh()
    if ($('note').textContent === trouble) $('note').textContent = ''
  } catch (error) {
    trouble = `Figures are not read: ${error.message}.`
    $('note').className = 'error'
    $('note').textContent = trouble
  } finally {
    reading = false
  }
}

async function login() {
  const note = $('gate-note')
  if (!globalThis.nostr) {
    note.textContent = 'No Nostr extension (NIP-07) was found in this browser.'
    return
  }
  $('login').disabled = true
  note.textContent = 'Waiting for the extension…'
  try {
    const key = await publicKey()
    if (key !== owner) throw new Error('this is not the owner’s key')
    supported = await manage('supportedmethods')
    const offered = RULES.filter((each) => supported.includes(each.add))
    $('r-kind').replaceChildren(...offered.map((each) => element('option', { value: each.add }, each.about)))
    $('r-value').placeholder = offered[0].expects
    await refresh(true)
    await refreshRules()
    $('gate').hidden = true
    $('console').hidden = false
    $('now').focus()
    setInterval(() => { if (live && !document.hidden) readAgain() }, REFRESH_MILLISECONDS)
  } catch (error) {
    note.textContent = error.message
  } finally {
    $('login').disabled = false
  }
}

showNpub(owner)
$('login').addEventListener('click', login)
