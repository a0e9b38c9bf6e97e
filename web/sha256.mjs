// SHA-256 of bytes that come in parts, which crypto.subtle does not compute.
const ROUND_CONSTANTS = constants(64, (root) => Math.cbrt(root));
const INITIAL = constants(8, (root) => Math.sqrt(root));
const BLOCK = 64;  // bytes

// The first 32 bits of the fractional parts of roots of the first primes.
function constants(count, rootOf) {
  const primes = [];
  for (let n = 2; primes.length < count; ++n) {
    if (primes.every((prime) => n % prime !== 0)) primes.push(n);
  }
  return Int32Array.from(primes, (prime) => (rootOf(prime) % 1) * 2 ** 32);
}

export class Sha256 {
  #state = Int32Array.from(INITIAL);
  #words = new Int32Array(64);
  #rest = new Uint8Array(BLOCK);  // the beginning of a block
  #restBytes = 0;
  #bytes = 0;

  update(bytes) {
    this.#bytes += bytes.length;
    let at = 0;
    if (this.#restBytes > 0) {
      at = Math.min(BLOCK - this.#restBytes, bytes.length);
      this.#rest.set(bytes.subarray(0, at), this.#restBytes);
      this.#restBytes += at;
      if (this.#restBytes < BLOCK) return this;
      this.#add(this.#rest, 0);
      this.#restBytes = 0;
    }
    for (; at + BLOCK <= bytes.length; at += BLOCK) this.#add(bytes, at);
    this.#rest.set(bytes.subarray(at));
    this.#restBytes = bytes.length - at;
    return this;
  }

  // Ends it.
  hex() {
    const bits = 8 * this.#bytes;
    const padding = new Uint8Array((this.#restBytes < 56 ? 64 : 128) - this.#restBytes);
    padding[0] = 0x80;
    const view = new DataView(padding.buffer);
    view.setUint32(padding.length - 8, Math.floor(bits / 2 ** 32));
    view.setUint32(padding.length - 4, bits >>> 0);
    this.update(padding);
    return Array.from(this.#state, (word) => (word >>> 0).toString(16).padStart(8, "0")).join("");
  }

  #add(bytes, at) {
    const w = this.#words;
    for (let i = 0; i < 16; ++i, at += 4) {
      w[i] = (bytes[at] << 24) | (bytes[at + 1] << 16) | (bytes[at + 2] << 8) | bytes[at + 3];
    }
    for (let i = 16; i < 64; ++i) {
      const x = w[i - 15];
      const y = w[i - 2];
      const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
      const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
      w[i] = (w[i - 16] + s0 + w[i - 7] + s1) | 0;
    }
    const state = this.#state;
    let a = state[0];
    let b = state[1];
    let c = state[2];
    let d = state[3];
    let e = state[4];
    let f = state[5];
    let g = state[6];
    let h = state[7];
    for (let i = 0; i < 64; ++i) {
      const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
      const t1 = (h + s1 + ((e & f) ^ (~e & g)) + ROUND_CONSTANTS[i] + w[i]) | 0;
      const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
      const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      h = g;
      g = f;
      f = e;
      e = (d + t1) | 0;
      d = c;
      c = b;
      b = a;
      a = (t1 + t2) | 0;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
    state[5] += f;
    state[6] += g;
    state[7] += h;
  }
}
