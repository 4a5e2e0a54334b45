// Publishes one event with npm `nostr-tools`, whose pool logs in when a relay asks for it.
// Request: {secretKey (hex), relay, content, kind?, tags?, login? (default true)}
// Answer: {ok, reason, id}
import WebSocket from 'ws'
import { finalizeEvent } from 'nostr-tools/pure'
import { SimplePool, useWebSocketImplementation } from 'nostr-tools/pool'
import { hexToBytes } from 'nostr-tools/utils'
import { answer } from './request.mjs'

useWebSocketImplementation(WebSocket)

await answer(async ({ secretKey, relay, content, kind = 1, tags = [], login = true }) => {
  const key = hexToBytes(secretKey)
  const event = finalizeEvent({ kind, tags, content, created_at: now() }, key)
  const pool = new SimplePool()
  const onauth = async (template) => finalizeEvent(template, key)
  const [published] = pool.publish([relay], event, login ? { onauth } : {})
  try {
    return { ok: true, reason: await published, id: event.id }
  } catch (error) {
    return { ok: false, reason: error.message ?? String(error), id: event.id }
  }
})

function now () {
  return Math.floor(Date.now() / 1000)
}
