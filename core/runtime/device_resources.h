// The resources of a session on its devices: weights, states, arenas and the buffers of inputs and
// outputs. Each is created when a plan first needs it and is shared by all plans of the session.
//
// Ownership: owns all buffers and weights; borrows the devices and the weight source, which outlive
// it. Buffers keep their addresses until it is destroyed, after all plans that use them. Thread
// safety: one thread at a time. Errors: device.memory, session.internal, those of the weight source
// and of the devices. Loading a weight blocks until the device has its bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/ir/graph.h"
#include "core/ir/weight_uses.h"
#include "core/passes/pipeline.h"
#include "core/plugin/device.h"
#include "core/runtime/memory_need.h"
#include "core/runtime/weights.h"

namespace rullama {

// Where a device has an output of a step. The small outputs of a device lie in one buffer, its
// result record, so that the host gets all those of a step with one read and one wait.
struct OutputPlace {
  const DeviceBuffer* buffer = nullptr;
  uint64_t offset = 0;
  bool in_record = false;
};

// Bytes on all devices.
struct ResourceBytes {
  uint64_t weights = 0;          // held by the devices, without the file mapping
  uint64_t weights_in_file = 0;  // read in place
  uint64_t states = 0;
  uint64_t arenas = 0;
  uint64_t io = 0;
};

class DeviceResources {
 public:
  // `io_extents`: the largest step; input and output buffers have room for it. `in_products`: the
  // constants that some graph of the session multiplies with activations. `allocated`: what the
  // sessions on these devices hold, this one's bytes included; null: there is no other session.
  DeviceResources(std::vector<Device*> devices, const WeightSource& weights, Extents io_extents,
                  WeightNames in_products, std::shared_ptr<AllocatedBytes> allocated);
  ~DeviceResources();
  DeviceResources(const DeviceResources&) = delete;
  DeviceResources& operator=(const DeviceResources&) = delete;

  // The bytes that each device would hold in addition to its present ones once all programs have
  // run. Programs share weights, caches and the largest arena.
  [[nodiscard]] Result<std::vector<MemoryNeed>> NeedOf(std::span<const Program> programs) const;

  // Checks that every device has free memory for what the program needs in addition to its present
  // bytes (error device.memory), and counts that as allocated.
  Status CheckMemory(const Program& program);

  // Creates the arenas of a program, which those of smaller programs then share. Checks and counts
  // them as CheckMemory() does.
  Status MakeArenas(const Program& program);

  // Creates what the values of a segment's graph need and returns where each value lies. Inputs of
  // these names lie in the buffers of the outputs of an earlier segment on the device.
  Result<std::vector<Storage>> AssignStorage(int device, const Graph& graph,
                                             const MemoryPlan& memory,
                                             std::span<const std::string> shared_names);

  // The places of an input and of an output of a graph that has storage on the device.
  [[nodiscard]] const DeviceBuffer& input(int device, const Value& value) const;
  [[nodiscard]] const OutputPlace& output(int device, const std::string& name,
                                          const TensorType& type) const;

  // Fills a state with zeros on every device that holds it.
  Status ClearState(std::string_view name);

  // Whether a device holds the state.
  [[nodiscard]] bool HoldsState(std::string_view name) const;
  // Its size; 0 if no device holds it.
  [[nodiscard]] uint64_t StateBytes(std::string_view name) const;
  // Copies bytes of a state that some device holds; with several the first one's, after a check
  // that the others have the same (error snapshot.copies).
  Status ReadState(std::string_view name, uint64_t offset, std::span<std::byte> data);
  // Writes bytes of a state on every device that holds it.
  Status WriteState(std::string_view name, uint64_t offset, std::span<const std::byte> data);

  [[nodiscard]] const std::vector<Device*>& devices() const { return devices_; }
  [[nodiscard]] const ResourceBytes& bytes() const { return bytes_; }

 private:
  // Device, value name, type. The type is part of the key, because a value may have T rows in one
  // plan and R rows in another.
  using IoKey = std::tuple<int, std::string, std::string>;
  // A device's record of small outputs. Each gets the next free place in it.
  struct ResultRecord {
    const DeviceBuffer* buffer = nullptr;  // created for the first of them
    uint64_t used = 0;                     // bytes
  };
  // Memory of the transients of plans: buffers of the size of MemoryPlan::buffer_bytes, and the
  // last one with the rest.
  struct Arena {
    uint64_t bytes = 0;
    std::vector<DeviceBuffer> buffers;
  };
  struct StateBuffer {
    DeviceBuffer buffer;
    uint64_t bytes = 0;
  };

  [[nodiscard]] Device& device(int index) const { return *devices_[static_cast<size_t>(index)]; }
  [[nodiscard]] bool HasArena(int device, uint64_t bytes) const;
  Status CheckAndCount(int device, const MemoryNeed& need);
  Status AddNeed(const PlannedSegment& segment, std::set<std::pair<int, std::string>>& counted,
                 MemoryNeed& need) const;
  // The description of a constant with these bytes; layouts need none.
  [[nodiscard]] WeightDesc DescribeWeight(const Value& constant,
                                          std::span<const std::byte> bytes) const;
  Result<const Arena*> FindOrCreateArena(int device, const MemoryPlan& memory);
  Result<rl_buffer*> FindOrCreateState(int device, const Value& state);
  Result<rl_weight*> FindOrLoadWeight(int device, const Value& constant);
  Result<const DeviceBuffer*> CreateIo(int device, uint64_t bytes);
  Result<const DeviceBuffer*> FindOrCreateInput(int device, const Value& value);
  Result<OutputPlace> FindOrCreateOutput(int device, const std::string& name,
                                         const TensorType& type);
  Status AssignOutputs(int device, const Graph& graph, std::vector<Storage>& storage);

  std::vector<Device*> devices_;
  const WeightSource& weights_;
  Extents io_extents_;
  WeightNames in_products_;
  std::map<std::pair<int, std::string>, DeviceWeight> weight_handles_;
  std::map<std::pair<int, std::string>, StateBuffer> states_;
  std::vector<std::deque<Arena>> arenas_;  // by device
  std::deque<DeviceBuffer> io_buffers_;
  std::map<IoKey, const DeviceBuffer*> inputs_;
  std::map<IoKey, OutputPlace> outputs_;
  std::vector<ResultRecord> records_;  // by device
  std::shared_ptr<AllocatedBytes> allocated_bytes_;
  AllocatedBytes own_bytes_;      // the part of it that is this object's
  std::vector<std::byte> zeros_;  // source of ClearState
  ResourceBytes bytes_;
};

}  // namespace rullama
