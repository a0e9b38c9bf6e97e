// Numbers to places on an axis, and the marks of the axis. Pure; thread-safe.
#pragma once

#include <string>
#include <vector>

namespace rullama::drawing {

struct Tick {
  double value = 0;
  std::string label;
};

class Scale {
 public:
  // Covers `low` to `high`, at least one decade or one unit, widened to round numbers. A
  // logarithmic scale needs 0 < low.
  static Scale Linear(double low, double high);
  static Scale Logarithmic(double low, double high);
  // Exactly from `low` to `high`, or one unit; linear.
  static Scale Tight(double low, double high);

  // 0 at the low end and 1 at the high end. A value must be within the scale.
  [[nodiscard]] double At(double value) const;
  // About `most` at most, at round numbers. `whole`: at whole ones only, unless logarithmic.
  [[nodiscard]] std::vector<Tick> Ticks(size_t most = 8, bool whole = false) const;

 private:
  Scale(bool logarithmic, double low, double high)
      : logarithmic_(logarithmic), low_(low), high_(high) {}
  bool logarithmic_;
  double low_, high_;
};

}  // namespace rullama::drawing
