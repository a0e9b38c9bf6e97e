// Compiles all forms of the kernels (forms.h) ahead, for the architectures that are asked for,
// and writes the file that images.cc embeds. A form that was compiled before, from the same text
// and by the same compiler, is taken from a folder of the build:
//
//   compile_cuda_kernels OUT KEPT ARCHITECTURES FOLDER...
//
// ARCHITECTURES: 80,90a,120,80-virtual. FOLDER: where files of kernels are; the first one wins.
#include <nvrtc.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "backends/cuda/forms.h"
#include "backends/cuda/images.h"
#include "backends/gpu/hash.h"
#include "backends/gpu/in_parallel.h"
#include "backends/gpu/kernel_source.h"

namespace rullama::cuda {
namespace {

namespace fs = std::filesystem;

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void WriteFile(const fs::path& path, std::string_view bytes) {
  // Another build of the same folder never sees half of a file.
  const fs::path part = path.string() + ".part" + std::to_string(::getpid());
  std::ofstream file(part, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) throw std::runtime_error("cannot write " + part.string());
  fs::rename(part, path);
}

// ---- sources ------------------------------------------------------------------------------------

using Folders = std::vector<fs::path>;

// A file of a kernel, or the text that kernels.def becomes: NAME.args.cuh and types.args.cuh.
std::string TextOfFile(const std::string& name, const Folders& folders) {
  if (name == "types.args.cuh") return gpu::TypeNumbers(gpu::kCuda);
  for (const gpu::Shader shader : gpu::AllShaders()) {
    if (name == std::string(gpu::NameOf(shader)) + ".args.cuh") {
      return gpu::Header(shader, gpu::kCuda);
    }
  }
  for (const fs::path& folder : folders) {
    if (fs::exists(folder / name)) return ReadFile(folder / name);
  }
  // Other languages include more, where their macros say so.
  return "#error \"no file " + name + "\"\n";
}

// Appends a file with everything it includes in place of the lines that say so; each file once.
void Append(const std::string& name, const Folders& folders, std::set<std::string>& seen,
            std::string& out) {
  constexpr std::string_view kInclude = "#include \"";
  if (!seen.insert(name).second) return;
  std::istringstream lines(TextOfFile(name, folders));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(kInclude)) {
      const size_t end = line.find('"', kInclude.size());
      Append(line.substr(kInclude.size(), end - kInclude.size()), folders, seen, out);
    } else {
      out += line + "\n";
    }
  }
}

std::string SourceOf(const Form& form, const Folders& folders) {
  std::set<std::string> seen;
  std::string source;
  for (const std::string& name : {std::string("dialect.cuh"), std::string("types.args.cuh"),
                                  std::string(gpu::NameOf(form.shader)) + ".args.cuh", form.file}) {
    Append(name, folders, seen, source);
  }
  return source;
}

// ---- the compiler -------------------------------------------------------------------------------

struct Wanted {
  Architecture architecture;
  std::string option;  // of the compiler
};

// "90a" and "80-virtual" in the words of CMake.
Wanted WantedOf(const std::string& text) {
  constexpr std::string_view kVirtual = "-virtual";
  using enum Architecture::Kind;
  Wanted wanted;
  const char* const last = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), last, wanted.architecture.capability);
  const auto digits = static_cast<size_t>(parsed.ptr - text.data());
  const std::string rest = text.substr(digits);
  wanted.architecture.kind = rest == kVirtual ? kPtx : rest == "a" ? kSpecific : kCode;
  if (digits == 0 || (rest != kVirtual && rest != "a" && !rest.empty())) {
    throw std::runtime_error("architecture '" + text +
                             "', expected a number, with 'a' or '-virtual' after it");
  }
  const std::string number = text.substr(0, digits);
  wanted.option = rest == kVirtual ? "-arch=compute_" + number : "-arch=sm_" + number + rest;
  return wanted;
}

std::vector<Wanted> WantedArchitectures(const std::string& list) {
  std::vector<Wanted> wanted;
  std::istringstream words(list);
  for (std::string word; std::getline(words, word, ',');) wanted.push_back(WantedOf(word));
  if (wanted.empty() || wanted.size() > kMostArchitectures) {
    throw std::runtime_error("architectures '" + list + "', expected 1 to " +
                             std::to_string(kMostArchitectures));
  }
  return wanted;
}

std::vector<std::string> OptionsOf(const Form& form, const Wanted& wanted) {
  std::vector<std::string> options = {
      wanted.option,
      "-std=c++17",
      "--device-as-default-execution-space",
      // As on the other APIs: what is one operation is written as one.
      "-fmad=false",
      // Where constants are fixed, much is not reached or not used.
      "-w",
  };
  const auto define = [&](const std::string& name, uint32_t value) {
    options.push_back("-D" + name + "=" + std::to_string(value) + "u");
  };
  define("CONSTANT_WORDS", kConstantWords);
  define("OVERLAPS_LAST", kOverlapsLast);
  define("NEXT_OVERLAPS", kNextOverlaps);
  if (form.shared_bytes > 0) define("SHARED_BYTES", form.shared_bytes);
  if (form.most_threads > 0) define("MOST_THREADS", form.most_threads);
  if (form.open) options.emplace_back("-DOPEN");
  const auto define_all = [&](const std::vector<Constant>& constants, const std::string& prefix) {
    for (const Constant& constant : constants) {
      define(constant.id == 0 ? "THREADS" : prefix + std::to_string(constant.id), constant.value);
    }
  };
  define_all(form.fixed, "C");
  define_all(form.chosen, "C");
  define_all(form.sizes, "M");
  return options;
}

void Check(nvrtcResult result, const std::string& call) {
  if (result != NVRTC_SUCCESS) throw std::runtime_error(call + ": " + nvrtcGetErrorString(result));
}

std::string LogOf(nvrtcProgram program) {
  size_t size = 0;
  if (nvrtcGetProgramLogSize(program, &size) != NVRTC_SUCCESS) return {};
  std::string log(size, '\0');
  if (nvrtcGetProgramLog(program, log.data()) != NVRTC_SUCCESS) return {};
  return log;
}

// The image of a program that is compiled.
std::string ImageOf(nvrtcProgram program, const Wanted& wanted) {
  const bool ptx = wanted.architecture.kind == Architecture::Kind::kPtx;
  size_t size = 0;
  Check((ptx ? nvrtcGetPTXSize : nvrtcGetCUBINSize)(program, &size), "the size of an image");
  std::string image(size, '\0');
  Check((ptx ? nvrtcGetPTX : nvrtcGetCUBIN)(program, image.data()), "an image");
  return image;
}

struct Program {
  nvrtcProgram handle = nullptr;
  ~Program() { nvrtcDestroyProgram(&handle); }
};

std::string Compile(const Form& form, const std::string& source,
                    const std::vector<std::string>& options, const Wanted& wanted) {
  Program program;
  Check(nvrtcCreateProgram(&program.handle, source.c_str(), form.file.c_str(), 0, nullptr, nullptr),
        "nvrtcCreateProgram");
  std::vector<const char*> texts;
  for (const std::string& option : options) texts.push_back(option.c_str());
  const nvrtcResult result =
      nvrtcCompileProgram(program.handle, static_cast<int>(texts.size()), texts.data());
  if (result == NVRTC_SUCCESS) return ImageOf(program.handle, wanted);
  std::string command;
  for (const std::string& option : options) command += " " + option;
  throw std::runtime_error(form.file + " does not compile with" + command + ":\n" +
                           LogOf(program.handle));
}

// ---- all of them --------------------------------------------------------------------------------

class Job {
 public:
  Job(fs::path kept, std::vector<Wanted> wanted, Folders folders)
      : kept_(std::move(kept)), wanted_(std::move(wanted)), folders_(std::move(folders)) {
    int major = 0, minor = 0;
    Check(nvrtcVersion(&major, &minor), "nvrtcVersion");
    compiler_ = std::to_string(major) + "." + std::to_string(minor);
    fs::create_directories(kept_);
  }

  void Run(const fs::path& out) {
    const std::vector<Form>& forms = AllForms();
    std::vector<std::string> images(forms.size() * wanted_.size());
    std::atomic<bool> failed = false;
    gpu::InParallel(images.size(), [&](size_t i) {
      if (failed) return;
      try {
        images[i] = Image(forms[i / wanted_.size()], wanted_[i % wanted_.size()]);
      } catch (...) {
        failed = true;
        throw;
      }
    });
    WriteFile(out, FileOf(images));
    std::fprintf(stdout, "%zu forms of kernels, %zu of %zu images compiled\n", forms.size(),
                 compiled_.load(), images.size());
  }

 private:
  std::string Image(const Form& form, const Wanted& wanted) {
    const std::string source = SourceOf(form, folders_);
    const std::vector<std::string> options = OptionsOf(form, wanted);
    uint64_t hash = gpu::HashOf(source, gpu::HashOf(compiler_));
    for (const std::string& option : options) hash = gpu::HashOf(option, hash);
    const fs::path kept =
        kept_ / (std::string(gpu::NameOf(form.shader)) + "." + std::to_string(hash));
    if (fs::exists(kept)) return ReadFile(kept);
    std::string image = Compile(form, source, options, wanted);
    ++compiled_;
    WriteFile(kept, image);
    return image;
  }

  [[nodiscard]] std::string FileOf(const std::vector<std::string>& images) const {
    ImagesHeader header;
    header.magic = kImagesMagic;
    header.forms = AllForms().size();
    header.architectures = static_cast<uint32_t>(wanted_.size());
    for (size_t i = 0; i < wanted_.size(); ++i) {
      header.capabilities[i] = wanted_[i].architecture.capability;
      header.kinds[i] = wanted_[i].architecture.kind;
    }
    constexpr uint64_t kAlignment = 16;
    std::vector<ImagePlace> places(images.size());
    uint64_t end = sizeof(header) + places.size() * sizeof(ImagePlace);
    std::string bytes;
    const uint64_t first = (end + kAlignment - 1) / kAlignment * kAlignment;
    for (size_t i = 0; i < images.size(); ++i) {
      places[i] = {first + bytes.size(), images[i].size()};
      bytes += images[i];
      bytes.append(kAlignment - bytes.size() % kAlignment, '\0');
    }
    std::string file(first, '\0');
    std::memcpy(file.data(), &header, sizeof(header));
    std::memcpy(file.data() + sizeof(header), places.data(), places.size() * sizeof(ImagePlace));
    return file + bytes;
  }

  fs::path kept_;
  std::vector<Wanted> wanted_;
  Folders folders_;
  std::string compiler_;
  std::atomic<size_t> compiled_ = 0;
};

}  // namespace
}  // namespace rullama::cuda

int main(int argc, char** argv) {
  constexpr int kFirstFolder = 4;
  if (argc <= kFirstFolder) {
    std::fputs("usage: compile_cuda_kernels OUT KEPT ARCHITECTURES FOLDER...\n", stderr);
    return 2;
  }
  try {
    rullama::cuda::Job(argv[2], rullama::cuda::WantedArchitectures(argv[3]),
                       {argv + kFirstFolder, argv + argc})
        .Run(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "compile_cuda_kernels: %s\n", error.what());
    return 1;
  }
  return 0;
}
