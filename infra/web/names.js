// The names of authors, from their profiles (kind 0) at this relay. Anybody may take any name, so a
// name stands beside the key and never alone.

import { isEvent } from './nostr.js'

const MOST_CHARACTERS = 24
const MOST_KNOWN = 2000
const AT_ONCE = 100
const WAIT_MILLISECONDS = 100

/** Text of a stranger as one short line, without characters that cannot be seen, turn the direction of
 *  the text or pile up. */
const plain = (text) => [...text.replace(/[\p{C}\p{Z}]+/gu, ' ').replace(/(\p{M}{3})\p{M}+/gu, '$1').trim()].slice(0, MOST_CHARACTERS).join('').trim()

function nameIn(profile) {
  try {
    const { name } = JSON.parse(profile.content)
    return typeof name === 'string' ? plain(name) : ''
  } catch { // no JSON, or no object
    return ''
  }
}

export class Names {
  /** `onName` is called with a key and its name, as soon as the name is known. */
  constructor(relay, onName) {
    this.relay = relay
    this.onName = onName
    this.known = new Map() // what is asked for is empty
    this.wanted = new Set()
  }

  /** The name of a key if it is known, else an empty text. It is asked for together with others. */
  of(key) {
    if (!this.known.has(key)) {
      if (this.known.size >= MOST_KNOWN) this.known.clear()
      this.known.set(key, '')
      if (!this.wanted.size) setTimeout(() => this.ask().catch(() => {}), WAIT_MILLISECONDS)
      this.wanted.add(key)
    }
    return this.known.get(key)
  }

  async ask() {
    const authors = [...this.wanted].slice(0, AT_ONCE)
    this.wanted.clear()
    const found = await this.relay.stored([{ kinds: [0], authors, limit: authors.length }])
    for (const profile of found) {
      if (!isEvent(profile) || profile.kind !== 0 || !authors.includes(profile.pubkey)) continue
      const name = nameIn(profile)
      if (!name) continue
      this.known.set(profile.pubkey, name)
      this.onName(profile.pubkey, name)
    }
  }
}
