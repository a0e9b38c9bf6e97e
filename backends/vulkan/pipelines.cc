#include "backends/vulkan/pipelines.h"

#include <algorithm>
#include <exception>

#include "backends/gpu/in_parallel.h"
#include "backends/gpu/kernel_source.h"
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
Joined JoinedShader(const sdk::Host& host, std::span<const PipelineKey> kinds) {
  std::vector<TaskSource> sources;
  for (const PipelineKey& kind : kinds) {
    sources.push_back(
        {gpu::NameOf(kind.shader), kCode[static_cast<size_t>(kind.shader)].task, kind.constants});
  }
  return JoinWithCache(host, kPersistentTask, sources);
}

}  // namespace

std::string_view Pipelines::NameOf(Shader shader) { return gpu::NameOf(shader); }

Pipelines::Pipelines(VulkanDriver& driver, bool subgroups)
    : driver_(driver), subgroups_(subgroups) {
  const VkPushConstantRange range{VK_SHADER_STAGE_COMPUTE_BIT, 0, Dispatch::kPushBytes};
  VkPipelineLayoutCreateInfo layout{};
  layout.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO;
  layout.pushConstantRangeCount = 1;
  layout.pPushConstantRanges = &range;
  Check(vkCreatePipelineLayout(driver_.handle(), &layout, nullptr, &layout_),
        "vkCreatePipelineLayout");
  LoadCache();
}

Pipelines::~Pipelines() {
  for (const auto& [kinds, pipeline] : joined_) {
    if (pipeline) pipeline->wait();
  }
  SaveCache();
  for (const auto& [key, pipeline] : pipelines_)
    vkDestroyPipeline(driver_.handle(), pipeline, nullptr);
  for (const auto& [kinds, pipeline] : joined_) {
    if (!pipeline) continue;
    try {
      vkDestroyPipeline(driver_.handle(), pipeline->get(), nullptr);
    } catch (const std::exception&) {  // there is none; the plan that waited for it has said so
    }
  }
  vkDestroyPipelineCache(driver_.handle(), cache_, nullptr);
  vkDestroyPipelineLayout(driver_.handle(), layout_, nullptr);
}

// The key of the pipeline cache names plugin, device and driver: a cache of another one would be
// refused or, worse, accepted.
std::string Pipelines::CacheName() const {
  const VkPhysicalDeviceProperties& p = driver_.capabilities().properties;
  std::string name = std::string("pipelines ") + RULLAMA_VERSION + " " + p.deviceName + " " +
                     std::to_string(p.vendorID) + " " + std::to_string(p.deviceID) + " " +
                     std::to_string(p.driverVersion) + " ";
  for (const uint8_t byte : p.pipelineCacheUUID) name += std::to_string(byte) + ".";
  return name;
}

void Pipelines::LoadCache() {
  const std::vector<std::byte> saved = driver_.host().BlobGet(CacheName());
  VkPipelineCacheCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO;
  info.initialDataSize = saved.size();
  info.pInitialData = saved.data();
  if (vkCreatePipelineCache(driver_.handle(), &info, nullptr, &cache_) == VK_SUCCESS) return;
  // Drivers check what they are given; a damaged file is not worth more than a slow start.
  info.initialDataSize = 0;
  info.pInitialData = nullptr;
  Check(vkCreatePipelineCache(driver_.handle(), &info, nullptr, &cache_), "vkCreatePipelineCache");
}

void Pipelines::SaveCache() noexcept {
  if (!changed_ || cache_ == VK_NULL_HANDLE) return;
  try {
    size_t size = 0;
    if (vkGetPipelineCacheData(driver_.handle(), cache_, &size, nullptr) != VK_SUCCESS) return;
    std::vector<std::byte> data(size);
    if (vkGetPipelineCacheData(driver_.handle(), cache_, &size, data.data()) != VK_SUCCESS) return;
    data.resize(size);
    static_cast<void>(driver_.host().BlobPut(CacheName(), data));
  } catch (const std::exception& error) {
    driver_.host().Log(RL_LOG_WARNING,
                       std::string("the pipeline cache was not saved: ") + error.what());
  }
}

VkPipeline Pipelines::Make(const Spirv& code, std::string_view name) const {
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
  return pipeline;
}

// Drivers translate all of a shader before they look at the values of its specialisation constants,
// and most of it is code for other weight types: with the values in place they have a fraction to
// do.
VkPipeline Pipelines::Make(const PipelineKey& key) const {
  const Code& code = kCode[static_cast<size_t>(key.shader)];
  return Make(WithConstants(subgroups_ ? code.subgroups : code.plain, key.constants),
              NameOf(key.shader));
}

std::optional<std::shared_future<VkPipeline>> Pipelines::Join(std::span<const PipelineKey> kinds) {
  const std::vector<PipelineKey> key(kinds.begin(), kinds.end());
  const auto found = joined_.find(key);
  if (found != joined_.end()) return found->second;
  const Joined joined = JoinedShader(driver_.host(), kinds);
  const uint32_t room = driver_.capabilities().properties.limits.maxComputeSharedMemorySize;
  if (joined.shared_bytes > room) {
    driver_.host().Log(RL_LOG_INFO, "a step in one dispatch would need " +
                                        std::to_string(joined.shared_bytes) +
                                        " bytes of shared memory, the device has " +
                                        std::to_string(room) + "; it is many dispatches instead");
    return joined_[key] = std::nullopt;
  }
  driver_.host().Log(RL_LOG_INFO, "the driver compiles " + std::to_string(kinds.size()) +
                                      " shaders as one, unless it remembers that it has");
  changed_ = true;
  const auto make = [this, code = joined.code] { return Make(code, "persistent"); };
  return joined_[key] = std::async(std::launch::async, make).share();
}

uint64_t Pipelines::Prepare(std::span<const PipelineKey> keys) {
  std::vector<PipelineKey> missing;
  for (const PipelineKey& key : keys) {
    if (!pipelines_.contains(key)) missing.push_back(key);
  }
  std::sort(missing.begin(), missing.end());
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  std::vector<VkPipeline> made(missing.size(), VK_NULL_HANDLE);
  std::exception_ptr failure;
  try {
    gpu::InParallel(missing.size(), [&](size_t i) { made[i] = Make(missing[i]); });
  } catch (...) {
    failure = std::current_exception();
  }
  for (size_t i = 0; i < missing.size(); ++i) {
    if (made[i] != VK_NULL_HANDLE) pipelines_.emplace(missing[i], made[i]);
  }
  if (failure) std::rethrow_exception(failure);
  changed_ = changed_ || !missing.empty();
  return missing.size();
}

}  // namespace rullama::vulkan
