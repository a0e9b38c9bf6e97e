#include "backends/vulkan/driver.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "backends/gpu/in_parallel.h"
#include "backends/vulkan/commands.h"
#include "backends/vulkan/memory.h"

namespace rullama::vulkan {
namespace {

// The size of the staging buffer for memory that the host cannot map.
constexpr uint64_t kStagingBytes = uint64_t{16} << 20;
// The host reads mapped device memory a few bytes at a time over the bus; beyond this a copy is
// faster.
constexpr uint64_t kDirectReadBytes = 256;
// The time for which the host asks whether the device is done before it sleeps.
constexpr auto kMaxAsking = std::chrono::milliseconds(5);

}  // namespace

VulkanDriver::VulkanDriver(const Instance& instance, const PhysicalDevice& physical,
                           const sdk::Host& host, const DriverOptions& options)
    : Driver(host, TargetFor(physical.facts, options)),
      instance_(instance),
      physical_(physical),
      matrix_extension_(options.matrix_extension) {
  CreateDevice();
  vkGetDeviceQueue(device_, physical_.facts.queue_family, 0, &queue_);
  VkCommandPoolCreateInfo pool{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO, nullptr,
                               VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                               physical_.facts.queue_family};
  Check(vkCreateCommandPool(device_, &pool, nullptr, &pool_), "vkCreateCommandPool");
  VkCommandBufferAllocateInfo commands{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, nullptr,
                                       pool_, VK_COMMAND_BUFFER_LEVEL_PRIMARY, 1};
  Check(vkAllocateCommandBuffers(device_, &commands, &copy_), "vkAllocateCommandBuffers");
  VkSemaphoreTypeCreateInfo type{VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO, nullptr,
                                 VK_SEMAPHORE_TYPE_TIMELINE, 0};
  VkSemaphoreCreateInfo semaphore{VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, &type, 0};
  Check(vkCreateSemaphore(device_, &semaphore, nullptr, &timeline_), "vkCreateSemaphore");
  pipelines_ = std::make_unique<Pipelines>(*this, options.subgroups);
  if (options.persistent) joiner_ = std::make_unique<VulkanStepJoiner>(*this);
}

void VulkanDriver::CreateDevice() {
  const Facts& facts = physical_.facts;
  const float priority = 1;
  VkDeviceQueueCreateInfo queue{
      VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, nullptr, 0, facts.queue_family, 1, &priority};
  VkPhysicalDeviceVulkan12Features features12{};
  features12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
  features12.bufferDeviceAddress = VK_TRUE;
  features12.timelineSemaphore = VK_TRUE;
  features12.vulkanMemoryModel = features12.vulkanMemoryModelDeviceScope =
      facts.memory_model ? VK_TRUE : VK_FALSE;
  std::vector<const char*> extensions;
  VkPhysicalDeviceShaderIntegerDotProductFeatures dot{};
  dot.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES;
  dot.shaderIntegerDotProduct = VK_TRUE;
  if (facts.integer_dot) {
    extensions.push_back(VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME);
    dot.pNext = features12.pNext;
    features12.pNext = &dot;
  }
  const MatrixFeatures matrices(matrix_extension_, features12, extensions);
  VkPhysicalDeviceVulkan11Features features11{};
  features11.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES;
  features11.pNext = &features12;
  features11.storageBuffer16BitAccess = VK_TRUE;
  VkPhysicalDeviceFeatures2 features{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, &features11, {}};
  features.features.shaderFloat64 = facts.float64 ? VK_TRUE : VK_FALSE;
  VkDeviceCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
  info.pNext = &features;
  info.queueCreateInfoCount = 1;
  info.pQueueCreateInfos = &queue;
  info.enabledExtensionCount = static_cast<uint32_t>(extensions.size());
  info.ppEnabledExtensionNames = extensions.data();
  Check(vkCreateDevice(physical_.handle, &info, nullptr, &device_), "vkCreateDevice");
}

VulkanDriver::~VulkanDriver() {
  if (device_ == VK_NULL_HANDLE) return;
  vkDeviceWaitIdle(device_);
  pipelines_.reset();
  staging_.reset();
  vkDestroySemaphore(device_, timeline_, nullptr);
  vkDestroyCommandPool(device_, pool_, nullptr);
  vkDestroyDevice(device_, nullptr);
}

void VulkanDriver::CheckLost(VkResult result, const char* call) {
  if (result == VK_ERROR_DEVICE_LOST) lost_ = true;
  Check(result, call);
}

void VulkanDriver::Start(VkCommandBuffer commands) {
  if (lost_) Check(VK_ERROR_DEVICE_LOST, "vkQueueSubmit");
  const uint64_t value = submitted_ + 1;
  VkTimelineSemaphoreSubmitInfo timeline{
      VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO, nullptr, 0, nullptr, 1, &value};
  VkSubmitInfo submit{};
  submit.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
  submit.pNext = &timeline;
  submit.commandBufferCount = 1;
  submit.pCommandBuffers = &commands;
  submit.signalSemaphoreCount = 1;
  submit.pSignalSemaphores = &timeline_;
  CheckLost(vkQueueSubmit(queue_, 1, &submit, VK_NULL_HANDLE), "vkQueueSubmit");
  submitted_ = value;
}

// Asks for a while, because whoever sleeps is woken late: that was a tenth of a step of one row. A
// device that is a CPU has better use for it.
bool VulkanDriver::IsDoneSoon() {
  if (physical_.facts.IsSoftware()) return false;
  const auto end = std::chrono::steady_clock::now() + kMaxAsking;
  do {
    uint64_t value = 0;
    CheckLost(vkGetSemaphoreCounterValue(device_, timeline_, &value), "vkGetSemaphoreCounterValue");
    if (value >= submitted_) return true;
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

void VulkanDriver::Finish() {
  if (lost_) Check(VK_ERROR_DEVICE_LOST, "vkWaitSemaphores");
  try {
    if (completed_ != submitted_ && !IsDoneSoon()) {
      VkSemaphoreWaitInfo wait{
          VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO, nullptr, 0, 1, &timeline_, &submitted_};
      CheckLost(vkWaitSemaphores(device_, &wait, UINT64_MAX), "vkWaitSemaphores");
    }
  } catch (const sdk::Error&) {
    readbacks_.clear();  // who wanted them may be gone at the next wait
    throw;
  }
  completed_ = submitted_;
  for (const gpu::Readback& readback : readbacks_) {
    std::memcpy(readback.to.data(), readback.from->mapped() + readback.offset, readback.to.size());
  }
  readbacks_.clear();
}

void VulkanDriver::CheckMore() const {
  const uint32_t errors = instance_.validation_errors();
  if (errors == 0) return;
  throw sdk::Error(RL_INTERNAL, "the validation layer reports " + std::to_string(errors) +
                                    " errors; see the log");
}

// ---- memory -------------------------------------------------------------------------------------

gpu::MemoryFacts VulkanDriver::Memory() const {
  const auto [total, free] = Instance::Memory(physical_);
  return {
      .total = total, .free = free, .max_allocation = facts().max_allocation, .has_shared = true};
}

std::unique_ptr<gpu::MemoryBlock> VulkanDriver::NewBlock(uint64_t bytes, gpu::Residence residence) {
  const bool shared = residence == gpu::Residence::kShared;
  return std::make_unique<VulkanBlock>(physical_, device_, bytes,
                                       shared ? MemoryKind::kShared : MemoryKind::kDevice);
}

const VulkanBlock& VulkanDriver::Staging() {
  if (!staging_) {
    staging_ = std::make_unique<VulkanBlock>(physical_, device_, kStagingBytes, MemoryKind::kHost);
  }
  return *staging_;
}

template <typename Recorder>
void VulkanDriver::RunNow(Recorder record) {
  VkCommandBufferBeginInfo begin{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO, nullptr,
                                 VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT, nullptr};
  Check(vkBeginCommandBuffer(copy_, &begin), "vkBeginCommandBuffer");
  VkMemoryBarrier barrier{VK_STRUCTURE_TYPE_MEMORY_BARRIER, nullptr, VK_ACCESS_MEMORY_WRITE_BIT,
                          VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT};
  const auto sync = [&] {
    vkCmdPipelineBarrier(copy_, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT,
                         VK_PIPELINE_STAGE_ALL_COMMANDS_BIT | VK_PIPELINE_STAGE_HOST_BIT, 0, 1,
                         &barrier, 0, nullptr, 0, nullptr);
  };
  sync();
  record(copy_);
  barrier.dstAccessMask |= VK_ACCESS_HOST_READ_BIT;
  sync();
  Check(vkEndCommandBuffer(copy_), "vkEndCommandBuffer");
  Start(copy_);
  Wait();
}

void VulkanDriver::Write(const gpu::Allocation& to, uint64_t offset,
                         std::span<const std::byte> data) {
  Wait();
  if (to.mapped() != nullptr) {
    gpu::CopyInParallel(to.mapped() + offset, data);
    return;
  }
  const VulkanBlock& staging = Staging();
  for (size_t done = 0; done < data.size(); done += kStagingBytes) {
    const auto part = data.subspan(done, std::min<size_t>(kStagingBytes, data.size() - done));
    gpu::CopyInParallel(staging.mapped, part);
    RunNow([&](VkCommandBuffer commands) {
      const VkBufferCopy copy{0, to.offset() + offset + done, part.size()};
      vkCmdCopyBuffer(commands, staging.buffer(), BlockOf(to).buffer(), 1, &copy);
    });
  }
}

void VulkanDriver::Read(const gpu::Allocation& from, uint64_t offset, std::span<std::byte> data) {
  Wait();
  const bool direct =
      from.mapped() != nullptr && (BlockOf(from).cached() || data.size() <= kDirectReadBytes);
  if (direct) {
    std::memcpy(data.data(), from.mapped() + offset, data.size());
    return;
  }
  const VulkanBlock& staging = Staging();
  for (size_t done = 0; done < data.size(); done += kStagingBytes) {
    const auto part = data.subspan(done, std::min<size_t>(kStagingBytes, data.size() - done));
    RunNow([&](VkCommandBuffer commands) {
      const VkBufferCopy copy{from.offset() + offset + done, 0, part.size()};
      vkCmdCopyBuffer(commands, BlockOf(from).buffer(), staging.buffer(), 1, &copy);
    });
    gpu::CopyInParallel(part.data(), {staging.mapped, part.size()});
  }
}

void VulkanDriver::FillZero(const gpu::Allocation& memory) {
  Wait();
  RunNow([&](VkCommandBuffer commands) {
    vkCmdFillBuffer(commands, BlockOf(memory).buffer(), memory.offset(), memory.size() / 4 * 4, 0);
  });
}

// Names plugin, device and driver: a cache of another one would be refused or, worse, accepted.
std::string VulkanDriver::CacheName() const {
  const VkPhysicalDeviceProperties& p = facts().properties;
  std::string name = std::string("pipelines ") + RULLAMA_VERSION + " " + p.deviceName + " " +
                     std::to_string(p.vendorID) + " " + std::to_string(p.deviceID) + " " +
                     std::to_string(p.driverVersion) + " ";
  for (const uint8_t byte : p.pipelineCacheUUID) name += std::to_string(byte) + ".";
  return name;
}

// ---- work ---------------------------------------------------------------------------------------

std::unique_ptr<gpu::Commands> VulkanDriver::Record(const gpu::Recording& recording) {
  return std::make_unique<VulkanCommands>(*this, recording);
}

void VulkanDriver::Submit(gpu::Commands& commands, const gpu::Readback& readback) {
  for (VkCommandBuffer buffer : static_cast<VulkanCommands&>(commands).Buffers()) Start(buffer);
  readbacks_.push_back(readback);
}

void VulkanDriver::TimesOf(gpu::Commands& commands, std::vector<gpu::DispatchTime>& times) {
  static_cast<const VulkanCommands&>(commands).ReadTimes(times);
}

}  // namespace rullama::vulkan
