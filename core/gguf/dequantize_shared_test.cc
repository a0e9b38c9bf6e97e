// Dequantize against the full reference vectors.
#include "core/gguf/quant_vectors_test_util.h"

namespace rullama {
namespace {

TEST(DequantizeSharedTest, EqualsTheReferenceBitForBit) {
  EXPECT_EQ(CompareWithQuantVectors(RULLAMA_SOURCE_DIR "/../shared/vectors/quant"),
            15u * 8u * 1024u);
}

}  // namespace
}  // namespace rullama
