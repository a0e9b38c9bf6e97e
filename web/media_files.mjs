// Pictures and sounds as the files that the module reads: BMP, and WAV with samples of 32-bit floats. The browser
// decodes what people have.
const BMP_HEAD = 54;
const WAV_HEAD = 44;

// Rows of 24-bit pixels from the bottom up, each ending at a multiple of four bytes. Transparent pixels are blended with
// white.
export async function bmpOf(blob) {
  const bitmap = await createImageBitmap(blob);
  const { width, height } = bitmap;
  const context = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
  context.fillStyle = "white";
  context.fillRect(0, 0, width, height);
  context.drawImage(bitmap, 0, 0);
  bitmap.close();
  const { data } = context.getImageData(0, 0, width, height);
  const rowBytes = (3 * width + 3) & ~3;
  const bytes = new Uint8Array(BMP_HEAD + rowBytes * height);
  const view = new DataView(bytes.buffer);
  view.setUint16(0, 0x424d);  // "BM"
  view.setUint32(2, bytes.length, true);
  view.setUint32(10, BMP_HEAD, true);
  view.setUint32(14, BMP_HEAD - 14, true);
  view.setInt32(18, width, true);
  view.setInt32(22, height, true);
  view.setUint16(26, 1, true);
  view.setUint16(28, 24, true);
  view.setUint32(34, rowBytes * height, true);
  for (let y = 0; y < height; ++y) {
    let to = BMP_HEAD + (height - 1 - y) * rowBytes;
    for (let from = 4 * width * y; from < 4 * width * (y + 1); from += 4, to += 3) {
      bytes[to] = data[from + 2];
      bytes[to + 1] = data[from + 1];
      bytes[to + 2] = data[from];
    }
  }
  return bytes;
}

// One channel at this rate, in samples a second.
export const SOUND_RATE = 16000;

// `samples`: a Float32Array.
export function wavOf(samples) {
  const bytes = new Uint8Array(WAV_HEAD + 4 * samples.length);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, 0x52494646);  // "RIFF"
  view.setUint32(4, bytes.length - 8, true);
  view.setUint32(8, 0x57415645);   // "WAVE"
  view.setUint32(12, 0x666d7420);  // "fmt "
  view.setUint32(16, 16, true);
  view.setUint16(20, 3, true);  // floats
  view.setUint16(22, 1, true);
  view.setUint32(24, SOUND_RATE, true);
  view.setUint32(28, 4 * SOUND_RATE, true);
  view.setUint16(32, 4, true);
  view.setUint16(34, 32, true);
  view.setUint32(36, 0x64617461);  // "data"
  view.setUint32(40, 4 * samples.length, true);
  samples.forEach((sample, i) => view.setFloat32(WAV_HEAD + 4 * i, sample, true));
  return bytes;
}

// The samples of a sound file. For pages only, since workers cannot decode sounds.
export async function samplesOf(blob) {
  const context = new OfflineAudioContext(1, 1, SOUND_RATE);  // sounds are decoded at its rate
  const sound = await context.decodeAudioData(await blob.arrayBuffer());
  const samples = new Float32Array(sound.length);
  for (let channel = 0; channel < sound.numberOfChannels; ++channel) {
    sound.getChannelData(channel).forEach((sample, i) => { samples[i] += sample / sound.numberOfChannels; });
  }
  return samples;
}
