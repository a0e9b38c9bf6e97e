#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "media/encoders_test_util.h"
#include "media/picture_decoders.h"

namespace rullama::media_internal {
namespace {

TEST(Exif, ReadsTheOrientationInBothByteOrders) {
  const std::vector<uint8_t> little = {'I',  'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12,
                                       0x01, 3,   0,  1, 0, 0, 0, 7, 0, 0, 0};
  EXPECT_EQ(ExifOrientation(little), 7);
  for (uint8_t i = 1; i <= 8; ++i) EXPECT_EQ(ExifOrientation(ExifWithOrientation(i)), i);
}

TEST(Exif, TakesNoOtherNumberForAnOrientation) {
  for (const uint8_t i : {0, 9, 255}) EXPECT_EQ(ExifOrientation(ExifWithOrientation(i)), 1);
}

TEST(Exif, SurvivesEveryCutAndEveryChangedByte) {
  const std::vector<uint8_t> whole = ExifWithOrientation(6);
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::vector<uint8_t> cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size));
    const int orientation = ExifOrientation(cut);
    EXPECT_TRUE(orientation == 1 || (orientation == 6 && size >= whole.size() - 4)) << size;
  }
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const uint8_t value : {0x00, 0x7F, 0xFF}) {
      std::vector<uint8_t> changed = whole;
      changed[at] = value;
      const int orientation = ExifOrientation(changed);
      EXPECT_TRUE(orientation >= 1 && orientation <= 8) << at;
    }
  }
}

}  // namespace
}  // namespace rullama::media_internal
