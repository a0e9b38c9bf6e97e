// Schemas and patterns from arbitrary bytes. What is compiled must lead somewhere: from every state
// on the way of a walk that the input steers, the end is as near as the automaton says, and the
// text is JSON.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "core/constraint/automaton.h"
#include "core/constraint/compile_deadline.h"
#include "core/constraint/pattern.h"
#include "core/constraint/schema_compiler.h"

namespace {

using rullama::constraint::Automaton;
using rullama::constraint::CompileDeadline;
using rullama::constraint::ConfigId;
using rullama::constraint::Grammar;
using rullama::constraint::GrammarBuilder;
using rullama::constraint::Json;
using rullama::constraint::SchemaCompiler;
using rullama::constraint::Symbol;

void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "violated: %s\n", what);
  std::abort();
}

std::shared_ptr<const Grammar> Compile(std::string_view text) {
  const auto schema = rullama::constraint::ParseSchemaText(text, "schema");
  if (!schema) return nullptr;
  GrammarBuilder builder;
  SchemaCompiler compiler(builder, {});
  const auto root = compiler.Add(*schema, "schema");
  if (!root) return nullptr;
  auto grammar = std::make_shared<const Grammar>(std::move(builder).Finish(*root));
  return compiler.Check(*grammar) ? grammar : nullptr;
}

// Goes on by symbols that bring the end nearer.
void Finish(Automaton& automaton, ConfigId config, std::string text) {
  for (uint32_t left = automaton.symbols_to_end(config); left > 0; --left) {
    ConfigId next = Automaton::kNowhere;
    Symbol symbol = 0;
    for (; symbol < 256; ++symbol) {
      next = automaton.Step(config, symbol);
      if (next != Automaton::kNowhere && automaton.symbols_to_end(next) < left) break;
    }
    Require(symbol < 256, "a symbol brings the end nearer");
    config = next;
    text += static_cast<char>(symbol);
  }
  Require(automaton.may_end(config), "the end is where it was said to be");
  Require(Json::accept(text), "the text is JSON");
}

void Walk(Automaton& automaton, std::string_view steps) {
  constexpr uint32_t kFarAway = 4'096;
  ConfigId config = automaton.start();
  std::string text;
  for (const char step : steps) {
    if (automaton.symbols_to_end(config) > kFarAway) return;
    Finish(automaton, config, text);
    // The first symbol from the given byte on that is allowed.
    ConfigId next = Automaton::kNowhere;
    auto byte = static_cast<uint8_t>(step);
    for (int i = 0; i < 256 && next == Automaton::kNowhere; ++i, ++byte) {
      next = automaton.Step(config, byte);
      if (next != Automaton::kNowhere) text += static_cast<char>(byte);
    }
    if (next == Automaton::kNowhere) return;
    config = next;
  }
}

}  // namespace

// The input is a schema, a zero byte, and the steps of a walk.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = input.find('\0');
  const std::string_view schema = input.substr(0, zero);
  (void)rullama::constraint::CompilePattern(schema, CompileDeadline());
  const auto grammar = Compile(schema);
  if (grammar == nullptr) return 0;
  Automaton automaton(grammar);
  const size_t begin = zero == std::string_view::npos ? size : zero + 1;
  Walk(automaton, input.substr(begin).substr(0, 64));
  return 0;
}
