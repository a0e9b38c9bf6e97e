// A case is a small graph with its data and its tolerance class. Cases are made from a seed, so a
// failure is replayed with one flag. Value types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/tolerance.h"
#include "core/ir/builder.h"
#include "core/ir/graph.h"

namespace rullama::conformance {

using Bytes = std::vector<std::byte>;

template <typename T>
Bytes BytesOf(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

struct Case {
  Graph graph;
  Extents extents;  // of the execution; the graph is compiled for more
  // Data by name: inputs at `extents`, constants, and the initial states.
  std::map<std::string, Bytes, std::less<>> data;
  ToleranceClass tolerance = ToleranceClass::kExact;
};

// The types of keys and values of a cache.
struct KvTypes {
  DType keys, values;
  constexpr KvTypes(DType both) : keys(both), values(both) {}  // NOLINT: one type is that of both
  constexpr KvTypes(DType of_keys, DType of_values) : keys(of_keys), values(of_values) {}
};

struct CaseSpec {
  std::string name;  // "matmul/q4_k_k256_n31_t7"
  OpKind kind;       // the op under test
  std::function<Case(uint64_t seed)> make;
  // The type of the weights, of cases that there are for each type.
  std::optional<DType> weights = std::nullopt;
};

// The end of the name of a product of `results` results, gated ones counted twice: "_wide" if they
// are for the largest tiles of large GPUs (--skip in main.cc), else empty.
inline const char* WideSuffix(int64_t results) { return results >= 8000 ? "_wide" : ""; }

// Every case of every op.
std::vector<CaseSpec> AllCases();
void AddStructureCases(std::vector<CaseSpec>& cases);
void AddPointwiseCases(std::vector<CaseSpec>& cases);
void AddReductionCases(std::vector<CaseSpec>& cases);
void AddMatMulCases(std::vector<CaseSpec>& cases);
void AddNormCases(std::vector<CaseSpec>& cases);
void AddAttentionCases(std::vector<CaseSpec>& cases);
void AddAttentionGradientCases(std::vector<CaseSpec>& cases);
void AddMediaCases(std::vector<CaseSpec>& cases);
void AddStateCases(std::vector<CaseSpec>& cases);
void AddOptimizerCases(std::vector<CaseSpec>& cases);
void AddSamplingCases(std::vector<CaseSpec>& cases);
void AddTrainingCases(std::vector<CaseSpec>& cases);

// Cases of several ops; `kind` is the one they are about.
std::vector<CaseSpec> NeighbourCases();

// Cases of a step that decodes one row for each of T slots: row i of each T-shaped input belongs to
// slot i, the input "past" has a number for each slot, and every output has T or R rows.
std::vector<CaseSpec> BatchCases();

// The names of the cases that --quick runs. Of an op with cases for several types one case for
// each, of which the next type has the next shape, so that each shape is there as well; of an op
// without types the first case, the last and the one halfway between. None is for the largest tiles
// (WideSuffix).
std::set<std::string> QuickCases(const std::vector<CaseSpec>& cases);
// The names of the batches that --quick runs: the first of each kind, "products" of
// "products/q4_k_17_slots".
std::set<std::string> QuickSample(const std::vector<CaseSpec>& cases);

// The weight types with a published layout, and the shapes that each requires.
std::vector<DType> WeightTypes();

// Draws numbers from a seed (splitmix64); the same everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  double Uniform(double low, double high);
  int64_t Int(int64_t low, int64_t high);  // both ends included
  double Normal();                         // roughly: the sum of twelve uniforms

 private:
  uint64_t state_;
};

// Makes a case: values with random data, then ops, then Finish.
class CaseBuilder {
 public:
  // Rows T and R of the execution. The plan is compiled for more: the largest step must not leak
  // into a smaller one. Steps of one row have a plan of their own, as when a model decodes.
  CaseBuilder(uint64_t seed, int64_t t, int64_t r = 1);
  static constexpr int64_t kSpareRows = 3;

  [[nodiscard]] GraphBuilder& graph() { return builder_; }
  [[nodiscard]] Random& random() { return random_; }
  [[nodiscard]] const Extents& extents() const { return extents_; }

  // Adds a value with uniform numbers, or with these numbers (as many as there are elements).
  ValueId Floats(std::string_view name, const TensorType& type, double low = -2, double high = 2);
  ValueId Floats(std::string_view name, const TensorType& type, const std::vector<double>& values);
  ValueId Ints(std::string_view name, const TensorType& type, int64_t low, int64_t high);
  ValueId Ints(std::string_view name, const TensorType& type, const std::vector<int32_t>& values);
  // Adds a constant of any weight type with numbers of order one.
  ValueId Weight(std::string_view name, const TensorType& type);
  // Adds a constant of a plain dtype.
  ValueId Constant(std::string_view name, const TensorType& type, double low = -2, double high = 2);
  ValueId ConstantInts(std::string_view name, const std::vector<int32_t>& values);
  ValueId State(std::string_view name, const TensorType& type, double low = -2, double high = 2);

  // Turns every result of the op into an output.
  std::vector<ValueId> Op(OpKind kind, std::vector<ValueId> inputs, const OpAttrs& attrs);
  void Output(ValueId value);
  Case Finish(ToleranceClass tolerance) &&;

 private:
  void Store(std::string_view name, const TensorType& type, const std::vector<double>& values);
  std::vector<double> Draw(const TensorType& type, double low, double high);

  Extents extents_;
  Random random_;
  GraphBuilder builder_;
  std::map<std::string, Bytes, std::less<>> data_;
};

// A case of one op, all of whose results are outputs.
Case OneOp(CaseBuilder&& builder, OpKind kind, std::vector<ValueId> inputs, const OpAttrs& attrs,
           ToleranceClass tolerance);

// f32 or i32 of these dims.
inline TensorType F(std::initializer_list<Dim> dims) { return {DType::kF32, dims}; }
inline TensorType I(std::initializer_list<Dim> dims) { return {DType::kI32, dims}; }
inline const Dim kT = Dim::T();
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

}  // namespace rullama::conformance
