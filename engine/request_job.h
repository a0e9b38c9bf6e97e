// Requests of the public interface as jobs: missing settings are taken from the configuration, and
// everything is checked.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "engine/answer_text.h"
#include "engine/api/request.h"
#include "engine/job.h"
#include "engine/loading/loaded_model.h"
#include "engine/media/request_media.h"

namespace rullama {

struct PreparedRequest {
  std::unique_ptr<Job> job;  // without a channel
  AnswerTextOptions text = {};
  bool logprobs = false;
};

// An answer among those to one request.
struct AnswerChoice {
  uint32_t choice = 0;  // in place of Request::choice
  bool alone = true;    // the only one
};

// `sampler`: the settings where a request has none. `media`: those of the request. Pure
// function. Errors: those of Engine::Submit.
Result<PreparedRequest> PrepareRequest(const LoadedModel& model, const SamplerSettings& sampler,
                                       AnswerConstraints& constraints, const Request& request,
                                       const DecodedMedia& media, const AnswerChoice& answer);

// A job that embeds the message of a request, after `task`, the prompt of a task. Errors: those of
// Engine::EmbedContent about the content. Pure function.
Result<std::unique_ptr<Job>> EmbeddingJob(const LoadedModel& model, const Request& content,
                                          std::string_view task, const DecodedMedia& media);

// The prompt of a request as that of its job; ids of soft rows may be others. `most`: a text of
// more tokens is the error context.overflow; negative: it may have any number. Errors: those of
// Engine::Submit that are about the prompt.
Result<std::vector<int32_t>> PromptIds(const LoadedModel& model, const Request& request,
                                       int64_t most, MediaBudget& budget);

// JSON text of limited depth as a value. Error chat.json (kUsage); `what` begins the message.
Result<nlohmann::json> ParseJson(std::string_view text, std::string_view what);

// Error context.overflow (kRuntime) if `tokens` tokens and a canvas of `canvas` tokens do not fit
// into a slot, or into `max_context` tokens of it if that is not 0.
Status CheckFits(const LoadedModel& model, int64_t tokens, int64_t canvas, int64_t max_context = 0);

}  // namespace rullama
