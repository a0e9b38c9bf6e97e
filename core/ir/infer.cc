#include "core/ir/infer.h"

#include <fmt/format.h>

#include <utility>

#include "core/ir/infer_context.h"

namespace rullama {
namespace {

using infer_internal::Context;
using infer_internal::Types;

Types Dispatch(OpKind kind, Context& c) {
  switch (kind) {
#define RL_OP(id, Name, name, operands, results, attributes, traits, doc) \
  case OpKind::k##Name:                                                   \
    return infer_internal::Infer##Name(c);
#include <rullama/abi/ops.def>
  }
  c.Fail("unknown op {}", static_cast<uint32_t>(kind));
  return {};
}

}  // namespace

Result<std::vector<TensorType>> InferTypes(OpKind kind, const OpAttrs& attrs,
                                           std::span<const TensorType* const> operands) {
  const OpInfo& info = InfoOf(kind);
  if (operands.size() != info.operands.size()) {
    return MakeError(ErrorKind::kRuntime, "ir.type", "{}: found {} operands, expected {}",
                     info.name, operands.size(), info.operands.size());
  }
  if (attrs.size() != info.attrs_size) {
    return MakeError(ErrorKind::kRuntime, "ir.type", "{}: attributes of {} bytes, expected {}",
                     info.name, attrs.size(), info.attrs_size);
  }
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i] == nullptr && !info.operands[i].optional) {
      return MakeError(ErrorKind::kRuntime, "ir.type", "{}: operand {} is missing", info.name,
                       info.operands[i].name);
    }
    if (operands[i] == nullptr) continue;
    if (auto status = CheckType(*operands[i]); !status) {
      return tl::unexpected<Error>(std::move(status).error().WithContext(
          fmt::format("{}: operand {}", info.name, info.operands[i].name)));
    }
  }
  Context context(info, attrs, operands);
  auto types = Dispatch(kind, context);
  if (context.ok()) {
    for (const TensorType& type : types) {
      if (auto status = CheckType(type); !status) {
        context.Fail("result: {}", status.error().message);
      }
    }
  }
  return std::move(context).Finish(std::move(types));
}

}  // namespace rullama
