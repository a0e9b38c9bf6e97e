#include "backends/vulkan/commands.h"

#include <algorithm>
#include <utility>

#include "backends/gpu/kernel_cache.h"

namespace rullama::vulkan {
namespace {

// The maximum number of dispatches of one submission of a step of many rows: drivers end work that
// keeps a device busy for seconds (amdgpu after ten, Windows after two). 64 are two or three
// layers.
constexpr size_t kMaxDispatches = 64;

constexpr VkAccessFlags kShaderAccess = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT;

void Barrier(VkCommandBuffer commands, VkPipelineStageFlags from, VkAccessFlags written,
             VkPipelineStageFlags to, VkAccessFlags used) {
  const VkMemoryBarrier barrier{VK_STRUCTURE_TYPE_MEMORY_BARRIER, nullptr, written, used};
  vkCmdPipelineBarrier(commands, from, to, 0, 1, &barrier, 0, nullptr, 0, nullptr);
}

}  // namespace

// ---- times --------------------------------------------------------------------------------------

Timestamps::Timestamps(const VulkanDriver& driver, size_t dispatches)
    : driver_(driver), size_(static_cast<uint32_t>(dispatches + 1)) {
  VkQueryPoolCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO;
  info.queryType = VK_QUERY_TYPE_TIMESTAMP;
  info.queryCount = size_;
  Check(vkCreateQueryPool(driver_.handle(), &info, nullptr, &pool_), "vkCreateQueryPool");
}

void Timestamps::Start(VkCommandBuffer commands) const {
  if (count_ > 0) return;
  vkCmdResetQueryPool(commands, pool_, 0, size_);
  vkCmdWriteTimestamp(commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, pool_, 0);
}

void Timestamps::After(VkCommandBuffer commands) {
  vkCmdWriteTimestamp(commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, pool_, ++count_);
}

void Timestamps::Read(std::vector<gpu::DispatchTime>& times) const {
  std::vector<uint64_t> ticks(count_ + 1);
  if (count_ == 0 ||
      vkGetQueryPoolResults(driver_.handle(), pool_, 0, count_ + 1, ticks.size() * sizeof(uint64_t),
                            ticks.data(), sizeof(uint64_t), VK_QUERY_RESULT_64_BIT) != VK_SUCCESS) {
    return;
  }
  const Facts& facts = driver_.facts();
  const uint64_t mask = UINT64_MAX >> (64 - facts.timestamp_bits);
  const double period = facts.properties.limits.timestampPeriod;
  // Nanoseconds since the first dispatch began.
  const auto time_of = [&](uint32_t i) {
    return static_cast<uint64_t>(static_cast<double>((ticks[i] - ticks[0]) & mask) * period);
  };
  for (uint32_t i = 0; i < count_; ++i) times.push_back({time_of(i), time_of(i + 1)});
}

// ---- commands -----------------------------------------------------------------------------------

VulkanCommands::VulkanCommands(const VulkanDriver& driver, const gpu::Recording& recording)
    : driver_(driver) {
  const size_t count = recording.dispatches.size();
  if (recording.timed) timestamps_ = std::make_unique<Timestamps>(driver, count);
  const size_t most = recording.few_rows ? count : kMaxDispatches;
  for (size_t first = 0; first < count; first += most) {
    RecordPart(recording, first, std::min(count, first + most));
  }
}

VulkanCommands::VulkanCommands(const VulkanDriver& driver, std::unique_ptr<PersistentStep> step,
                               const JoinedPipeline& pipeline)
    : driver_(driver), step_(std::move(step)), pipeline_(&pipeline) {}

VulkanCommands::~VulkanCommands() {
  if (buffers_.empty()) return;  // no op has rows in such a step
  vkFreeCommandBuffers(driver_.handle(), driver_.pool(), static_cast<uint32_t>(buffers_.size()),
                       buffers_.data());
}

std::span<const VkCommandBuffer> VulkanCommands::Buffers() {
  if (step_ && buffers_.empty()) RecordStep();
  return buffers_;
}

VkCommandBuffer VulkanCommands::Begin() {
  VkCommandBuffer commands = VK_NULL_HANDLE;
  const VkCommandBufferAllocateInfo allocate{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                             nullptr, driver_.pool(),
                                             VK_COMMAND_BUFFER_LEVEL_PRIMARY, 1};
  Check(vkAllocateCommandBuffers(driver_.handle(), &allocate, &commands),
        "vkAllocateCommandBuffers");
  buffers_.push_back(commands);
  const VkCommandBufferBeginInfo begin{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO, nullptr,
                                       VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT, nullptr};
  Check(vkBeginCommandBuffer(commands, &begin), "vkBeginCommandBuffer");
  Barrier(commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, VK_ACCESS_MEMORY_WRITE_BIT,
          VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, kShaderAccess);
  return commands;
}

void VulkanCommands::End(VkCommandBuffer commands) {
  Barrier(commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_ACCESS_SHADER_WRITE_BIT,
          VK_PIPELINE_STAGE_HOST_BIT | VK_PIPELINE_STAGE_ALL_COMMANDS_BIT,
          VK_ACCESS_HOST_READ_BIT | VK_ACCESS_MEMORY_READ_BIT);
  Check(vkEndCommandBuffer(commands), "vkEndCommandBuffer");
}

void VulkanCommands::RecordPart(const gpu::Recording& recording, size_t first, size_t last) {
  VkCommandBuffer commands = Begin();
  if (timestamps_) timestamps_->Start(commands);
  const VkPipelineLayout layout = driver_.pipelines().layout();
  VkPipeline bound = VK_NULL_HANDLE;
  uint32_t level = recording.levels[first];
  for (size_t i = first; i < last; ++i) {
    const Dispatch& dispatch = recording.dispatches[i];
    if (recording.levels[i] != level || timestamps_) {
      level = recording.levels[i];
      Barrier(commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_ACCESS_SHADER_WRITE_BIT,
              VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, kShaderAccess);
    }
    const VkPipeline pipeline = Pipeline::HandleOf(recording.kernels.Get(dispatch.pipeline));
    if (pipeline != bound) {
      vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
      bound = pipeline;
    }
    vkCmdPushConstants(commands, layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, dispatch.push_bytes,
                       dispatch.push.data());
    vkCmdDispatch(commands, dispatch.groups[0], dispatch.groups[1], dispatch.groups[2]);
    if (timestamps_) timestamps_->After(commands);
  }
  End(commands);
}

void VulkanCommands::RecordStep() {
  const VkPipeline pipeline = pipeline_->handle();
  VkCommandBuffer commands = Begin();
  step_->Record(commands, driver_.pipelines().layout(), pipeline);
  End(commands);
}

}  // namespace rullama::vulkan
