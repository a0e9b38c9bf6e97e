#include "downloads/hub_files.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "core/base/error_of.h"
#include "core/base/json_reader.h"
#include "core/base/printable.h"
#include "downloads/hub_name.h"

namespace rullama::downloads {
namespace {

using Json = nlohmann::json;
using BadAnswer = ErrorOf<ErrorKind::kIo, "pull.protocol">;

constexpr size_t kSha256Digits = 64;
constexpr size_t kSha1Digits = 40;
constexpr size_t kMaxTreeDepth = 16;
constexpr size_t kMaxTreeValues = 4'000'000;
constexpr int64_t kMaxFileBytes = int64_t{1} << 53;
constexpr std::string_view kSuffix = ".gguf";

std::string LowerOf(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

std::string_view FolderOf(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == path.npos ? std::string_view() : path.substr(0, slash);
}
std::string_view FileNameOf(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == path.npos ? path : path.substr(slash + 1);
}

// The part of a split file: "NAME-00001-of-00003.gguf".
struct SplitName {
  std::string_view before;  // the path up to the number
  int number = 1;
  int count = 1;
};

std::optional<int> FiveDigits(std::string_view text) {
  int value = 0;
  if (text.size() != 5 || text.find_first_not_of("0123456789") != text.npos) return std::nullopt;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

std::optional<SplitName> ReadSplitName(std::string_view path) {
  constexpr std::string_view kEnd = "-00000-of-00000";
  std::string_view stem = path.substr(0, path.size() - std::min(path.size(), kSuffix.size()));
  if (stem.size() <= kEnd.size()) return std::nullopt;
  const std::string_view end = stem.substr(stem.size() - kEnd.size());
  const auto number = FiveDigits(end.substr(1, 5));
  const auto count = FiveDigits(end.substr(10));
  if (end[0] != '-' || end.substr(6, 4) != "-of-" || !number || !count) return std::nullopt;
  if (*number < 1 || *number > *count) return std::nullopt;
  stem.remove_suffix(kEnd.size());
  return SplitName{stem, *number, *count};
}

// The path without folders, suffix and number of a part, in lower case.
std::string StemOf(std::string_view path) {
  const auto split = ReadSplitName(path);
  const std::string_view stem =
      split ? split->before : path.substr(0, path.size() - std::min(path.size(), kSuffix.size()));
  return LowerOf(FileNameOf(stem));
}

bool EndsInQuant(std::string_view text, std::string_view quant) {
  if (!text.ends_with(quant)) return false;
  const size_t before = text.size() - quant.size();
  return before == 0 || text[before - 1] == '-' || text[before - 1] == '.';
}

bool HasQuant(std::string_view path, std::string_view quant) {
  const std::string wanted = LowerOf(quant);
  return EndsInQuant(StemOf(path), wanted) ||
         EndsInQuant(LowerOf(FileNameOf(FolderOf(path))), wanted);
}

bool IsGguf(std::string_view path) { return LowerOf(path).ends_with(kSuffix); }

bool IsSidecar(std::string_view path, std::string_view begin) {
  return IsGguf(path) && LowerOf(FileNameOf(path)).starts_with(begin);
}

bool IsModel(std::string_view path) {
  return IsGguf(path) && !IsSidecar(path, "mmproj") && !IsSidecar(path, "mtp-") &&
         !IsSidecar(path, "imatrix");
}

// Bits of a weight, by the digits in the name of a quant: Q4_K_M 4, BF16 16. 0: unknown.
int BitsOf(std::string_view path) {
  const std::string quant = QuantOf(path);
  const size_t digit = quant.find_first_of("0123456789");
  int bits = 0;
  if (digit != quant.npos) std::from_chars(quant.data() + digit, quant.data() + quant.size(), bits);
  return bits;
}

size_t CommonFolderBytes(std::string_view a, std::string_view b) {
  std::string_view one = FolderOf(a);
  const std::string_view other = FolderOf(b);
  while (!one.empty() && one != other && !other.starts_with(std::string(one) + "/")) {
    one = FolderOf(one);
  }
  return one.size();
}

std::optional<HubFile> ReadTreeEntry(const Json& entry) {
  const auto path = entry.find("path");
  const auto size = entry.find("size");
  if (path == entry.end() || !path->is_string() || size == entry.end() ||
      !size->is_number_unsigned()) {
    return std::nullopt;
  }
  HubFile file{.path = path->get<std::string>(), .bytes = size->get<uint64_t>()};
  if (!IsSafePath(file.path) || file.bytes > uint64_t{kMaxFileBytes}) return std::nullopt;
  const auto lfs = entry.find("lfs");
  const bool large = lfs != entry.end() && !lfs->is_null();
  if (large && !lfs->is_object()) return std::nullopt;
  const Json& from = large ? *lfs : entry;
  const auto oid = from.find("oid");
  if (oid == from.end() || !oid->is_string()) return std::nullopt;
  file.digest = {large ? DigestKind::kSha256 : DigestKind::kGitBlob, oid->get<std::string>()};
  if (!IsHex(file.digest.hex, large ? kSha256Digits : kSha1Digits)) return std::nullopt;
  if (!large) return file;
  const auto bytes = lfs->find("size");
  const bool same =
      bytes != lfs->end() && bytes->is_number_unsigned() && bytes->get<uint64_t>() == file.bytes;
  return same ? std::optional(std::move(file)) : std::nullopt;
}

std::vector<size_t> ModelsByName(const std::vector<HubFile>& files) {
  std::vector<size_t> models;
  for (size_t i = 0; i < files.size(); ++i) {
    if (IsModel(files[i].path)) models.push_back(i);
  }
  std::ranges::sort(models, {}, [&](size_t i) { return files[i].path; });
  return models;
}

std::optional<size_t> FindPath(const std::vector<HubFile>& files, std::string_view path) {
  const auto found = std::ranges::find(files, path, &HubFile::path);
  if (found == files.end()) return std::nullopt;
  return static_cast<size_t>(found - files.begin());
}

tl::unexpected<Error> NoSuchFile(const std::vector<HubFile>& files, const HubChoice& choice,
                                 std::string_view repo) {
  constexpr size_t kMaxShown = 30;
  std::set<std::string> quants;
  for (const size_t i : ModelsByName(files)) {
    const std::string quant = QuantOf(files[i].path);
    if (quants.size() < kMaxShown) quants.insert(ShownName(quant.empty() ? files[i].path : quant));
  }
  if (quants.empty()) {
    return MakeError(ErrorKind::kIo, "pull.not_found",
                     "{} has no GGUF model; look for a repository of the model whose name ends in "
                     "GGUF",
                     repo);
  }
  return MakeError(ErrorKind::kIo, "pull.not_found", "{} has no model '{}'; it has {}", repo,
                   ShownName(choice.file.empty() ? choice.quant : choice.file),
                   fmt::join(quants, ", "));
}

std::optional<size_t> ChooseModel(const std::vector<HubFile>& files, const HubChoice& choice) {
  const std::vector<size_t> models = ModelsByName(files);
  if (!choice.file.empty()) return FindPath(files, choice.file);
  const auto with = [&](std::string_view quant) -> std::optional<size_t> {
    const auto found =
        std::ranges::find_if(models, [&](size_t i) { return HasQuant(files[i].path, quant); });
    return found == models.end() ? std::nullopt : std::optional(*found);
  };
  if (!choice.quant.empty()) return with(choice.quant);
  for (const std::string_view usual : {"Q4_K_M", "Q8_0"}) {
    if (const auto found = with(usual)) return found;
  }
  return models.empty() ? std::nullopt : std::optional(models.front());
}

// All parts of the model that `one` is a part of.
Result<std::vector<size_t>> PartsOf(const std::vector<HubFile>& files, size_t one) {
  const auto split = ReadSplitName(files[one].path);
  if (!split) return std::vector<size_t>{one};
  std::vector<size_t> parts;
  for (int number = 1; number <= split->count; ++number) {
    const std::string path =
        fmt::format("{}-{:05}-of-{:05}{}", split->before, number, split->count, kSuffix);
    const auto found = FindPath(files, path);
    if (!found) {
      return MakeError(ErrorKind::kIo, "pull.incomplete",
                       "the part '{}' of the model is missing; choose another one",
                       ShownName(path));
    }
    parts.push_back(*found);
  }
  return parts;
}

std::optional<size_t> ChooseTowers(const std::vector<HubFile>& files, std::string_view model) {
  std::vector<size_t> towers;
  for (size_t i = 0; i < files.size(); ++i) {
    if (IsSidecar(files[i].path, "mmproj")) towers.push_back(i);
  }
  const auto rank = [&](size_t i) {
    const HubFile& file = files[i];
    const int type = HasQuant(file.path, "bf16") ? 1 : HasQuant(file.path, "f16") ? 0 : 2;
    return std::tuple(SIZE_MAX - CommonFolderBytes(file.path, model), type, file.bytes, file.path);
  };
  const auto best = std::ranges::min_element(towers, {}, rank);
  return best == towers.end() ? std::nullopt : std::optional(*best);
}

std::optional<size_t> ChooseDraft(const std::vector<HubFile>& files, std::string_view model) {
  std::vector<size_t> drafts;
  for (size_t i = 0; i < files.size(); ++i) {
    if (IsSidecar(files[i].path, "mtp-")) drafts.push_back(i);
  }
  const auto rank = [&](size_t i) {
    return std::tuple(std::abs(BitsOf(files[i].path) - BitsOf(model)), files[i].path);
  };
  const auto best = std::ranges::min_element(drafts, {}, rank);
  return best == drafts.end() ? std::nullopt : std::optional(*best);
}

}  // namespace

Result<std::string> ReadHubCommit(std::string_view text) {
  const auto json = ReadJson(text, {.depth = kMaxTreeDepth, .values = kMaxTreeValues});
  if (!json)
    return BadAnswer("the Hub's answer {}, expected a repository", json.error().ToString());
  const auto sha = json->is_object() ? json->find("sha") : json->end();
  if (!json->is_object() || sha == json->end() || !sha->is_string() ||
      !IsHex(sha->get<std::string>(), kSha1Digits)) {
    return BadAnswer("the Hub's answer has no commit 'sha' of {} hexadecimal digits", kSha1Digits);
  }
  return sha->get<std::string>();
}

Result<std::vector<HubFile>> ReadHubTree(std::string_view text) {
  const auto json = ReadJson(text, {.depth = kMaxTreeDepth, .values = kMaxTreeValues});
  if (!json) return BadAnswer("the Hub's list of files {}", json.error().ToString());
  if (!json->is_array()) return BadAnswer("the Hub's list of files is not a list");
  std::vector<HubFile> files;
  for (const Json& entry : *json) {
    const auto type = entry.is_object() ? entry.find("type") : entry.end();
    if (!entry.is_object() || type == entry.end() || !type->is_string()) {
      return BadAnswer("the Hub's list of files has an entry without a type");
    }
    if (*type != "file") continue;
    auto file = ReadTreeEntry(entry);
    if (!file) {
      return BadAnswer(
          "the Hub's list of files has the entry {}, expected a path that stays in its folder, a "
          "size and the sum of the file",
          ShownName(entry.dump(-1, ' ', true, Json::error_handler_t::replace)));
    }
    files.push_back(*std::move(file));
  }
  return files;
}

std::string NextPage(std::string_view link) {
  // <https://...>; rel="next", <...>; rel="last"
  while (!link.empty()) {
    const size_t open = link.find('<');
    const size_t close = link.find('>');
    if (open == link.npos || close == link.npos || close < open) return {};
    const std::string_view address = link.substr(open + 1, close - open - 1);
    link.remove_prefix(close + 1);
    const size_t next = std::min(link.find('<'), link.size());
    const std::string_view attributes = link.substr(0, next);
    if (attributes.find("rel=\"next\"") != attributes.npos ||
        attributes.find("rel=next") != attributes.npos) {
      return std::string(address);
    }
    link.remove_prefix(next);
  }
  return {};
}

Result<HubSelection> ChooseHubFiles(const std::vector<HubFile>& files, const HubChoice& choice,
                                    std::string_view repo) {
  const auto model = ChooseModel(files, choice);
  if (!model) return NoSuchFile(files, choice, repo);
  HubSelection selection;
  RL_ASSIGN_OR_RETURN(selection.parts, PartsOf(files, *model));
  const std::string& path = files[*model].path;
  if (choice.mmproj) selection.mmproj = ChooseTowers(files, path);
  if (choice.mtp) selection.mtp = ChooseDraft(files, path);
  return selection;
}

std::vector<std::vector<size_t>> HubModels(const std::vector<HubFile>& files) {
  std::vector<std::vector<size_t>> models;
  for (const size_t i : ModelsByName(files)) {
    const auto split = ReadSplitName(files[i].path);
    if (split && split->number != 1) continue;
    if (auto parts = PartsOf(files, i)) models.push_back(*std::move(parts));
  }
  return models;
}

std::string QuantOf(std::string_view path) {
  const std::string stem = StemOf(path);
  const size_t mark = stem.find_last_of("-.");
  std::string quant = mark == stem.npos ? std::string() : stem.substr(mark + 1);
  const bool type = quant.starts_with("q") || quant.starts_with("iq") || quant.starts_with("tq") ||
                    quant.starts_with("f") || quant.starts_with("bf") || quant.starts_with("mx") ||
                    quant.starts_with("nv");
  if (!type || quant.find_first_of("0123456789") == quant.npos) {
    quant = LowerOf(FileNameOf(FolderOf(path)));
    if (quant.find_first_of("0123456789") == quant.npos) return {};
  }
  std::ranges::transform(quant, quant.begin(), [](unsigned char c) { return std::toupper(c); });
  return quant;
}

}  // namespace rullama::downloads
