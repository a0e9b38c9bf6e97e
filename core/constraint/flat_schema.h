// Schemas without the keywords that combine schemas: what several schemas say together of a value.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/constraint/compile_deadline.h"
#include "core/constraint/content_dfa.h"
#include "core/constraint/schema_node.h"

namespace rullama::constraint {

// A schema, or a part of it, in a list of schemas that all hold.
struct SchemaItem {
  enum class Part : uint8_t {
    kAll,
    kOwn,    // without the keywords that combine schemas
    kAnyOf,  // only anyOf
    kOneOf,  // only oneOf
  };
  SchemaPlace place;
  Part part = Part::kAll;
};
using Conjunction = std::vector<SchemaItem>;

// As SchemaNode.
struct FlatSchema {
  std::string path;  // of the first of the schemas
  bool never = false;
  TypeSet types = kAllTypes;
  std::optional<std::vector<const Json*>> values;
  std::optional<Bound> min;
  std::optional<Bound> max;
  uint32_t min_length = 0;
  uint32_t max_length = kUnlimited;
  std::vector<std::string> patterns;
  std::vector<Conjunction> prefix_items;
  Conjunction items;  // empty: anything
  bool has_items = false;
  uint32_t min_items = 0;
  uint32_t max_items = kUnlimited;
  bool has_properties = false;
  std::vector<std::pair<std::string, Conjunction>> properties;
  std::vector<std::string> required;
  std::optional<Conjunction> additional;
};

// The rest of a conjunction once references and allOf have been followed.
struct SplitSchema {
  std::vector<const SchemaNode*> own;  // with keywords of their own
  Conjunction choices;                 // anyOf and oneOf that still have to be chosen from
};

// The constraints that hold if `branch` is chosen from the first of the choices.
Conjunction ConjunctionOf(const SplitSchema& split, const SchemaPlace& branch);

// Errors (kUsage): those of SchemaReader::Read(); schema.invalid for references in a ring.
Result<SplitSchema> Split(SchemaReader& reader, const Conjunction& schemas);

// The schemas of a choice.
const std::vector<SchemaPlace>& BranchesOf(const SchemaNode& node, SchemaItem::Part part);

// Errors (kUsage): schema.unsupported where no list of keywords says what two of them say together,
// schema.too_large if no time is left.
Result<FlatSchema> Merge(const std::vector<const SchemaNode*>& schemas,
                         const CompileDeadline& deadline);

// All ways to choose from the schemas of a conjunction; a few levels deep only, as a recursive
// schema has no end of them. Errors as Split() and Merge(), schema.too_large.
Result<std::vector<FlatSchema>> Alternatives(SchemaReader& reader, const Conjunction& schemas,
                                             const CompileDeadline& deadline);

// Tells which values have the type and keep the bounds of numbers and strings that a schema
// demands. Ownership: borrows the schema. Thread safety: one thread at a time.
class ValueFilter {
 public:
  ValueFilter(const FlatSchema& schema, const CompileDeadline& deadline)
      : schema_(schema), deadline_(deadline) {}

  // Errors (kUsage): schema.unsupported for a list or object of which the schema says more than its
  // type, those of ContentOf().
  Result<bool> Fits(const Json& value);

 private:
  const FlatSchema& schema_;
  CompileDeadline deadline_;
  std::optional<ContentDfa> content_;  // of strings, from the first one on
};

// Whether no value can be valid under both, as far as types, enum, const and the properties that
// both require tell.
Result<bool> AreApart(SchemaReader& reader, const FlatSchema& a, const FlatSchema& b, int depth,
                      const CompileDeadline& deadline);

// A content of strings by all patterns and lengths of a schema. Errors of CompilePattern(), which
// name the path.
Result<ContentDfa> ContentOf(const FlatSchema& schema, const CompileDeadline& deadline);

}  // namespace rullama::constraint
