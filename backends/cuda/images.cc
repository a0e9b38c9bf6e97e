#include "backends/cuda/images.h"

#include <rullama/sdk/backend.h>

#include <cstring>
#include <optional>
#include <vector>

#include "backends/cuda/forms.h"

// Written at build time by compile_cuda_kernels: RULLAMA_CUDA_IMAGES is its path.
__asm__(
    ".section .rodata\n"
    ".balign 16\n"
    ".hidden rullama_cuda_images\n"
    ".globl rullama_cuda_images\n"
    "rullama_cuda_images:\n"
    ".incbin \"" RULLAMA_CUDA_IMAGES
    "\"\n"
    ".byte 0\n"
    ".text\n");
extern "C" const std::byte rullama_cuda_images[];

namespace rullama::cuda {
namespace {

const ImagesHeader& Header() {
  static const ImagesHeader kHeader = [] {
    ImagesHeader header;
    std::memcpy(&header, rullama_cuda_images, sizeof(header));
    if (header.magic != kImagesMagic || header.forms != AllForms().size()) {
      throw sdk::Error(RL_INTERNAL, "the plugin's file of kernels has " +
                                        std::to_string(header.forms) + " forms, expected " +
                                        std::to_string(AllForms().size()) +
                                        ", or is not such a file; rebuild it (cuda_kernels)");
    }
    return header;
  }();
  return kHeader;
}

Architecture ArchitectureOf(uint32_t i) { return {Header().capabilities[i], Header().kinds[i]}; }

// Code for one kind of device is better than code for several, and that better than PTX; newer is
// better than older.
uint32_t WorthOf(const Architecture& architecture) {
  using enum Architecture::Kind;
  constexpr uint32_t kMost = 10000;
  const uint32_t of_kind = architecture.kind == kSpecific ? 2 * kMost
                           : architecture.kind == kCode   ? kMost
                                                          : 0;
  return of_kind + architecture.capability;
}

std::optional<size_t> BestOfAll(uint32_t capability) {
  std::vector<Architecture> all;
  for (uint32_t i = 0; i < Header().architectures; ++i) all.push_back(ArchitectureOf(i));
  return BestFor(all, capability);
}

// HasCodeFor() the device.
Architecture ArchitectureFor(uint32_t capability) {
  return ArchitectureOf(static_cast<uint32_t>(BestOfAll(capability).value()));
}

}  // namespace

bool Architecture::RunsOn(uint32_t device_capability) const {
  switch (kind) {
    case Kind::kSpecific:
      return capability == device_capability;
    case Kind::kCode:
      return capability / 10 == device_capability / 10 && capability <= device_capability;
    case Kind::kPtx:
      return capability <= device_capability;
  }
  return false;
}

std::optional<size_t> BestFor(std::span<const Architecture> architectures, uint32_t capability) {
  std::optional<size_t> best;
  for (size_t i = 0; i < architectures.size(); ++i) {
    const Architecture& candidate = architectures[i];
    if (!candidate.RunsOn(capability)) continue;
    if (!best || WorthOf(candidate) > WorthOf(architectures[*best])) best = i;
  }
  return best;
}

bool HasCodeFor(uint32_t capability) { return BestOfAll(capability).has_value(); }

bool IsPtxFor(uint32_t capability) {
  return ArchitectureFor(capability).kind == Architecture::Kind::kPtx;
}

uint32_t CapabilityOfCodeFor(uint32_t capability) { return ArchitectureFor(capability).capability; }

bool HasWarpgroups(uint32_t capability) {
  constexpr uint32_t kHopper = 90;
  return capability == kHopper && ArchitectureFor(capability).kind == Architecture::Kind::kSpecific;
}

std::span<const std::byte> ImageOf(size_t form, uint32_t capability) {
  const size_t index = form * Header().architectures + BestOfAll(capability).value();
  ImagePlace place{};
  std::memcpy(&place, rullama_cuda_images + sizeof(ImagesHeader) + index * sizeof(place),
              sizeof(place));
  return {rullama_cuda_images + place.offset, place.size};
}

std::string CodeText() {
  std::string text;
  for (uint32_t i = 0; i < Header().architectures; ++i) {
    const Architecture architecture = ArchitectureOf(i);
    if (i > 0) text += i + 1 == Header().architectures ? " and " : ", ";
    text += CapabilityText(architecture.capability);
    if (architecture.kind == Architecture::Kind::kPtx) text += " or later";
  }
  return text;
}

std::string CapabilityText(uint32_t capability) {
  return std::to_string(capability / 10) + "." + std::to_string(capability % 10);
}

}  // namespace rullama::cuda
