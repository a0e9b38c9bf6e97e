// Tells HostHooks::on_mapping of a mapping, and at its own end that the mapping goes. Movable.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <utility>

#include "engine/host_hooks.h"

namespace rullama {

class MappingNotice {
 public:
  MappingNotice() = default;
  MappingNotice(const HostHooks& hooks, std::span<const std::byte> mapping)
      : on_mapping_(hooks.on_mapping), mapping_(mapping) {
    if (on_mapping_) on_mapping_(mapping_, true);
  }
  MappingNotice(MappingNotice&& other) noexcept
      : on_mapping_(std::exchange(other.on_mapping_, nullptr)), mapping_(other.mapping_) {}
  MappingNotice& operator=(MappingNotice&& other) noexcept {
    std::swap(on_mapping_, other.on_mapping_);
    std::swap(mapping_, other.mapping_);
    return *this;
  }
  MappingNotice(const MappingNotice&) = delete;
  MappingNotice& operator=(const MappingNotice&) = delete;
  ~MappingNotice() {
    if (on_mapping_) on_mapping_(mapping_, false);
  }

 private:
  std::function<void(std::span<const std::byte>, bool)> on_mapping_;
  std::span<const std::byte> mapping_;
};

}  // namespace rullama
