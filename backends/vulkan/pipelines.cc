#include "backends/vulkan/pipelines.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

// Written at build time: the code of each shader as kNamePlain and kNameSubgroups.
#include "spirv.h"

namespace rullama::vulkan {
namespace {

struct Code {
  std::span<const uint32_t> plain, subgroups;
};

constexpr Code kCode[] = {
#define RL_SHADER(file, Name) {k##Name##Plain, k##Name##Subgroups},
#include "backends/vulkan/shaders.def"
};
constexpr const char* kNames[] = {
#define RL_SHADER(file, Name) #file,
#include "backends/vulkan/shaders.def"
};

}  // namespace

std::string_view Pipelines::NameOf(Shader shader) { return kNames[static_cast<size_t>(shader)]; }

Pipelines::Pipelines(Gpu& gpu, bool subgroups) : gpu_(gpu), subgroups_(subgroups) {
  const VkPushConstantRange range{VK_SHADER_STAGE_COMPUTE_BIT, 0, kPushBytes};
  VkPipelineLayoutCreateInfo layout{};
  layout.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO;
  layout.pushConstantRangeCount = 1;
  layout.pPushConstantRanges = &range;
  Check(vkCreatePipelineLayout(gpu_.handle(), &layout, nullptr, &layout_),
        "vkCreatePipelineLayout");
  LoadCache();
}

Pipelines::~Pipelines() {
  SaveCache();
  for (const auto& [key, pipeline] : pipelines_)
    vkDestroyPipeline(gpu_.handle(), pipeline, nullptr);
  for (const auto& [shader, module] : modules_) {
    vkDestroyShaderModule(gpu_.handle(), module, nullptr);
  }
  vkDestroyPipelineCache(gpu_.handle(), cache_, nullptr);
  vkDestroyPipelineLayout(gpu_.handle(), layout_, nullptr);
}

// Of plugin, device and driver: a cache of another would be refused or, worse, not.
std::string Pipelines::CacheName() const {
  const VkPhysicalDeviceProperties& p = gpu_.capabilities().properties;
  std::string name = std::string("pipelines ") + RULLAMA_VERSION + " " + p.deviceName + " " +
                     std::to_string(p.vendorID) + " " + std::to_string(p.deviceID) + " " +
                     std::to_string(p.driverVersion) + " ";
  for (const uint8_t byte : p.pipelineCacheUUID) name += std::to_string(byte) + ".";
  return name;
}

void Pipelines::LoadCache() {
  const std::vector<std::byte> saved = gpu_.host().BlobGet(CacheName());
  VkPipelineCacheCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO;
  info.initialDataSize = saved.size();
  info.pInitialData = saved.data();
  if (vkCreatePipelineCache(gpu_.handle(), &info, nullptr, &cache_) == VK_SUCCESS) return;
  // Drivers check what they are given; a damaged file is not worth more than a slow start.
  info.initialDataSize = 0;
  info.pInitialData = nullptr;
  Check(vkCreatePipelineCache(gpu_.handle(), &info, nullptr, &cache_), "vkCreatePipelineCache");
}

void Pipelines::SaveCache() noexcept {
  if (!changed_ || cache_ == VK_NULL_HANDLE) return;
  try {
    size_t size = 0;
    if (vkGetPipelineCacheData(gpu_.handle(), cache_, &size, nullptr) != VK_SUCCESS) return;
    std::vector<std::byte> data(size);
    if (vkGetPipelineCacheData(gpu_.handle(), cache_, &size, data.data()) != VK_SUCCESS) return;
    data.resize(size);
    static_cast<void>(gpu_.host().BlobPut(CacheName(), data));
  } catch (const std::exception& error) {
    gpu_.host().Log(RL_LOG_WARNING,
                    std::string("the pipeline cache was not saved: ") + error.what());
  }
}

VkPipeline Pipelines::Make(const PipelineKey& key) const {
  std::vector<VkSpecializationMapEntry> entries;
  for (uint32_t i = 0; i < key.constants.size(); ++i) {
    entries.push_back({i, i * static_cast<uint32_t>(sizeof(uint32_t)), sizeof(uint32_t)});
  }
  const VkSpecializationInfo constants{static_cast<uint32_t>(entries.size()), entries.data(),
                                       key.constants.size() * sizeof(uint32_t),
                                       key.constants.data()};
  VkComputePipelineCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO;
  info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
  info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
  info.stage.module = modules_.at(key.shader);
  info.stage.pName = "main";
  info.stage.pSpecializationInfo = &constants;
  info.layout = layout_;
  VkPipeline pipeline = VK_NULL_HANDLE;
  Check(vkCreateComputePipelines(gpu_.handle(), cache_, 1, &info, nullptr, &pipeline),
        std::string("vkCreateComputePipelines of ") + kNames[static_cast<size_t>(key.shader)]);
  return pipeline;
}

uint64_t Pipelines::Prepare(std::span<const PipelineKey> keys) {
  std::vector<PipelineKey> missing;
  for (const PipelineKey& key : keys) {
    if (!pipelines_.contains(key)) missing.push_back(key);
  }
  std::sort(missing.begin(), missing.end());
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  for (const PipelineKey& key : missing) {
    if (modules_.contains(key.shader)) continue;
    const Code& code = kCode[static_cast<size_t>(key.shader)];
    const std::span<const uint32_t> words = subgroups_ ? code.subgroups : code.plain;
    VkShaderModuleCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO;
    info.codeSize = words.size_bytes();
    info.pCode = words.data();
    VkShaderModule module = VK_NULL_HANDLE;
    Check(vkCreateShaderModule(gpu_.handle(), &info, nullptr, &module), "vkCreateShaderModule");
    modules_.emplace(key.shader, module);
  }
  std::vector<VkPipeline> made(missing.size(), VK_NULL_HANDLE);
  std::atomic<size_t> next{0};
  std::exception_ptr failure;
  std::mutex mutex;
  const auto work = [&] {
    for (size_t i = next++; i < missing.size(); i = next++) {
      try {
        made[i] = Make(missing[i]);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
      }
    }
  };
  const size_t count =
      std::min<size_t>(missing.size(), std::max(1u, std::thread::hardware_concurrency()));
  {
    std::vector<std::jthread> threads;
    for (size_t i = 1; i < count; ++i) threads.emplace_back(work);
    work();
  }
  for (size_t i = 0; i < missing.size(); ++i) {
    if (made[i] != VK_NULL_HANDLE) pipelines_.emplace(missing[i], made[i]);
  }
  if (failure) std::rethrow_exception(failure);
  changed_ = changed_ || !missing.empty();
  return missing.size();
}

}  // namespace rullama::vulkan
