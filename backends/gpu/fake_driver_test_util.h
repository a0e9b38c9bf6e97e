// A driver without a device: its memory is the host's, and it keeps what it is asked for.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "backends/gpu/driver.h"

namespace rullama::gpu {

// A host that remembers.
struct FakeHost {
  std::map<std::string, std::vector<std::byte>> blobs;
  std::vector<std::string> messages;
  bool cancelled = false;
  bool keeps = true;  // blobs
  rl_host_v1 table{};

  FakeHost() {
    table.struct_size = sizeof(table);
    table.context = this;
    table.log = [](void* context, int32_t, rl_str text) {
      static_cast<FakeHost*>(context)->messages.emplace_back(text.data, text.size);
    };
    table.cancelled = [](void* context) {
      return static_cast<FakeHost*>(context)->cancelled ? 1 : 0;
    };
    table.blob_get = [](void* context, rl_str key, void* data, uint64_t capacity) -> uint64_t {
      const auto& blob = static_cast<FakeHost*>(context)->blobs[{key.data, key.size}];
      // The data are null where only the size is asked for.
      std::copy_n(blob.begin(), std::min<uint64_t>(capacity, blob.size()),
                  static_cast<std::byte*>(data));
      return blob.size();
    };
    table.blob_put = [](void* context, rl_str key, const void* data, uint64_t size) -> int32_t {
      const auto* bytes = static_cast<const std::byte*>(data);
      if (!static_cast<FakeHost*>(context)->keeps) return RL_UNAVAILABLE;
      static_cast<FakeHost*>(context)->blobs[{key.data, key.size}].assign(bytes, bytes + size);
      return RL_OK;
    };
  }
  FakeHost(const FakeHost&) = delete;  // the table points to it
  FakeHost& operator=(const FakeHost&) = delete;

  [[nodiscard]] sdk::Host host() const { return sdk::Host(table); }
};

inline Target TargetOfFakes() {
  return {.can = {.float64 = true,
                  .follows_pointers = true,
                  .overlaps_dispatches = true,
                  .tells_times = true},
          .prefers = {},
          .quirks = {}};
}

class FakeDriver : public Driver {
 public:
  explicit FakeDriver(const FakeHost& host, const Target& target = TargetOfFakes())
      : Driver(host.host(), target) {}

  MemoryFacts memory{.total = uint64_t{1} << 30, .max_allocation = uint64_t{1} << 28};
  std::vector<uint64_t> blocks;       // bytes of each that was made
  std::vector<PipelineKey> compiled;  // in any order
  std::vector<std::byte> loaded;
  struct Recorded {
    size_t dispatches;
    bool timed, few_rows;
  };
  std::vector<Recorded> recorded;
  std::vector<size_t> submitted;  // the dispatches of each submission
  uint32_t failed_op = 0;         // what steps say of themselves from now on
  uint64_t clock = 0;
  // How long a dispatch takes.
  std::function<uint64_t(const Dispatch&)> time_of = [](const Dispatch&) { return 10; };
  StepJoiner* step_joiner = nullptr;

  [[nodiscard]] MemoryFacts Memory() const override { return memory; }
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
  std::unique_ptr<Kernel> Compile(const PipelineKey& key) override {
    const std::lock_guard lock(mutex_);
    compiled.push_back(key);
    return std::make_unique<Kernel>();
  }
  [[nodiscard]] std::string CacheName() const override { return "fake"; }
  void LoadCache(std::span<const std::byte> saved) override {
    loaded.assign(saved.begin(), saved.end());
  }
  [[nodiscard]] std::vector<std::byte> CacheData(const Kernels& kernels) override {
    return std::vector<std::byte>(kernels.size());
  }
  std::unique_ptr<Commands> Record(const Recording& recording) override {
    recorded.push_back({.dispatches = recording.dispatches.size(),
                        .timed = recording.timed,
                        .few_rows = recording.few_rows});
    auto commands = std::make_unique<FakeCommands>();
    for (const Dispatch& dispatch : recording.dispatches) {
      commands->takes.push_back(time_of(dispatch));
    }
    return commands;
  }
  void Submit(Commands& commands, const Readback& readback) override {
    auto& fake = static_cast<FakeCommands&>(commands);
    submitted.push_back(fake.takes.size());
    std::memcpy(readback.from->mapped() + readback.offset, &failed_op, sizeof(failed_op));
    readbacks_.push_back(readback);
    for (const uint64_t time : fake.takes) {
      fake.times.push_back({clock, clock + time});
      clock += time;
    }
  }
  void TimesOf(Commands& commands, std::vector<DispatchTime>& times) override {
    auto& fake = static_cast<FakeCommands&>(commands);
    times.insert(times.end(), fake.times.begin(), fake.times.end());
    fake.times.clear();
  }
  StepJoiner* joiner() override { return step_joiner; }
  void FillZero(const Allocation& to) override { std::memset(to.mapped(), 0, to.size()); }

 protected:
  void Finish() override {
    for (const Readback& readback : readbacks_) {
      std::memcpy(readback.to.data(), readback.from->mapped() + readback.offset,
                  readback.to.size());
    }
    readbacks_.clear();
  }

 private:
  struct FakeCommands final : Commands {
    std::vector<uint64_t> takes;  // by dispatch
    std::vector<DispatchTime> times;
  };

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

  std::mutex mutex_;
  std::vector<Readback> readbacks_;
};

}  // namespace rullama::gpu
