// The part of a plugin that all GPU backends share.
#pragma once

#include <rullama/sdk/backend.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/gpu/block_memory.h"

namespace rullama::gpu {

// `Instance`: a FoundDevices of the API.
template <typename Instance>
class GpuBackend : public sdk::Backend {
 public:
  GpuBackend(sdk::Host host, std::string_view name, std::vector<sdk::OptionInfo> options)
      : Backend(host), name_(name), options_(std::move(options)) {}

  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] std::vector<sdk::OptionInfo> Options() const override { return options_; }
  [[nodiscard]] std::string_view version() const override { return RULLAMA_VERSION; }
  [[nodiscard]] std::string_view vendor() const override { return "rullama"; }
  [[nodiscard]] const std::vector<sdk::DeviceInfo>& Devices() override {
    if (instance_ != nullptr) return infos_;
    std::unique_ptr<Instance> instance = Find();
    std::vector<sdk::DeviceInfo> infos;
    for (const Device& device : instance->devices()) infos.push_back(Describe(device));
    infos_ = std::move(infos);
    instance_ = std::move(instance);
    return infos_;
  }
  [[nodiscard]] std::string_view NoDeviceReason() override {
    return instance_ != nullptr ? std::string_view(instance_->reason()) : std::string_view();
  }

 protected:
  using Device = typename Instance::Device;

  // Called when devices are first asked for. Does not throw for want of a driver.
  virtual std::unique_ptr<Instance> Find() = 0;
  [[nodiscard]] virtual sdk::DeviceInfo Describe(const Device& device) const = 0;
  // Once devices were asked for.
  [[nodiscard]] const Instance& instance() const { return *instance_; }
  // The description of a device whose allocations have at most `max_allocation` bytes.
  static sdk::DeviceInfo InfoOf(rl_device_type type, std::string_view name, std::string_view driver,
                                uint64_t max_allocation) {
    sdk::DeviceInfo info;
    info.type = type;
    info.name = name;
    info.driver = driver;
    info.max_buffer_bytes = MaxBufferBytes(max_allocation);
    // Kernels read vectors of 16 bytes, caches have lines of 64.
    info.alignment = 64;
    return info;
  }

 private:
  std::string_view name_;
  std::vector<sdk::OptionInfo> options_;
  std::vector<sdk::DeviceInfo> infos_;
  std::unique_ptr<Instance> instance_;
};

}  // namespace rullama::gpu
