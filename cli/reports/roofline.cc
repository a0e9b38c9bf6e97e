#include "cli/reports/roofline.h"

#include <algorithm>

namespace rullama::cli {

std::vector<DevicePeaks> HigherPeaks(const std::vector<DevicePeaks>& a,
                                     const std::vector<DevicePeaks>& b) {
  std::vector<DevicePeaks> higher;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    DevicePeaks peaks{.device = a[i].device,
                      .byte_rate = std::max(a[i].byte_rate, b[i].byte_rate),
                      .operation_rate = std::max(a[i].operation_rate, b[i].operation_rate)};
    if (peaks.known()) {
      peaks.scatter =
          1 - std::min(std::min(a[i].byte_rate, b[i].byte_rate) / peaks.byte_rate,
                       std::min(a[i].operation_rate, b[i].operation_rate) / peaks.operation_rate);
    }
    higher.push_back(std::move(peaks));
  }
  return higher;
}

DevicePeaks PeaksOf(const std::vector<DevicePeaks>& peaks, const std::string& device) {
  const auto found = std::ranges::find(peaks, device, &DevicePeaks::device);
  return found == peaks.end() ? DevicePeaks{.device = device} : *found;
}

double IntensityOf(const OpTotal& total) {
  return total.bytes > 0 ? total.operations / total.bytes : 0;
}

UnderRoof PlaceUnderRoof(const OpTotal& total, const DevicePeaks& peaks) {
  if (!peaks.known() || total.seconds <= 0) return {};
  const double of_bytes = total.byte_rate() / peaks.byte_rate;
  const double of_operations = total.operation_rate() / peaks.operation_rate;
  if (of_bytes >= of_operations) return {Bound::kBytes, of_bytes};
  return {Bound::kOperations, of_operations};
}

}  // namespace rullama::cli
