// A driver without a device: its memory is the host's, and it keeps what it is asked for.
#pragma once

#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "backends/gpu/driver.h"

namespace rullama::gpu {

// A host that hears and keeps nothing.
inline sdk::Host SilentHost() {
  static const rl_host_v1 table = [] {
    rl_host_v1 host{};
    host.struct_size = sizeof(host);
    host.log = [](void*, int32_t, rl_str) {};
    host.cancelled = [](void*) { return 0; };
    host.blob_get = [](void*, rl_str, void*, uint64_t) -> uint64_t { return 0; };
    host.blob_put = [](void*, rl_str, const void*, uint64_t) -> int32_t { return RL_OK; };
    return host;
  }();
  return sdk::Host(table);
}

class FakeDriver : public Driver {
 public:
  explicit FakeDriver(const sdk::Host& host = SilentHost()) : Driver(host) {}

  MemoryFacts memory{.total = uint64_t{1} << 30, .max_allocation = uint64_t{1} << 28};
  std::vector<uint64_t> blocks;  // bytes of each that was made

  [[nodiscard]] MemoryFacts Memory() const override { return memory; }
  [[nodiscard]] bool HasFloat64() const override { return true; }
  [[nodiscard]] bool FollowsPointers() const override { return true; }
  [[nodiscard]] uint32_t MaxGroups(uint32_t /*axis*/) const override { return 65535; }
  std::unique_ptr<MemoryBlock> NewBlock(uint64_t bytes, Residence /*residence*/) override {
    blocks.push_back(bytes);
    return std::make_unique<Block>(bytes);
  }
  void Write(const Allocation& to, uint64_t offset, std::span<const std::byte> data) override {
    std::memcpy(to.mapped() + offset, data.data(), data.size());
  }
  void Read(const Allocation& from, uint64_t offset, std::span<std::byte> data) override {
    Wait();
    std::memcpy(data.data(), from.mapped() + offset, data.size());
  }
  void FillZero(const Allocation& to) override { std::memset(to.mapped(), 0, to.size()); }

 protected:
  void Finish() override {}

 private:
  // Bytes are made when they are touched, so that blocks of any size cost nothing.
  class Block final : public MemoryBlock {
   public:
    explicit Block(uint64_t bytes) : MemoryBlock(bytes), bytes_(new std::byte[bytes]) {
      mapped = bytes_.get();
      address = reinterpret_cast<DeviceAddress>(mapped);
    }

   private:
    std::unique_ptr<std::byte[]> bytes_;
  };
};

}  // namespace rullama::gpu
