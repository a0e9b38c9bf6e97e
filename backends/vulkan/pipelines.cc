#include "backends/vulkan/pipelines.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "backends/gpu/bytes.h"
#include "backends/gpu/kernel_source.h"
#include "backends/gpu/target.h"
#include "backends/vulkan/driver.h"
#include "backends/vulkan/join.h"
#include "backends/vulkan/join_cache.h"
#include "backends/vulkan/khr_matrices.h"

// Written at build time: the code of each shader as kNamePlain, kNameSubgroups and kNameTask.
#include "spirv.h"

namespace rullama::vulkan {
namespace {

struct Code {
  std::span<const uint32_t> plain, subgroups, task;
};

constexpr Code kCode[] = {
#define RL_KERNEL(file, Name, Arguments) {k##Name##Plain, k##Name##Subgroups, k##Name##Task},
#include "backends/gpu/kernels.def"
};

// WithKhrMatrices(), whose errors name the shader.
std::optional<Spirv> WithKhr(const Spirv& code, std::string_view name) {
  try {
    return WithKhrMatrices(code);
  } catch (const sdk::Error& error) {
    throw sdk::Error(error.code(), std::string(name) + ": " + error.what());
  }
}

// The shader of Pipelines::Join.
Joined JoinedShader(const sdk::Host& host, std::span<const PipelineKey> kinds,
                    const std::atomic<bool>& given_up) {
  std::vector<TaskSource> sources;
  for (const PipelineKey& kind : kinds) {
    sources.push_back(
        {gpu::NameOf(kind.shader), kCode[static_cast<size_t>(kind.shader)].task, kind.constants});
  }
  return JoinWithCache(host, kPersistentTask, sources, given_up);
}

}  // namespace

JoinedPipeline::JoinedPipeline(gpu::BackgroundWork& work, Maker make) {
  work.Add([progress = progress_, make = std::move(make)] {
    if (progress->taken.exchange(true)) return;
    gpu::JoinState state = gpu::JoinState::kReady;
    try {
      auto pipeline = make(progress->given_up);
      if (!pipeline) state = gpu::JoinState::kRefused;
      progress->made.set_value(std::move(pipeline));
    } catch (...) {
      progress->made.set_exception(std::current_exception());
    }
    progress->state = state;
  });
}

bool JoinedPipeline::GiveUp() noexcept {
  progress_->given_up = true;
  if (progress_->taken.exchange(true)) return state() == gpu::JoinState::kWaiting;
  progress_->state = gpu::JoinState::kRefused;
  progress_->made.set_value(nullptr);
  return false;
}

Pipelines::Pipelines(const VulkanDriver& driver, bool subgroups)
    : driver_(driver),
      subgroups_(subgroups),
      joining_(gpu::BackgroundWork::ThreadsOf(std::thread::hardware_concurrency())) {
  const VkPushConstantRange range{VK_SHADER_STAGE_COMPUTE_BIT, 0, Dispatch::kPushBytes};
  VkPipelineLayoutCreateInfo layout{};
  layout.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO;
  layout.pushConstantRangeCount = 1;
  layout.pPushConstantRanges = &range;
  Check(vkCreatePipelineLayout(driver_.handle(), &layout, nullptr, &layout_),
        "vkCreatePipelineLayout");
}

Pipelines::~Pipelines() {
  vkDestroyPipelineCache(driver_.handle(), cache_, nullptr);
  vkDestroyPipelineLayout(driver_.handle(), layout_, nullptr);
}

void Pipelines::LoadCache(std::span<const std::byte> saved) {
  uint64_t driver_bytes = 0;
  if (!gpu::Take(saved, driver_bytes) || driver_bytes > saved.size()) {
    saved = {};
    driver_bytes = 0;
  }
  cache_ = NewCache(saved.first(driver_bytes));
  shaders_.Load(saved.subspan(driver_bytes));
  kept_size_ = DriverCacheSize();
}

VkPipelineCache Pipelines::NewCache(std::span<const std::byte> saved) const {
  VkPipelineCache cache = VK_NULL_HANDLE;
  VkPipelineCacheCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO;
  info.initialDataSize = saved.size();
  info.pInitialData = saved.data();
  if (vkCreatePipelineCache(driver_.handle(), &info, nullptr, &cache) == VK_SUCCESS) return cache;
  // Drivers check what they are given; a damaged file is not worth more than a slow start.
  info.initialDataSize = 0;
  info.pInitialData = nullptr;
  Check(vkCreatePipelineCache(driver_.handle(), &info, nullptr, &cache), "vkCreatePipelineCache");
  return cache;
}

size_t Pipelines::DriverCacheSize() const {
  size_t size = 0;
  const VkResult result = vkGetPipelineCacheData(driver_.handle(), cache_, &size, nullptr);
  return result == VK_SUCCESS ? size : 0;
}

// Empty if the driver has none. Without memory for it the driver would give its size again.
std::vector<std::byte> Pipelines::DriverCache() const {
  std::vector<std::byte> data(DriverCacheSize());
  if (data.empty()) return data;
  size_t size = data.size();
  const VkResult result = vkGetPipelineCacheData(driver_.handle(), cache_, &size, data.data());
  // Incomplete if another thread has added a pipeline meanwhile.
  if (result != VK_SUCCESS && result != VK_INCOMPLETE) size = 0;
  data.resize(std::min(size, data.size()));
  return data;
}

// The size of the driver's data, that data, and the shaders.
std::vector<std::byte> Pipelines::CacheData() const {
  const std::vector<std::byte> driver_data = DriverCache();
  std::vector<std::byte> data;
  gpu::Append(uint64_t{driver_data.size()}, data);
  gpu::AppendBytes(driver_data, data);
  gpu::AppendBytes(shaders_.Save(), data);
  return data;
}

void Pipelines::KeepIfGrown() {
  const size_t size = DriverCacheSize();
  if (size <= kept_size_) return;
  // A host that keeps nothing costs the next start some time.
  if (driver_.Keep([&] { return CacheData(); })) kept_size_ = size;
}

std::unique_ptr<Pipeline> Pipelines::Make(const Spirv& code, std::string_view name) const {
  const bool may_need_khr = driver_.matrix_extension() == MatrixExtension::kKhr;
  const std::optional<Spirv> khr = may_need_khr ? WithKhr(code, name) : std::nullopt;
  const Spirv& used = khr ? *khr : code;
  VkShaderModuleCreateInfo module{};
  module.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO;
  module.codeSize = used.size() * sizeof(uint32_t);
  module.pCode = used.data();
  VkPipelineShaderStageRequiredSubgroupSizeCreateInfoEXT subgroups{
      VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO_EXT, nullptr,
      gpu::kMatrixSubgroup};
  VkComputePipelineCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO;
  info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
  info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
  info.stage.pName = "main";
  if (khr) {
    info.stage.pNext = &subgroups;
    info.stage.flags = VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT_EXT;
  }
  info.layout = layout_;
  Check(vkCreateShaderModule(driver_.handle(), &module, nullptr, &info.stage.module),
        std::string("vkCreateShaderModule of ").append(name));
  VkPipeline pipeline = VK_NULL_HANDLE;
  const VkResult made =
      vkCreateComputePipelines(driver_.handle(), cache_, 1, &info, nullptr, &pipeline);
  vkDestroyShaderModule(driver_.handle(), info.stage.module, nullptr);
  Check(made, std::string("vkCreateComputePipelines of ").append(name));
  return std::make_unique<Pipeline>(driver_.handle(), pipeline);
}

// Drivers translate all of a shader before they look at the values of its specialisation constants,
// and most of it is code for other weight types: with the values in place they have a fraction to
// do.
std::unique_ptr<Pipeline> Pipelines::Make(const PipelineKey& key) {
  const Code& code = kCode[static_cast<size_t>(key.shader)];
  const std::string_view name = gpu::NameOf(key.shader);
  return Make(shaders_.Get({name, subgroups_ ? code.subgroups : code.plain, key.constants}), name);
}

std::unique_ptr<JoinedPipeline> Pipelines::Join(std::span<const PipelineKey> kinds) {
  return std::make_unique<JoinedPipeline>(
      joining_, [this, kept = std::vector(kinds.begin(), kinds.end())](
                    const std::atomic<bool>& given_up) { return MakeJoined(kept, given_up); });
}

std::unique_ptr<Pipeline> Pipelines::MakeJoined(std::span<const PipelineKey> kinds,
                                                const std::atomic<bool>& given_up) {
  const Joined joined = JoinedShader(driver_.host(), kinds, given_up);
  const uint32_t room = driver_.facts().properties.limits.maxComputeSharedMemorySize;
  if (joined.shared_bytes > room) {
    driver_.host().Log(RL_LOG_INFO, "a step in one dispatch would need " +
                                        std::to_string(joined.shared_bytes) +
                                        " bytes of shared memory, the device has " +
                                        std::to_string(room) + "; it is many dispatches instead");
    return nullptr;
  }
  driver_.host().Log(RL_LOG_INFO, "the driver compiles " + std::to_string(kinds.size()) +
                                      " shaders as one, unless it remembers that it has");
  CheckStop(given_up);
  auto pipeline = Make(joined.code, "persistent");
  KeepIfGrown();
  return pipeline;
}

}  // namespace rullama::vulkan
