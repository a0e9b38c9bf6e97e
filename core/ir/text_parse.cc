// The parser of the text form. Takes arbitrary bytes: every number is range-checked, nothing
// recurses, and the work is linear in the text.
#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/checked_math.h"
#include "core/base/from_chars.h"
#include "core/ir/text.h"
#include "core/ir/text_names.h"
#include "core/ir/verify.h"

namespace rullama {
namespace {

// Position in the text, and the tokens of the format. A method that fails leaves the error of the
// position where it stood.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  // An error at the current position.
  template <typename... Args>
  [[nodiscard]] tl::unexpected<Error> Fail(fmt::format_string<Args...> format,
                                           Args&&... args) const {
    size_t line = 1;
    size_t line_start = 0;
    for (size_t i = 0; i < at_; ++i) {
      if (text_[i] != '\n') continue;
      ++line;
      line_start = i + 1;
    }
    return MakeError(ErrorKind::kRuntime, "ir.text", "line {}, column {}: {}", line,
                     at_ - line_start + 1, fmt::format(format, std::forward<Args>(args)...));
  }

  // White space, and comments from # to the end of the line.
  void SkipSpace() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
        ++at_;
      } else {
        return;
      }
    }
  }
  bool AtEnd() {
    SkipSpace();
    return at_ == text_.size();
  }
  [[nodiscard]] char Peek() {
    SkipSpace();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool Take(std::string_view token) {
    SkipSpace();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  Status Expect(std::string_view token) {
    if (Take(token)) return OkStatus();
    return Fail("expected '{}'", token);
  }

  // Letters, digits and _; empty if there are none.
  std::string_view Word() {
    SkipSpace();
    const size_t begin = at_;
    while (at_ < text_.size() && IsWordChar(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  template <typename T>
  Result<T> Number(std::string_view what) {
    SkipSpace();
    T value{};
    const auto [end, error] = FromChars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error == std::errc::result_out_of_range) return Fail("{} is out of range", what);
    if (error != std::errc()) return Fail("expected {}", what);
    at_ = static_cast<size_t>(end - text_.data());
    return value;
  }

  Result<std::string> Quoted() {
    RL_RETURN_IF_ERROR(Expect("\""));
    std::string value;
    while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\n') {
      const char c = text_[at_++];
      if (c != '\\') {
        value += c;
        continue;
      }
      if (at_ >= text_.size()) break;
      const char escape = text_[at_++];
      if (escape == '"' || escape == '\\') {
        value += escape;
        continue;
      }
      if (escape == 'n') {
        value += '\n';
        continue;
      }
      uint8_t byte = 0;
      const std::string_view digits = text_.substr(at_, 2);
      const auto [end, error] =
          std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
      if (escape != 'x' || error != std::errc() || end != digits.data() + 2) {
        return Fail("expected \\\", \\\\, \\n or \\x and two hexadecimal digits");
      }
      at_ += 2;
      value += static_cast<char>(byte);
    }
    if (at_ >= text_.size() || text_[at_] != '"') return Fail("the string has no closing quote");
    ++at_;
    return value;
  }

 private:
  static bool IsWordChar(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  }

  std::string_view text_;
  size_t at_ = 0;
};

// A term of a dimension: "64", "T", "2R".
Result<Dim> ParseDimTerm(Cursor& in) {
  const char first = in.Peek();
  int64_t factor = 1;
  const bool has_number = first >= '0' && first <= '9';
  if (has_number) {
    RL_ASSIGN_OR_RETURN(factor, in.Number<int64_t>("a size"));
  }
  const bool is_t = in.Take("T");
  if (!is_t && !in.Take("R")) {
    if (has_number) return Dim(factor);
    return in.Fail("expected a dimension: a number, T or R");
  }
  const auto coefficient = CheckedCast<int32_t>(factor);
  if (!coefficient) return in.Fail("the factor {} is out of range", factor);
  return is_t ? Dim(0, *coefficient, 0) : Dim(0, 0, *coefficient);
}

Result<Dim> ParseDim(Cursor& in) {
  Dim sum;
  do {
    RL_ASSIGN_OR_RETURN(const Dim term, ParseDimTerm(in));
    const auto constant = CheckedAdd(sum.constant, term.constant);
    const auto t = CheckedAdd(sum.t, term.t);
    const auto r = CheckedAdd(sum.r, term.r);
    if (!constant || !t || !r) return in.Fail("the dimension is out of range");
    sum = Dim(*constant, *t, *r);
  } while (in.Take("+"));
  return sum;
}

Result<TensorType> ParseType(Cursor& in) {
  const std::string_view name = in.Word();
  const auto dtype = DTypeFromName(name);
  if (!dtype) return in.Fail("'{}' is not an element type", name);
  TensorType type;
  type.dtype = *dtype;
  RL_RETURN_IF_ERROR(in.Expect("["));
  do {
    if (type.rank == kMaxRank) return in.Fail("more than {} dimensions", kMaxRank);
    RL_ASSIGN_OR_RETURN(type.dim(type.rank), ParseDim(in));
    ++type.rank;
  } while (in.Take(","));
  RL_RETURN_IF_ERROR(in.Expect("]"));
  return type;
}

template <typename T>
void SetField(OpAttrs& attrs, const AttrInfo& info, T value) {
  std::memcpy(static_cast<std::byte*>(attrs.data()) + info.offset, &value, sizeof(T));
}

Status ParseAttr(Cursor& in, const AttrInfo& info, OpAttrs& attrs) {
  if (in.Word() != info.name) return in.Fail("expected attribute '{}' before here", info.name);
  RL_RETURN_IF_ERROR(in.Expect("="));
  switch (info.type) {
    case AttrType::kI32: {
      RL_ASSIGN_OR_RETURN(const auto value, in.Number<int32_t>("an integer"));
      SetField(attrs, info, value);
      return OkStatus();
    }
    case AttrType::kI64: {
      RL_ASSIGN_OR_RETURN(const auto value, in.Number<int64_t>("an integer"));
      SetField(attrs, info, value);
      return OkStatus();
    }
    case AttrType::kF32: {
      RL_ASSIGN_OR_RETURN(const auto value, in.Number<float>("a number"));
      SetField(attrs, info, value);
      return OkStatus();
    }
    case AttrType::kEnum: {
      const std::string_view name = in.Word();
      const auto value = EnumeratorFromName(info.enum_name, name);
      if (!value) return in.Fail("'{}' is not a value of {}", name, info.enum_name);
      SetField(attrs, info, *value);
      return OkStatus();
    }
  }
  return in.Fail("attribute '{}' has no type", info.name);
}

class Parser {
 public:
  explicit Parser(std::string_view text) : in_(text) {}

  Result<Graph> Run() {
    RL_RETURN_IF_ERROR(ParseHeader());
    while (!in_.AtEnd()) RL_RETURN_IF_ERROR(ParseLine());
    for (ValueId id = 0; id < graph_.values.size(); ++id) {
      if (defined_[id]) continue;
      return in_.Fail("the numbers of values have a gap: %{} is not defined", id);
    }
    RL_RETURN_IF_ERROR(Verify(graph_));
    return std::move(graph_);
  }

 private:
  Status ParseHeader() {
    RL_RETURN_IF_ERROR(in_.Expect("graph"));
    RL_ASSIGN_OR_RETURN(graph_.name, in_.Quoted());
    RL_RETURN_IF_ERROR(in_.Expect("T<="));
    RL_ASSIGN_OR_RETURN(graph_.max_t, in_.Number<int64_t>("the largest T"));
    RL_RETURN_IF_ERROR(in_.Expect("R<="));
    RL_ASSIGN_OR_RETURN(graph_.max_r, in_.Number<int64_t>("the largest R"));
    return OkStatus();
  }

  Status ParseLine() {
    if (in_.Peek() == '%') return ParseDefinition();
    const std::string_view keyword = in_.Word();
    if (keyword == "rows") {
      if (graph_.rows_input != kNoValue) return in_.Fail("the wanted rows are declared twice");
      RL_ASSIGN_OR_RETURN(graph_.rows_input, ParseUse());
      return OkStatus();
    }
    if (keyword == "output") return ParseOutput();
    return in_.Fail("expected %<id>, 'rows' or 'output'");
  }

  Status ParseOutput() {
    Output output;
    RL_ASSIGN_OR_RETURN(output.name, in_.Quoted());
    RL_RETURN_IF_ERROR(in_.Expect("="));
    RL_ASSIGN_OR_RETURN(output.value, ParseUse());
    const std::string_view demand = in_.Word();
    if (demand != "wanted" && demand != "all") return in_.Fail("expected 'wanted' or 'all'");
    output.demand = demand == "all" ? RowDemand::kAll : RowDemand::kWanted;
    graph_.outputs.push_back(std::move(output));
    return OkStatus();
  }

  Result<ValueId> ParseId() {
    RL_RETURN_IF_ERROR(in_.Expect("%"));
    return in_.Number<ValueId>("a value number");
  }

  // A value that a line before has defined.
  Result<ValueId> ParseUse() {
    RL_ASSIGN_OR_RETURN(const ValueId id, ParseId());
    if (id >= defined_.size() || !defined_[id]) return in_.Fail("%{} is not defined", id);
    return id;
  }

  struct Definition {
    ValueId id = kNoValue;
    std::optional<std::string> name;
  };

  Result<Definition> ParseDefined() {
    Definition definition;
    RL_ASSIGN_OR_RETURN(definition.id, ParseId());
    if (in_.Peek() == '"') {
      RL_ASSIGN_OR_RETURN(definition.name, in_.Quoted());
    }
    return definition;
  }

  Status Define(ValueId id, Value value) {
    // Ids may jump, because leaves are printed before ops.
    if (id >= kMaxValues) return in_.Fail("%{} is beyond the {} values of a graph", id, kMaxValues);
    if (id < defined_.size() && defined_[id]) return in_.Fail("%{} is defined twice", id);
    if (id >= defined_.size()) {
      defined_.resize(size_t{id} + 1, false);
      graph_.values.resize(size_t{id} + 1);
    }
    defined_[id] = true;
    graph_.values[id] = std::move(value);
    return OkStatus();
  }

  Status ParseDefinition() {
    std::vector<Definition> definitions;
    do {
      RL_ASSIGN_OR_RETURN(Definition definition, ParseDefined());
      definitions.push_back(std::move(definition));
    } while (in_.Take(","));
    RL_RETURN_IF_ERROR(in_.Expect("="));
    const std::string_view word = in_.Word();
    if (word == "input" || word == "constant" || word == "state") {
      if (definitions.size() != 1) return in_.Fail("{} defines one value", word);
      return ParseLeaf(word, std::move(definitions[0]));
    }
    const auto kind = OpKindFromName(word);
    if (!kind) return in_.Fail("'{}' is not an op", word);
    return ParseOp(*kind, std::move(definitions));
  }

  Status ParseLeaf(std::string_view word, Definition definition) {
    Value value;
    RL_ASSIGN_OR_RETURN(std::string text, in_.Quoted());
    if (word == "constant") {
      value.lifetime = Lifetime::kConstant;
      if (in_.Take("rows")) {
        RL_ASSIGN_OR_RETURN(value.first_row, in_.Number<int64_t>("a row"));
      }
      value.name = definition.name ? *std::move(definition.name)
                                   : DefaultConstantName(text, value.first_row);
      value.source = std::move(text);
    } else {
      if (definition.name) return in_.Fail("the name of an {} comes after the word", word);
      value.lifetime = word == "input" ? Lifetime::kInput : Lifetime::kState;
      value.name = std::move(text);
      if (word == "state") value.state = definition.id;
    }
    RL_RETURN_IF_ERROR(in_.Expect(":"));
    RL_ASSIGN_OR_RETURN(value.type, ParseType(in_));
    return Define(definition.id, std::move(value));
  }

  Result<std::vector<ValueId>> ParseOperands() {
    std::vector<ValueId> inputs;
    RL_RETURN_IF_ERROR(in_.Expect("("));
    do {
      ValueId input = kNoValue;
      if (!in_.Take("_")) {
        RL_ASSIGN_OR_RETURN(input, ParseUse());
      }
      inputs.push_back(input);
    } while (in_.Take(","));
    RL_RETURN_IF_ERROR(in_.Expect(")"));
    return inputs;
  }

  Status ParseAttrs(const OpInfo& info, OpAttrs& attrs) {
    if (info.attrs.empty()) return OkStatus();
    std::string_view separator = "{";
    for (const AttrInfo& attr : info.attrs) {
      RL_RETURN_IF_ERROR(in_.Expect(separator));
      RL_RETURN_IF_ERROR(ParseAttr(in_, attr, attrs));
      separator = ",";
    }
    return in_.Expect("}");
  }

  Status ParseOp(OpKind kind, std::vector<Definition> definitions) {
    const OpInfo& info = InfoOf(kind);
    Op op{kind, {}, {}, OpAttrs(kind)};
    RL_ASSIGN_OR_RETURN(op.inputs, ParseOperands());
    RL_RETURN_IF_ERROR(ParseAttrs(info, op.attrs));
    if (in_.Take("on")) {
      RL_ASSIGN_OR_RETURN(op.device, in_.Number<int>("a device index"));
    }
    if (in_.Take("epoch")) {
      RL_ASSIGN_OR_RETURN(op.epoch, in_.Number<int>("an epoch"));
    }
    std::string_view separator = ":";
    for (Definition& definition : definitions) {
      if (!definition.name) return in_.Fail("a result of {} has no name", info.name);
      Value value;
      value.name = *std::move(definition.name);
      value.producer = static_cast<OpIndex>(graph_.ops.size());
      const size_t index = op.results.size();
      if (index < WrittenOperands(info)) {
        value.lifetime = Lifetime::kState;
        const ValueId old = index < op.inputs.size() ? op.inputs[index] : kNoValue;
        value.state = old == kNoValue ? kNoValue : graph_.values[old].state;
      }
      RL_RETURN_IF_ERROR(in_.Expect(separator));
      RL_ASSIGN_OR_RETURN(value.type, ParseType(in_));
      RL_RETURN_IF_ERROR(Define(definition.id, std::move(value)));
      op.results.push_back(definition.id);
      separator = ",";
    }
    graph_.ops.push_back(std::move(op));
    return OkStatus();
  }

  // More than any model needs; keeps a hostile id from asking for memory.
  static constexpr ValueId kMaxValues = 1u << 16;

  Cursor in_;
  Graph graph_;
  std::vector<bool> defined_;  // parallel to graph_.values
};

}  // namespace

Result<Graph> ParseText(std::string_view text) { return Parser(text).Run(); }

}  // namespace rullama
