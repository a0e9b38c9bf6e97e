#include "server/anthropic/conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "server/media_fields.h"

namespace rullama::server {
namespace {

using nlohmann::json;

constexpr size_t kMaxTurns = 100'000;
constexpr std::string_view kBillingHeader = "x-anthropic-billing-header";
constexpr std::array<std::string_view, 4> kPictureTypes = {"image/png", "image/jpeg", "image/gif",
                                                           "image/webp"};

// Reads the members of blocks. Errors go to `fields`, by their places in the body.
class BlockReader {
 public:
  BlockReader(FieldReader& fields, std::vector<Medium>& media) : fields_(fields), media_(media) {}

  // The type of a block; empty after an error.
  std::string TypeOf(const json& block, const std::string& place) {
    if (!block.is_object()) {
      fields_.Fail("invalid_type", place,
                   fmt::format("is of type {}, expected an object", block.type_name()));
      return "";
    }
    return RequiredText(block, place, "type");
  }

  std::string RequiredText(const json& object, const std::string& place, const char* name) {
    FieldReader members(object, place + ".");
    const auto text = members.Text(name);
    if (!text) members.Fail("missing_required_parameter", name, "is missing; give a text");
    fields_.Fail(members.error());
    return text.value_or("");
  }

  void Refuse(const std::string& place, std::string_view expected) {
    fields_.Fail("unsupported_value", place + ".type", fmt::format("is not {}", expected));
  }

  // A text, or a list of blocks of text, as one text with empty lines between them. `keep`: whether
  // a text is to be part of it.
  template <typename Keep>
  std::string JoinedTexts(const json& content, const std::string& place, const Keep& keep) {
    if (content.is_string()) return content.get<std::string>();
    if (!content.is_array()) {
      fields_.Fail("invalid_type", place, "is neither a text nor a list of blocks of text");
      return "";
    }
    std::string joined;
    bool first = true;
    for (size_t i = 0; i < content.size() && !fields_.error(); ++i) {
      const std::string at = fmt::format("{}[{}]", place, i);
      const std::string type = TypeOf(content[i], at);
      if (type != "text") {
        Refuse(at, "\"text\"");
        break;
      }
      const std::string text = RequiredText(content[i], at, "text");
      if (!keep(text)) continue;
      joined += (first ? "" : "\n\n") + text;
      first = false;
    }
    return joined;
  }

  // A block of a user or of a result as a part for the engine; nothing if it is of another type.
  std::optional<json> Part(const std::string& type, const json& block, const std::string& place) {
    if (type == "text") return TextPart(RequiredText(block, place, "text"));
    if (type == "image") return Picture(block, place);
    if (type == "document") return TextPart(Document(block, place));
    return std::nullopt;
  }

  // The media of parts have places of their own until their order is known.
  static json TextPart(std::string text) { return {{"type", "text"}, {"text", std::move(text)}}; }

 private:
  const json& SourceOf(const json& block, const std::string& place) {
    static const json kNone = json::object();
    FieldReader members(block, place + ".");
    const json* source = members.Object("source");
    if (source == nullptr) {
      members.Fail("missing_required_parameter", "source", "is missing; give an object");
    }
    fields_.Fail(members.error());
    return source == nullptr ? kNone : *source;
  }

  json Picture(const json& block, const std::string& place) {
    const json& source = SourceOf(block, place);
    const std::string at = place + ".source";
    if (fields_.error()) return {};
    const std::string type = RequiredText(source, at, "type");
    if (type != "base64") {
      fields_.Fail("unsupported_value", at + ".type",
                   "is not \"base64\"; nothing is downloaded or stored, send the picture itself");
      return {};
    }
    const std::string media_type = RequiredText(source, at, "media_type");
    if (std::ranges::find(kPictureTypes, media_type) == kPictureTypes.end()) {
      fields_.Fail("invalid_value", at + ".media_type",
                   fmt::format("is not one of {}", fmt::join(kPictureTypes, ", ")));
      return {};
    }
    const std::string data = RequiredText(source, at, "data");
    if (fields_.error()) return {};
    json part = ReadPictureBytes(fields_, at + ".data", data, media_);
    part["medium"] = media_.size() - 1;
    return part;
  }

  // The text of a document after its title.
  std::string Document(const json& block, const std::string& place) {
    const json& source = SourceOf(block, place);
    const std::string at = place + ".source";
    if (fields_.error()) return "";
    const std::string type = RequiredText(source, at, "type");
    std::string text;
    if (type == "text") {
      text = RequiredText(source, at, "data");
    } else if (type == "content") {
      const auto content = source.find("content");
      text = JoinedTexts(content == source.end() ? json() : *content, at + ".content",
                         [](const std::string&) { return true; });
    } else {
      fields_.Fail("unsupported_value", at + ".type",
                   "is not one of text, content; other documents are not read here");
    }
    FieldReader members(block, place + ".");
    if (const auto title = members.Text("title")) text = *title + "\n\n" + text;
    fields_.Fail(members.error());
    return text;
  }

  FieldReader& fields_;
  std::vector<Medium>& media_;
};

bool IsMedium(const json& part) { return part.contains("medium"); }

// What a tool returned when it failed: {"error": text}, as the value of its response.
json FailureOf(const json& content) {
  if (content.is_string()) return {{"value", {{"error", content}}}};
  std::string text;
  json parts = json::array();
  for (const json& part : content) {
    if (part["type"] == "text") text += part["text"].get_ref<const std::string&>();
    if (IsMedium(part)) parts.push_back(part);
  }
  json failure = {{"error", text}};
  if (parts.empty()) return {{"value", std::move(failure)}};
  parts.insert(parts.begin(), BlockReader::TextPart(failure.dump()));
  return parts;
}

// Makes messages of turns.
class TurnReader {
 public:
  TurnReader(FieldReader& fields, Conversation& out)
      : fields_(fields), out_(out), blocks_(fields, media_) {}

  void System(const json& system) {
    std::string text;
    if (system.is_string()) {
      text = system.get<std::string>();
      if (text.starts_with(kBillingHeader)) {
        text.erase(0, std::min(text.find('\n'), text.size()));
      }
    } else {
      text = blocks_.JoinedTexts(system, "system", [](const std::string& one) {
        return !one.starts_with(kBillingHeader);
      });
    }
    if (!text.empty()) Add({{"role", "system"}, {"content", std::move(text)}});
  }

  void Turn(const json& turn, const std::string& place) {
    if (!turn.is_object()) {
      return fields_.Fail("invalid_type", place,
                          fmt::format("is of type {}, expected an object", turn.type_name()));
    }
    const std::string role = blocks_.RequiredText(turn, place, "role");
    const auto content = turn.find("content");
    if (role != "user" && role != "assistant" && role != "system") {
      return fields_.Fail("invalid_value", place + ".role",
                          "is not one of user, assistant, system");
    }
    if (content == turn.end() || content->is_null()) {
      return fields_.Fail("missing_required_parameter", place + ".content",
                          "is missing; give a text or a list of blocks");
    }
    if (!content->is_string() && !content->is_array()) {
      return fields_.Fail(
          "invalid_type", place + ".content",
          fmt::format("is of type {}, expected a text or a list of blocks", content->type_name()));
    }
    const bool same = role == role_;
    if (!same) EndAnswer();
    role_ = role;
    if (role == "system") return SystemTurn(*content, place + ".content");
    if (role == "user") return UserTurn(*content, place + ".content", same);
    if (!same) turn_begin_ = messages().size();
    AssistantTurn(*content, place + ".content");
  }

  // The last turn ended at `place`, the content of a message.
  void Finish(const std::string& place) {
    if (role_ == "assistant" && !fields_.error()) {
      out_.continues_last = true;
      CheckContinued(place);
    }
    EndAnswer();
    OrderMedia();
  }

 private:
  json& messages() { return out_.messages; }
  void Add(json message) { messages().push_back(std::move(message)); }

  void SystemTurn(const json& content, const std::string& place) {
    Add({{"role", "system"},
         {"content",
          blocks_.JoinedTexts(content, place, [](const std::string&) { return true; })}});
  }

  void UserTurn(const json& content, const std::string& place, bool same) {
    if (content.is_string()) return AddOfUser(content, same);
    json parts = json::array();
    bool results = false;
    for (size_t i = 0; i < content.size() && !fields_.error(); ++i) {
      const std::string at = fmt::format("{}[{}]", place, i);
      const std::string type = blocks_.TypeOf(content[i], at);
      if (type == "tool_result") {
        Result(content[i], at);
        results = true;
      } else if (auto part = blocks_.Part(type, content[i], at)) {
        parts.push_back(*std::move(part));
      } else {
        blocks_.Refuse(at, "one of text, image, document, tool_result");
      }
    }
    if (!parts.empty() || !results) AddOfUser(std::move(parts), same);
  }

  // Adds a text or parts to the turn of the user. `same`: the turn may have begun.
  void AddOfUser(json content, bool same) {
    const bool begun = same && !messages().empty() && messages().back()["role"] == "user";
    if (!begun) return Add({{"role", "user"}, {"content", std::move(content)}});
    const auto as_parts = [](json text) {
      return text.is_string() ? json::array({BlockReader::TextPart(text)}) : text;
    };
    json& earlier = messages().back()["content"];
    earlier = as_parts(std::move(earlier));
    content = as_parts(std::move(content));
    for (json& part : content) earlier.push_back(std::move(part));
  }

  // A result goes after the call, and before what else the user says.
  void Result(const json& block, const std::string& place) {
    const std::string id = blocks_.RequiredText(block, place, "tool_use_id");
    if (!fields_.error() && !calls_before_.contains(id)) {
      fields_.Fail("invalid_value", place + ".tool_use_id",
                   "names no call of the assistant's turn before it");
    }
    FieldReader members(block, place + ".");
    const bool failed = members.Boolean("is_error").value_or(false);
    fields_.Fail(members.error());
    if (fields_.error()) return;
    json content = ResultContent(block, place + ".content");
    if (fields_.error()) return;
    if (failed) content = FailureOf(content);
    const json message = {{"role", "tool"}, {"tool_call_id", id}, {"content", std::move(content)}};
    messages().insert(messages().begin() + static_cast<std::ptrdiff_t>(results_at_), message);
    ++results_at_;
  }

  json ResultContent(const json& block, const std::string& place) {
    const auto content = block.find("content");
    if (content == block.end() || content->is_null()) return "";
    if (content->is_string()) return *content;
    if (!content->is_array()) {
      fields_.Fail("invalid_type", place, "is neither a text nor a list of blocks");
      return "";
    }
    json parts = json::array();
    for (size_t i = 0; i < content->size() && !fields_.error(); ++i) {
      const std::string at = fmt::format("{}[{}]", place, i);
      auto part = blocks_.Part(blocks_.TypeOf((*content)[i], at), (*content)[i], at);
      if (!part) {
        blocks_.Refuse(at, "one of text, image, document");
      } else {
        parts.push_back(*std::move(part));
      }
    }
    return parts;
  }

  void AssistantTurn(const json& content, const std::string& place) {
    if (content.is_string()) return AddText(content);
    for (size_t i = 0; i < content.size() && !fields_.error(); ++i) {
      const std::string at = fmt::format("{}[{}]", place, i);
      const std::string type = blocks_.TypeOf(content[i], at);
      if (type == "text") {
        AddText(blocks_.RequiredText(content[i], at, "text"));
      } else if (type == "thinking") {
        Add({{"role", "assistant"},
             {"content", ""},
             {"reasoning_content", blocks_.RequiredText(content[i], at, "thinking")}});
      } else if (type == "tool_use") {
        AddCall(content[i], at);
      } else if (type != "redacted_thinking") {
        blocks_.Refuse(at, "one of text, thinking, redacted_thinking, tool_use");
      }
    }
  }

  // The message that the assistant's turn has come to, or null.
  json* LastOfTurn() { return messages().size() > turn_begin_ ? &messages().back() : nullptr; }

  void AddText(std::string text) {
    if (json* last = LastOfTurn()) {
      (*last)["content"].get_ref<std::string&>() += text;
    } else {
      Add({{"role", "assistant"}, {"content", std::move(text)}});
    }
  }

  void AddCall(const json& block, const std::string& place) {
    const std::string id = blocks_.RequiredText(block, place, "id");
    const std::string name = blocks_.RequiredText(block, place, "name");
    FieldReader members(block, place + ".");
    const json* input = members.Object("input");
    if (input == nullptr) {
      members.Fail("missing_required_parameter", "input", "is missing; give an object");
    }
    fields_.Fail(members.error());
    if (fields_.error()) return;
    calls_.push_back(
        {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", *input}}}});
  }

  // The template writes the calls of a message before its text, but the model writes them after it:
  // they get a message of their own, which continues the turn.
  void EndAnswer() {
    if (role_ != "assistant") return;
    calls_before_.clear();
    if (LastOfTurn() == nullptr && calls_.empty()) AddText("");
    if (calls_.empty()) return;
    json* last = LastOfTurn();
    if (last == nullptr || !(*last)["content"].get_ref<const std::string&>().empty()) {
      Add({{"role", "assistant"}, {"content", ""}});
      last = &messages().back();
    }
    for (const json& call : calls_) calls_before_.insert(call["id"].get<std::string>());
    (*last)["tool_calls"] = std::exchange(calls_, json::array());
    results_at_ = messages().size();
  }

  void CheckContinued(const std::string& place) {
    if (!calls_.empty()) {
      return fields_.Fail("invalid_value", place,
                          "ends with calls of tools; send their results after them");
    }
    json* last = LastOfTurn();
    const std::string text = last == nullptr ? "" : (*last)["content"].get<std::string>();
    if (!text.empty() && std::string_view(" \t\r\n\v\f").find(text.back()) != std::string::npos) {
      fields_.Fail("invalid_value", place,
                   "ends with white space, but the answer is to continue it; leave that out");
    }
  }

  // Puts the media into the order in which their parts stand.
  void OrderMedia() {
    for (json& message : messages()) {
      json& content = message["content"];
      if (!content.is_array()) continue;
      for (json& part : content) {
        if (!IsMedium(part)) continue;
        out_.media.push_back(std::move(media_[part["medium"].get<size_t>()]));
        part.erase("medium");
      }
    }
  }

  FieldReader& fields_;
  Conversation& out_;
  std::vector<Medium> media_;  // in the order of the body
  BlockReader blocks_;
  std::string role_;                    // of the turn before
  size_t turn_begin_ = 0;               // the first message of the assistant's turn
  json calls_ = json::array();          // of this turn
  std::set<std::string> calls_before_;  // ids of the calls that results may name
  size_t results_at_ = 0;               // the place of the next result among the messages
};

}  // namespace

Conversation ReadConversation(FieldReader& fields) {
  Conversation out;
  TurnReader reader(fields, out);
  if (const json* system = fields.Find("system")) reader.System(*system);
  const json* turns = fields.Find("messages");
  if (turns == nullptr) {
    fields.Fail("missing_required_parameter", "messages", "is missing; give a list of messages");
  } else if (!turns->is_array()) {
    fields.Fail("invalid_type", "messages", "is not a list");
  } else if (turns->empty() || turns->size() > kMaxTurns) {
    fields.Fail("invalid_value", "messages",
                fmt::format("has {} messages, expected 1 to {}", turns->size(), kMaxTurns));
  }
  if (fields.error()) return out;
  for (size_t i = 0; i < turns->size() && !fields.error(); ++i) {
    reader.Turn((*turns)[i], fmt::format("messages[{}]", i));
  }
  if (!fields.error()) reader.Finish(fmt::format("messages[{}].content", turns->size() - 1));
  return out;
}

}  // namespace rullama::server
