// The text form of a graph. Print and Parse round-trip: Parse(Print(g)) equals g, so passes are
// tested with golden files and graphs can be mailed around.
//
//   graph "tiny" T<=512 R<=1
//   %0 = input "tokens" : i32[T]
//   %1 = constant "token_embd.weight" : q6_k[2048,256]            (optionally: rows 128)
//   %2 = state "blk.0.k" : f16[1,64,1,64]
//   %3 "embd" = gather_rows(%1, %0) {column=0, columns=0} : f32[T,256]
//   %4 "blk.0.k.next" = state_append(%2, %3, ...) : ...
//   %9 "again" = rms_norm(%8, _) {eps=1e-06} on 1 epoch 1 : ...   (device and epoch, unless 0)
//   rows %5
//   output "logits" = %9 wanted
#pragma once

#include <string>
#include <string_view>

#include "core/base/status.h"
#include "core/ir/graph.h"

namespace rullama {

std::string PrintText(const Graph& graph);
// Error ir.text with line and column. The result is verified.
Result<Graph> ParseText(std::string_view text);

}  // namespace rullama
