#include "backends/vulkan/shader_cache.h"

#include <cstring>

#include "backends/gpu/bytes.h"

namespace rullama::vulkan {
namespace {

// The record before the name, the constants and the code of a shader.
struct Head {
  uint64_t sources;
  uint32_t name_bytes, constants, words, reserved;
};

// Takes elements off the front; false if there are too few bytes.
template <typename Sequence>
bool TakeAll(std::span<const std::byte>& from, size_t count, Sequence& values) {
  using Value = typename Sequence::value_type;
  if (from.size() / sizeof(Value) < count) return false;
  values.resize(count);
  std::memcpy(values.data(), from.data(), count * sizeof(Value));
  from = from.subspan(count * sizeof(Value));
  return true;
}

template <typename Sequence>
void AppendAll(const Sequence& values, std::vector<std::byte>& out) {
  gpu::AppendBytes(std::as_bytes(std::span(values)), out);
}

}  // namespace

void ShaderCache::Load(std::span<const std::byte> saved) {
  const std::scoped_lock lock(mutex_);
  Head head;
  while (gpu::Take(saved, head)) {
    Key key;
    Kept kept;
    kept.sources = head.sources;
    if (!TakeAll(saved, head.name_bytes, key.first) ||
        !TakeAll(saved, head.constants, key.second) || !TakeAll(saved, head.words, kept.code)) {
      return;
    }
    shaders_.insert_or_assign(std::move(key), std::move(kept));
  }
}

std::vector<std::byte> ShaderCache::Save() const {
  const std::scoped_lock lock(mutex_);
  std::vector<std::byte> bytes;
  for (const bool used : {true, false}) {
    for (const auto& [key, kept] : shaders_) {
      const auto& [name, constants] = key;
      const size_t size = kept.code.size() * sizeof(uint32_t);
      if (kept.used != used || bytes.size() + size > max_bytes_) continue;
      gpu::Append(
          Head{kept.sources, static_cast<uint32_t>(name.size()),
               static_cast<uint32_t>(constants.size()), static_cast<uint32_t>(kept.code.size()), 0},
          bytes);
      AppendAll(name, bytes);
      AppendAll(constants, bytes);
      AppendAll(kept.code, bytes);
    }
  }
  return bytes;
}

Spirv ShaderCache::Get(const TaskSource& source) {
  const uint64_t sources = HashOfSources({}, {&source, 1});
  Key key(source.name, std::vector(source.constants.begin(), source.constants.end()));
  {
    const std::scoped_lock lock(mutex_);
    const auto found = shaders_.find(key);
    if (found != shaders_.end() && found->second.sources == sources) {
      found->second.used = true;
      return found->second.code;
    }
  }
  Kept made{.sources = sources, .code = WithConstants(source.code, source.constants), .used = true};
  const std::scoped_lock lock(mutex_);
  return shaders_.insert_or_assign(std::move(key), std::move(made)).first->second.code;
}

}  // namespace rullama::vulkan
