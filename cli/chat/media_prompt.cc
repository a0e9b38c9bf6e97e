#include "cli/chat/media_prompt.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/bench/score.h"
#include "cli/terminal/signals.h"
#include "core/base/json_reader.h"
#include "core/runtime/output_names.h"
#include "engine/drafts/cut_points.h"
#include "engine/media/soft_row_ids.h"
#include "engine/prompt_encoder.h"

namespace rullama::cli {
namespace {

using nlohmann::json;

tl::unexpected<Error> BadPart(size_t index, std::string_view found) {
  return MakeError(ErrorKind::kUsage, "input.parts",
                   "part {} is {}, expected a text, {{\"image\": FILE}} or {{\"audio\": FILE}}",
                   index, found);
}

// {"image": FILE, "image_tokens": N} or {"audio": FILE}.
Result<Medium> MediumOf(const json& part, size_t index) {
  if (!part.is_object()) return BadPart(index, "a " + std::string(part.type_name()));
  Medium medium;
  for (const auto& [key, value] : part.items()) {
    if (key == "image_tokens" && value.is_number_integer()) {
      medium.image_tokens = value.get<int64_t>();
    } else if ((key == "image" || key == "audio") && value.is_string() && medium.path.empty()) {
      medium.kind = key == "image" ? MediaKind::kPicture : MediaKind::kSound;
      medium.path = value.get<std::string>();
    } else {
      return BadPart(index, fmt::format("an object with the member '{}'", key));
    }
  }
  if (medium.path.empty()) return BadPart(index, "an object without a file");
  return medium;
}

// Steps over the rows of a prompt, in slot 0.
class PromptScorer {
 public:
  PromptScorer(ModelSession& engine, const MediaPrompt& prompt)
      : engine_(engine),
        prompt_(prompt),
        media_(prompt.media, SoftRowsOf(prompt.ids, SeesWholePictures(engine))),
        inputs_(engine.model().facts().width, SeesWholePictures(engine)) {}

  Status Run(const std::function<Status(std::span<const float>)>& on_rows) {
    const auto cancelled = CancelFlag();
    const int64_t length = std::ssize(prompt_.ids);
    std::vector<int64_t> ends = CutPoints(length, engine_.chunk(), {}, media_.rows());
    ends.push_back(length);
    int64_t done = 0;
    for (const int64_t end : ends) {
      if (end == done) continue;
      if (cancelled->load()) {
        return MakeError(ErrorKind::kRuntime, "run.cancelled", "stopped after {} of {} tokens",
                         done, length);
      }
      RL_RETURN_IF_ERROR(Step(done, end));
      RL_RETURN_IF_ERROR(on_rows(logits_));
      done = end;
    }
    return OkStatus();
  }

 private:
  static bool SeesWholePictures(const ModelSession& engine) {
    return engine.model().facts().media.whole_pictures;
  }

  // Leaves the logits of rows [first, end) in logits_.
  Status Step(int64_t first, int64_t end) {
    while (const auto missing = media_.Missing(first, end)) {
      RL_ASSIGN_OR_RETURN(SoftTokens soft, engine_.media().Encode(media_.medium(*missing)));
      media_.Take(*missing, std::make_shared<const SoftTokens>(std::move(soft)));
    }
    std::vector<int32_t> ids(prompt_.ids.begin() + first, prompt_.ids.begin() + end);
    const bool media = std::ranges::any_of(ids, IsSoftRow);
    if (media) {
      RL_RETURN_IF_ERROR(inputs_.Set(engine_.session(), media_.rows(), first, end - first));
      media_.Drop(end);
    }
    std::ranges::replace_if(ids, IsSoftRow, 0);
    const ProgramGraphs& graphs = engine_.graphs();
    const GraphHandle graph = media ? graphs.media.value() : graphs.read;
    RL_RETURN_IF_ERROR(engine_.session().Run(StepRows::Consecutive(
        ids, static_cast<int32_t>(first), /*slot=*/0, DemandMode::kAllRows, graph)));
    const auto vocabulary = static_cast<size_t>(engine_.model().facts().vocabulary);
    logits_.resize(ids.size() * vocabulary);
    RL_RETURN_IF_ERROR(engine_.session().ReadOutput(output_names::kLogits,
                                                    std::as_writable_bytes(std::span(logits_))));
    return CheckLogits(logits_, first, vocabulary);
  }

  ModelSession& engine_;
  const MediaPrompt& prompt_;
  PromptEncoder media_;
  SoftRowInputs inputs_;
  std::vector<float> logits_;
};

}  // namespace

Result<MediaPrompt> ReadParts(const std::string& text, const LoadedModel& model) {
  const auto read = ReadJson(text, {.depth = 3});
  if (!read || !read->is_array() || read->empty()) {
    return MakeError(ErrorKind::kUsage, "input.parts",
                     "found {}, expected a JSON list of texts, pictures and sounds",
                     !read              ? "a text that " + read.error().ToString()
                     : read->is_array() ? "an empty list"
                                        : "no list");
  }
  const json& parts = *read;
  std::string prompt;
  std::vector<Medium> media;
  std::vector<std::string> files;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].is_string()) {
      prompt += parts[i].get<std::string>();
      continue;
    }
    RL_ASSIGN_OR_RETURN(media.emplace_back(), MediumOf(parts[i], i));
    files.push_back(media.back().path);
    const auto markers = model.model->MarkersOf(media.back().kind);
    if (!markers) return UnsupportedMedium(media.back().kind);
    prompt += markers->placeholder;
  }
  MediaPrompt result;
  RL_ASSIGN_OR_RETURN(const DecodedMedia decoded, DecodeMedia(model, media));
  RL_ASSIGN_OR_RETURN(result.ids, model.tokenizer->Encode(WithTextAroundMedia(*model.model, prompt),
                                                          {.add_bos = true}));
  RL_ASSIGN_OR_RETURN(result.media,
                      PlaceMedia(*model.model, *model.tokenizer, decoded, result.ids));
  result.files = std::move(files);
  return result;
}

int64_t MediaRowsOf(const MediaPrompt& prompt, const ModelFacts& facts, int64_t chunk) {
  if (prompt.media.empty()) return 0;
  int64_t rows = chunk;
  for (const PlacedMedium& placed : prompt.media) {
    const bool whole = facts.media.whole_pictures && placed.medium->kind == MediaKind::kPicture;
    if (whole) rows = std::max(rows, placed.medium->tokens);
  }
  return rows;
}

Status ScoreMediaPrompt(ModelSession& engine, const MediaPrompt& prompt,
                        const std::function<Status(std::span<const float> logits)>& on_rows) {
  RL_RETURN_IF_ERROR(CheckLength(engine, prompt.ids.size()));
  engine.session().ForgetSlot(0);
  return PromptScorer(engine, prompt).Run(on_rows);
}

}  // namespace rullama::cli
