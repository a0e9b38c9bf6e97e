// The ops this backend runs, as in the generated ops.h, and the rows of ten primitives.
#pragma once

#include <rullama/sdk/backend.h>
#include <rullama/sdk/op_table.h>

#include <cstdint>
#include <functional>
#include <string>

namespace external {

namespace sdk = rullama::sdk;

// Runs one op at the extents of a step: T rows, R of them wanted.
using Kernel = std::function<void(int64_t t, int64_t r)>;

using OpRow = sdk::OpRow<std::string(const sdk::GraphView& graph, const rl_op& op),
                         Kernel(const sdk::GraphView& graph, const rl_op& op)>;

const sdk::OpTable<OpRow>& Ops();

// Returns an empty string if all operands and results are f32, else a reason to refuse.
std::string RefuseUnlessF32(const sdk::GraphView& graph, const rl_op& op);

// op_structure.cc
extern const OpRow kReshape;
extern const OpRow kSlice;
extern const OpRow kConcat;
extern const OpRow kCopy;
// op_pointwise.cc
extern const OpRow kUnary;
extern const OpRow kBinary;
extern const OpRow kScale;
extern const OpRow kAffine;
// op_reduce.cc
extern const OpRow kReduce;
// op_matmul.cc
extern const OpRow kMatMul;

}  // namespace external
