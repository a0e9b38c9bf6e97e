// The devices that an API has, and those of them that can run its backend. The instance of an API
// derives from it.
//
// Thread safety: filled by the constructor of the instance; afterwards read only.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rullama::gpu {

// The functions of an API whose functions are global.
struct GlobalFunctions {};

// `PhysicalDevice`: what the driver of an API opens. `Api`: a table of its functions.
template <typename PhysicalDevice, typename Api = GlobalFunctions>
class FoundDevices {
 public:
  using Device = PhysicalDevice;

  [[nodiscard]] const Api& api() const { return api_; }
  [[nodiscard]] const std::vector<Device>& devices() const { return devices_; }
  // Why no device, or no further device, can be used.
  [[nodiscard]] const std::string& reason() const { return reason_; }

 protected:
  FoundDevices() = default;
  explicit FoundDevices(const Api& api) : api_(api) {}

  // For the constructor, which loads them.
  [[nodiscard]] Api& writable_api() { return api_; }
  void set_reason(std::string reason) { reason_ = std::move(reason); }
  // Keeps a device that can run the backend. `lack`: why it cannot; empty if it can.
  void Add(Device device, std::string_view name, const std::string& lack) {
    if (lack.empty()) {
      devices_.push_back(std::move(device));
      return;
    }
    if (!reason_.empty()) reason_ += "; ";
    reason_ += "'" + std::string(name) + "' cannot be used: " + lack;
  }

 private:
  Api api_;
  std::vector<Device> devices_;
  std::string reason_;
};

}  // namespace rullama::gpu
