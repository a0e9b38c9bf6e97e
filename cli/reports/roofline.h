// The roofline of a device: what bounds the speed of an op, and how near to that bound it came. An
// op with few operations for each byte can at best take the bytes at the bandwidth of the device;
// one with many can at best compute at its peak. Both meet at the ridge. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "cli/reports/op_profile.h"

namespace rullama::cli {

// The highest rates that ops reached on a device; 0: not measured.
struct DevicePeaks {
  std::string device;  // its backend
  double byte_rate = 0;
  double operation_rate = 0;
  // By which part of it the lower of two measurements was below the higher, which is the peak.
  double scatter = 0;

  [[nodiscard]] bool known() const { return byte_rate > 0 && operation_rate > 0; }
  // Operations for each byte at which both bounds meet.
  [[nodiscard]] double ridge() const { return operation_rate / byte_rate; }
};

// The higher of two measurements of each device, in the same order.
std::vector<DevicePeaks> HigherPeaks(const std::vector<DevicePeaks>& a,
                                     const std::vector<DevicePeaks>& b);

// The peaks of the device with this name; unknown ones if there are none.
DevicePeaks PeaksOf(const std::vector<DevicePeaks>& peaks, const std::string& device);

// Operations for each byte, by core/ir/op_cost.h; 0 without bytes.
double IntensityOf(const OpTotal& total);

enum class Bound { kUnknown, kBytes, kOperations };

// A place below the roof. `share` is the part of the bound that was reached, above 1 if the data
// came from caches that are faster than the memory.
struct UnderRoof {
  Bound bound = Bound::kUnknown;
  double share = 0;
};
UnderRoof PlaceUnderRoof(const OpTotal& total, const DevicePeaks& peaks);

}  // namespace rullama::cli
