// Results that are rows: embeddings and logits.
#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <variant>

#include "engine/embeddings.h"
#include "engine/engine_impl.h"
#include "engine/request_job.h"
#include "engine/texts_in_flight.h"

namespace rullama {
namespace {

// -ln softmax(logits)[target].
double SurpriseOf(std::span<const float> logits, int32_t target) {
  const double max = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - max);
  return max + std::log(sum) - logits[static_cast<size_t>(target)];
}

}  // namespace

Result<std::vector<float>> Engine::Embed(std::string_view text, const EmbeddingOptions& options) {
  RL_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, EmbeddingTokens(text, options.task));
  return Embed(ids, options.dimensions, options.adapters);
}

Result<std::vector<float>> Engine::Embed(std::span<const int32_t> ids, int64_t dimensions,
                                         const std::optional<std::vector<AdapterScale>>& adapters) {
  const EmbeddingOptions options{.dimensions = dimensions, .adapters = adapters};
  RL_ASSIGN_OR_RETURN(auto job, impl_->EmbeddingJobOf(ids, options));
  return Impl::AwaitEmbedding(*impl_->Enqueue(std::move(job)), dimensions);
}

std::vector<Result<std::vector<float>>> Engine::EmbedEach(
    std::span<const std::vector<int32_t>> texts, const EmbeddingOptions& options,
    const std::stop_token& stop) {
  std::vector<Result<std::unique_ptr<Job>>> jobs;
  jobs.reserve(texts.size());
  for (const std::vector<int32_t>& ids : texts) {
    jobs.push_back(impl_->EmbeddingJobOf(ids, options));
  }
  const BackendDevices& devices = impl_->session->devices();
  return EmbedAll(
      std::move(jobs),
      {.rows_of_step = SharedRowsOf(devices),
       .alignment = TextAlignmentOf(devices),
       .enqueue = [this](auto job) { return impl_->Enqueue(std::move(job)); },
       .await = [&](auto& channel) { return Impl::AwaitEmbedding(channel, options.dimensions); }},
      stop);
}

Result<std::unique_ptr<Job>> Engine::Impl::EmbeddingJobOf(std::span<const int32_t> ids,
                                                          const EmbeddingOptions& options) const {
  RL_RETURN_IF_ERROR(CheckDimensions(options.dimensions));
  if (info.encodes) RL_RETURN_IF_ERROR(CheckBeginsWithBos(session->tokenizer(), ids));
  RL_ASSIGN_OR_RETURN(auto job, RowsJob(Job::Kind::kEmbed, {ids.begin(), ids.end()}));
  RL_ASSIGN_OR_RETURN(job->space.adapters, adapters->InForce(options.adapters));
  return job;
}

Result<std::vector<float>> Engine::EmbedContent(const Request& content,
                                                const EmbeddingOptions& options) {
  RL_RETURN_IF_ERROR(impl_->home.Check());
  RL_RETURN_IF_ERROR(impl_->CheckDimensions(options.dimensions));
  const LoadedModel& model = impl_->session->model();
  if (!impl_->info.encodes) {
    return MakeError(ErrorKind::kUsage, "model.encoder",
                     "parts are embedded by embedding models alone; give a text or token ids");
  }
  RL_ASSIGN_OR_RETURN(const std::string_view prompt, PromptFor(*model.model, options.task));
  RL_ASSIGN_OR_RETURN(const DecodedMedia media,
                      DecodeMedia(model, content.media, impl_->MediaLimitsOf(content, {})));
  RL_ASSIGN_OR_RETURN(auto job, EmbeddingJob(model, content, prompt, media));
  return Impl::AwaitEmbedding(*impl_->Enqueue(std::move(job)), options.dimensions);
}

Result<std::vector<float>> Engine::Impl::AwaitEmbedding(AnswerChannel& channel,
                                                        int64_t dimensions) {
  RL_ASSIGN_OR_RETURN(ChannelItem item, TakeFrom(channel));
  return FinishEmbedding(std::get<ResultRows>(std::move(item)).values, dimensions);
}

Status Engine::Logits(
    std::span<const int32_t> ids,
    const std::function<bool(int64_t first, std::span<const float> logits)>& on_rows) {
  RL_ASSIGN_OR_RETURN(auto job, impl_->RowsJob(Job::Kind::kLogits, {ids.begin(), ids.end()}));
  RL_ASSIGN_OR_RETURN(job->space.adapters, impl_->adapters->InForce(std::nullopt));
  const std::shared_ptr<AnswerChannel> channel = impl_->Enqueue(std::move(job));
  for (int64_t done = 0;;) {
    ChannelItem item = channel->Take();
    if (auto* error = std::get_if<Error>(&item)) return tl::unexpected(std::move(*error));
    const auto* rows = std::get_if<ResultRows>(&item);
    if (rows == nullptr) {
      if (done == std::ssize(ids) || channel->cancelled()) return OkStatus();
      return MakeError(ErrorKind::kRuntime, "run.cancelled", "the engine is being closed");
    }
    if (channel->cancelled()) continue;
    const auto bad = std::ranges::find_if(rows->values, [](float x) { return std::isnan(x); });
    if (bad != rows->values.end()) {
      channel->Cancel();
      return MakeError(ErrorKind::kRuntime, "backend.nan",
                       "the logits after position {} are not numbers",
                       rows->first + (bad - rows->values.begin()) / impl_->info.vocabulary);
    }
    done = rows->first + std::ssize(rows->values) / impl_->info.vocabulary;
    if (!on_rows(rows->first, rows->values)) channel->Cancel();
  }
}

Result<double> Engine::NegativeLogLikelihood(std::span<const int32_t> ids) {
  if (ids.size() < 2) {
    return MakeError(ErrorKind::kUsage, "usage.request", "there are {} tokens, expected at least 2",
                     ids.size());
  }
  const auto vocabulary = static_cast<size_t>(impl_->info.vocabulary);
  double sum = 0;
  RL_RETURN_IF_ERROR(Logits(ids, [&](int64_t first, std::span<const float> logits) {
    for (size_t row = 0; row * vocabulary < logits.size(); ++row) {
      const size_t next = static_cast<size_t>(first) + row + 1;
      if (next < ids.size()) {
        sum += SurpriseOf(logits.subspan(row * vocabulary, vocabulary), ids[next]);
      }
    }
    return true;
  }));
  return sum;
}

}  // namespace rullama
