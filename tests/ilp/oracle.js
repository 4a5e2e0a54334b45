// Answers JSON lines with what the npm package `ilp-packet` makes of them; NODE_PATH says where it is.
//   {"op": "decode", "hex"}          -> {"type", ...fields} or {"error"}
//   {"op": "encode", "packet": {..}} -> {"hex"} or {"error"}
const readline = require('readline')
const ilp = require('ilp-packet')

const bytes = (hex) => Buffer.from(hex, 'hex')

function decode (hex) {
  const { type, data: p } = ilp.deserializeIlpPacket(bytes(hex))
  switch (type) {
    case 12:
      return {
        type,
        amount: p.amount,
        expiresAt: p.expiresAt.toISOString(),
        condition: p.executionCondition.toString('hex'),
        destination: p.destination,
        data: p.data.toString('hex')
      }
    case 13:
      return { type, fulfillment: p.fulfillment.toString('hex'), data: p.data.toString('hex') }
    case 14:
      return {
        type,
        code: p.code,
        triggeredBy: p.triggeredBy,
        message: p.message,
        data: p.data.toString('hex')
      }
  }
}

function encode (p) {
  const data = bytes(p.data)
  switch (p.type) {
    case 12:
      return ilp.serializeIlpPrepare({
        amount: p.amount,
        expiresAt: new Date(p.expiresAt),
        executionCondition: bytes(p.condition),
        destination: p.destination,
        data
      })
    case 13:
      return ilp.serializeIlpFulfill({ fulfillment: bytes(p.fulfillment), data })
    case 14:
      return ilp.serializeIlpReject({
        code: p.code, triggeredBy: p.triggeredBy, message: p.message, data
      })
  }
}

function answer (line) {
  const question = JSON.parse(line)
  try {
    if (question.op === 'decode') return decode(question.hex)
    return { hex: encode(question.packet).toString('hex') }
  } catch (error) {
    return { error: String(error.message) }
  }
}

readline.createInterface({ input: process.stdin, crlfDelay: Infinity })
  .on('line', (line) => console.log(JSON.stringify(answer(line))))
