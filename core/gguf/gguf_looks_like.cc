// Names what people most often pass instead of a GGUF file.
#include <algorithm>
#include <cctype>
#include <cstring>

#include "core/gguf/gguf_parse.h"

namespace rullama::gguf_internal {
namespace {

struct Signature {
  std::string_view prefix;
  std::string_view what;
};

using namespace std::string_view_literals;

// Longer prefixes come before shorter ones that they contain.
constexpr Signature kSignatures[] = {
    {"version https://git-lfs"sv, "a git-lfs pointer (run 'git lfs pull' to get the real file)"sv},
    {"PK\x03\x04"sv, "a ZIP archive or PyTorch checkpoint"sv},
    {"\x1f\x8b"sv, "a gzip file (unpack it first)"sv},
    {"\x28\xb5\x2f\xfd"sv, "a zstd file (unpack it first)"sv},
    {"\xfd"
     "7zXZ"sv,
     "an xz file (unpack it first)"sv},
    {"7z\xbc\xaf"sv, "a 7-Zip archive (unpack it first)"sv},
    {"\x80\x02"sv, "a Python pickle (PyTorch checkpoint)"sv},
    {"\x7f"
     "ELF"sv,
     "a program or shared library (ELF)"sv},
    {"tjgg"sv, "a GGML file older than GGUF (convert the model again)"sv},
    {"fmgg"sv, "a GGML file older than GGUF (convert the model again)"sv},
    {"lmgg"sv, "a GGML file older than GGUF (convert the model again)"sv},
    {"FUGG"sv, "a byte-swapped GGUF file (convert the model again)"sv},
};

constexpr Signature kMarkup[] = {
    {"<!doctype html"sv, "a web page (HTML), probably a login or error page"sv},
    {"<html"sv, "a web page (HTML), probably a login or error page"sv},
    {"<?xml"sv, "an XML document, probably an error answer of a download server"sv},
    {"{"sv, "JSON, probably an error answer of a download server or a configuration"sv},
};

// A u64 length of a JSON header that fits the file, then the header.
bool IsSafetensors(std::span<const std::byte> file) {
  constexpr size_t kLengthBytes = 8;
  if (file.size() <= kLengthBytes) return false;
  const auto length = LoadUnaligned<uint64_t>(file.data());
  return length <= file.size() - kLengthBytes && static_cast<char>(file[kLengthBytes]) == '{';
}

}  // namespace

std::string LooksLike(std::span<const std::byte> file) {
  constexpr size_t kProbeBytes = 256;
  const std::string_view head(reinterpret_cast<const char*>(file.data()),
                              std::min(file.size(), kProbeBytes));
  for (const Signature& signature : kSignatures) {
    if (head.starts_with(signature.prefix)) return std::string(signature.what);
  }
  if (IsSafetensors(file)) return "a safetensors file (convert it to GGUF first)";
  std::string text(head.substr(std::min(head.find_first_not_of(" \t\r\n"), head.size())));
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const Signature& signature : kMarkup) {
    if (text.starts_with(signature.prefix)) return std::string(signature.what);
  }
  if (std::all_of(head.begin(), head.end(), [](char c) { return c == 0; })) {
    return "zeros, probably an unfinished download";
  }
  const bool printable = std::all_of(head.begin(), head.end(), [](unsigned char c) {
    return std::isprint(c) != 0 || std::isspace(c) != 0;
  });
  if (printable) return "a text file";
  return fmt::format(
      "something unknown (first bytes {:02x} {:02x} {:02x} {:02x}, expected 47 47 55 46)",
      static_cast<unsigned char>(head[0]), static_cast<unsigned char>(head[1]),
      static_cast<unsigned char>(head[2]), static_cast<unsigned char>(head[3]));
}

}  // namespace rullama::gguf_internal
