// Publishes one event with npm `@nostr-dev-kit/ndk`, whose policy logs in when a relay asks for it.
// Request: {secretKey (hex), relay, content, kind?, tags?, login? (default true), milliseconds?}
// Answer: {ok, reason, id}
import WebSocket from 'ws'
import NDK, { NDKEvent, NDKPrivateKeySigner, NDKRelaySet } from '@nostr-dev-kit/ndk'
import { answer } from './request.mjs'

globalThis.WebSocket ??= WebSocket

await answer(async (request) => {
  const { secretKey, relay, content, kind = 1, tags = [], login = true } = request
  const milliseconds = request.milliseconds ?? 10_000
  const signer = new NDKPrivateKeySigner(secretKey)
  const ndk = new NDK({ explicitRelayUrls: [relay], signer, enableOutboxModel: false })
  // With its `signIn` policy NDK 3.0.3 logs in, but does not send again what was refused before.
  if (login) ndk.relayAuthDefaultPolicy = async () => true
  await ndk.connect(milliseconds)
  const event = new NDKEvent(ndk, { kind, content, tags })
  await event.sign(signer)
  try {
    await event.publish(NDKRelaySet.fromRelayUrls([relay], ndk), milliseconds)
    return { ok: true, reason: '', id: event.id }
  } catch (error) {
    const [first] = error.errors?.values() ?? []
    return { ok: false, reason: first?.message ?? error.message, id: event.id }
  }
})
