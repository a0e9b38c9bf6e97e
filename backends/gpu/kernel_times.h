// Sums of the times of dispatches by kernel, for the option profile.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace rullama::gpu {

class KernelTimes {
 public:
  void Add(const std::string& kernel, uint64_t nanoseconds);
  [[nodiscard]] bool empty() const { return sums_.empty(); }
  // A line with the time of all kernels, then one for each kernel, longest first.
  [[nodiscard]] std::vector<std::string> Report(uint64_t steps) const;

 private:
  struct Sum {
    uint64_t dispatches = 0, nanoseconds = 0;
  };
  std::map<std::string, Sum> sums_;
};

}  // namespace rullama::gpu
