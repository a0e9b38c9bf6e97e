#include "models/gemma3/chat/translation.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "models/common/chat/json.h"
#include "models/common/chat/trim.h"
#include "models/common/chat/validate.h"

namespace rullama::gemma3 {
namespace {

using chat::ErrorAt;
using chat::Member;
using chat::PromptWriter;
using chat::Text;
using Json = nlohmann::json;

struct Language {
  std::string_view code;
  std::string_view name;
};
constexpr Language kLanguages[] = {
#define RL_LANGUAGE(code, name) {#code, name},
#include "models/gemma3/chat/languages.def"
#undef RL_LANGUAGE
};

constexpr std::string_view kSource = "source_lang_code";
constexpr std::string_view kTarget = "target_lang_code";
// How a text that is a whole instruction begins.
constexpr std::string_view kInstruction = "You are a professional ";

// What a user's message asks for.
struct Translation {
  std::string_view source = {};  // codes; empty: the text is a whole instruction
  std::string_view target = {};
  std::string_view text = {};
};

// The name of the language of a code, which may have a region or a script after it. Empty if there
// is none.
std::string_view NameOf(std::string_view code) {
  const std::string_view language = code.substr(0, code.find_first_of("-_"));
  const auto* const found = std::ranges::find(kLanguages, language, &Language::code);
  return found == std::end(kLanguages) ? std::string_view() : found->name;
}

// The text after `mark`, up to `end` or to the end of the text. Both are removed from `text`.
std::optional<std::string_view> TakeField(std::string_view& text, std::string_view mark,
                                          std::string_view end) {
  if (!text.starts_with(mark)) return std::nullopt;
  text.remove_prefix(mark.size());
  const std::string_view field = text.substr(0, end.empty() ? text.npos : text.find(end));
  text.remove_prefix(field.size());
  return field;
}

Result<Translation> FromText(std::string_view text, const std::string& path) {
  if (text.starts_with(kInstruction)) return Translation{.text = text};
  constexpr std::string_view kTargetMark = "<<<target>>>";
  constexpr std::string_view kTextMark = "<<<text>>>";
  std::string_view rest = text;
  const auto source = TakeField(rest, "<<<source>>>", kTargetMark);
  const auto target = TakeField(rest, kTargetMark, kTextMark);
  const auto content = TakeField(rest, kTextMark, "");
  if (source && target && content) {
    return Translation{chat::Trim(*source), chat::Trim(*target), *content};
  }
  return ErrorAt(path, "chat.content",
                 "no languages are given; expected a part with '{}' and '{}', "
                 "chat_template_kwargs with both, or the text "
                 "<<<source>>>en<<<target>>>de<<<text>>>...",
                 kSource, kTarget);
}

Result<std::string_view> CodeOf(const Json& part, std::string_view key, const std::string& path) {
  const Json& code = Member(part, key);
  if (code.is_string() && !Text(code).empty()) return Text(code);
  return ErrorAt(fmt::format("{}.{}", path, key), "chat.content",
                 "expected the code of a language, such as en or pt-BR");
}

Result<Translation> TranslationOf(const Json& message, const std::string& path) {
  const Json& content = Member(message, "content");
  if (content.is_string()) return FromText(Text(content), path);
  if (content.size() != 1) {
    return ErrorAt(path, "chat.content", "found {} parts, expected exactly one", content.size());
  }
  const Json& part = content[0];
  const std::string place = path + "[0]";
  RL_RETURN_IF_ERROR(CheckTextParts(content, path.substr(0, path.rfind('.'))));
  const std::string_view text = Text(Member(part, "text"));
  if (!part.contains(kSource) && !part.contains(kTarget)) return FromText(text, place);
  RL_ASSIGN_OR_RETURN(const std::string_view source, CodeOf(part, kSource, place));
  RL_ASSIGN_OR_RETURN(const std::string_view target, CodeOf(part, kTarget, place));
  return Translation{source, target, text};
}

class TranslationRenderer {
 public:
  explicit TranslationRenderer(PromptWriter& out) : out_(out) {}

  Status User(const Json& message, const std::string& path) {
    RL_ASSIGN_OR_RETURN(const Translation what, TranslationOf(message, path));
    if (!what.source.empty()) RL_RETURN_IF_ERROR(Instruction(what, path));
    out_.User(chat::Trim(what.text));
    return OkStatus();
  }

 private:
  Status Instruction(const Translation& what, const std::string& path) {
    for (const std::string_view code : {what.source, what.target}) {
      if (!NameOf(code).empty()) continue;
      return ErrorAt(path, "chat.content",
                     "the language '{}' has no name here, expected an ISO 639-1 code such as en, "
                     "with or without a region (pt-BR)",
                     code);
    }
    const std::string_view source = NameOf(what.source);
    const std::string_view target = NameOf(what.target);
    out_.Template(kInstruction);
    Named(source, what.source);
    out_.Template(" to ");
    Named(target, what.target);
    out_.Template(
        fmt::format(" translator. Your goal is to accurately convey the meaning and nuances of "
                    "the original {0} text while adhering to {1} grammar, vocabulary, and cultural "
                    "sensitivities.\nProduce only the {1} translation, without any additional "
                    "explanations or commentary. Please translate the following {0} text into "
                    "{1}:\n\n\n",
                    source, target));
    return OkStatus();
  }

  // The name of a language and its code, which comes from the user.
  void Named(std::string_view name, std::string_view code) {
    out_.Template(name);
    out_.Template(" (");
    std::string shown(code);
    std::ranges::replace(shown, '_', '-');
    out_.User(shown);
    out_.Template(")");
  }

  PromptWriter& out_;
};

Status CheckRole(std::string_view role, size_t index) {
  const bool wants_user = index % 2 == 0;
  if (wants_user ? role == "user" : chat::IsAssistant(role)) return OkStatus();
  return ErrorAt(fmt::format("messages[{}].role", index), "chat.messages",
                 "found '{}', expected '{}': a user's messages and the translations take turns",
                 role, wants_user ? "user" : "assistant");
}

std::string TranslatedText(const Json& content) {
  if (content.is_string()) return std::string(chat::Trim(Text(content)));
  std::string text;
  for (const Json& part : content) text += chat::Trim(Text(Member(part, "text")));
  return text;
}

}  // namespace

Result<chat::ChatPrompt> RenderTranslation(const Json& messages, const Json& tools,
                                           const ChatOptions& options) {
  RL_RETURN_IF_ERROR(chat::CheckMessages(messages));
  if (options.continue_last) RL_RETURN_IF_ERROR(chat::CheckContinuesLast(messages));
  if (chat::IsTruthy(tools)) {
    return ErrorAt("tools", "chat.tools", "found tools, but this model translates; leave them out");
  }
  PromptWriter out;
  out.Template("<bos>");
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string_view role = chat::RoleOf(messages[i]);
    RL_RETURN_IF_ERROR(CheckRole(role, i));
    const std::string path = fmt::format("messages[{}].content", i);
    const bool is_model = chat::IsAssistant(role);
    const bool is_last = i + 1 == messages.size();
    out.Template(kTurnMarkers.begin);
    out.Template(is_model ? "model\n" : "user\n");
    if (is_model) {
      const Json& content = Member(messages[i], "content");
      RL_RETURN_IF_ERROR(CheckTextParts(content, fmt::format("messages[{}]", i)));
      out.SetTrained(options.trained == TrainedTurns::kAll ||
                     (options.trained == TrainedTurns::kLast && is_last));
      out.User(TranslatedText(content));
    } else {
      RL_RETURN_IF_ERROR(TranslationRenderer(out).User(messages[i], path));
    }
    if (options.continue_last && is_last) break;
    out.Template(kTurnMarkers.end);
    out.SetTrained(false);
    if (!is_last || options.trained == TrainedTurns::kNone) out.Template("\n");
  }
  if (options.add_generation_prompt && !options.continue_last) {
    out.Template(kTurnMarkers.begin);
    out.Template("model\n");
  }
  return std::move(out).Finish();
}

}  // namespace rullama::gemma3
