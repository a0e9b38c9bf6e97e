#include "core/constraint/flat_schema.h"

#include <algorithm>
#include <set>

#include "core/base/printable.h"
#include "core/constraint/pattern.h"

namespace rullama::constraint {
namespace {

constexpr size_t kMaxAlternatives = 256;
constexpr int kMaxAlternativeDepth = 16;
constexpr int kMaxApartDepth = 3;
constexpr size_t kMaxReferenceRun = 64;  // references that follow one another

class Splitter {
 public:
  explicit Splitter(SchemaReader& reader) : reader_(reader) {}

  // `way`: the schemas whose references and allOf have led here.
  Status Add(const SchemaItem& item, std::vector<const Json*>& way) {
    RL_ASSIGN_OR_RETURN(const SchemaNode* node, reader_.Read(item.place));
    using Part = SchemaItem::Part;
    if (item.part == Part::kAnyOf || item.part == Part::kOneOf) {
      AddChoice(item);
      return OkStatus();
    }
    if (node->HasOwn() && std::ranges::find(split.own, node) == split.own.end()) {
      split.own.push_back(node);
    }
    if (item.part == Part::kOwn) return OkStatus();
    if (way.size() > kMaxReferenceRun) {
      return MakeError(ErrorKind::kUsage, "schema.too_large",
                       "{}: more than {} references follow one another; refer to the last schema "
                       "itself",
                       item.place.path, kMaxReferenceRun);
    }
    if (std::ranges::find(way, item.place.json) != way.end()) {
      return MakeError(ErrorKind::kUsage, "schema.invalid",
                       "{}: the schema refers to itself without an end", item.place.path);
    }
    if (!followed_.insert(item.place.json).second) return OkStatus();
    way.push_back(item.place.json);
    if (node->ref) RL_RETURN_IF_ERROR(Add({*node->ref}, way));
    for (const SchemaPlace& place : node->all_of) RL_RETURN_IF_ERROR(Add({place}, way));
    way.pop_back();
    if (!node->any_of.empty()) AddChoice({item.place, Part::kAnyOf});
    if (!node->one_of.empty()) AddChoice({item.place, Part::kOneOf});
    return OkStatus();
  }

  SplitSchema split;

 private:
  void AddChoice(const SchemaItem& item) {
    const auto same = [&](const SchemaItem& other) {
      return other.place.json == item.place.json && other.part == item.part;
    };
    if (std::ranges::none_of(split.choices, same)) split.choices.push_back(item);
  }

  SchemaReader& reader_;
  std::set<const Json*> followed_;  // schemas whose references and allOf have been followed
};

bool IsAmong(const Json& value, const std::vector<const Json*>& values) {
  return std::ranges::any_of(values, [&](const Json* other) { return *other == value; });
}

TypeSet WithIntegers(TypeSet types) {
  return (types & kNumberType) != 0 ? types | kIntegerType : types;
}

// Puts what one more schema says into a merged one.
class Merger {
 public:
  Merger(FlatSchema& flat, const CompileDeadline& deadline) : flat_(flat), deadline_(deadline) {}

  Status Add(const SchemaNode& node) {
    flat_.never = flat_.never || node.never;
    AddTypes(node);
    RL_RETURN_IF_ERROR(AddValues(node));
    AddNumbers(node);
    flat_.min_length = std::max(flat_.min_length, node.min_length);
    flat_.max_length = std::min(flat_.max_length, node.max_length);
    for (const std::string& pattern : node.patterns) {
      if (std::ranges::find(flat_.patterns, pattern) == flat_.patterns.end()) {
        flat_.patterns.push_back(pattern);
      }
    }
    RL_RETURN_IF_ERROR(AddItems(node));
    return AddObject(node);
  }

 private:
  void AddTypes(const SchemaNode& node) {
    if (!node.types) return;
    const TypeSet both = WithIntegers(flat_.types) & WithIntegers(*node.types);
    flat_.types = both;
  }

  Status AddValues(const SchemaNode& node) {
    if (!node.values) return OkStatus();
    if (!flat_.values) {
      flat_.values = node.values;
      return OkStatus();
    }
    std::vector<const Json*> both;
    for (const Json* value : *flat_.values) {
      RL_RETURN_IF_ERROR(deadline_.Check());
      if (IsAmong(*value, *node.values)) both.push_back(value);
    }
    flat_.values = std::move(both);
    return OkStatus();
  }

  void AddNumbers(const SchemaNode& node) {
    const auto tighten = [](std::optional<Bound>& bound, const std::optional<Bound>& other,
                            int sign) {
      if (!other) return;
      const int order = bound ? sign * Compare(other->value, bound->value) : 1;
      if (order > 0 || (order == 0 && other->exclusive)) bound = other;
    };
    tighten(flat_.min, node.min, 1);
    tighten(flat_.max, node.max, -1);
  }

  Status AddItems(const SchemaNode& node) {
    flat_.min_items = std::max(flat_.min_items, node.min_items);
    flat_.max_items = std::min(flat_.max_items, node.max_items);
    const bool speaks = node.items || !node.prefix_items.empty();
    if (!speaks) return OkStatus();
    if (flat_.has_items && (!flat_.prefix_items.empty() || !node.prefix_items.empty())) {
      return MakeError(ErrorKind::kUsage, "schema.unsupported",
                       "{}: prefixItems together with other schemas of the same list is not "
                       "supported; write one list",
                       node.path);
    }
    flat_.has_items = true;
    for (const SchemaPlace& place : node.prefix_items) flat_.prefix_items.push_back({{place}});
    if (node.items) flat_.items.push_back({*node.items});
    return OkStatus();
  }

  Status AddObject(const SchemaNode& node) {
    // If one schema lists all its properties, its `additionalProperties` applies to the remaining
    // ones of the other.
    const bool first = !flat_.has_properties && !flat_.additional;
    const std::optional<Conjunction> others_before = flat_.additional;
    std::vector<std::string> names_before;
    names_before.reserve(flat_.properties.size());
    for (const auto& property : flat_.properties) names_before.push_back(property.first);
    for (const auto& [name, place] : node.properties) {
      Conjunction* conjunction = Find(name);
      if (conjunction == nullptr) {
        flat_.properties.emplace_back(name, Conjunction());
        conjunction = &flat_.properties.back().second;
        if (!first && others_before) *conjunction = *others_before;
      }
      conjunction->push_back({place});
    }
    if (node.additional) {
      const std::set<std::string> listed = Names(node);
      for (const std::string& name : names_before) {
        if (!listed.contains(name)) Find(name)->push_back({*node.additional});
      }
      if (!flat_.additional) flat_.additional.emplace();
      flat_.additional->push_back({*node.additional});
    }
    flat_.has_properties = flat_.has_properties || node.has_properties;
    for (const std::string& name : node.required) {
      if (std::ranges::find(flat_.required, name) == flat_.required.end()) {
        flat_.required.push_back(name);
      }
    }
    return OkStatus();
  }

  static std::set<std::string> Names(const SchemaNode& node) {
    std::set<std::string> names;
    for (const auto& property : node.properties) names.insert(property.first);
    return names;
  }

  Conjunction* Find(const std::string& name) {
    if (flat_.properties.size() > index_.size()) {
      for (size_t i = index_.size(); i < flat_.properties.size(); ++i) {
        index_.emplace(flat_.properties[i].first, i);
      }
    }
    const auto found = index_.find(name);
    return found == index_.end() ? nullptr : &flat_.properties[found->second].second;
  }

  FlatSchema& flat_;
  CompileDeadline deadline_;
  std::map<std::string, size_t> index_;
};

TypeSet TypeOf(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return kNullType;
    case Json::value_t::boolean:
      return kBooleanType;
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return kIntegerType;
    case Json::value_t::number_float: {
      const Decimal decimal = DecimalOf(value);
      return decimal.fraction.empty() ? kIntegerType : kNumberType;
    }
    case Json::value_t::string:
      return kStringType;
    case Json::value_t::array:
      return kArrayType;
    case Json::value_t::object:
      return kObjectType;
    case Json::value_t::binary:
    case Json::value_t::discarded:
      break;
  }
  return 0;
}

bool FitsNumber(const FlatSchema& schema, const Json& value) {
  const Decimal decimal = DecimalOf(value);
  if (schema.min) {
    const int order = Compare(decimal, schema.min->value);
    if (order < 0 || (order == 0 && schema.min->exclusive)) return false;
  }
  if (schema.max) {
    const int order = Compare(decimal, schema.max->value);
    if (order > 0 || (order == 0 && schema.max->exclusive)) return false;
  }
  return true;
}

bool SaysMoreThanTypes(const FlatSchema& schema) {
  return schema.has_items || schema.min_items > 0 || schema.max_items != kUnlimited ||
         schema.has_properties || schema.additional || !schema.required.empty();
}

const Conjunction* RequiredProperty(const FlatSchema& schema, const std::string& name) {
  if (std::ranges::find(schema.required, name) == schema.required.end()) return nullptr;
  for (const auto& property : schema.properties) {
    if (property.first == name) return &property.second;
  }
  return nullptr;
}

Result<bool> AllAreApart(SchemaReader& reader, const std::vector<FlatSchema>& a,
                         const std::vector<FlatSchema>& b, int depth,
                         const CompileDeadline& deadline) {
  for (const FlatSchema& x : a) {
    for (const FlatSchema& y : b) {
      RL_ASSIGN_OR_RETURN(const bool apart, AreApart(reader, x, y, depth, deadline));
      if (!apart) return false;
    }
  }
  return true;
}

Result<bool> NoneIsAmong(const std::vector<const Json*>& values,
                         const std::vector<const Json*>& others, const CompileDeadline& deadline) {
  for (const Json* value : values) {
    RL_RETURN_IF_ERROR(deadline.Check());
    if (IsAmong(*value, others)) return false;
  }
  return true;
}

Result<bool> NoneFits(const std::vector<const Json*>& values, const FlatSchema& schema,
                      const CompileDeadline& deadline) {
  ValueFilter filter(schema, deadline);
  for (const Json* value : values) {
    // A list or an object is kept: too little is known to say that it does not fit.
    if (value->is_structured() && SaysMoreThanTypes(schema)) return false;
    RL_ASSIGN_OR_RETURN(const bool fits, filter.Fits(*value));
    if (fits) return false;
  }
  return true;
}

Result<bool> ObjectsAreApart(SchemaReader& reader, const FlatSchema& a, const FlatSchema& b,
                             int depth, const CompileDeadline& deadline) {
  if (depth >= kMaxApartDepth) return false;
  for (const std::string& name : a.required) {
    const Conjunction* in_a = RequiredProperty(a, name);
    const Conjunction* in_b = RequiredProperty(b, name);
    if (in_a == nullptr || in_b == nullptr) continue;
    RL_ASSIGN_OR_RETURN(const auto all_a, Alternatives(reader, *in_a, deadline));
    RL_ASSIGN_OR_RETURN(const auto all_b, Alternatives(reader, *in_b, deadline));
    RL_ASSIGN_OR_RETURN(const bool apart, AllAreApart(reader, all_a, all_b, depth + 1, deadline));
    if (apart) return true;
  }
  return false;
}

Status AddAlternatives(SchemaReader& reader, const Conjunction& schemas, int depth,
                       const CompileDeadline& deadline, std::vector<FlatSchema>& flats) {
  RL_RETURN_IF_ERROR(deadline.Check());
  RL_ASSIGN_OR_RETURN(const SplitSchema split, Split(reader, schemas));
  if (split.choices.empty()) {
    RL_ASSIGN_OR_RETURN(FlatSchema flat, Merge(split.own, deadline));
    flats.push_back(std::move(flat));
  }
  if (flats.size() > kMaxAlternatives || depth > kMaxAlternativeDepth) {
    return MakeError(ErrorKind::kUsage, "schema.too_large",
                     "{}: more than {} alternatives, or too many inside one another",
                     schemas.front().place.path, kMaxAlternatives);
  }
  if (split.choices.empty()) return OkStatus();
  const SchemaItem& choice = split.choices.front();
  RL_ASSIGN_OR_RETURN(const SchemaNode* node, reader.Read(choice.place));
  for (const SchemaPlace& branch : BranchesOf(*node, choice.part)) {
    RL_RETURN_IF_ERROR(
        AddAlternatives(reader, ConjunctionOf(split, branch), depth + 1, deadline, flats));
  }
  return OkStatus();
}

}  // namespace

const std::vector<SchemaPlace>& BranchesOf(const SchemaNode& node, SchemaItem::Part part) {
  return part == SchemaItem::Part::kAnyOf ? node.any_of : node.one_of;
}

Conjunction ConjunctionOf(const SplitSchema& split, const SchemaPlace& branch) {
  Conjunction schemas;
  for (const SchemaNode* node : split.own) {
    schemas.push_back({{node->json, node->path}, SchemaItem::Part::kOwn});
  }
  schemas.insert(schemas.end(), split.choices.begin() + 1, split.choices.end());
  schemas.push_back({branch});
  return schemas;
}

Result<SplitSchema> Split(SchemaReader& reader, const Conjunction& schemas) {
  Splitter splitter(reader);
  std::vector<const Json*> way;
  for (const SchemaItem& item : schemas) RL_RETURN_IF_ERROR(splitter.Add(item, way));
  return std::move(splitter.split);
}

Result<FlatSchema> Merge(const std::vector<const SchemaNode*>& schemas,
                         const CompileDeadline& deadline) {
  FlatSchema flat;
  Merger merger(flat, deadline);
  TypeSet spoken_of = 0;
  bool has_types = false;
  for (const SchemaNode* node : schemas) {
    if (flat.path.empty()) flat.path = node->path;
    RL_RETURN_IF_ERROR(merger.Add(*node));
    spoken_of |= node->spoken_of;
    has_types = has_types || node->types.has_value();
  }
  // Keywords of a type hold for values of that type only, so any value of another type would be
  // valid; the author means values of that type.
  if (!has_types && !flat.values && spoken_of != 0) flat.types = WithIntegers(spoken_of);
  flat.never = flat.never || flat.types == 0 || flat.min_length > flat.max_length ||
               flat.min_items > flat.max_items;
  return flat;
}

Result<std::vector<FlatSchema>> Alternatives(SchemaReader& reader, const Conjunction& schemas,
                                             const CompileDeadline& deadline) {
  std::vector<FlatSchema> flats;
  RL_RETURN_IF_ERROR(AddAlternatives(reader, schemas, 0, deadline, flats));
  return flats;
}

Result<bool> ValueFilter::Fits(const Json& value) {
  const TypeSet type = TypeOf(value);
  if (schema_.never || (WithIntegers(schema_.types) & type) == 0) return false;
  if (value.is_number()) return FitsNumber(schema_, value);
  if (value.is_string()) {
    const bool free =
        schema_.patterns.empty() && schema_.min_length == 0 && schema_.max_length == kUnlimited;
    if (free) return true;
    if (!content_) {
      RL_ASSIGN_OR_RETURN(content_, ContentOf(schema_, deadline_));
    }
    return content_->Accepts(value.get_ref<const std::string&>());
  }
  if (value.is_structured() && SaysMoreThanTypes(schema_)) {
    return MakeError(
        ErrorKind::kUsage, "schema.unsupported",
        "{}: enum or const of lists or objects together with other keywords for them is not "
        "supported; leave the others out",
        schema_.path);
  }
  return true;
}

Result<bool> AreApart(SchemaReader& reader, const FlatSchema& a, const FlatSchema& b, int depth,
                      const CompileDeadline& deadline) {
  RL_RETURN_IF_ERROR(deadline.Check());
  const TypeSet types = WithIntegers(a.types) & WithIntegers(b.types);
  if (a.never || b.never || types == 0) return true;
  if (a.values && b.values) return NoneIsAmong(*a.values, *b.values, deadline);
  if (a.values) return NoneFits(*a.values, b, deadline);
  if (b.values) return NoneFits(*b.values, a, deadline);
  return types == kObjectType ? ObjectsAreApart(reader, a, b, depth, deadline)
                              : Result<bool>(false);
}

Result<ContentDfa> ContentOf(const FlatSchema& schema, const CompileDeadline& deadline) {
  const auto content = [&]() -> Result<ContentDfa> {
    RL_ASSIGN_OR_RETURN(ContentDfa all, AllBut({}, deadline));
    for (const std::string& pattern : schema.patterns) {
      RL_ASSIGN_OR_RETURN(ContentDfa next, CompilePattern(pattern, deadline));
      if (&pattern != &schema.patterns.front()) {
        RL_ASSIGN_OR_RETURN(next, Intersection(all, next, deadline));
      }
      all = std::move(next);
    }
    return WithLength(all, schema.min_length, schema.max_length, deadline);
  };
  Result<ContentDfa> result = content();
  if (!result) return tl::unexpected(std::move(result).error().WithContext(schema.path));
  return result;
}

}  // namespace rullama::constraint
