// The purse of the visitor's key: its balance, paying into it, writing from it, and the key's paid
// subscriptions. The extension signs the visitor's requests.

import { aboutHowMany, confirmedButton, element, fillTable, money, npub, part, publicKey, signEvent, signedFetch, span, unitOf, units, when } from './nostr.js'

const $ = (id) => document.getElementById(id)
const REFRESH_MILLISECONDS = 15_000
const KINDS = { filled: 'Paid in', granted: 'Given', drawn: 'Paid', lapsed: 'Lapsed' }
const WAYS = {
  packet: 'by packet', stream: 'by wallet', processor: 'by a payment processor', operator: 'by the operator',
  event: 'for an event', subscription: 'for a subscription', idle: 'after a long time',
}

let relay = null
let information = null
let me = null
let notePrice = 0n

const readable = (amount) => money(amount, information.ilp.asset_code, information.ilp.asset_scale)

/** Show the purse of the extension's key, and return the key. */
export async function openPurse(connection, document_, price) {
  [relay, information, notePrice] = [connection, document_, price]
  me = await publicKey()
  await relay.authenticate()
  await Promise.all([showPurse(), showSubscriptions()])
  $('packet-asset').textContent = unitOf(information.ilp.asset_code, information.ilp.asset_scale).name
  setInterval(() => {
    if (!document.hidden) Promise.all([showPurse(), showSubscriptions()]).catch(() => {})
  }, REFRESH_MILLISECONDS)
  return me
}

async function showPurse() {
  const purse = await signedFetch(`/v1/purses/${me}`)
  const inUnits = (value) => `(${BigInt(value).toLocaleString()} units)`
  const amount = (value) => `${readable(value)} ${inUnits(value)}`
  $('my-npub').textContent = npub(me)
  $('left').replaceChildren(`${readable(purse.left)} `, element('span', { class: 'soft' }, inUnits(purse.left)))
  $('left-more').textContent = purse.frozen ? 'frozen by the operator' : worth(BigInt(purse.left))
  $('filled').textContent = amount(BigInt(purse.filled) + BigInt(purse.granted))
  $('drawn').textContent = amount(purse.drawn)
  $('purse-link').href = purse.url
  $('fill-command').textContent = `farthing purse fill ${npub(me)} AMOUNT`
  if ($('pointer').textContent !== purse.pointer) {
    $('pointer').textContent = purse.pointer
    const { drawQr } = await part(import('./qr.js'))
    drawQr($('qr'), purse.pointer)
  }
  fillTable('movements', purse.movements.map((movement) => {
    const into = movement.kind === 'filled' || movement.kind === 'granted'
    const isReturned = into && movement.way === 'subscription'
    const what = isReturned ? 'Back from a subscription' : `${KINDS[movement.kind] ?? movement.kind} ${WAYS[movement.way] ?? movement.way}`
    return [when(movement.time), what, `${into ? '+' : '−'}${readable(movement.amount)}`]
  }), 'No movements yet.')
}

function worth(left) {
  if (!notePrice) return ''
  if (me === information.pubkey) return 'you are the owner: what you write here is free'
  return left < notePrice ? 'not enough for a note: fill it below' : `enough for some ${aboutHowMany(left, notePrice)} short notes`
}

// Own subscriptions

async function showSubscriptions() {
  const { subscriptions, time } = await signedFetch(`/v1/purses/${me}/subscriptions`)
  if (!subscriptions.length) {
    $('mine').replaceChildren(element('li', { class: 'empty' }, 'You have no paid subscriptions.'))
    return
  }
  // Keep the list while a button in it has the focus.
  if (!$('mine').contains(document.activeElement)) $('mine').replaceChildren(...subscriptions.map((each) => card(each, time)))
}

function card(subscription, now) {
  const ended = subscription.ending !== undefined
  const facts = [
    ['Filters', ...subscription.filters.map((filter) => element('code', { class: 'block' }, JSON.stringify(filter)))],
    ['Model', `${subscription.model.replace('_', ' ')}, ${subscription.delivery}`],
    ['Events sent', `${subscription.events.toLocaleString()}${subscription.event_fee === '0' ? '' : ` at ${readable(subscription.event_fee)} each`}`],
    ['Spent', readable(subscription.spent)],
  ]
  if (ended) {
    facts.push(['Ended', subscription.ending], ['Went back', readable(subscription.returned)])
  } else {
    facts.push(
      ['Credit', element('b', {}, readable(subscription.credit))],
      ['Time left', element('span', { title: when(subscription.expires_at) }, span(subscription.expires_at - now))])
  }
  const list = element('dl', { class: 'facts' })
  for (const [name, ...values] of facts) list.append(element('dt', {}, name), element('dd', {}, ...values))
  const title = element('h4', {}, subscription.id, ' ', element('span', { class: `badge ${ended ? '' : 'live'}` }, subscription.status))
  const item = element('li', { class: ended ? 'over' : '' }, title, list)
  if (!ended) item.append(endButton(subscription))
  return item
}

/** It asks for confirmation: a subscription that has ended must be paid for again. */
function endButton(subscription) {
  return confirmedButton('End', `End it, and take ${readable(subscription.credit)} back?`, async (end) => {
    end.disabled = true
    const note = $('mine-note')
    try {
      const path = `/v1/purses/${me}/subscriptions?id=${encodeURIComponent(subscription.id)}`
      const { credit } = await signedFetch(path, { method: 'DELETE' })
      note.className = 'good'
      note.textContent = `${subscription.id} has ended. ${readable(credit)} went into your purse.`
    } catch (error) {
      note.className = 'error'
      note.textContent = error.message
    }
    end.blur()
    await Promise.all([showPurse(), showSubscriptions()])
  }, `End ${subscription.id}`)
}

// Filling by one packet

let quoted = null

async function quotePacket(submit) {
  submit.preventDefault()
  const note = $('packet-note')
  note.className = ''
  note.textContent = ''
  $('packet-quoted').hidden = true
  const { asset_code: code, asset_scale: scale } = information.ilp
  try {
    const amount = units($('packet-amount').value, code, scale)
    if (!amount) throw new Error(`Expected an amount with at most ${unitOf(code, scale).scale} decimals.`)
    const body = JSON.stringify({ purse: me, amount: String(amount) })
    const response = await fetch('/v1/quotes', { method: 'POST', body, headers: { 'Content-Type': 'application/json' } })
    quoted = await response.json()
    if (!response.ok) throw new Error(quoted.detail || `the relay answered ${response.status}`)
    const facts = [['Amount', `${readable(amount)} (${amount.toLocaleString()} units)`], ['Send to', quoted.endpoint], ['Destination', quoted.destination],
      ['Condition', quoted.condition], ['Data (base64)', quoted.data], ['Good until', quoted.expires_at]]
    $('packet-facts').replaceChildren(...facts.flatMap(([name, value]) => [element('dt', {}, name), element('dd', {}, element('code', {}, String(value)))]))
    $('packet-quoted').hidden = false
  } catch (error) {
    note.className = 'error'
    note.textContent = error.message
  }
}

async function payPacket(submit) {
  submit.preventDefault()
  const note = $('packet-note')
  const button = $('packet-pay').querySelector('button')
  button.disabled = true
  note.className = ''
  note.textContent = 'Paying…'
  try {
    const { sendPacket } = await part(import('./pay.js'))
    const octets = (text) => Uint8Array.from(text, (character) => character.charCodeAt(0))
    const prepare = {
      amount: BigInt(quoted.amount), destination: quoted.destination, expiresAt: new Date(Date.now() + 30_000),
      condition: Uint8Array.from(quoted.condition.match(/../g), (pair) => parseInt(pair, 16)), data: octets(atob(quoted.data)),
    }
    // The token is for this relay's connector, and is sent nowhere else.
    const reply = await sendPacket(new URL('/ilp', location.origin).href, $('packet-token').value.trim(), prepare)
    if (reply.code) throw new Error(`${reply.code} ${reply.message}`)
    note.className = 'good'
    note.textContent = `${readable(quoted.amount)} is in your purse.`
    $('packet-quoted').hidden = true
    $('packet-token').value = ''
    await showPurse()
  } catch (error) {
    note.className = 'error'
    note.textContent = error.message
  } finally {
    button.disabled = false
  }
}

// Writing

async function post(submit) {
  submit.preventDefault()
  const note = $('post-note')
  const button = $('post').querySelector('button')
  button.disabled = true
  note.className = ''
  note.textContent = 'Signing…'
  try {
    const unsigned = { kind: 1, created_at: Math.floor(Date.now() / 1000), tags: [], content: $('note').value }
    const event = await signEvent(unsigned)
    await relay.publish(event)
    note.className = 'good'
    note.textContent = 'Stored.'
    $('note').value = ''
    $('note').dispatchEvent(new Event('input'))
    await showPurse()
  } catch (error) {
    note.className = 'error'
    note.textContent = error.message
  } finally {
    button.disabled = false
  }
}

$('packet-quote').addEventListener('submit', quotePacket)
$('packet-pay').addEventListener('submit', payPacket)
$('post').addEventListener('submit', post)
