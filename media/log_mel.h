// Log-mel features of sound, what an audio tower reads. The formulas are those of
// feature_extraction_gemma4.py in transformers.
//
// Thread safety: a pure function.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace rullama {

inline constexpr size_t kMelBins = 128;

// The number of frames of `samples` samples at 16 kHz: one every 10 ms, none for fewer than
// kMinSoundSamples.
[[nodiscard]] size_t MelFrames(size_t samples);

// [MelFrames(samples), kMelBins]: ln(m + 0.001), where m is a weighted sum of the magnitudes of the
// spectrum of 20 ms. Computed in double precision.
[[nodiscard]] std::vector<float> LogMel(std::span<const float> samples);

}  // namespace rullama
