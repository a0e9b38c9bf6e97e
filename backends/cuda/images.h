// The code of the kernels, compiled ahead and embedded in the plugin: for each form of a kernel
// (forms.h) an image for each architecture that the build was configured for.
//
// Thread safety: none needed; constants.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace rullama::cuda {

// The GPUs that an image of code runs on.
struct Architecture {
  enum class Kind : uint8_t {
    kCode,      // runs on devices of the same major number that are as new or newer
    kSpecific,  // code that runs on devices of this compute capability alone: sm_90a
    kPtx,       // what the driver compiles for any device that is as new or newer
  };
  uint32_t capability = 0;  // 90 for 9.0
  Kind kind = Kind::kCode;

  [[nodiscard]] bool RunsOn(uint32_t device_capability) const;
};

// The file of all images: this header, a place for each image, then their bytes. The images of a
// form are those of the architectures in turn.
inline constexpr uint32_t kMostArchitectures = 16;
struct ImagesHeader {
  uint64_t magic = 0;
  uint64_t forms = 0;
  uint32_t architectures = 0, capabilities[kMostArchitectures] = {};
  Architecture::Kind kinds[kMostArchitectures] = {};
};
inline constexpr uint64_t kImagesMagic = 0x31474D495543524C;
struct ImagePlace {
  uint64_t offset, size;  // from the beginning of the file
};

// The index of the architecture whose images are the best for a device.
std::optional<size_t> BestFor(std::span<const Architecture> architectures, uint32_t capability);
// Whether devices of this compute capability can run the kernels.
bool HasCodeFor(uint32_t capability);
// Whether the driver has to compile them for such devices. HasCodeFor() it.
bool IsPtxFor(uint32_t capability);
// The compute capability that the code was compiled for which such devices run: 80 where a device
// of 9.0 runs PTX for 8.0. HasCodeFor() the device.
uint32_t CapabilityOfCodeFor(uint32_t capability);
// Whether the code for such devices uses warpgroups: it is for 9.0 alone. HasCodeFor() the device.
bool HasWarpgroups(uint32_t capability);
// The best image of a form for a device. It ends with a zero byte. HasCodeFor() the device.
std::span<const std::byte> ImageOf(size_t form, uint32_t capability);
// The architectures of all images, for messages: "8.0, 9.0 and later".
std::string CodeText();
// 90 is "9.0".
std::string CapabilityText(uint32_t capability);

}  // namespace rullama::cuda
