// Schemas as they are written: the keywords of one schema object, checked.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/constraint/compile_deadline.h"
#include "core/constraint/decimal.h"
#include "core/constraint/grammar.h"
#include "core/constraint/json_text.h"

namespace rullama::constraint {

// Bits of the types of values.
using TypeSet = uint8_t;
inline constexpr TypeSet kNullType = 1;
inline constexpr TypeSet kBooleanType = 2;
inline constexpr TypeSet kIntegerType = 4;
inline constexpr TypeSet kNumberType = 8;  // integers are numbers, too
inline constexpr TypeSet kStringType = 16;
inline constexpr TypeSet kArrayType = 32;
inline constexpr TypeSet kObjectType = 64;
inline constexpr TypeSet kAllTypes = 127;

// What becomes of a keyword that cannot be kept to, or that is beyond the limits.
enum class Strictness : uint8_t {
  kStrict,  // it is an error
  // It is left out, and its place is remembered: more is accepted than is valid. Spellings of
  // other dialects of schemas that have one meaning only are read as well.
  kLenient,
};

// A schema inside the document, and where: "schema.properties.x".
struct SchemaPlace {
  const Json* json = nullptr;
  std::string path;
};

struct SchemaNode {
  const Json* json = nullptr;  // what it was read from
  std::string path;
  bool never = false;  // the schema `false`

  std::optional<TypeSet> types;  // of `type`
  TypeSet spoken_of = 0;         // types that the other keywords say something about
  std::optional<std::vector<const Json*>> values;  // of `enum` and `const`

  std::optional<Bound> min;
  std::optional<Bound> max;

  uint32_t min_length = 0;
  uint32_t max_length = kUnlimited;
  std::vector<std::string> patterns;  // of `pattern` and `format`

  std::vector<SchemaPlace> prefix_items;
  std::optional<SchemaPlace> items;
  uint32_t min_items = 0;
  uint32_t max_items = kUnlimited;

  bool has_properties = false;
  std::vector<std::pair<std::string, SchemaPlace>> properties;
  std::vector<std::string> required;
  std::optional<SchemaPlace> additional;

  std::optional<SchemaPlace> ref;
  std::vector<SchemaPlace> all_of;
  std::vector<SchemaPlace> any_of;
  std::vector<SchemaPlace> one_of;

  // Whether it says anything but by the keywords that combine schemas.
  [[nodiscard]] bool HasOwn() const { return never || types || values || spoken_of != 0; }
};

// Reads the schemas of a document when they are asked for, each once.
//
// Ownership: borrows the document. Thread safety: one thread at a time.
class SchemaReader {
 public:
  // `path` is how messages call the document.
  SchemaReader(const Json& document, std::string path, Strictness strictness = Strictness::kStrict,
               const CompileDeadline& deadline = CompileDeadline())
      : document_(document), path_(std::move(path)), strictness_(strictness), deadline_(deadline) {}

  [[nodiscard]] SchemaPlace root() const { return {&document_, path_}; }
  // Errors (kUsage), which name the place: schema.invalid, schema.unsupported, schema.too_large.
  Result<const SchemaNode*> Read(const SchemaPlace& place);

  // Passes over what an error is about, and remembers its place. Returns the error if it is not of
  // that kind (schema.unsupported, schema.too_large), if the document is strict, or if no time is
  // left.
  Status LeaveOut(Error error, std::string place);

  // Keywords without an effect, which were skipped: those that no standard gives a meaning, and
  // propertyNames that every name fits.
  [[nodiscard]] const std::set<std::string>& ignored() const { return ignored_; }
  // Places that were left out.
  [[nodiscard]] const std::set<std::string>& unenforced() const { return unenforced_; }

 private:
  friend class KeywordReader;
  [[nodiscard]] bool lenient() const { return strictness_ == Strictness::kLenient; }
  Result<SchemaPlace> Resolve(const std::string& ref, const std::string& path) const;

  const Json& document_;
  std::string path_;
  Strictness strictness_;
  CompileDeadline deadline_;
  std::map<const Json*, std::unique_ptr<SchemaNode>> nodes_;
  std::set<std::string> ignored_;
  std::set<std::string> unenforced_;
  size_t properties_ = 0;
  size_t values_ = 0;
  size_t value_bytes_ = 0;
};

}  // namespace rullama::constraint
