#include "cli/chat/prompt.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/commands/json_text.h"
#include "cli/commands/options.h"
#include "cli/terminal/console.h"
#include "engine/engine_access.h"

namespace rullama::cli {
namespace {

void AppendPart(std::string& text, std::string_view part) {
  if (!text.empty() && !part.empty()) text += "\n\n";
  text += part;
}

Status AppendFile(std::string& text, const std::string& path) {
  RL_ASSIGN_OR_RETURN(const std::string content, ReadTextFile(path, kMaxPromptBytes));
  RL_RETURN_IF_ERROR(CheckUtf8(content, fmt::format("'{}'", path)));
  AppendPart(text, content);
  return OkStatus();
}

// The newline that ends the last line of a pipe is not part of the text.
std::string_view WithoutLastNewline(std::string_view text) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  if (text.ends_with('\r')) text.remove_suffix(1);
  return text;
}

// The template has the times of a video's frames.
Status CheckNoVideo(const Prompt& prompt) {
  const auto is_video = [](const Attachment& one) { return one.file.kind == FileKind::kVideo; };
  if (std::ranges::none_of(prompt.attachments, is_video)) return OkStatus();
  return MakeError(ErrorKind::kUsage, "usage.prompt",
                   "--raw has no place for a video; leave it out, or make pictures of the video");
}

}  // namespace

std::string Unescape(std::string_view text) {
  constexpr std::string_view kNames = "nrt\"'\\";
  constexpr std::string_view kMeanings = "\n\r\t\"'\\";
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t known =
        text[i] == '\\' && i + 1 < text.size() ? kNames.find(text[i + 1]) : std::string_view::npos;
    if (known == std::string_view::npos) {
      result += text[i];
    } else {
      result += kMeanings[known];
      ++i;
    }
  }
  return result;
}

Result<std::optional<Prompt>> ReadPrompt(const PromptFlags& flags) {
  Prompt prompt;
  if (!flags.ids_path.empty()) {
    if (flags.text || !flags.path.empty()) {
      return MakeError(ErrorKind::kUsage, "usage.prompt",
                       "--prompt-ids excludes -p and -f: it is the whole prompt");
    }
    RL_ASSIGN_OR_RETURN(const std::string list, ReadTextFile(flags.ids_path, kMaxPromptBytes));
    RL_ASSIGN_OR_RETURN(prompt.ids, ParseIdList(list, fmt::format("'{}'", flags.ids_path)));
    return std::optional(std::move(prompt));
  }
  if (flags.text) {
    RL_RETURN_IF_ERROR(CheckUtf8(*flags.text, "the text of -p"));
    prompt.text = *flags.text;
  }
  if (!flags.path.empty()) RL_RETURN_IF_ERROR(AppendFile(prompt.text, flags.path));
  const bool given = flags.text.has_value() || !flags.path.empty();
  if (StdinBringsData()) {
    RL_ASSIGN_OR_RETURN(const std::string piped, ReadStdin(kMaxPromptBytes));
    RL_RETURN_IF_ERROR(CheckUtf8(piped, "stdin"));
    if (piped.empty() && !given) return std::optional<Prompt>();
    AppendPart(prompt.text, WithoutLastNewline(piped));
    return std::optional(std::move(prompt));
  }
  // A replacement of a closed stdin fails when it is read; a device such as /dev/null is empty.
  if (!given && !StdinIsTerminal()) RL_RETURN_IF_ERROR(ReadStdin(kMaxPromptBytes));
  if (!given) return std::optional<Prompt>();
  return std::optional(std::move(prompt));
}

Result<Request> WithPrompt(Request request, const Engine& engine, const Prompt& prompt) {
  if (prompt.ids) {
    if (prompt.ids->empty()) {
      return MakeError(ErrorKind::kUsage, "usage.prompt", "the list of token ids is empty");
    }
    request.ids = *prompt.ids;
  } else if (EngineAccess::SessionOf(engine).config().generation.raw &&
             !prompt.attachments.empty()) {
    RL_RETURN_IF_ERROR(CheckNoVideo(prompt));
    request.prompt = prompt.text;
  } else if (EngineAccess::SessionOf(engine).config().generation.raw) {
    RL_ASSIGN_OR_RETURN(request.ids, engine.Tokenize(prompt.text, /*parse_special=*/true,
                                                     /*add_bos=*/true));
  } else {
    const nlohmann::json content = ContentOf(prompt.text, prompt.attachments, 0);
    request.messages = JsonText(nlohmann::json::array({{{"role", "user"}, {"content", content}}}));
  }
  request.media = MediaOf(prompt.attachments);
  return request;
}

}  // namespace rullama::cli
