// Runs whole sessions on the reference JavaScript, as npm `applesauce-relay` carries it.
//   {"ours": [[timestamp, hex]], "theirs": [...], "limit"} -> {"trace": [hex], "have", "need"}
import { createInterface } from 'node:readline'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

const source = join(process.argv[2], 'applesauce-relay', 'dist', 'lib', 'negentropy.js')
const { Negentropy, NegentropyStorageVector } = await import(pathToFileURL(source))

function side (items, limit) {
  const storage = new NegentropyStorageVector()
  for (const [timestamp, id] of items) storage.insert(timestamp, id)
  storage.seal()
  return new Negentropy(storage, limit)
}

async function converse ({ ours, theirs, limit }) {
  const initiator = side(ours, limit)
  const responder = side(theirs, limit)
  const [trace, have, need] = [[], [], []]
  let message = await initiator.initiate()
  while (message !== null) {
    const [reply] = await responder.reconcile(message)
    trace.push(message, reply)
    const [next, moreHave, moreNeed] = await initiator.reconcile(reply)
    have.push(...moreHave)
    need.push(...moreNeed)
    message = next
  }
  return { trace, have, need }
}

for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await converse(JSON.parse(line))))
}
