// Tolerance classes: how close results must be to the float64 reference, with the reasons of
// docs/numerics.md. Pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/ir/graph.h"
#include "core/reference/interpreter.h"

namespace rullama::conformance {

struct Case;

// The error that the arithmetic of an op may have (docs/numerics.md, Tolerances).
enum class ToleranceClass {
  kExact,        // no arithmetic, or integers
  kRounding,     // a few roundings of f32, functions within 2 ulp
  kHalf,         // the same on the grid of f16, where a rounding may make one step
  kContraction,  // sums of products in f32
  kHalfFactors,  // the same, and a backend that rounds activations to f16 may do so
  kBlocks,       // the same with block weights, whose activations a backend may quantise
  kComposite,    // a chain of the above, where errors of one part are inputs of the next
};

// The precision of activations that are multiplied with block weights; the manifest states it.
// kFloat16 also allows f16 factors of products with f16 weights and of attention, that with keys
// and values in f16 and that without a cache where rows see later ones.
enum class Activations { kFloat, kInt16, kFloat16, kInt8 };
inline constexpr std::pair<Activations, std::string_view> kActivationNames[] = {
    {Activations::kFloat, "float"},
    {Activations::kInt16, "int16"},
    {Activations::kFloat16, "float16"},
    {Activations::kInt8, "int8"},
};

struct Bounds {
  double nmse = 0;      // of the sum of energies
  double relative = 0;  // of an element's magnitude
  double absolute = 0;
};
Bounds BoundsOf(ToleranceClass tolerance, Activations activations);

// Returns the magnitude that the error of each element is relative to. For sums it is the sum of
// the magnitudes of the terms, so that cancellation is not punished.
std::vector<double> Magnitudes(const Case& test, const reference::Interpreter& ran,
                               const reference::Tensor& expected);

// Returns the square that the mean error of each element is relative to: the square of the element,
// or for sums of products the sum of the squares of the terms. A sum that cancels by chance keeps
// the errors of its terms, while a wrong scale or block gives errors as large as the terms.
std::vector<double> Energies(const Case& test, const reference::Interpreter& ran,
                             const reference::Tensor& expected);

// Returns an empty text if `actual` is within the bounds of `expected`, else a description: the
// first bad element, how many there are, and the NMSE. NaN and infinities have to be equal.
std::string Compare(const reference::Tensor& expected, const reference::Tensor& actual,
                    std::span<const double> magnitudes, std::span<const double> energies,
                    const Bounds& bounds);

}  // namespace rullama::conformance
