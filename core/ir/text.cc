#include "core/ir/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <iterator>
#include <vector>

#include "core/base/printable.h"
#include "core/ir/text_names.h"

namespace rullama {
namespace {

using Buffer = fmt::memory_buffer;

template <typename... Args>
void Append(Buffer& out, fmt::format_string<Args...> format, Args&&... args) {
  fmt::format_to(std::back_inserter(out), format, std::forward<Args>(args)...);
}

template <typename T>
T Field(const OpAttrs& attrs, const AttrInfo& info) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(attrs.data()) + info.offset, sizeof(T));
  return value;
}

void PrintAttr(Buffer& out, const OpAttrs& attrs, const AttrInfo& info) {
  switch (info.type) {
    case AttrType::kI32:
      return Append(out, "{}={}", info.name, Field<int32_t>(attrs, info));
    case AttrType::kI64:
      return Append(out, "{}={}", info.name, Field<int64_t>(attrs, info));
    case AttrType::kF32:
      return Append(out, "{}={}", info.name, Field<float>(attrs, info));
    case AttrType::kEnum: {
      const auto value = Field<int32_t>(attrs, info);
      const std::string_view name = EnumeratorName(info.enum_name, value);
      if (name.empty()) return Append(out, "{}={}", info.name, value);
      return Append(out, "{}={}", info.name, name);
    }
  }
}

void PrintLeaf(Buffer& out, ValueId id, const Value& value) {
  Append(out, "%{}", id);
  switch (value.lifetime) {
    case Lifetime::kInput:
      Append(out, " = input {}", QuotedText(value.name));
      break;
    case Lifetime::kState:
      Append(out, " = state {}", QuotedText(value.name));
      break;
    default:
      if (value.name != DefaultConstantName(value.source, value.first_row)) {
        Append(out, " {}", QuotedText(value.name));
      }
      Append(out, " = constant {}", QuotedText(value.source));
      if (value.first_row != 0) Append(out, " rows {}", value.first_row);
  }
  Append(out, " : {}\n", ToString(value.type));
}

void PrintOp(Buffer& out, const Graph& graph, const Op& op) {
  const OpInfo& info = InfoOf(op.kind);
  std::string_view separator;
  for (const ValueId result : op.results) {
    Append(out, "{}%{} {}", separator, result, QuotedText(graph.value(result).name));
    separator = ", ";
  }
  Append(out, " = {}(", info.name);
  separator = "";
  for (const ValueId input : op.inputs) {
    if (input == kNoValue) {
      Append(out, "{}_", separator);
    } else {
      Append(out, "{}%{}", separator, input);
    }
    separator = ", ";
  }
  Append(out, ")");
  if (!info.attrs.empty()) {
    separator = " {";
    for (const AttrInfo& attr : info.attrs) {
      Append(out, "{}", separator);
      PrintAttr(out, op.attrs, attr);
      separator = ", ";
    }
    Append(out, "}}");
  }
  if (op.device != 0) Append(out, " on {}", op.device);
  if (op.epoch != 0) Append(out, " epoch {}", op.epoch);
  separator = " : ";
  for (const ValueId result : op.results) {
    Append(out, "{}{}", separator, ToString(graph.type(result)));
    separator = ", ";
  }
  Append(out, "\n");
}

}  // namespace

std::string DefaultConstantName(std::string_view source, int64_t first_row) {
  return first_row == 0 ? std::string(source) : fmt::format("{}@{}", source, first_row);
}

std::string PrintText(const Graph& graph) {
  Buffer out;
  Append(out, "graph {} T<={} R<={}\n", QuotedText(graph.name), graph.max_t, graph.max_r);
  for (ValueId id = 0; id < graph.values.size(); ++id) {
    if (graph.values[id].producer == kNoOp) PrintLeaf(out, id, graph.values[id]);
  }
  for (const Op& op : graph.ops) PrintOp(out, graph, op);
  if (graph.rows_input != kNoValue) Append(out, "rows %{}\n", graph.rows_input);
  for (const Output& output : graph.outputs) {
    Append(out, "output {} = %{} {}\n", QuotedText(output.name), output.value,
           output.demand == RowDemand::kAll ? "all" : "wanted");
  }
  return fmt::to_string(out);
}

}  // namespace rullama
