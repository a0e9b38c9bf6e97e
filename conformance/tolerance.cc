#include "conformance/tolerance.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace rullama::conformance {
namespace {

using reference::Tensor;

Bounds ContractionBounds(Activations activations) {
  switch (activations) {
    case Activations::kFloat:
      return {1e-10, 1e-5, 1e-6};
    case Activations::kInt16:
      // Two rows of 8 bits: off by 1.6e-5 of the largest in a block at most, so the variance is
      // 8e-11 of its square. All results of a row share these errors, hence five deviations.
      return {2e-9, 3e-5, 1e-6};
    case Activations::kFloat16:
      return {1e-5, 1e-3, 1e-4};
    case Activations::kInt8:
      return {5e-4, 8e-3, 1e-3};  // 1/254 of the largest in a block, twice for safety
  }
  return {};
}

// "[1, 3, 96] of [7, 8, 128]".
std::string PlaceOf(size_t element, const std::vector<int64_t>& dims) {
  std::vector<size_t> place(dims.size());
  for (size_t axis = dims.size(); axis-- > 0;) {
    const auto size = static_cast<size_t>(dims[axis]);
    place[axis] = element % size;
    element /= size;
  }
  return fmt::format("[{}] of [{}]", fmt::join(place, ", "), fmt::join(dims, ", "));
}

}  // namespace

Bounds BoundsOf(ToleranceClass tolerance, Activations activations) {
  switch (tolerance) {
    case ToleranceClass::kExact:
      return {};
    case ToleranceClass::kRounding:
      return {1e-12, 1e-5, 1e-6};
    case ToleranceClass::kHalf:
      // A step is 2^-10 of the element; few elements are so near the middle between two.
      return {1e-7, 0x1p-10 + 1e-5, 1e-6};
    case ToleranceClass::kContraction:
      return ContractionBounds(Activations::kFloat);
    case ToleranceClass::kHalfFactors:
      return ContractionBounds(activations == Activations::kFloat16 ? activations
                                                                    : Activations::kFloat);
    case ToleranceClass::kBlocks:
      return ContractionBounds(activations);
    case ToleranceClass::kComposite: {
      // The second product of a chain amplifies what the first one lost, relative to a smaller
      // result.
      constexpr double kAmplification = 8;
      const Bounds blocks = ContractionBounds(activations);
      return {blocks.nmse * kAmplification * kAmplification, blocks.relative * kAmplification,
              blocks.absolute * kAmplification};
    }
  }
  return {};
}

std::string Compare(const Tensor& expected, const Tensor& actual,
                    std::span<const double> magnitudes, std::span<const double> energies,
                    const Bounds& bounds) {
  size_t bad = 0;
  std::string first;
  const auto complain = [&](size_t at, auto found, auto wanted, double allowed) {
    if (bad++ == 0) {
      first = fmt::format("element {} is {}, expected {} (allowed difference {:.3g})",
                          PlaceOf(at, expected.dims), found, wanted, allowed);
    }
  };
  for (size_t j = 0; j < expected.i.size(); ++j) {
    if (expected.i[j] != actual.i[j]) complain(j, actual.i[j], expected.i[j], 0);
  }
  double error = 0, energy = 0;
  for (size_t j = 0; j < expected.f.size(); ++j) {
    const double e = expected.f[j], a = actual.f[j];
    if (!std::isfinite(e) || !std::isfinite(a)) {
      if (!(std::isnan(e) && std::isnan(a)) && e != a) complain(j, a, e, 0);
      continue;
    }
    const double allowed =
        bounds.relative == 0 ? 0 : bounds.absolute + bounds.relative * magnitudes[j];
    if (std::abs(a - e) > allowed) complain(j, a, e, allowed);
    error += (a - e) * (a - e);
    energy += energies[j];
  }
  if (bad > 0) {
    const size_t count = expected.i.size() + expected.f.size();
    return fmt::format("{}; {} of {} elements are off", first, bad, count);
  }
  // Cancellation may leave one of a few elements small compared with its terms. The bound above,
  // which knows the terms, has already judged it.
  constexpr size_t kEnoughForNmse = 16;
  if (expected.f.size() < kEnoughForNmse) return {};
  // Below the absolute bound everything is rounding of zero.
  const double floor = bounds.absolute * bounds.absolute * static_cast<double>(expected.f.size());
  if (error > bounds.nmse * energy + floor) {
    return fmt::format("NMSE is {:.3g}, allowed {:.3g}", error / std::max(energy, 1e-300),
                       bounds.nmse);
  }
  return {};
}

}  // namespace rullama::conformance
