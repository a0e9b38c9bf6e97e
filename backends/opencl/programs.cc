#include "backends/opencl/programs.h"

#include <algorithm>
#include <utility>

#include "backends/gpu/bytes.h"
#include "backends/gpu/hash.h"
#include "backends/gpu/kernel_source.h"
#include "backends/opencl/driver.h"
#include "backends/opencl/sources.h"

namespace rullama::opencl {
namespace {

using gpu::PipelineKey;
using gpu::Shader;

// The number of characters of a compiler log that an error message shows.
constexpr size_t kMaxLog = 4000;
// Entries of a list in local memory, one size for all: which of them are used is an argument.
constexpr uint32_t kLocalList = 1024;
constexpr uint32_t kMaxConstants = 16;  // of struct Constants in common.cl
// The first bytes of the file of binaries.
constexpr uint32_t kMagic = 0x4C434C52;

const char* DefineOf(Form form) {
  if (form == Form::kCpu) return "-DCPU";
  return form == Form::kGeneric ? "-DGENERIC" : "-DNVIDIA";
}

// Whether a constant is an argument: those that differ from model to model and gain nothing from
// being known. On a CPU that is the shape of attention, whose kernel takes long to compile.
bool IsArgument(Form form, Shader shader, size_t index) {
  if (shader == Shader::kPenalties) return index >= 1;
  return form == Form::kCpu && shader == Shader::kAttention && index >= 1 &&
         index != gpu::FindConstant(shader, "kKeyType") &&
         index != gpu::FindConstant(shader, "kValueType");
}

bool HasArguments(Form form, const PipelineKey& key) {
  for (size_t i = 1; i < key.constants.size(); ++i) {
    if (IsArgument(form, key.shader, i)) return true;
  }
  return false;
}

class Program final : public gpu::Kernel {
 public:
  explicit Program(Owned<cl_program> program) : program_(std::move(program)) {}
  static cl_program Of(const gpu::Kernel& kernel) {
    return static_cast<const Program&>(kernel).program_.get();
  }

 private:
  Owned<cl_program> program_;
};

// The file of a kernel, as messages name it.
std::string FileOf(Shader shader) { return std::string(gpu::NameOf(shader)) + ".cl"; }

}  // namespace

PipelineKey Programs::ProgramOf(const PipelineKey& key) const {
  PipelineKey program = key;
  for (size_t i = 1; i < program.constants.size(); ++i) {
    if (IsArgument(form_, key.shader, i)) program.constants[i] = 0;
  }
  const size_t capacity = gpu::FindCapacity(key.shader);
  if (capacity != 0 && program.constants[capacity] != 0) program.constants[capacity] = kLocalList;
  return program;
}

std::vector<uint32_t> Programs::ArgumentsOf(const PipelineKey& key) const {
  if (!HasArguments(form_, key)) return {};
  std::vector<uint32_t> arguments = key.constants;
  arguments.resize(kMaxConstants);
  return arguments;
}

std::string Programs::OptionsOf(const PipelineKey& key) const {
  std::string options = std::string("-cl-std=CL1.2 ") + DefineOf(form_) +
                        " -DTHREADS=" + std::to_string(key.constants.front());
  if (HasArguments(form_, key)) options += " -DCONSTANTS";
  for (size_t i = 1; i < key.constants.size(); ++i) {
    options += " -DC" + std::to_string(i) + "=";
    options += IsArgument(form_, key.shader, i) ? "constants.v[" + std::to_string(i) + "]"
                                                : std::to_string(key.constants[i]) + "u";
  }
  return options;
}

uint64_t Programs::IdOf(const PipelineKey& key) const {
  return gpu::HashOf(OptionsOf(key), gpu::HashOf(SourceOf(FileOf(key.shader))));
}

std::string Programs::LogOf(cl_program program) const {
  const std::string log = TextFrom([&](size_t room, void* text, size_t* needed) {
    return driver_.api().GetProgramBuildInfo(program, driver_.id(), CL_PROGRAM_BUILD_LOG, room,
                                             text, needed);
  });
  return log.empty() ? "the driver gives no log" : log.substr(0, kMaxLog);
}

Owned<cl_program> Programs::FromBinary(const PipelineKey& key) const {
  const auto found = binaries_.find(IdOf(key));
  if (found == binaries_.end()) return {};
  const size_t size = found->second.size();
  const auto* bytes = reinterpret_cast<const unsigned char*>(found->second.data());
  const cl_device_id device = driver_.id();
  cl_int status = CL_SUCCESS, result = CL_SUCCESS;
  Owned<cl_program> program =
      Own(driver_.api().CreateProgramWithBinary(driver_.context(), 1, &device, &size, &bytes,
                                                &status, &result),
          driver_.api().ReleaseProgram);
  // Drivers check what they are given; a damaged file is not worth more than a slow start.
  if (result != CL_SUCCESS || status != CL_SUCCESS) return {};
  const cl_int built = driver_.api().BuildProgram(program.get(), 1, &device, OptionsOf(key).c_str(),
                                                  nullptr, nullptr);
  if (built != CL_SUCCESS) return {};
  return program;
}

std::unique_ptr<gpu::Kernel> Programs::Make(const PipelineKey& key) const {
  Owned<cl_program> program = FromBinary(key);
  if (!program) program = Build(key);
  return std::make_unique<Program>(std::move(program));
}

Owned<cl_program> Programs::Build(const PipelineKey& key) const {
  const std::string file = FileOf(key.shader);
  const std::string source = SourceOf(file), options = OptionsOf(key);
  const char* text = source.c_str();
  const size_t length = source.size();
  cl_int result = CL_SUCCESS;
  Owned<cl_program> program =
      Own(driver_.api().CreateProgramWithSource(driver_.context(), 1, &text, &length, &result),
          driver_.api().ReleaseProgram);
  Check(result, "clCreateProgramWithSource of " + file);
  const cl_device_id device = driver_.id();
  result = driver_.api().BuildProgram(program.get(), 1, &device, options.c_str(), nullptr, nullptr);
  if (result != CL_SUCCESS) {
    throw sdk::Error(RL_INTERNAL,
                     "the driver '" + driver_.facts().driver + "' does not compile " + file +
                         " for '" + driver_.facts().name + "' with " + options + ": " +
                         opencl::NameOf(result) + ": " + LogOf(program.get()) +
                         "; another driver or backend.options.kernels may help",
                     RL_NO_OP, result);
  }
  return program;
}

Owned<cl_kernel> Programs::NewKernel(const gpu::Kernel& program, const PipelineKey& key) const {
  cl_int result = CL_SUCCESS;
  const std::string name(gpu::NameOf(key.shader));
  Owned<cl_kernel> kernel =
      Own(driver_.api().CreateKernel(Program::Of(program), name.c_str(), &result),
          driver_.api().ReleaseKernel);
  Check(result, "clCreateKernel of " + name);
  return kernel;
}

// ---- binaries on disk ---------------------------------------------------------------------------

Programs::Binary Programs::BinaryOf(cl_program program) const {
  // The program has one device.
  size_t size = 0;
  if (driver_.api().GetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof(size), &size,
                                   nullptr) != CL_SUCCESS) {
    return {};
  }
  Binary binary(size);
  auto* bytes = reinterpret_cast<unsigned char*>(binary.data());
  if (driver_.api().GetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof(bytes),
                                   static_cast<void*>(&bytes), nullptr) != CL_SUCCESS) {
    return {};
  }
  return binary;
}

// A number that says what it is, then of each binary its id, its size and its bytes.
void Programs::Load(std::span<const std::byte> saved) {
  uint32_t magic = 0;
  if (!gpu::Take(saved, magic) || magic != kMagic) return;
  uint64_t id = 0, size = 0;
  while (gpu::Take(saved, id) && gpu::Take(saved, size) && size <= saved.size()) {
    binaries_[id].assign(saved.begin(), saved.begin() + static_cast<ptrdiff_t>(size));
    saved = saved.subspan(size);
  }
}

std::vector<std::byte> Programs::BinariesOf(const gpu::Kernels& programs) {
  for (const auto& [key, program] : programs) {
    Binary& binary = binaries_[IdOf(key)];
    if (binary.empty()) binary = BinaryOf(Program::Of(*program));
  }
  std::vector<std::byte> data;
  gpu::Append(kMagic, data);
  for (const auto& [id, binary] : binaries_) {
    if (binary.empty()) continue;
    gpu::Append(id, data);
    gpu::Append(uint64_t{binary.size()}, data);
    gpu::AppendBytes(binary, data);
  }
  return data;
}

}  // namespace rullama::opencl
