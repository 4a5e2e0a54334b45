// Answers JSON lines with what npm's STREAM codec and receiver make of them.
//   {"op": "decode", "hex"}                 -> {"sequence", "type", "amount", "frames"} or {"error"}
//   {"op": "encode", "packet"}              -> {"hex"} or {"error"}
//   {"op": "connect", "secret", "address", "asset"}  -> {"destination", "secret"}
//   {"op": "receive", "secret", "address", "prepare" (hex)} -> {"reply" (hex)} or {"error"}
// Numbers are decimal strings, octets hexadecimal. A frame is {"name", ...its fields}.
const readline = require('readline')
const Long = require('long')
const { deserializeIlpPrepare, serializeIlpFulfill, serializeIlpReject, isFulfill } = require('ilp-packet')
const { StreamServer } = require('@interledger/stream-receiver')
const codec = require('ilp-protocol-stream/dist/src/packet')

const bytes = (hex) => Buffer.from(hex, 'hex')
const OCTETS = ['data', 'receipt']

function plain (frame) {
  const fields = { name: frame.name }
  for (const [key, value] of Object.entries(frame)) {
    if (key === 'type' || key === 'name') continue
    if (Long.isLong(value)) fields[key] = value.toString()
    else fields[key] = Buffer.isBuffer(value) ? value.toString('hex') : value
  }
  return fields
}

function framed ({ name, ...fields }) {
  const values = Object.entries(fields).map(([key, value]) =>
    OCTETS.includes(key) ? bytes(value) : isLong(key) ? Long.fromString(value, true) : value)
  return new codec[name + 'Frame'](...values)
}

function isLong (key) {
  return !['errorCode', 'errorMessage', 'sourceAccount', 'sourceAssetCode', 'sourceAssetScale'].includes(key)
}

function decode (hex) {
  const packet = codec.Packet._deserializeUnencrypted(bytes(hex))
  return {
    sequence: packet.sequence.toString(),
    type: +packet.ilpPacketType,
    amount: packet.prepareAmount.toString(),
    frames: packet.frames.map(plain)
  }
}

function encode ({ sequence, type, amount, frames }) {
  const long = (text) => Long.fromString(text, true)
  return new codec.Packet(long(sequence), type, long(amount), frames.map(framed))._serialize()
}

function server ({ secret, address }) {
  return new StreamServer({ serverSecret: bytes(secret), serverAddress: address })
}

function connect (question) {
  const made = server(question).generateCredentials({ asset: question.asset })
  return { destination: made.ilpAddress, secret: made.sharedSecret.toString('hex') }
}

function receive (question) {
  const answer = server(question).createReply(deserializeIlpPrepare(bytes(question.prepare)))
  const reply = answer.accept ? answer.accept() : answer
  return isFulfill(reply) ? serializeIlpFulfill(reply) : serializeIlpReject(reply)
}

function answer (line) {
  const question = JSON.parse(line)
  try {
    switch (question.op) {
      case 'decode': return decode(question.hex)
      case 'encode': return { hex: encode(question.packet).toString('hex') }
      case 'connect': return connect(question)
      case 'receive': return { reply: receive(question).toString('hex') }
    }
  } catch (error) {
    return { error: String(error.message) }
  }
}

readline.createInterface({ input: process.stdin, crlfDelay: Infinity })
  .on('line', (line) => console.log(JSON.stringify(answer(line))))
