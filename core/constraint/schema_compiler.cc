#include "core/constraint/schema_compiler.h"

#include <algorithm>
#include <tuple>

#include "core/base/printable.h"
#include "core/constraint/automaton.h"

namespace rullama::constraint {
namespace {

constexpr int kMaxSchemaDepth = 32;
constexpr size_t kMaxStates = 100'000;

// The schema `true`.
const Json& Anything() {
  static const Json kTrue = true;
  return kTrue;
}

const Json& AnyObject() {
  static const Json kObject = {{"type", "object"}};
  return kObject;
}

std::string KeyOf(const std::optional<Bound>& bound) {
  if (!bound) return "none";
  return fmt::format("{}{}.{}{}", bound->value.negative ? "-" : "", bound->value.whole,
                     bound->value.fraction, bound->exclusive ? "x" : "");
}

}  // namespace

SchemaCompiler::SchemaCompiler(GrammarBuilder& builder, const ValueSyntax& syntax,
                               const CompileDeadline& deadline)
    : builder_(builder), deadline_(deadline), texts_(builder, syntax, deadline) {}

Result<RuleId> SchemaCompiler::Add(const Json& schema, const std::string& path,
                                   Strictness strictness) {
  return AddDocument(schema, path, strictness, {});
}

Result<RuleId> SchemaCompiler::AddObject(const Json& schema, const std::string& path,
                                         Strictness strictness) {
  return AddDocument(schema, path, strictness, {{{&AnyObject(), path}}});
}

Result<RuleId> SchemaCompiler::AddDocument(const Json& schema, const std::string& path,
                                           Strictness strictness, const Conjunction& others) {
  SchemaReader reader(schema, path, strictness, deadline_);
  reader_ = &reader;
  Conjunction schemas = {{reader.root()}};
  schemas.insert(schemas.end(), others.begin(), others.end());
  const RuleId root = RuleOf(schemas, 0);
  Status status;
  while (status && !tasks_.empty()) {
    const Task task = std::move(tasks_.front());
    tasks_.pop_front();
    status = CheckLimits(task);
    if (status) status = Compile(task);
    if (status) continue;
    status = reader.LeaveOut(std::move(status).error(), task.schemas.front().place.path);
    if (status) status = CompileTypes(task);
  }
  tasks_.clear();
  reader_ = nullptr;
  ignored_.insert(reader.ignored().begin(), reader.ignored().end());
  unenforced_.insert(reader.unenforced().begin(), reader.unenforced().end());
  RL_RETURN_IF_ERROR(std::move(status));
  added_.push_back({root, path});
  return root;
}

Status SchemaCompiler::CheckLimits(const Task& task) const {
  const std::string& path = task.schemas.front().place.path;
  if (task.depth > kMaxSchemaDepth) {
    return MakeError(ErrorKind::kUsage, "schema.too_large",
                     "{}: nested more than {} deep; write it flatter", path, kMaxSchemaDepth);
  }
  if (builder_.state_count() - literal_states_ > kMaxStates) {
    return MakeError(ErrorKind::kUsage, "schema.too_large",
                     "{}: the schema needs more than {} states; write a smaller one", path,
                     kMaxStates);
  }
  Status in_time = deadline_.Check();
  if (!in_time) return tl::unexpected(std::move(in_time).error().WithContext(path));
  return in_time;
}

Status SchemaCompiler::Check(const Grammar& grammar) const {
  for (const Added& added : added_) {
    const Grammar::Need need = grammar.need(grammar.start(added.rule));
    if (need.symbols >= kUnreachable) {
      return MakeError(ErrorKind::kUsage, "schema.invalid",
                       "{}: no finite value is valid under the schema: something that is required "
                       "contradicts itself, contains itself without an end, or is more than any "
                       "answer has",
                       added.path);
    }
    if (need.frames > Automaton::kMaxFrames / 2) {
      return MakeError(ErrorKind::kUsage, "schema.too_large",
                       "{}: even the smallest value is nested too deep; write it flatter",
                       added.path);
    }
  }
  return OkStatus();
}

RuleId SchemaCompiler::RuleOf(const Conjunction& schemas, int depth) {
  std::vector<std::pair<const Json*, SchemaItem::Part>> key;
  for (const SchemaItem& item : schemas) key.emplace_back(item.place.json, item.part);
  std::ranges::sort(key);
  key.erase(std::unique(key.begin(), key.end()), key.end());
  const auto [found, is_new] = rules_.try_emplace(std::move(key), 0);
  if (!is_new) return found->second;
  found->second = builder_.AddRule();
  builder_.SetStart(found->second, builder_.AddState());
  tasks_.push_back({found->second, schemas, depth});
  return found->second;
}

Status SchemaCompiler::Compile(const Task& task) {
  RL_ASSIGN_OR_RETURN(const SplitSchema split, Split(*reader_, task.schemas));
  if (!split.choices.empty()) return CompileChoice(task, split);
  RL_ASSIGN_OR_RETURN(const FlatSchema flat, Merge(split.own, deadline_));
  return CompileFlat(task, flat);
}

// Before it fails, Compile() has added only whole values to the rule.
Status SchemaCompiler::CompileTypes(const Task& task) {
  std::deque<SchemaNode> bare;
  std::vector<const SchemaNode*> nodes;
  for (const SchemaItem& item : task.schemas) {
    RL_ASSIGN_OR_RETURN(const SchemaNode* node, reader_->Read(item.place));
    nodes.push_back(&bare.emplace_back());
    bare.back().path = node->path;
    bare.back().types = node->types;
  }
  RL_ASSIGN_OR_RETURN(const FlatSchema flat, Merge(nodes, deadline_));
  Task shallow;
  shallow.rule = task.rule;
  return CompileFlat(shallow, flat);
}

// The rule begins as each of its branches does, and ends as that ends.
Status SchemaCompiler::CompileChoice(const Task& task, const SplitSchema& split) {
  const SchemaItem& choice = split.choices.front();
  RL_ASSIGN_OR_RETURN(const SchemaNode* node, reader_->Read(choice.place));
  const std::vector<SchemaPlace>& branches = BranchesOf(*node, choice.part);
  if (choice.part == SchemaItem::Part::kOneOf) {
    Status apart = CheckApart(split, branches);
    if (!apart) {
      RL_RETURN_IF_ERROR(reader_->LeaveOut(std::move(apart).error(), choice.place.path + ".oneOf"));
    }
  }
  for (const SchemaPlace& branch : branches) {
    // A reference is followed here, so that references to one schema make one branch.
    SchemaPlace place = branch;
    RL_ASSIGN_OR_RETURN(const SchemaNode* target, reader_->Read(place));
    const bool only_refers = target->ref && !target->HasOwn() && target->all_of.empty() &&
                             target->any_of.empty() && target->one_of.empty();
    if (only_refers) place = *target->ref;
    const RuleId rule = RuleOf(ConjunctionOf(split, place), task.depth);
    builder_.AddEpsilon(builder_.start(task.rule), builder_.start(rule));
  }
  return OkStatus();
}

Status SchemaCompiler::CheckApart(const SplitSchema& split,
                                  const std::vector<SchemaPlace>& branches) {
  std::vector<std::vector<FlatSchema>> alternatives;
  for (const SchemaPlace& branch : branches) {
    RL_ASSIGN_OR_RETURN(auto flats,
                        Alternatives(*reader_, ConjunctionOf(split, branch), deadline_));
    alternatives.push_back(std::move(flats));
  }
  for (size_t i = 0; i < branches.size(); ++i) {
    for (size_t k = i + 1; k < branches.size(); ++k) {
      for (const FlatSchema& a : alternatives[i]) {
        for (const FlatSchema& b : alternatives[k]) {
          RL_ASSIGN_OR_RETURN(const bool apart, AreApart(*reader_, a, b, 0, deadline_));
          if (apart) continue;
          return MakeError(ErrorKind::kUsage, "schema.unsupported",
                           "{}: a value may be valid under branches {} and {}, which type, enum "
                           "and const do not tell apart; write anyOf",
                           branches[i].path, i, k);
        }
      }
    }
  }
  return OkStatus();
}

Status SchemaCompiler::CompileFlat(const Task& task, const FlatSchema& flat) {
  const StateId from = builder_.start(task.rule);
  const StateId to = builder_.AddAccept();
  if (flat.never) return OkStatus();
  if (flat.values) return AddValues(flat, from, to);
  if ((flat.types & kNullType) != 0) AddWords({"null"}, from);
  if ((flat.types & kBooleanType) != 0) AddWords({"true", "false"}, from);
  if ((flat.types & (kNumberType | kIntegerType)) != 0) AddNumber(flat, from);
  if ((flat.types & kStringType) != 0) RL_RETURN_IF_ERROR(AddString(flat, from));
  if ((flat.types & kArrayType) != 0) AddList(flat, task.depth, from, to);
  if ((flat.types & kObjectType) != 0) {
    RL_RETURN_IF_ERROR(AddObject(flat, task.depth, from, to));
  }
  return OkStatus();
}

Status SchemaCompiler::AddValues(const FlatSchema& flat, StateId from, StateId to) {
  std::vector<std::vector<Symbol>> spellings;
  ValueFilter filter(flat, deadline_);
  for (const Json* value : *flat.values) {
    RL_ASSIGN_OR_RETURN(const bool fits, filter.Fits(*value));
    if (!fits) continue;
    RL_RETURN_IF_ERROR(CheckSpelling(flat, *value));
    spellings.push_back(texts_.Spell(*value));
  }
  std::ranges::sort(spellings);
  spellings.erase(std::unique(spellings.begin(), spellings.end()), spellings.end());
  const size_t before = builder_.state_count();
  builder_.AddTexts(from, spellings, to);
  literal_states_ += builder_.state_count() - before;
  return OkStatus();
}

Status SchemaCompiler::CheckSpelling(const FlatSchema& flat, const Json& value) const {
  const ValueSyntax& syntax = texts_.syntax();
  if (!syntax.quote) return OkStatus();
  if (value.is_string() &&
      value.get_ref<const std::string&>().find(syntax.quote_text) != std::string::npos) {
    return MakeError(ErrorKind::kUsage, "schema.unsupported",
                     "{}: a value contains {}, which ends a string of a tool call", flat.path,
                     syntax.quote_text);
  }
  if (!value.is_structured()) return OkStatus();
  for (const auto& [key, member] : value.items()) {
    if (value.is_object()) RL_RETURN_IF_ERROR(CheckKey(flat, key));
    RL_RETURN_IF_ERROR(CheckSpelling(flat, member));
  }
  return OkStatus();
}

Status SchemaCompiler::CheckKey(const FlatSchema& flat, std::string_view key) const {
  const ValueSyntax& syntax = texts_.syntax();
  if (!syntax.quote || key.find(syntax.quote_text) == std::string_view::npos) return OkStatus();
  return MakeError(ErrorKind::kUsage, "schema.unsupported",
                   "{}: the key '{}' contains {}, which ends a string of a tool call", flat.path,
                   ShownName(key), syntax.quote_text);
}

void SchemaCompiler::AddWords(std::initializer_list<std::string_view> words, StateId from) {
  const auto [found, is_new] = leaf_rules_.try_emplace(std::string(*words.begin()), 0);
  if (is_new) {
    found->second = builder_.AddRule();
    const StateId start = builder_.AddState();
    builder_.SetStart(found->second, start);
    const StateId accept = builder_.AddAccept();
    for (const std::string_view word : words) {
      builder_.AddEpsilon(builder_.AddText(start, word), accept);
    }
  }
  builder_.AddEpsilon(from, builder_.start(found->second));
}

void SchemaCompiler::AddNumber(const FlatSchema& flat, StateId from) {
  const NumberRange range{
      .integer = (flat.types & kNumberType) == 0, .min = flat.min, .max = flat.max};
  const auto key =
      fmt::format("number {} {} {}", range.integer, KeyOf(range.min), KeyOf(range.max));
  const auto [found, is_new] = leaf_rules_.try_emplace(key, 0);
  if (is_new) {
    found->second = builder_.AddRule();
    const StateId start = builder_.AddState();
    builder_.SetStart(found->second, start);
    AddNumbers(builder_, range, start, builder_.AddAccept());
  }
  builder_.AddEpsilon(from, builder_.start(found->second));
}

Status SchemaCompiler::AddString(const FlatSchema& flat, StateId from) {
  if (flat.patterns.empty()) {
    const RuleId rule = texts_.String(flat.min_length, flat.max_length);
    builder_.AddEpsilon(from, builder_.start(rule));
    return OkStatus();
  }
  std::string key = fmt::format("string {} {}", flat.min_length, flat.max_length);
  for (const std::string& pattern : flat.patterns) key += '\n' + pattern;
  const auto [found, is_new] = leaf_rules_.try_emplace(key, 0);
  if (is_new) {
    RL_ASSIGN_OR_RETURN(const ContentDfa content, ContentOf(flat, deadline_));
    if (content.states.empty()) {
      return MakeError(ErrorKind::kUsage, "schema.invalid",
                       "{}: no string has the pattern, format and length that are asked for",
                       flat.path);
    }
    RL_ASSIGN_OR_RETURN(found->second, texts_.StringOf(content));
  }
  builder_.AddEpsilon(from, builder_.start(found->second));
  return OkStatus();
}

RuleId SchemaCompiler::SeparatedItem(RuleId item) {
  const auto [found, is_new] = separated_.try_emplace(item, 0);
  if (!is_new) return found->second;
  const RuleId rule = found->second = builder_.AddRule();
  const StateId start = builder_.AddState();
  builder_.SetStart(rule, start);
  const StateId after = texts_.AddSeparator(start, ',');
  builder_.AddEpsilon(after, builder_.AddCall(item, builder_.AddAccept()));
  return rule;
}

void SchemaCompiler::AddList(const FlatSchema& flat, int depth, StateId from, StateId to) {
  const StateId open = builder_.AddText(from, "[");
  const StateId end = builder_.AddState();  // before the bracket
  builder_.AddEdge(end, ']', to);
  const auto fixed =
      static_cast<uint32_t>(std::min<size_t>(flat.prefix_items.size(), flat.max_items));
  StateId at = open;
  for (uint32_t i = 0; i < fixed; ++i) {
    if (i >= flat.min_items) builder_.AddEpsilon(at, end);
    if (i > 0) at = texts_.AddSeparator(at, ',');
    const StateId after = builder_.AddState();
    builder_.AddEpsilon(at, builder_.AddCall(RuleOf(flat.prefix_items[i], depth + 1), after));
    at = after;
  }
  const Conjunction anything = {{{&Anything(), flat.path}}};
  const uint32_t min = flat.min_items > fixed ? flat.min_items - fixed : 0;
  const uint32_t max = flat.max_items == kUnlimited ? kUnlimited : flat.max_items - fixed;
  if (min == 0) builder_.AddEpsilon(at, end);
  if (max == 0) return;
  const RuleId item = RuleOf(flat.items.empty() ? anything : flat.items, depth + 1);
  uint32_t first = 0;  // items that need no separator in front
  if (fixed == 0) {
    first = 1;
    const StateId after = builder_.AddState();
    builder_.AddEpsilon(at, builder_.AddCall(item, after));
    at = after;
  }
  const RuleId more = SeparatedItem(item);
  const uint32_t max_more = max == kUnlimited ? kUnlimited : max - first;
  builder_.AddEpsilon(at,
                      builder_.AddRepeat({&more, 1}, min > first ? min - first : 0, max_more, end));
}

Status SchemaCompiler::AddObject(const FlatSchema& flat, int depth, StateId from, StateId to) {
  std::vector<std::pair<std::string, Conjunction>> properties = flat.properties;
  const Conjunction anything = {{{&Anything(), flat.path}}};
  // Where nothing is declared anything is allowed, else only declared members.
  const bool open = flat.additional.has_value() || !flat.has_properties;
  const Conjunction others = flat.additional.value_or(anything);
  std::set<std::string, std::less<>> names;
  for (const auto& property : properties) names.insert(property.first);
  const std::set<std::string, std::less<>> required(flat.required.begin(), flat.required.end());
  for (const std::string& name : flat.required) {
    if (names.insert(name).second) properties.emplace_back(name, others);
  }
  for (const auto& property : properties) RL_RETURN_IF_ERROR(CheckKey(flat, property.first));
  std::optional<RuleId> other_key;
  if (open) {
    const std::vector<std::string> known(names.begin(), names.end());
    RL_ASSIGN_OR_RETURN(other_key, texts_.KeyBut(known));
  }
  const StateId end = builder_.AddState();  // before the brace
  builder_.AddEdge(end, '}', to);
  // key[i]: before the key of property i or a later one; after[i]: after the members before it, of
  // which there is at least one.
  std::vector<StateId> key;
  std::vector<StateId> after;
  for (size_t i = 0; i <= properties.size(); ++i) {
    key.push_back(builder_.AddState());
    after.push_back(builder_.AddState());
    builder_.AddEpsilon(texts_.AddSeparator(after[i], ','), key[i]);
  }
  const StateId first = builder_.AddText(from, "{");
  builder_.AddEpsilon(first, key[0]);
  const auto add_value = [&](StateId at, const Conjunction& schemas, StateId next) {
    const StateId value = texts_.AddSeparator(at, ':');
    builder_.AddEpsilon(value, builder_.AddCall(RuleOf(schemas, depth + 1), next));
  };
  bool may_end = true;  // without any of the properties from i on
  for (size_t i = properties.size(); i-- > 0;) {
    const auto& [name, schemas] = properties[i];
    if (may_end) builder_.AddEpsilon(after[i + 1], end);
    literal_states_ += name.size();
    add_value(texts_.AddKey(key[i], name), schemas, after[i + 1]);
    if (required.contains(name)) {
      may_end = false;
    } else {
      builder_.AddEpsilon(key[i], key[i + 1]);
    }
  }
  if (may_end) builder_.AddEpsilon(first, end);
  if (!other_key) return OkStatus();
  const StateId named = builder_.AddState();
  const StateId last = key[properties.size()];
  builder_.AddEpsilon(last, builder_.AddCall(*other_key, named));
  add_value(named, others, after[properties.size()]);
  builder_.AddEpsilon(after[properties.size()], end);
  return OkStatus();
}

Result<std::shared_ptr<const Grammar>> GrammarOf(const Json& schema, const ValueSyntax& syntax,
                                                 const CompileDeadline& deadline,
                                                 Strictness strictness) {
  GrammarBuilder builder;
  SchemaCompiler compiler(builder, syntax, deadline);
  RL_ASSIGN_OR_RETURN(const RuleId root, compiler.Add(schema, "schema", strictness));
  auto grammar = std::make_shared<const Grammar>(std::move(builder).Finish(root));
  RL_RETURN_IF_ERROR(compiler.Check(*grammar));
  return grammar;
}

}  // namespace rullama::constraint
