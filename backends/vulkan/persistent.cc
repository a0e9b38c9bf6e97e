#include "backends/vulkan/persistent.h"

#include <algorithm>
#include <array>
#include <utility>

namespace rullama::vulkan {
namespace {

constexpr auto kNoTask = static_cast<uint32_t>(gpu::StepWord::kNoTask);
constexpr auto kEndsLevel = static_cast<uint32_t>(gpu::StepWord::kEndsLevel);
constexpr uint64_t kMeetingBytes = 8;  // Meeting of persistent.comp

// A workgroup of a dispatch, or none, and whether the level ends with it.
struct Entry {
  uint32_t kind = kNoTask;
  uint32_t push_low = 0, push_high = 0;
  uint32_t x = 0;
  uint32_t yz = 0;
  std::array<uint32_t, 3> groups{};
};

// The entries that each workgroup of the device runs, in order.
using Lists = std::vector<std::vector<Entry>>;

Entry EntryOf(const Dispatch& dispatch, uint32_t kind, VkDeviceAddress push, uint32_t index) {
  const auto& groups = dispatch.groups;
  return {kind,
          static_cast<uint32_t>(push),
          static_cast<uint32_t>(push >> 32),
          index % groups[0],
          index / groups[0] % groups[1] | index / groups[0] / groups[1] << 16,
          groups};
}

// Ends a level: with the last entry of a list, or if the list has none in it, with an empty one.
void EndLevel(Lists& lists, std::span<const size_t> begins) {
  for (size_t i = 0; i < lists.size(); ++i) {
    if (lists[i].size() == begins[i]) lists[i].emplace_back();
    lists[i].back().kind |= kEndsLevel;
  }
}

uint32_t KindOf(const Dispatch& dispatch, std::span<const PipelineKey> kinds) {
  return static_cast<uint32_t>(std::ranges::find(kinds, dispatch.pipeline) - kinds.begin());
}

// Deals the workgroups of each level's dispatches to those of the device, one after another.
Lists Deal(const gpu::JoinedStep& step, uint32_t count, VkDeviceAddress push,
           uint32_t device_groups) {
  const std::span<const Dispatch> dispatches = step.dispatches;
  Lists lists(device_groups);
  std::vector<size_t> begins(device_groups);
  for (uint32_t level = 0; level < count; ++level) {
    std::ranges::transform(lists, begins.begin(), &std::vector<Entry>::size);
    uint32_t next = 0;
    for (size_t i = 0; i < dispatches.size(); ++i) {
      if (step.levels[i] != level) continue;
      const auto& groups = dispatches[i].groups;
      const uint32_t kind = KindOf(dispatches[i], step.kinds);
      for (uint32_t index = 0; index < groups[0] * groups[1] * groups[2]; ++index) {
        lists[next].push_back(EntryOf(dispatches[i], kind, push + i * Dispatch::kPushBytes, index));
        next = (next + 1) % device_groups;
      }
    }
    EndLevel(lists, begins);
  }
  return lists;
}

// In memory of the device. There is always some.
template <typename T>
gpu::Allocation Keep(gpu::Driver& driver, gpu::BlockMemory& blocks, std::vector<T> values) {
  if (values.empty()) values.emplace_back();
  const auto bytes = std::as_bytes(std::span(values));
  gpu::Allocation memory = blocks.Allocate(bytes.size());
  driver.Write(memory, 0, bytes);
  return memory;
}

}  // namespace

PersistentStep::PersistentStep(gpu::Driver& driver, gpu::BlockMemory& blocks, uint32_t groups,
                               const gpu::JoinedStep& step)
    : groups_(groups) {
  std::vector<std::byte> push;
  push.reserve(step.dispatches.size() * Dispatch::kPushBytes);
  for (const Dispatch& dispatch : step.dispatches) {
    push.insert(push.end(), dispatch.push.begin(), dispatch.push.begin() + Dispatch::kPushBytes);
  }
  push_ = Keep(driver, blocks, std::move(push));

  const uint32_t count = step.levels.empty() ? 0 : std::ranges::max(step.levels) + 1;
  std::vector<Entry> entries;
  std::vector<uint32_t> starts;
  for (const auto& list : Deal(step, count, push_.address(), groups_)) {
    starts.push_back(static_cast<uint32_t>(entries.size()));
    entries.insert(entries.end(), list.begin(), list.end());
  }
  entries.emplace_back();  // read ahead, not used
  entries_ = Keep(driver, blocks, std::move(entries));
  starts_ = Keep(driver, blocks, std::move(starts));
  meeting_ = blocks.Allocate(kMeetingBytes);
  driver.FillZero(meeting_);
  constants_ = {entries_.address(), starts_.address(), meeting_.address(), step.step, count, 0};
}

void PersistentStep::Record(VkCommandBuffer commands, VkPipelineLayout layout,
                            VkPipeline pipeline) const {
  vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
  vkCmdPushConstants(commands, layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof(constants_),
                     &constants_);
  vkCmdDispatch(commands, groups_, 1, 1);
}

}  // namespace rullama::vulkan
