// The routing graph around this agent, from the current table: peers, addresses behind them, fees.

import { element, fillTable, money, npub } from './nostr.js'

const $ = (id) => document.getElementById(id)
const MOST_DRAWN = 24
const ROW = 34
const WIDTH = 720
const LEFT = 50
const PEERS = 260
const FAR = 450
const NARROW_ROW = 30
const NARROW_WIDTH = 330
const phone = matchMedia('(max-width: 40rem)')
let shown = ''
let drawAgain = () => {}
phone.addEventListener('change', () => drawAgain())

export async function drawRoutes() {
  const response = await fetch('/v1/routes')
  if (!response.ok) return
  const table = await response.json()
  const same = JSON.stringify([table.peers, table.routes])
  if (same === shown) return
  shown = same
  for (const id of ['graph-section', 'graph-nav']) $(id).hidden = !table.peers.length
  const fee = (amount) => money(amount, table.asset_code, table.asset_scale)
  const peers = table.peers.map((peer) => ({ ...peer, behind: table.routes.filter((route) => route.next_hop === peer.pubkey && route.prefix !== peer.address) }))
  const direct = (peer) => table.routes.find((route) => route.prefix === peer.address)
  $('graph-note').textContent = `${count(peers.length, 'peer')}, ${count(table.count, 'route')}. A fee is what a packet of ${fee(table.typical_amount)} costs on the way.`
  const nameOf = new Map(peers.map((peer) => [peer.pubkey, last(peer)]))
  fillTable('routes', table.routes.map((route) => [element('code', {}, route.prefix), nameOf.get(route.next_hop) ?? '', fee(route.fee), String(route.hops)]), 'There is no routing table yet.')
  drawAgain = () => $('graph').replaceChildren(picture(peers, direct, fee, phone.matches))
  drawAgain()
}

const count = (number, what) => `${number.toLocaleString()} ${what}${number === 1 ? '' : 's'}`
/** A long name shortened to its beginning and its end. */
const short = (text) => (text.length > 18 ? `${text.slice(0, 8)}…${text.slice(-6)}` : text)
const last = (peer) => short(peer.address.replace(/^g\.agent\./, '') || npub(peer.pubkey))

function svg(name, attributes, ...children) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', name)
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value)
  made.append(...children)
  return made
}

/** The drawing of a tree of rows. Where there is room, it has three columns: this agent, its peers, and the
 *  addresses behind each peer. On a phone each row is indented by its depth. */
function picture(peers, direct, fee, narrow) {
  const rows = chosenRows(peers, direct, fee)
  const shape = narrow ? indented(rows) : inColumns(rows)
  const label = `This agent, ${count(rows.length, 'peer')} and the addresses behind them; the table below shows the same`
  return svg('svg', { viewBox: `0 0 ${narrow ? NARROW_WIDTH : WIDTH} ${shape.height}`, role: 'img', 'aria-label': label }, ...shape.lines, ...shape.marks)
}

/** The peers with the addresses behind them, as many as a drawing can show. */
function chosenRows(peers, direct, fee) {
  const rows = []
  let left = MOST_DRAWN
  for (const peer of peers) {
    if (left <= 0) break
    const behind = peer.behind.slice(0, Math.max(0, left - 1))
    left -= Math.max(1, behind.length)
    const own = direct(peer)
    rows.push({
      label: last(peer) + (own ? ` · ${fee(own.fee)}` : ''),
      title: `${peer.address || npub(peer.pubkey)}${own ? `: ${fee(own.fee)}` : ', no route'}`,
      behind: behind.map((route) => ({
        label: `${short(route.prefix.replace(/^g\.agent\./, ''))} · ${fee(route.fee)}${route.hops > 2 ? `, ${route.hops} hops` : ''}`,
        title: `${route.prefix}: ${fee(route.fee)}, ${count(route.hops, 'hop')}`,
      })),
    })
  }
  return rows
}

function inColumns(rows) {
  const [lines, marks] = [[], []]
  const tall = rows.reduce((sum, row) => sum + Math.max(1, row.behind.length), 0)
  const height = ROW * Math.max(tall, 2)
  let above = 0
  for (const { label, title, behind } of rows) {
    const y = ROW * (above + Math.max(1, behind.length) / 2)
    lines.push(curve(LEFT, height / 2, PEERS, y))
    for (const [index, far] of behind.entries()) {
      const farY = ROW * (above + index + 0.5)
      lines.push(curve(PEERS, y, FAR, farY))
      marks.push(mark(FAR, farY, far, { radius: 5, kind: 'far', x: FAR + 14, y: farY + 5 }))
    }
    // The label stands on the side of the line that comes from this agent where nothing else is drawn.
    const beside = behind.length ? { x: PEERS + 8, y: y > height / 2 ? y + 24 : y - 14, anchor: 'end' } : { x: PEERS + 14, y: y + 5 }
    marks.push(mark(PEERS, y, { label, title }, { radius: 7, ...beside }))
    above += Math.max(1, behind.length)
  }
  marks.push(agent(LEFT, height / 2, { x: LEFT, y: height / 2 + 30, anchor: 'middle' }))
  return { lines, marks, height }
}

function indented(rows) {
  const [lines, marks] = [[], []]
  const at = (number) => NARROW_ROW * (number + 0.5)
  let number = 1
  for (const { label, title, behind } of rows) {
    const peer = number
    lines.push(elbow(12, at(0), 36, at(peer)))
    marks.push(mark(36, at(peer), { label, title }, { radius: 7, x: 50, y: at(peer) + 5 }))
    for (const far of behind) {
      number += 1
      lines.push(elbow(36, at(peer), 60, at(number)))
      marks.push(mark(60, at(number), far, { radius: 5, kind: 'far', x: 72, y: at(number) + 5 }))
    }
    number += 1
  }
  marks.push(agent(12, at(0), { x: 30, y: at(0) + 5 }))
  return { lines, marks, height: NARROW_ROW * number }
}

function curve(x1, y1, x2, y2) {
  const middle = (x1 + x2) / 2
  return svg('path', { d: `M${x1} ${y1} C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}` })
}

const elbow = (x1, y1, x2, y2) => svg('path', { d: `M${x1} ${y1} V${y2} H${x2}` })

function mark(cx, cy, { label, title }, { radius, kind = '', x, y, anchor = 'start' }) {
  return svg('g', {}, svg('title', {}, title), svg('circle', { cx, cy, r: radius, class: kind }), svg('text', { x, y, 'text-anchor': anchor }, label))
}

const agent = (x, y, place) => mark(x, y, { label: 'this agent', title: 'this agent' }, { radius: 12, ...place })
