// Memory: contents, ranges, sizes that cannot be.
#include <algorithm>

#include "conformance/case.h"
#include "conformance/suite.h"

namespace rullama::conformance {
namespace {

constexpr rl_buffer_usage kUsages[] = {RL_BUFFER_IO, RL_BUFFER_STATE, RL_BUFFER_ARENA};

Bytes PatternBytes(size_t size, uint64_t seed) {
  Random random(seed);
  Bytes bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Next() & 0xFF);
  return bytes;
}

Status RoundTrip(Suite& suite, Device& device) {
  for (const rl_buffer_usage usage : kUsages) {
    for (const uint64_t size : {1, 3, 64, 4095, 70001}) {
      RL_ASSIGN_OR_RETURN(const DeviceBuffer buffer, device.CreateBuffer(size, usage));
      const Bytes written = PatternBytes(size, suite.seed + size);
      RL_RETURN_IF_ERROR(device.Write(buffer, 0, written));
      Bytes read(size);
      RL_RETURN_IF_ERROR(device.Read(buffer, 0, read));
      if (read != written) return Failed("{} bytes came back changed", size);
    }
  }
  return OkStatus();
}

// A copy so large that a backend may share it among threads or stage it in pieces.
Status LargeCopy(Suite& suite, Device& device) {
  constexpr uint64_t kSize = 35'000'001, kOffset = 5;
  RL_ASSIGN_OR_RETURN(const DeviceBuffer buffer, device.CreateBuffer(kSize, RL_BUFFER_IO));
  Bytes written(kSize - kOffset);
  // A period that no piece is a multiple of, so that bytes in a wrong place differ.
  const Bytes pattern = PatternBytes(65'537, suite.seed);
  for (size_t i = 0; i < written.size(); i += pattern.size()) {
    const size_t count = std::min(pattern.size(), written.size() - i);
    std::copy_n(pattern.begin(), count, written.begin() + static_cast<std::ptrdiff_t>(i));
  }
  RL_RETURN_IF_ERROR(device.Write(buffer, kOffset, written));
  Bytes read(written.size());
  RL_RETURN_IF_ERROR(device.Read(buffer, kOffset, read));
  if (read != written) return Failed("{} bytes came back changed", written.size());
  return OkStatus();
}

// A part of a buffer, at any offset, leaves the rest alone.
Status Parts(Suite& suite, Device& device) {
  constexpr uint64_t kSize = 1000;
  RL_ASSIGN_OR_RETURN(const DeviceBuffer buffer, device.CreateBuffer(kSize, RL_BUFFER_IO));
  Bytes model = PatternBytes(kSize, suite.seed);
  RL_RETURN_IF_ERROR(device.Write(buffer, 0, model));
  Random random(suite.seed);
  for (int i = 0; i < 50; ++i) {
    const auto offset = static_cast<uint64_t>(random.Int(0, kSize - 1));
    const auto size = static_cast<uint64_t>(random.Int(0, static_cast<int64_t>(kSize - offset)));
    const Bytes part = PatternBytes(size, random.Next());
    RL_RETURN_IF_ERROR(device.Write(buffer, offset, part));
    std::ranges::copy(part, model.begin() + static_cast<std::ptrdiff_t>(offset));
    Bytes back(kSize - offset);
    RL_RETURN_IF_ERROR(device.Read(buffer, offset, back));
    if (!std::equal(back.begin(), back.end(),
                    model.begin() + static_cast<std::ptrdiff_t>(offset))) {
      return Failed("writing {} bytes at {} changed something else", size, offset);
    }
  }
  return OkStatus();
}

Status StatesAreZero(Suite&, Device& device) {
  for (int round = 0; round < 3; ++round) {
    constexpr uint64_t kSize = 100000;
    RL_ASSIGN_OR_RETURN(const DeviceBuffer buffer, device.CreateBuffer(kSize, RL_BUFFER_STATE));
    Bytes bytes(kSize, std::byte{1});
    RL_RETURN_IF_ERROR(device.Read(buffer, 0, bytes));
    if (std::ranges::any_of(bytes, [](std::byte byte) { return byte != std::byte{0}; })) {
      return Failed("a new state is not zero");
    }
    // Memory that the next round may be given again.
    const Bytes dirty(kSize, std::byte{0xEE});
    RL_RETURN_IF_ERROR(device.Write(buffer, 0, dirty));
  }
  return OkStatus();
}

Status OutOfRange(Suite&, Device& device) {
  RL_ASSIGN_OR_RETURN(const DeviceBuffer buffer, device.CreateBuffer(64, RL_BUFFER_IO));
  Bytes bytes(65);
  if (device.Write(buffer, 0, bytes)) return Failed("65 bytes were written into 64");
  if (device.Read(buffer, 0, bytes)) return Failed("65 bytes were read from 64");
  bytes.resize(1);
  // Beyond the largest padding of a buffer, and where offset + size wraps around.
  if (device.Write(buffer, uint64_t{1} << 40, bytes)) return Failed("written far outside");
  if (device.Write(buffer, UINT64_MAX, bytes)) return Failed("written at the last address");
  bytes.resize(64);
  return device.Write(buffer, 0, bytes);
}

// Memory that no machine has: an error, and the device continues to work.
Status TooLarge(Suite& suite, Device& device) {
  for (const uint64_t size : {uint64_t{1} << 62, UINT64_MAX - 64, UINT64_MAX}) {
    const auto buffer = device.CreateBuffer(size, RL_BUFFER_ARENA);
    if (buffer) return Failed("a buffer of {} bytes was made", size);
    const std::string& id = buffer.error().id;
    // The last is the host's own answer where the device says how large a buffer may be.
    if (id != "device.out_of_memory" && id != "device.invalid_argument" &&
        id != "device.buffer_size") {
      return Failed("{} bytes: expected RL_OUT_OF_MEMORY or RL_INVALID_ARGUMENT, found: {}", size,
                    buffer.error().ToString());
    }
  }
  return RoundTrip(suite, device);
}

}  // namespace

void AddBufferTests(std::vector<NamedTest>& tests) {
  tests.push_back({"Buffer.round_trip", RoundTrip});
  tests.push_back({"Buffer.large_copy", LargeCopy});
  tests.push_back({"Buffer.parts", Parts});
  tests.push_back({"Buffer.states_begin_as_zeros", StatesAreZero});
  tests.push_back({"Buffer.ranges_are_checked", OutOfRange});
  tests.push_back({"Buffer.too_large", TooLarge});
}

}  // namespace rullama::conformance
