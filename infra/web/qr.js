// QR codes (ISO/IEC 18004) of bytes, versions 1 to 10, error correction M: enough for a payment pointer.

// For each version: data codewords in all, error correction codewords of a block, and number of blocks.
const VERSIONS = [
  null, [16, 10, 1], [28, 16, 1], [44, 26, 1], [64, 18, 2], [86, 24, 2], [108, 16, 4], [124, 18, 4],
  [154, 22, 4], [182, 22, 5], [216, 26, 5],
]
const ALIGNMENT = [[], [], [6, 18], [6, 22], [6, 26], [6, 30], [6, 34], [6, 22, 38], [6, 24, 42], [6, 26, 46], [6, 28, 50]]

const EXP = new Uint8Array(512)
const LOG = new Uint8Array(256)
for (let i = 0, value = 1; i < 255; i++) {
  EXP[i] = EXP[i + 255] = value
  LOG[value] = i
  value = (value << 1) ^ (value & 128 ? 0x11d : 0)
}
const multiply = (a, b) => (a && b ? EXP[LOG[a] + LOG[b]] : 0)

function correction(data, length) {
  let generator = [1]
  for (let i = 0; i < length; i++) {
    const next = new Array(generator.length + 1).fill(0)
    generator.forEach((value, at) => {
      next[at] ^= value
      next[at + 1] ^= multiply(value, EXP[i])
    })
    generator = next
  }
  const rest = [...data, ...new Array(length).fill(0)]
  for (let i = 0; i < data.length; i++) {
    const factor = rest[i]
    if (factor) generator.forEach((value, at) => { rest[i + at] ^= multiply(value, factor) })
  }
  return rest.slice(data.length)
}

function codewords(bytes, version) {
  const [total, each, blocks] = VERSIONS[version]
  const bits = []
  const put = (value, width) => { for (let i = width - 1; i >= 0; i--) bits.push((value >> i) & 1) }
  put(4, 4)
  put(bytes.length, version < 10 ? 8 : 16)
  for (const byte of bytes) put(byte, 8)
  put(0, Math.min(4, 8 * total - bits.length))
  while (bits.length % 8) bits.push(0)
  const data = []
  for (let i = 0; i < bits.length; i += 8) data.push(parseInt(bits.slice(i, i + 8).join(''), 2))
  for (let pad = 0; data.length < total; pad++) data.push(pad % 2 ? 0x11 : 0xec)
  const short = Math.floor(total / blocks)
  const long = total % blocks
  const parts = []
  for (let i = 0, at = 0; i < blocks; i++) {
    const size = short + (i >= blocks - long ? 1 : 0)
    parts.push(data.slice(at, at + size))
    at += size
  }
  const checks = parts.map((part) => correction(part, each))
  const out = []
  for (let i = 0; i <= short; i++) for (const part of parts) if (i < part.length) out.push(part[i])
  for (let i = 0; i < each; i++) for (const check of checks) out.push(check[i])
  return out
}

function frame(version) {
  const size = 17 + 4 * version
  const dark = Array.from({ length: size }, () => new Array(size).fill(null))
  const set = (row, column, value) => {
    if (row >= 0 && column >= 0 && row < size && column < size) dark[row][column] = value
  }
  for (const [top, left] of [[0, 0], [0, size - 7], [size - 7, 0]]) {
    for (let r = -1; r < 8; r++) {
      for (let c = -1; c < 8; c++) {
        const ring = Math.max(Math.abs(r - 3), Math.abs(c - 3))
        set(top + r, left + c, ring === 3 || ring <= 1)
      }
    }
  }
  const centres = ALIGNMENT[version]
  for (const row of centres) {
    for (const column of centres) {
      if (dark[row][column] !== null) continue
      for (let r = -2; r <= 2; r++) for (let c = -2; c <= 2; c++) set(row + r, column + c, Math.max(Math.abs(r), Math.abs(c)) !== 1)
    }
  }
  for (let i = 8; i < size - 8; i++) {
    if (dark[6][i] === null) dark[6][i] = i % 2 === 0
    if (dark[i][6] === null) dark[i][6] = i % 2 === 0
  }
  return dark
}

function withInformation(dark, version, mask) {
  const size = dark.length
  let format = mask // error correction M is 00
  let rest = format << 10
  for (let i = 14; i >= 10; i--) if ((rest >> i) & 1) rest ^= 0x537 << (i - 10)
  format = ((format << 10) | rest) ^ 0x5412
  for (let i = 0; i < 15; i++) {
    const bit = ((format >> i) & 1) === 1
    if (i < 6) dark[i][8] = bit
    else if (i < 8) dark[i + 1][8] = bit
    else dark[size - 15 + i][8] = bit
    if (i < 8) dark[8][size - 1 - i] = bit
    else if (i === 8) dark[8][7] = bit
    else dark[8][14 - i] = bit
  }
  dark[size - 8][8] = true
  if (version < 7) return
  let number = version << 12
  for (let i = 17; i >= 12; i--) if ((number >> i) & 1) number ^= 0x1f25 << (i - 12)
  number |= version << 12
  for (let i = 0; i < 18; i++) {
    const bit = ((number >> i) & 1) === 1
    dark[Math.floor(i / 3)][size - 11 + (i % 3)] = bit
    dark[size - 11 + (i % 3)][Math.floor(i / 3)] = bit
  }
}

const MASKS = [
  (r, c) => (r + c) % 2 === 0, (r) => r % 2 === 0, (r, c) => c % 3 === 0, (r, c) => (r + c) % 3 === 0,
  (r, c) => (Math.floor(r / 2) + Math.floor(c / 3)) % 2 === 0, (r, c) => ((r * c) % 2) + ((r * c) % 3) === 0,
  (r, c) => (((r * c) % 2) + ((r * c) % 3)) % 2 === 0, (r, c) => (((r + c) % 2) + ((r * c) % 3)) % 2 === 0,
]

function filled(words, version, mask) {
  const dark = frame(version)
  withInformation(dark, version, mask)
  const size = dark.length
  const bits = words.flatMap((word) => [7, 6, 5, 4, 3, 2, 1, 0].map((i) => (word >> i) & 1))
  let at = 0
  for (let right = size - 1; right > 0; right -= 2) {
    if (right === 6) right--
    const up = ((right + 1) & 2) === 0
    for (let step = 0; step < size; step++) {
      const row = up ? size - 1 - step : step
      for (const column of [right, right - 1]) {
        if (dark[row][column] !== null) continue
        dark[row][column] = ((bits[at++] ?? 0) === 1) !== MASKS[mask](row, column)
      }
    }
  }
  return dark
}

function penalty(dark) {
  const size = dark.length
  let sum = 0
  const lines = [...dark, ...dark.map((_, column) => dark.map((row) => row[column]))]
  for (const line of lines) {
    let run = 1
    for (let i = 1; i <= size; i++) {
      if (i < size && line[i] === line[i - 1]) run++
      else {
        if (run >= 5) sum += run - 2
        run = 1
      }
    }
    const text = line.map((value) => (value ? '1' : '0')).join('')
    for (let i = 0; i + 11 <= size; i++) {
      const part = text.slice(i, i + 11)
      if (part === '10111010000' || part === '00001011101') sum += 40
    }
  }
  for (let r = 1; r < size; r++) {
    for (let c = 1; c < size; c++) {
      if (dark[r][c] === dark[r - 1][c] && dark[r][c] === dark[r][c - 1] && dark[r][c] === dark[r - 1][c - 1]) sum += 3
    }
  }
  const share = (100 * dark.flat().filter(Boolean).length) / (size * size)
  return sum + 10 * Math.floor(Math.abs(share - 50) / 5)
}

/** The modules of a QR code, row by row: true is dark. */
export function qrModules(text, mask = null) {
  const bytes = new TextEncoder().encode(text)
  const version = VERSIONS.findIndex((entry, number) => entry && bytes.length + (number < 10 ? 2 : 3) <= entry[0])
  if (version < 0) throw new RangeError(`expected text that fits into a QR code of version 10, got ${bytes.length} bytes`)
  const words = codewords(bytes, version)
  if (mask !== null) return filled(words, version, mask)
  const candidates = MASKS.map((_, number) => filled(words, version, number))
  return candidates.reduce((best, each) => (penalty(each) < penalty(best) ? each : best))
}

export function drawQr(canvas, text) {
  const modules = qrModules(text)
  canvas.width = canvas.height = modules.length
  const context = canvas.getContext('2d')
  context.fillStyle = '#fff'
  context.fillRect(0, 0, modules.length, modules.length)
  context.fillStyle = '#000'
  modules.forEach((row, y) => row.forEach((dark, x) => { if (dark) context.fillRect(x, y, 1, 1) }))
}
