#include "media/log_mel.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstdint>
#include <memory>
#include <numbers>
#include <utility>

#include "media/sound.h"

namespace rullama {
namespace {

constexpr size_t kHop = 160;       // samples from frame to frame
constexpr size_t kWindow = 320;    // samples of a frame that are looked at
constexpr size_t kUnfolded = 321;  // samples a frame needs; the last one is not looked at
constexpr size_t kPadding = 160;   // zeros before the first sample
constexpr size_t kFftSize = 512;
constexpr size_t kBins = kFftSize / 2 + 1;
constexpr double kFloor = 0.001;

using Spectrum = std::array<std::complex<double>, kFftSize>;

// The Fourier transform of kFftSize numbers, in place, by the method of Cooley and Tukey.
class Fft {
 public:
  Fft() {
    for (size_t i = 0; i < roots_.size(); ++i) {
      const double angle = -2.0 * std::numbers::pi * static_cast<double>(i) / kFftSize;
      roots_[i] = {std::cos(angle), std::sin(angle)};
    }
  }

  void Transform(Spectrum& values) const {
    ReverseBits(values);
    for (size_t half = 1; half < kFftSize; half *= 2) {
      const size_t step = kFftSize / (2 * half);
      for (size_t block = 0; block < kFftSize; block += 2 * half) {
        for (size_t i = 0; i < half; ++i) {
          const std::complex<double> even = values[block + i];
          const std::complex<double> odd = values[block + half + i] * roots_[i * step];
          values[block + i] = even + odd;
          values[block + half + i] = even - odd;
        }
      }
    }
  }

 private:
  static void ReverseBits(Spectrum& values) {
    for (size_t i = 1, reversed = 0; i < kFftSize; ++i) {
      size_t bit = kFftSize / 2;
      for (; (reversed & bit) != 0; bit /= 2) reversed ^= bit;
      reversed |= bit;
      if (i < reversed) std::swap(values[i], values[reversed]);
    }
  }

  std::array<std::complex<double>, kFftSize / 2> roots_;
};

// Triangles over the bins of the spectrum: corners evenly spaced on the mel scale of HTK.
class MelFilters {
 public:
  MelFilters() {
    constexpr double kHighest = kSoundRate / 2.0;
    std::array<double, kMelBins + 2> corners{};
    for (size_t i = 0; i < corners.size(); ++i) {
      corners[i] = FromMel(ToMel(kHighest) * static_cast<double>(i) / (kMelBins + 1));
    }
    for (size_t m = 0; m < kMelBins; ++m) {
      for (size_t k = 0; k < kBins; ++k) {
        const double f = static_cast<double>(kSoundRate) * static_cast<double>(k) / kFftSize;
        const double rise = (f - corners[m]) / (corners[m + 1] - corners[m]);
        const double fall = (corners[m + 2] - f) / (corners[m + 2] - corners[m + 1]);
        weights_[m][k] = std::max(0.0, std::min(rise, fall));
      }
    }
  }

  [[nodiscard]] double Apply(size_t filter, const std::array<double, kBins>& magnitudes) const {
    double sum = 0.0;
    for (size_t k = 0; k < kBins; ++k) sum += weights_[filter][k] * magnitudes[k];
    return sum;
  }

 private:
  static double ToMel(double hertz) { return 2595.0 * std::log10(1.0 + hertz / 700.0); }
  static double FromMel(double mel) { return 700.0 * (std::pow(10.0, mel / 2595.0) - 1.0); }

  std::array<std::array<double, kBins>, kMelBins> weights_{};
};

std::array<double, kWindow> HannWindow() {
  std::array<double, kWindow> window{};
  for (size_t j = 0; j < kWindow; ++j) {
    window[j] = 0.5 - 0.5 * std::cos(2.0 * std::numbers::pi * static_cast<double>(j) / kWindow);
  }
  return window;
}

}  // namespace

size_t MelFrames(size_t samples) {
  return samples < kMinSoundSamples ? 0 : (samples + kPadding - kUnfolded) / kHop + 1;
}

std::vector<float> LogMel(std::span<const float> samples) {
  const Fft fft;
  const auto filters = std::make_unique<const MelFilters>();  // 260 KiB
  const std::array<double, kWindow> window = HannWindow();
  const size_t frames = MelFrames(samples.size());
  std::vector<float> features;
  features.reserve(frames * kMelBins);
  Spectrum spectrum;
  std::array<double, kBins> magnitudes{};
  for (size_t frame = 0; frame < frames; ++frame) {
    spectrum.fill(0.0);
    for (size_t j = 0; j < kWindow; ++j) {
      const size_t at = frame * kHop + j;  // in the padded signal
      if (at >= kPadding) spectrum[j] = samples[at - kPadding] * window[j];
    }
    fft.Transform(spectrum);
    for (size_t k = 0; k < kBins; ++k) magnitudes[k] = std::abs(spectrum[k]);
    for (size_t m = 0; m < kMelBins; ++m) {
      features.push_back(static_cast<float>(std::log(filters->Apply(m, magnitudes) + kFloor)));
    }
  }
  return features;
}

}  // namespace rullama
