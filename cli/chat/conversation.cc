#include "cli/chat/conversation.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "cli/chat/chat_settings.h"
#include "cli/chat/prompt.h"
#include "cli/commands/json_text.h"
#include "cli/reports/report_file.h"
#include "core/base/json_reader.h"
#include "core/base/printable.h"
#include "engine/engine_access.h"
#include "engine/media/request_media.h"
#include "engine/system_prompt.h"

namespace rullama::cli {
namespace {

constexpr size_t kMaxConversationBytes = size_t{64} << 20;

// An answer should find a quarter of the context free.
constexpr int64_t kReservedPart = 4;
// When turns are forgotten, enough are to leave another quarter of the context free: the remaining
// ones are read again, and the next turns need not be.
constexpr int64_t kForgottenPart = 4;

// Removes the oldest message of the user and all up to the next one. The last one stays.
bool DropOldestTurn(nlohmann::json& messages) {
  const auto is_user = [](const nlohmann::json& message) { return message["role"] == "user"; };
  const auto first = std::find_if(messages.begin(), messages.end(), is_user);
  if (first == messages.end()) return false;
  const auto next = std::find_if(first + 1, messages.end(), is_user);
  if (next == messages.end()) return false;
  messages.erase(first, next);
  return true;
}

// Every message of a conversation has a content here; one of a file is a text.
Status CheckTexts(const nlohmann::json& messages) {
  for (const nlohmann::json& message : messages) {
    if (message.is_object() && message.contains("content") && message["content"].is_string()) {
      continue;
    }
    return MakeError(ErrorKind::kUsage, "chat.content",
                     "a message of the file has no text, expected a list of {{\"role\", "
                     "\"content\"}}, as /save writes it");
  }
  return OkStatus();
}

// An answer as a message of the conversation.
nlohmann::json MessageOf(const Completion& completion) {
  nlohmann::json message = {{"role", "assistant"}, {"content", completion.text}};
  for (const ToolCall& call : completion.tool_calls) {
    message["tool_calls"].push_back({{"type", "function"}, {"function", CallAsJson(call)}});
  }
  return message;
}

}  // namespace

Conversation::Conversation(Engine& engine, Request request, const AnswerView& view,
                           Console& console)
    : engine_(engine),
      request_(std::move(request)),
      view_(view),
      console_(console),
      messages_(nlohmann::json::array()) {
  request_.default_system = false;
  request_.reuse_answers = true;
  AddSystemPrompt(EngineAccess::SessionOf(engine).config(), messages_);
}

void Conversation::Clear() {
  messages_.erase(messages_.begin() + (has_system() ? 1 : 0), messages_.end());
  media_.clear();
  attached_.clear();
}

bool Conversation::is_raw() const {
  return EngineAccess::SessionOf(engine_).config().generation.raw;
}

Status Conversation::CheckHasMessages() const {
  if (!is_raw()) return OkStatus();
  return MakeError(ErrorKind::kUsage, "chat.command",
                   "with --raw there are no messages: text is continued as it is");
}

Status Conversation::Save(const std::string& path) const {
  RL_RETURN_IF_ERROR(CheckHasMessages());
  if (!MediaOfMessages(messages_).empty()) {
    return MakeError(ErrorKind::kUsage, "chat.command",
                     "this conversation has pictures or sounds, and a file of messages has none");
  }
  RL_ASSIGN_OR_RETURN(const auto file, ReportFile::Create(path));
  return file->Write(JsonLine(messages_));
}

Status Conversation::Load(const std::string& path) {
  RL_RETURN_IF_ERROR(CheckHasMessages());
  RL_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxConversationBytes));
  auto messages = ReadJson(text);
  if (!messages) {
    return MakeError(ErrorKind::kUsage, "chat.json", "the file {} {}", ShownName(path),
                     messages.error().ToString());
  }
  RL_RETURN_IF_ERROR(CheckTexts(*messages));
  Request request = request_;
  request.messages = text;
  RL_RETURN_IF_ERROR(engine_.CountPrompt(request));
  messages_ = *std::move(messages);
  media_.clear();
  attached_.clear();
  return OkStatus();
}

Result<bool> Conversation::SetAnswers(std::string_view name, std::string_view value) {
  return SetAnswerSetting(name, value, EngineAccess::SessionOf(engine_), request_);
}

void Conversation::SetSystem(const std::string& text) {
  if (has_system()) messages_.erase(0);
  if (!text.empty()) {
    messages_.insert(messages_.begin(), nlohmann::json{{"role", "system"}, {"content", text}});
  }
}

void Conversation::SetThinking(bool thinking) { request_.thinking = thinking; }

bool Conversation::has_system() const {
  if (messages_.empty()) return false;
  const nlohmann::json& role = messages_[0]["role"];
  return role == "system" || role == "developer";
}

int64_t Conversation::Reserve() const {
  const ModelInfo& model = engine_.info();
  return std::max(std::min(model.capacity / kReservedPart, request_.max_tokens),
                  model.canvas_length);
}

Error Conversation::TooLong(int64_t tokens) const {
  const ModelInfo& model = engine_.info();
  const std::string with = has_system() ? " with the system prompt" : "";
  const std::string canvas = model.canvas_length > 0
                                 ? fmt::format(" and a canvas {}", model.canvas_length)
                                 : std::string();
  const std::string larger =
      model.capacity < model.context_length
          ? fmt::format(", or start again with a larger --ctx-size (this model takes up to {})",
                        model.context_length)
          : std::string();
  return {ErrorKind::kRuntime, "context.overflow",
          fmt::format("this message alone has {} tokens{}{}, but the context holds {}; shorten "
                      "it{}; the conversation continues without it",
                      tokens, with, canvas, model.capacity, larger)};
}

Result<Request> Conversation::FittedRequest() {
  const ModelInfo& model = engine_.info();
  nlohmann::json kept = messages_;
  Request request = request_;
  int dropped = 0;
  int64_t most = model.capacity - Reserve();
  for (;;) {
    request.messages = JsonText(kept);
    request.media = MediaOfMessages(kept);
    RL_ASSIGN_OR_RETURN(const int64_t tokens, engine_.CountPrompt(request));
    if (tokens > most && DropOldestTurn(kept)) {
      if (dropped++ == 0) most -= model.capacity / kForgottenPart;
      continue;
    }
    if (tokens + model.canvas_length > model.capacity) return tl::unexpected(TooLong(tokens));
    if (dropped > 0) {
      messages_ = std::move(kept);
      console_.Warn(fmt::format(
          "forgot the {} so that the context of {} tokens suffices",
          dropped == 1 ? "oldest turn" : fmt::format("{} oldest turns", dropped), model.capacity));
    }
    return request;
  }
}

std::vector<Medium> Conversation::MediaOfMessages(const nlohmann::json& messages) const {
  std::vector<Medium> media;
  for (const nlohmann::json& message : messages) {
    for (const nlohmann::json& part : message["content"]) {
      for (size_t i = 0; i < CountMedia(part); ++i) {
        media.push_back(media_[part["medium"].get<size_t>() + i]);
      }
    }
  }
  return media;
}

AnswerView Conversation::ViewOf(std::span<const Attachment> attachments) const {
  AnswerView view = view_;
  view.on_media = [this, attachments](std::span<const MediumFacts> facts) {
    const auto last = facts.last(MediaOf(attachments).size());
    for (const std::string& line : DescribeAttachments(attachments, last)) console_.Note(line);
  };
  return view;
}

Status Conversation::Attach(Attachment attachment) {
  Request request{.media = attachment.media};
  const nlohmann::json content = ContentOf({}, std::span(&attachment, 1), 0);
  request.messages = JsonText(nlohmann::json::array({{{"role", "user"}, {"content", content}}}));
  RL_RETURN_IF_ERROR(engine_.CountPrompt(request));
  // Counting looks at headers only, and damaged media should be refused now.
  RL_RETURN_IF_ERROR(DecodeMedia(EngineAccess::SessionOf(engine_).model(), request.media));
  attached_.push_back(std::move(attachment));
  return OkStatus();
}

Result<Answer> Conversation::Say(const std::string& text) {
  const std::vector<Attachment> attached = std::exchange(attached_, {});
  const AnswerView view = ViewOf(attached);
  const auto answer_to = [&](const Request& request) {
    return GenerateAnswer(engine_, request, view, console_);
  };
  if (is_raw()) {
    return WithPrompt(request_, engine_, {.text = text, .attachments = attached})
        .and_then(answer_to);
  }
  messages_.push_back({{"role", "user"}, {"content", ContentOf(text, attached, media_.size())}});
  const size_t before = media_.size();
  std::ranges::move(MediaOf(attached), std::back_inserter(media_));
  auto answer = FittedRequest().and_then(answer_to);
  if (answer) {
    messages_.push_back(MessageOf(answer->completion));
  } else {
    messages_.erase(messages_.size() - 1);
    media_.resize(before);
  }
  return answer;
}

Result<Answer> Conversation::SayAgain() {
  RL_RETURN_IF_ERROR(CheckHasMessages());
  const bool asked = std::ranges::any_of(
      messages_, [](const nlohmann::json& message) { return message["role"] == "user"; });
  if (!asked || messages_.back()["role"] != "assistant") {
    return MakeError(ErrorKind::kUsage, "chat.command", "there is no answer to write again");
  }
  nlohmann::json last = std::move(messages_.back());
  messages_.erase(messages_.size() - 1);
  ++request_.choice;  // with other random numbers
  auto answer = FittedRequest().and_then(
      [&](const Request& request) { return GenerateAnswer(engine_, request, view_, console_); });
  messages_.push_back(answer ? MessageOf(answer->completion) : std::move(last));
  return answer;
}

}  // namespace rullama::cli
