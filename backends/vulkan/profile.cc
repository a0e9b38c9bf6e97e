#include "backends/vulkan/profile.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "backends/gpu/kernel_source.h"

namespace rullama::vulkan {

Profile::Profile(VulkanDriver& driver, size_t dispatches) : driver_(driver) {
  VkQueryPoolCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO;
  info.queryType = VK_QUERY_TYPE_TIMESTAMP;
  info.queryCount = static_cast<uint32_t>(dispatches + 1);
  size_ = info.queryCount;
  names_.reserve(dispatches);
  ops_.reserve(dispatches);
  ticks_.reserve(dispatches + 1);
  Check(vkCreateQueryPool(driver_.handle(), &info, nullptr, &pool_), "vkCreateQueryPool");
}

Profile::~Profile() { vkDestroyQueryPool(driver_.handle(), pool_, nullptr); }

void Profile::Start(VkCommandBuffer commands) {
  if (count_ > 0) return;
  vkCmdResetQueryPool(commands, pool_, 0, size_);
  vkCmdWriteTimestamp(commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, pool_, 0);
}

void Profile::After(VkCommandBuffer commands, const Dispatch& dispatch) {
  std::string name(gpu::NameOf(dispatch.pipeline.shader));
  for (const uint32_t constant : dispatch.pipeline.constants)
    name += " " + std::to_string(constant);
  name += " groups";
  for (const uint32_t count : dispatch.groups) name += " " + std::to_string(count);
  names_.push_back(std::move(name));
  ops_.push_back(dispatch.op_index);
  vkCmdWriteTimestamp(commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, pool_, ++count_);
}

std::span<const uint64_t> Profile::Ends() {
  const Capabilities& can = driver_.capabilities();
  if (can.timestamp_bits == 0 || count_ == 0) return {};
  ticks_.resize(count_ + 1);
  if (vkGetQueryPoolResults(driver_.handle(), pool_, 0, count_ + 1,
                            ticks_.size() * sizeof(uint64_t), ticks_.data(), sizeof(uint64_t),
                            VK_QUERY_RESULT_64_BIT) != VK_SUCCESS) {
    return {};
  }
  const uint64_t mask = UINT64_MAX >> (64 - can.timestamp_bits);
  const double period = can.properties.limits.timestampPeriod;
  const uint64_t first = ticks_.front();
  for (uint64_t& tick : ticks_) {
    tick = static_cast<uint64_t>(static_cast<double>((tick - first) & mask) * period);
  }
  return std::span(ticks_).subspan(1);
}

std::vector<std::string> Profile::Report() {
  const std::span<const uint64_t> ends = Ends();
  if (ends.empty()) return {"no times"};
  std::map<std::string, std::pair<double, uint32_t>> by_name;
  double total = 0;
  for (uint32_t i = 0; i < count_; ++i) {
    const double time = static_cast<double>(ends[i] - (i == 0 ? 0 : ends[i - 1])) / 1000;
    auto& [sum, times] = by_name[names_[i]];
    sum += time;
    ++times;
    total += time;
  }
  std::vector<std::pair<double, std::string>> lines;
  for (const auto& [name, entry] : by_name) {
    char text[64];
    std::snprintf(text, sizeof(text), "%10.1f us %5u x ", entry.first, entry.second);
    lines.emplace_back(entry.first, text + name);
  }
  std::ranges::sort(lines, std::greater());
  std::vector<std::string> report = {"dispatches of a step take " + std::to_string(total) + " us"};
  for (auto& [time, line] : lines) report.push_back(std::move(line));
  return report;
}

}  // namespace rullama::vulkan
