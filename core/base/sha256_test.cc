#include "core/base/sha256.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>

namespace rullama {
namespace {

// The examples of FIPS 180-4 (NIST, "SHA-256 examples") and lengths around the ends of blocks,
// whose digests are those of GNU sha256sum.
TEST(Sha256Test, DigestsAreThoseOfTheStandard) {
  const struct {
    std::string text;
    const char* digest;
  } table[] = {
      {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
      {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
      {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
       "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
      {std::string(55, 'a'), "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318"},
      {std::string(56, 'a'), "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a"},
      {std::string(64, 'a'), "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb"},
      {std::string(1'000'000, 'a'),
       "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
  };
  for (const auto& row : table) EXPECT_EQ(HexText(Sha256(row.text)), row.digest);
}

TEST(Sha256Test, PiecesOfAnyLengthGiveTheDigestOfTheWhole) {
  const std::string text(1000, 'a');
  for (size_t piece = 1; piece < 200; ++piece) {
    Sha256Stream stream;
    for (size_t at = 0; at < text.size(); at += piece) {
      stream.Add(std::as_bytes(std::span(text).subspan(at, std::min(piece, text.size() - at))));
    }
    EXPECT_EQ(HexText(stream.Finish()), HexText(Sha256(text))) << piece;
  }
}

}  // namespace
}  // namespace rullama
