// Manages a relay with npm `applesauce-relay` (NIP-86).
// Request: {secretKey (hex), relay, calls: [[method, ...params]]}, methods as the library names them
// Answer: [result or {error}]
import WebSocket from 'ws'
import { Relay, RelayManagement } from 'applesauce-relay'
import { PrivateKeySigner } from 'applesauce-signers'
import { answer } from './request.mjs'

globalThis.WebSocket ??= WebSocket

await answer(async ({ secretKey, relay, calls }) => {
  const management = new RelayManagement(new Relay(relay), PrivateKeySigner.fromKey(secretKey))
  const results = []
  for (const [method, ...params] of calls) {
    try {
      results.push(await management[method](...params))
    } catch (error) {
      results.push({ error: error.message })
    }
  }
  return results
})
