// One JSON request from standard input, one JSON answer to standard output.
import { text } from 'node:stream/consumers'

export async function answer (handle) {
  const request = JSON.parse(await text(process.stdin))
  let result
  try {
    result = await handle(request)
  } catch (error) {
    result = { ok: false, reason: String(error?.message ?? error) }
  }
  const asText = (_, value) => typeof value === 'bigint' ? String(value) : value
  // Libraries leave timers and sockets behind: the answer is the end.
  process.stdout.write(JSON.stringify(result, asText) + '\n', () => process.exit(0))
}
