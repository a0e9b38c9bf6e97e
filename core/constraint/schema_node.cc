#include "core/constraint/schema_node.h"

#include <algorithm>
#include <array>

#include "core/base/checked_math.h"
#include "core/base/printable.h"
#include "core/constraint/formats.h"
#include "core/constraint/pattern.h"

namespace rullama::constraint {
namespace {

constexpr size_t kMaxProperties = 5'000;
constexpr size_t kMaxValues = 50'000;
constexpr size_t kMaxValueBytes = size_t{1} << 20;
constexpr size_t kMaxBranches = 1'000;
constexpr uint32_t kMaxLength = 10'000;
constexpr uint32_t kMaxCount = 1'000'000'000;  // of items; more than any answer has
constexpr uint32_t kMaxMinItems = 1'000'000;   // an answer has fewer tokens

template <typename... Args>
tl::unexpected<Error> ErrorAt(const std::string& path, std::string_view id,
                              fmt::format_string<Args...> format, Args&&... args) {
  return MakeError(ErrorKind::kUsage, id, "{}: {}", path,
                   fmt::format(format, std::forward<Args>(args)...));
}

struct TypeName {
  std::string_view name;
  TypeSet type;
};
constexpr auto kTypeNames = std::to_array<TypeName>({{"null", kNullType},
                                                     {"boolean", kBooleanType},
                                                     {"integer", kIntegerType},
                                                     {"number", kNumberType},
                                                     {"string", kStringType},
                                                     {"array", kArrayType},
                                                     {"object", kObjectType}});

// Annotations: keywords that do not change which values are valid.
constexpr auto kAnnotations = std::to_array<std::string_view>(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly",
     "$schema", "$id", "$comment", "$anchor", "$defs", "definitions"});

std::string LowerCase(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return text;
}

// Keywords of the standards that one stack of states cannot check, or that are not supported yet.
constexpr auto kUnsupported = std::to_array<std::string_view>({"not",
                                                               "if",
                                                               "then",
                                                               "else",
                                                               "patternProperties",
                                                               "unevaluatedItems",
                                                               "unevaluatedProperties",
                                                               "dependentRequired",
                                                               "dependentSchemas",
                                                               "dependencies",
                                                               "contains",
                                                               "minContains",
                                                               "maxContains",
                                                               "uniqueItems",
                                                               "multipleOf",
                                                               "minProperties",
                                                               "maxProperties",
                                                               "contentEncoding",
                                                               "contentMediaType",
                                                               "contentSchema",
                                                               "$dynamicRef",
                                                               "$dynamicAnchor",
                                                               "$recursiveRef",
                                                               "$recursiveAnchor",
                                                               "$vocabulary",
                                                               "additionalItems"});

template <size_t kCount>
bool Contains(const std::array<std::string_view, kCount>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

// Reads the keywords of one schema object.
class KeywordReader {
 public:
  KeywordReader(SchemaReader& reader, SchemaNode& node) : reader_(reader), node_(node) {}

  Status Read(const Json& schema) {
    for (const auto& [name, value] : schema.items()) {
      Status status = Keyword(name, value);
      if (!status) RL_RETURN_IF_ERROR(reader_.LeaveOut(std::move(status).error(), PathOf(name)));
    }
    // OpenAPI 3.0: null as one more value of the type.
    if (nullable_ && node_.types) *node_.types |= kNullType;
    return CheckRanges();
  }

 private:
  using Handler = Status (KeywordReader::*)(std::string_view name, const Json& value);
  struct Entry {
    std::string_view name;
    TypeSet spoken_of;
    Handler handler;
  };
  static const Entry* EntryOf(std::string_view name);

  Status Keyword(const std::string& name, const Json& value) {
    // Programs that write schemas from structs give members without a value as null.
    if (reader_.lenient() && value.is_null() && name != "const") return OkStatus();
    if (const Entry* entry = EntryOf(name)) {
      node_.spoken_of |= entry->spoken_of;
      return (this->*entry->handler)(name, value);
    }
    if (Contains(kAnnotations, name)) return OkStatus();
    // A keyword without an effect may be left out.
    if (name == "uniqueItems" && value == false) return OkStatus();
    if (Contains(kUnsupported, name)) {
      return ErrorAt(PathOf(name), "schema.unsupported",
                     "the keyword is not supported; express it by others "
                     "(docs/constrained-output.md)");
    }
    reader_.ignored_.insert(name);
    return OkStatus();
  }

  [[nodiscard]] std::string PathOf(std::string_view name) const {
    return fmt::format("{}.{}", node_.path, ShownName(name));
  }
  [[nodiscard]] SchemaPlace PlaceOf(std::string_view name, const Json& value) const {
    return {&value, PathOf(name)};
  }
  template <typename... Args>
  tl::unexpected<Error> Invalid(std::string_view name, fmt::format_string<Args...> format,
                                Args&&... args) const {
    return ErrorAt(PathOf(name), "schema.invalid", format, std::forward<Args>(args)...);
  }

  Status Type(std::string_view name, const Json& value) {
    TypeSet types = 0;
    const auto add = [&](const Json& type) -> Status {
      if (!type.is_string()) {
        return Invalid(name, "found {}, expected the name of a type", type.type_name());
      }
      const auto& text = type.get_ref<const std::string&>();
      // Google's dialect has the names in capitals.
      const std::string known = reader_.lenient() ? LowerCase(text) : text;
      const auto found = std::ranges::find(kTypeNames, known, &TypeName::name);
      if (found == kTypeNames.end()) {
        return Invalid(name,
                       "no type is called '{}'; expected null, boolean, integer, number, string, "
                       "array or object",
                       ShownName(text));
      }
      types |= found->type;
      return OkStatus();
    };
    if (value.is_array() && !value.empty()) {
      for (const Json& type : value) RL_RETURN_IF_ERROR(add(type));
    } else {
      RL_RETURN_IF_ERROR(add(value));
    }
    node_.types = types;
    return OkStatus();
  }
  Status Nullable(std::string_view name, const Json& value) {
    if (!value.is_boolean()) {
      return Invalid(name, "found {}, expected true or false", value.type_name());
    }
    nullable_ = value.get<bool>();
    return OkStatus();
  }

  Status AddValue(std::string_view name, const Json& value) {
    reader_.value_bytes_ += value.dump().size();
    if (++reader_.values_ > kMaxValues || reader_.value_bytes_ > kMaxValueBytes) {
      return ErrorAt(PathOf(name), "schema.too_large",
                     "there are more than {} values, or more than {} bytes of them", kMaxValues,
                     kMaxValueBytes);
    }
    return OkStatus();
  }

  Status Enum(std::string_view name, const Json& value) {
    if (!value.is_array() || value.empty()) {
      return Invalid(name, "expected a list of at least one value");
    }
    std::vector<const Json*> values;
    for (const Json& entry : value) {
      RL_RETURN_IF_ERROR(AddValue(name, entry));
      const bool before = node_.values && !Among(entry, *node_.values);
      if (!before) values.push_back(&entry);
    }
    node_.values = std::move(values);
    return OkStatus();
  }
  Status Const(std::string_view name, const Json& value) {
    RL_RETURN_IF_ERROR(AddValue(name, value));
    const bool before = node_.values && !Among(value, *node_.values);
    node_.values.emplace();
    if (!before) node_.values->push_back(&value);
    return OkStatus();
  }
  static bool Among(const Json& value, const std::vector<const Json*>& values) {
    return std::ranges::any_of(values, [&](const Json* other) { return *other == value; });
  }

  // A count, such as of items. Larger counts become `most`.
  Result<uint32_t> CountOf(std::string_view name, const Json& value, uint32_t most) const {
    const bool whole =
        value.is_number_float() && value.get<double>() >= 0 &&
        value.get<double>() ==
            static_cast<double>(static_cast<uint64_t>(std::min(value.get<double>(), 1e15)));
    if (!value.is_number_unsigned() && !whole) {
      return Invalid(name, "found {}, expected an integer of 0 or more",
                     value.is_number() ? value.dump() : value.type_name());
    }
    const auto count = whole ? static_cast<uint64_t>(value.get<double>()) : value.get<uint64_t>();
    return static_cast<uint32_t>(std::min<uint64_t>(count, most));
  }
  Status MinLength(std::string_view name, const Json& value) {
    return Length(name, value, node_.min_length);
  }
  Status MaxLength(std::string_view name, const Json& value) {
    return Length(name, value, node_.max_length);
  }
  Status Length(std::string_view name, const Json& value, uint32_t& length) const {
    RL_ASSIGN_OR_RETURN(const uint32_t found, CountOf(name, value, kMaxLength + 1));
    if (found > kMaxLength) {
      return ErrorAt(PathOf(name), "schema.too_large", "expected at most {} characters",
                     kMaxLength);
    }
    length = found;
    return OkStatus();
  }
  Status MinItems(std::string_view name, const Json& value) {
    RL_ASSIGN_OR_RETURN(node_.min_items, CountOf(name, value, kMaxCount));
    if (node_.min_items <= kMaxMinItems) return OkStatus();
    return ErrorAt(PathOf(name), "schema.too_large", "found {}, expected at most {} items",
                   value.dump(), kMaxMinItems);
  }
  Status MaxItems(std::string_view name, const Json& value) {
    RL_ASSIGN_OR_RETURN(node_.max_items, CountOf(name, value, kMaxCount));
    return OkStatus();
  }

  Status Range(std::string_view name, const Json& value) {
    const bool exclusive = name.starts_with("exclusive");
    const bool is_min = name.ends_with("inimum");
    if (exclusive && value.is_boolean() && reader_.lenient()) {
      // Draft 4: it qualifies `minimum` or `maximum`.
      const auto bound = node_.json->find(is_min ? "minimum" : "maximum");
      const bool applies = value.get<bool>() && bound != node_.json->end();
      return applies && bound->is_number() ? Range(name, *bound) : OkStatus();
    }
    if (!value.is_number()) {
      return Invalid(name, "found {}, expected a number", value.type_name());
    }
    std::optional<Bound>& bound = is_min ? node_.min : node_.max;
    const Bound found{DecimalOf(value), exclusive};
    if (bound) {
      const int order =
          is_min ? Compare(found.value, bound->value) : Compare(bound->value, found.value);
      if (order < 0 || (order == 0 && !exclusive)) return OkStatus();
    }
    bound = found;
    return OkStatus();
  }

  Status Pattern(std::string_view name, const Json& value) {
    if (!value.is_string()) {
      return Invalid(name, "found {}, expected a string", value.type_name());
    }
    const auto& pattern = value.get_ref<const std::string&>();
    if (reader_.lenient()) {
      // A standard only advises that a pattern is one of ECMA-262.
      const auto compiled = CompilePattern(pattern, reader_.deadline_);
      if (!compiled)
        return ErrorAt(PathOf(name), "schema.unsupported", "{}", compiled.error().message);
    }
    node_.patterns.push_back(pattern);
    return OkStatus();
  }
  Status Format(std::string_view name, const Json& value) {
    if (!value.is_string()) {
      return Invalid(name, "found {}, expected a string", value.type_name());
    }
    if (const auto pattern = FormatPattern(value.get_ref<const std::string&>())) {
      node_.patterns.emplace_back(*pattern);
      node_.spoken_of |= kStringType;
    } else {
      reader_.ignored_.insert("format");
    }
    return OkStatus();
  }

  Status PrefixItems(std::string_view name, const Json& value) {
    return List(name, value, node_.prefix_items);
  }
  Status Items(std::string_view name, const Json& value) {
    if (value.is_array()) {
      return ErrorAt(PathOf(name), "schema.unsupported",
                     "a list is not supported; write prefixItems");
    }
    node_.items = PlaceOf(name, value);
    return OkStatus();
  }
  Status List(std::string_view name, const Json& value, std::vector<SchemaPlace>& places) const {
    if (!value.is_array() || value.empty()) {
      return Invalid(name, "expected a list of at least one schema");
    }
    if (value.size() > kMaxBranches) {
      return ErrorAt(PathOf(name), "schema.too_large", "{} schemas, expected at most {}",
                     value.size(), kMaxBranches);
    }
    for (size_t i = 0; i < value.size(); ++i) {
      places.push_back({&value[i], fmt::format("{}[{}]", PathOf(name), i)});
    }
    return OkStatus();
  }

  Status Properties(std::string_view name, const Json& value) {
    if (!value.is_object()) {
      return Invalid(name, "found {}, expected an object", value.type_name());
    }
    reader_.properties_ += value.size();
    if (reader_.properties_ > kMaxProperties) {
      return ErrorAt(PathOf(name), "schema.too_large", "there are more than {} properties",
                     kMaxProperties);
    }
    node_.has_properties = true;
    for (const auto& [key, schema] : value.items()) {
      node_.properties.emplace_back(
          key, SchemaPlace{&schema, fmt::format("{}.{}", PathOf(name), ShownName(key))});
    }
    return OkStatus();
  }
  Status Required(std::string_view name, const Json& value) {
    const auto is_string = [](const Json& entry) { return entry.is_string(); };
    if (value.is_boolean() && reader_.lenient()) {
      return ErrorAt(PathOf(name), "schema.unsupported",
                     "true and false are of draft 3; list the names in the schema of the object");
    }
    if (!value.is_array() || !std::ranges::all_of(value, is_string)) {
      return Invalid(name, "expected a list of names");
    }
    if (value.size() > kMaxProperties) {
      return ErrorAt(PathOf(name), "schema.too_large", "there are more than {} names",
                     kMaxProperties);
    }
    for (const Json& entry : value) node_.required.push_back(entry.get<std::string>());
    return OkStatus();
  }
  Status Additional(std::string_view name, const Json& value) {
    node_.additional = PlaceOf(name, value);
    return OkStatus();
  }
  Status PropertyNames(std::string_view name, const Json& value) {
    if (!FitsAllNames(value)) {
      return ErrorAt(PathOf(name), "schema.unsupported",
                     "only schemas that every name fits are supported");
    }
    reader_.ignored_.emplace(name);
    return OkStatus();
  }
  // Names are strings.
  static bool FitsAllNames(const Json& schema) {
    if (!schema.is_object()) return schema == true;
    for (const auto& [keyword, value] : schema.items()) {
      const auto is_string = [](const Json& type) { return type == "string"; };
      const bool takes_strings =
          keyword == "type" &&
          (is_string(value) || (value.is_array() && std::ranges::any_of(value, is_string)));
      if (!takes_strings && !Contains(kAnnotations, keyword)) return false;
    }
    return true;
  }

  Status Ref(std::string_view name, const Json& value) {
    if (!value.is_string()) {
      return Invalid(name, "found {}, expected a string", value.type_name());
    }
    RL_ASSIGN_OR_RETURN(node_.ref,
                        reader_.Resolve(value.get_ref<const std::string&>(), PathOf(name)));
    return OkStatus();
  }
  Status AllOf(std::string_view name, const Json& value) { return List(name, value, node_.all_of); }
  Status AnyOf(std::string_view name, const Json& value) { return List(name, value, node_.any_of); }
  Status OneOf(std::string_view name, const Json& value) { return List(name, value, node_.one_of); }

  [[nodiscard]] Status CheckRanges() const {
    if (node_.min_length > node_.max_length) {
      return Invalid("maxLength", "{} is below minLength, which is {}", node_.max_length,
                     node_.min_length);
    }
    if (node_.min_items > node_.max_items) {
      return Invalid("maxItems", "{} is below minItems, which is {}", node_.max_items,
                     node_.min_items);
    }
    if (node_.min && node_.max) {
      const int order = Compare(node_.min->value, node_.max->value);
      if (order > 0 || (order == 0 && (node_.min->exclusive || node_.max->exclusive))) {
        return ErrorAt(node_.path, "schema.invalid",
                       "no number is between the minimum and the maximum");
      }
    }
    return OkStatus();
  }

  SchemaReader& reader_;
  SchemaNode& node_;
  bool nullable_ = false;
};

const KeywordReader::Entry* KeywordReader::EntryOf(std::string_view name) {
  using R = KeywordReader;
  static constexpr auto kEntries = std::to_array<Entry>({
      {"type", 0, &R::Type},
      {"nullable", 0, &R::Nullable},
      {"enum", 0, &R::Enum},
      {"const", 0, &R::Const},
      {"minimum", kNumberType, &R::Range},
      {"maximum", kNumberType, &R::Range},
      {"exclusiveMinimum", kNumberType, &R::Range},
      {"exclusiveMaximum", kNumberType, &R::Range},
      {"minLength", kStringType, &R::MinLength},
      {"maxLength", kStringType, &R::MaxLength},
      {"pattern", kStringType, &R::Pattern},
      {"format", 0, &R::Format},
      {"prefixItems", kArrayType, &R::PrefixItems},
      {"items", kArrayType, &R::Items},
      {"minItems", kArrayType, &R::MinItems},
      {"maxItems", kArrayType, &R::MaxItems},
      {"properties", kObjectType, &R::Properties},
      {"required", kObjectType, &R::Required},
      {"additionalProperties", kObjectType, &R::Additional},
      {"propertyNames", kObjectType, &R::PropertyNames},
      {"$ref", 0, &R::Ref},
      {"allOf", 0, &R::AllOf},
      {"anyOf", 0, &R::AnyOf},
      {"oneOf", 0, &R::OneOf},
  });
  const auto* const found = std::ranges::find(kEntries, name, &Entry::name);
  return found == kEntries.end() ? nullptr : found;
}

Result<const SchemaNode*> SchemaReader::Read(const SchemaPlace& place) {
  const auto [found, is_new] = nodes_.try_emplace(place.json);
  if (!is_new) return found->second.get();
  auto node = std::make_unique<SchemaNode>();
  node->json = place.json;
  node->path = place.path;
  if (place.json->is_boolean()) {
    node->never = !place.json->get<bool>();
  } else if (place.json->is_object()) {
    RL_RETURN_IF_ERROR(KeywordReader(*this, *node).Read(*place.json));
  } else {
    return ErrorAt(place.path, "schema.invalid",
                   "a schema is {}, expected an object, true or false", place.json->type_name());
  }
  found->second = std::move(node);
  return found->second.get();
}

Status SchemaReader::LeaveOut(Error error, std::string place) {
  const bool may = error.id == "schema.unsupported" || error.id == "schema.too_large";
  if (!lenient() || !may) return tl::unexpected(std::move(error));
  RL_RETURN_IF_ERROR(deadline_.Check());
  unenforced_.insert(std::move(place));
  return OkStatus();
}

// A JSON pointer after #, in which % may introduce bytes.
Result<SchemaPlace> SchemaReader::Resolve(const std::string& ref, const std::string& path) const {
  if (!ref.starts_with('#') || (ref.size() > 1 && ref[1] != '/')) {
    return ErrorAt(path, "schema.unsupported", "'{}' is outside the document; expected # or #/...",
                   ShownName(ref));
  }
  std::string pointer;
  for (size_t i = 1; i < ref.size(); ++i) {
    const bool encoded = ref[i] == '%' && i + 2 < ref.size() &&
                         ref.find_first_not_of("0123456789abcdefABCDEF", i + 1) >= i + 3;
    if (encoded) {
      pointer += static_cast<char>(std::stoi(ref.substr(i + 1, 2), nullptr, 16));
      i += 2;
    } else {
      pointer += ref[i];
    }
  }
  try {
    const Json::json_pointer at(pointer);
    if (document_.contains(at)) return SchemaPlace{&document_[at], path_ + pointer};
  } catch (const Json::exception&) {
    // An invalid pointer leads nowhere either.
  }
  return ErrorAt(path, "schema.invalid", "'{}' leads nowhere", ShownName(ref));
}

}  // namespace rullama::constraint
