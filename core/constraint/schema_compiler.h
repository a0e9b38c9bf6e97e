// JSON Schemas as rules of a grammar (docs/constrained-output.md says which keywords).
//
// Every text that a grammar accepts is valid under the schema, but not the reverse: members come
// in the order of `properties`, there is hardly any white space, and so on.
#pragma once

#include <deque>
#include <initializer_list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/constraint/compile_deadline.h"
#include "core/constraint/flat_schema.h"
#include "core/constraint/number_rules.h"
#include "core/constraint/text_rules.h"

namespace rullama::constraint {

// Adds schemas to a grammar. Ownership: borrows the builder and the documents.
// Thread safety: one thread at a time.
class SchemaCompiler {
 public:
  SchemaCompiler(GrammarBuilder& builder, const ValueSyntax& syntax,
                 const CompileDeadline& deadline = CompileDeadline());

  // The rule of the values that are valid under a schema; `path` is how messages call it.
  // Errors (kUsage), which name the place: schema.invalid, schema.unsupported, schema.too_large.
  // A lenient rule also takes values that are not valid, for the reasons that unenforced() names.
  Result<RuleId> Add(const Json& schema, const std::string& path,
                     Strictness strictness = Strictness::kStrict);
  // The same, of objects only.
  Result<RuleId> AddObject(const Json& schema, const std::string& path,
                           Strictness strictness = Strictness::kStrict);

  // Once the grammar is finished: error schema.invalid (kUsage) for a schema under which nothing is
  // valid, schema.too_large for one whose shortest text nests too deep.
  [[nodiscard]] Status Check(const Grammar& grammar) const;

  // As those of SchemaReader, of all documents.
  [[nodiscard]] const std::set<std::string>& ignored() const { return ignored_; }
  [[nodiscard]] const std::set<std::string>& unenforced() const { return unenforced_; }

 private:
  struct Task {
    RuleId rule = 0;
    Conjunction schemas;
    int depth = 0;
  };
  struct Added {
    RuleId rule = 0;
    std::string path;
  };

  // The rule of the values that are valid under the root of a document and under `others`.
  Result<RuleId> AddDocument(const Json& schema, const std::string& path, Strictness strictness,
                             const Conjunction& others);
  RuleId RuleOf(const Conjunction& schemas, int depth);
  Status Compile(const Task& task);
  // Makes the rule one of all values of the types that its schemas name.
  Status CompileTypes(const Task& task);
  Status CompileChoice(const Task& task, const SplitSchema& split);
  Status CheckApart(const SplitSchema& split, const std::vector<SchemaPlace>& branches);
  Status CompileFlat(const Task& task, const FlatSchema& flat);
  Status AddValues(const FlatSchema& flat, StateId from, StateId to);
  // Whether a value, or a key, can be written at all.
  Status CheckSpelling(const FlatSchema& flat, const Json& value) const;
  Status CheckKey(const FlatSchema& flat, std::string_view key) const;
  void AddWords(std::initializer_list<std::string_view> words, StateId from);
  void AddNumber(const FlatSchema& flat, StateId from);
  Status AddString(const FlatSchema& flat, StateId from);
  void AddList(const FlatSchema& flat, int depth, StateId from, StateId to);
  Status AddObject(const FlatSchema& flat, int depth, StateId from, StateId to);
  // A rule for a separator and then an item.
  RuleId SeparatedItem(RuleId item);
  [[nodiscard]] Status CheckLimits(const Task& task) const;

  GrammarBuilder& builder_;
  CompileDeadline deadline_;
  TextRules texts_;
  SchemaReader* reader_ = nullptr;  // of the document that is being added
  std::map<std::vector<std::pair<const Json*, SchemaItem::Part>>, RuleId> rules_;
  std::map<std::string, RuleId> leaf_rules_;  // numbers and strings by what they are made from
  std::map<RuleId, RuleId> separated_;
  std::deque<Task> tasks_;
  std::vector<Added> added_;
  size_t literal_states_ = 0;  // of texts that stand in the schema, which have limits of their own
  std::set<std::string> ignored_;
  std::set<std::string> unenforced_;
};

// The grammar of the values that are valid under a schema. Errors of SchemaCompiler.
Result<std::shared_ptr<const Grammar>> GrammarOf(
    const Json& schema, const ValueSyntax& syntax = {},
    const CompileDeadline& deadline = CompileDeadline(),
    Strictness strictness = Strictness::kStrict);

}  // namespace rullama::constraint
