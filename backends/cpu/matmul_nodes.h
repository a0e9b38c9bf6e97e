// The nodes of products, for ops that consist of several (ops_matmul.cc).
#pragma once

#include "backends/cpu/node.h"

namespace rullama::cpu {

// Appends y = x W^T for rows that the current op alone multiplies.
void AddProduct(const CompileContext& context, const View& x, const View& weight, const View& y);
// Appends y = x W, with W as stored.
void AddProductAsStored(const CompileContext& context, const View& x, const View& weight,
                        const View& y);

}  // namespace rullama::cpu
