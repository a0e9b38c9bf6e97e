#include <algorithm>

#include "media/sound.h"

namespace rullama {

std::vector<std::span<const float>> SoundPieces(std::span<const float> samples) {
  std::vector<std::span<const float>> pieces;
  pieces.reserve(samples.size() / kMaxSoundPiece + 1);
  while (samples.size() >= kMinSoundSamples) {
    const size_t size = std::min(samples.size(), kMaxSoundPiece);
    pieces.push_back(samples.first(size));
    samples = samples.subspan(size);
  }
  return pieces;
}

std::vector<float> SoundFrames(std::span<const float> samples) {
  std::vector<float> frames(samples.begin(), samples.end());
  frames.resize((samples.size() + kSoundFrame - 1) / kSoundFrame * kSoundFrame, 0.0F);
  return frames;
}

}  // namespace rullama
