// Publishes one event with npm `applesauce-relay`, which sends again once the application logs in.
// Request: {secretKey (hex), relay, content, kind?, tags?, login? (default true)}
// Answer: {ok, reason, id}
import WebSocket from 'ws'
import { Relay } from 'applesauce-relay'
import { PrivateKeySigner } from 'applesauce-signers'
import { answer } from './request.mjs'

globalThis.WebSocket ??= WebSocket

await answer(async ({ secretKey, relay: url, content, kind = 1, tags = [], login = true }) => {
  const signer = PrivateKeySigner.fromKey(secretKey)
  const event = await signer.signEvent({ kind, content, tags, created_at: now() })
  const relay = new Relay(url)
  // As the library's documentation does it: log in for whatever challenge comes.
  if (login) relay.challenge$.subscribe((challenge) => challenge && relay.authenticate(signer))
  try {
    const { ok, message } = await relay.publish(event)
    return { ok, reason: message ?? '', id: event.id }
  } catch (error) {
    return { ok: false, reason: error.message ?? String(error), id: event.id }
  }
})

function now () {
  return Math.floor(Date.now() / 1000)
}
