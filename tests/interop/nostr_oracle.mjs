// Answers JSON lines with what npm's `nostr-tools` makes of them.
//   {"op": "encode", "type", "data"}    -> {"text"}; data as nip19.decode gives it, nsec in hex
//   {"op": "decode", "text"}            -> {"type", "data"} or {"error"}
//   {"op": "authorize", "secretKey", "url", "method", "payload"?} -> {"header"}
import { createInterface } from 'node:readline'
import * as nip19 from 'nostr-tools/nip19'
import { getToken } from 'nostr-tools/nip98'
import { finalizeEvent } from 'nostr-tools/pure'
import { bytesToHex, hexToBytes } from 'nostr-tools/utils'

function encode ({ type, data }) {
  return nip19[type + 'Encode'](type === 'nsec' ? hexToBytes(data) : data)
}

function decode ({ text }) {
  const { type, data } = nip19.decode(text)
  return { type, data: type === 'nsec' ? bytesToHex(data) : data }
}

async function authorize ({ secretKey, url, method, payload }) {
  const sign = (template) => finalizeEvent(template, hexToBytes(secretKey))
  return getToken(url, method, sign, true, payload)
}

async function answer (question) {
  try {
    switch (question.op) {
      case 'encode': return { text: encode(question) }
      case 'decode': return decode(question)
      case 'authorize': return { header: await authorize(question) }
    }
  } catch (error) {
    return { error: String(error.message) }
  }
}

for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  console.log(JSON.stringify(await answer(JSON.parse(line))))
}
