#include "backends/gpu/kernel_cache.h"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "backends/gpu/in_parallel.h"

namespace rullama::gpu {

KernelCache::KernelCache(Driver& driver, std::chrono::milliseconds save_period)
    : driver_(driver), save_period_(save_period) {
  const std::string name = driver_.CacheName();
  if (!name.empty()) driver_.LoadCache(driver_.host().BlobGet(name));
}

KernelCache::~KernelCache() {
  const AskingHost::Scope asking(driver_.asking());
  bool under_way = false;
  for (const auto& [kinds, joined] : joined_) {
    if (joined && joined->GiveUp()) under_way = true;
  }
  if (under_way) {
    driver_.host().Log(RL_LOG_WARNING,
                       "the driver still compiles kernels, which cannot be stopped");
    // The program may end before these compilations do: the kernels compiled so far are kept now.
    Save();
    changed_ = true;
  }
  for (const auto& [kinds, joined] : joined_) {
    if (joined) joined->Wait();
  }
  if (changed_) Save();
}

void KernelCache::Save() noexcept {
  try {
    // A host that keeps nothing costs the next start some time.
    if (driver_.Keep([&] { return driver_.CacheData(kernels_); })) changed_ = false;
  } catch (const std::exception& error) {
    driver_.host().Log(RL_LOG_WARNING,
                       std::string("the compiled kernels were not saved: ") + error.what());
  }
}

void KernelCache::SaveNowAndThen() noexcept {
  const auto now = std::chrono::steady_clock::now();
  if (!changed_ || now - saved_ < save_period_) return;
  Save();
  saved_ = now;
}

uint64_t KernelCache::Prepare(std::span<const PipelineKey> keys) {
  std::vector<PipelineKey> missing;
  for (const PipelineKey& key : keys) {
    PipelineKey compiled = driver_.CompiledKey(key);
    if (!kernels_.contains(compiled)) missing.push_back(std::move(compiled));
  }
  std::sort(missing.begin(), missing.end());
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  std::vector<std::unique_ptr<Kernel>> made(missing.size());
  std::exception_ptr failure;
  try {
    InParallel(missing.size(), [&](size_t i) { made[i] = driver_.Compile(missing[i]); });
  } catch (...) {
    failure = std::current_exception();
  }
  for (size_t i = 0; i < missing.size(); ++i) {
    if (!made[i]) continue;
    kernels_.emplace(missing[i], std::move(made[i]));
    changed_ = true;
  }
  SaveNowAndThen();
  if (failure) std::rethrow_exception(failure);
  return missing.size();
}

const Kernel& KernelCache::Get(const PipelineKey& key) const {
  return *kernels_.at(driver_.CompiledKey(key));
}

JoinedKernels* KernelCache::Join(StepJoiner& joiner, std::span<const PipelineKey> kinds) {
  std::vector<PipelineKey> key(kinds.begin(), kinds.end());
  const auto found = joined_.find(key);
  if (found != joined_.end()) return found->second.get();
  const auto& joined = joined_[std::move(key)] = joiner.Join(kinds);
  changed_ = changed_ || joined != nullptr;
  return joined.get();
}

}  // namespace rullama::gpu
