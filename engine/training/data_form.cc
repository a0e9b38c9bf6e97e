#include "engine/training/data_form.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error_of.h"
#include "core/base/printable.h"

namespace rullama {
namespace {

using DataJson = nlohmann::json;

// ShareGPT's names.
constexpr std::array<const char*, 2> kConversationKeys = {"conversations", "conversation"};
constexpr const char* kShareFrom = "from";
constexpr const char* kShareValue = "value";
struct RoleName {
  std::string_view name;
  std::string_view role;
};
constexpr std::array kRoleNames = {
    RoleName{"human", "user"},      RoleName{"user", "user"},
    RoleName{"gpt", "assistant"},   RoleName{"chatgpt", "assistant"},
    RoleName{"model", "assistant"}, RoleName{"assistant", "assistant"},
    RoleName{"system", "system"},
};
// Alpaca's.
constexpr const char* kAlpacaInstruction = "instruction";
constexpr const char* kAlpacaInput = "input";
constexpr const char* kAlpacaOutput = "output";

constexpr const char* kKeyOptions =
    "members with other names are named by --chat-key, --prompt-key, --completion-key and "
    "--text-key";

using BadForm = ErrorOf<ErrorKind::kUsage, "data.line">;

std::string MembersOf(const DataJson& object) {
  constexpr size_t kMaxShown = 8;
  std::vector<std::string> names;
  for (const auto& [key, value] : object.items()) {
    if (names.size() == kMaxShown) {
      names.emplace_back("...");
      break;
    }
    names.push_back("'" + ShownName(key) + "'");
  }
  return names.empty() ? "no member" : fmt::format("{}", fmt::join(names, ", "));
}

class DataFormReader {
 public:
  DataFormReader(const DataJson& object, const DataKeys& keys) : object_(object), keys_(keys) {}

  Result<DataForm> Read() const {
    RL_ASSIGN_OR_RETURN(const LineKind kind, KindOf());
    DataForm form{.kind = kind};
    switch (kind) {
      case LineKind::kMessages: {
        RL_ASSIGN_OR_RETURN(form.messages, Conversation(MessagesKey()));
        form.tools = object_.value("tools", DataJson());
        break;
      }
      case LineKind::kPrompt:
        return IsAlpaca() ? Alpaca() : Completion();
      case LineKind::kText: {
        RL_ASSIGN_OR_RETURN(form.text, TextOf(keys_.text));
        break;
      }
      case LineKind::kTokens:
        break;
    }
    return form;
  }

 private:
  [[nodiscard]] bool Has(const std::string& key) const { return object_.contains(key); }

  // The member with a conversation; empty if there is none.
  [[nodiscard]] std::string MessagesKey() const {
    if (Has(keys_.messages)) return keys_.messages;
    for (const char* key : kConversationKeys) {
      if (Has(key)) return key;
    }
    return {};
  }
  [[nodiscard]] bool IsAlpaca() const {
    return !Has(keys_.prompt) && !Has(keys_.completion) && Has(kAlpacaInstruction) &&
           Has(kAlpacaOutput);
  }

  [[nodiscard]] Result<LineKind> KindOf() const {
    const bool tokens = Has(kIdsKey) || Has(kTargetsKey);
    const bool pair = Has(keys_.prompt) || Has(keys_.completion);
    if (pair && Has(keys_.messages)) {
      return BadForm("found both {} and {} or {}, expected one of them", keys_.messages,
                     keys_.prompt, keys_.completion);
    }
    if (tokens && (pair || Has(keys_.messages) || Has(keys_.text))) {
      return BadForm("found {} or {} and also a text, expected one of them", kIdsKey, kTargetsKey);
    }
    if (tokens) return LineKind::kTokens;
    if (pair) return LineKind::kPrompt;
    if (Has(keys_.messages)) return LineKind::kMessages;
    if (Has(keys_.text)) return LineKind::kText;
    if (!MessagesKey().empty()) return LineKind::kMessages;
    if (IsAlpaca()) return LineKind::kPrompt;
    return BadForm(
        "found none of the keys {}, {} and {}, {}, {} and {}, but {}; expected a conversation, a "
        "prompt with its completion, a text, or tokens with their targets; {}",
        keys_.messages, keys_.prompt, keys_.completion, keys_.text, kIdsKey, kTargetsKey,
        MembersOf(object_), kKeyOptions);
  }

  [[nodiscard]] Result<std::string> TextOf(const std::string& key) const {
    const auto found = object_.find(key);
    if (found == object_.end()) {
      return BadForm("found no '{}', but {}; expected a string; {}", key, MembersOf(object_),
                     kKeyOptions);
    }
    if (found->is_string()) return found->get<std::string>();
    return BadForm("'{}' is {}, expected a string", key, found->type_name());
  }

  // The messages of a member. Its place stands in the errors of the chat template.
  [[nodiscard]] Result<DataJson> Conversation(const std::string& key) const {
    DataJson messages = object_[key];
    if (!messages.is_array()) return messages;
    for (size_t i = 0; i < messages.size(); ++i) {
      DataJson& message = messages[i];
      if (!message.is_object() || message.contains("role") || !message.contains(kShareFrom))
        continue;
      const DataJson& from = message[kShareFrom];
      const std::string name = from.is_string() ? from.get<std::string>() : from.type_name();
      const auto* const role = std::ranges::find(kRoleNames, name, &RoleName::name);
      if (role == kRoleNames.end()) {
        return BadForm("{}[{}].{} is '{}', expected human, gpt or system", key, i, kShareFrom,
                       ShownName(name));
      }
      message = {{"role", role->role}, {"content", message.value(kShareValue, DataJson())}};
    }
    return messages;
  }

  [[nodiscard]] Result<DataForm> Alpaca() const {
    DataForm form{.kind = LineKind::kPrompt};
    RL_ASSIGN_OR_RETURN(form.prompt, TextOf(kAlpacaInstruction));
    if (Has(kAlpacaInput) && !object_[kAlpacaInput].is_null()) {
      RL_ASSIGN_OR_RETURN(const std::string input, TextOf(kAlpacaInput));
      if (!input.empty()) form.prompt += "\n" + input;
    }
    RL_ASSIGN_OR_RETURN(form.text, TextOf(kAlpacaOutput));
    return form;
  }

  // A prompt and its completion: two texts, or two lists of messages.
  [[nodiscard]] Result<DataForm> Completion() const {
    const auto is_list = [&](const std::string& key) {
      return Has(key) && object_[key].is_array();
    };
    if (!is_list(keys_.prompt) && !is_list(keys_.completion)) {
      DataForm form{.kind = LineKind::kPrompt};
      RL_ASSIGN_OR_RETURN(form.prompt, TextOf(keys_.prompt));
      RL_ASSIGN_OR_RETURN(form.text, TextOf(keys_.completion));
      return form;
    }
    if (!is_list(keys_.prompt) || !is_list(keys_.completion)) {
      return BadForm("'{}' or '{}' is a list, expected two texts or two lists of messages",
                     keys_.prompt, keys_.completion);
    }
    DataForm form{.kind = LineKind::kMessages, .last_turn_only = true};
    RL_ASSIGN_OR_RETURN(form.messages, Conversation(keys_.prompt));
    RL_ASSIGN_OR_RETURN(DataJson completion, Conversation(keys_.completion));
    if (completion.size() != 1) {
      return BadForm(
          "'{}' has {} messages, expected the one of the assistant; write longer ones "
          "as '{}'",
          keys_.completion, completion.size(), keys_.messages);
    }
    form.messages.push_back(std::move(completion[0]));
    form.tools = object_.value("tools", DataJson());
    return form;
  }

  const DataJson& object_;
  const DataKeys& keys_;
};

}  // namespace

Result<DataForm> FormOfLine(const DataJson& object, const DataKeys& keys) {
  return DataFormReader(object, keys).Read();
}

}  // namespace rullama
