#include "backends/opencl/instance.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "backends/opencl/kept_signals.h"

namespace rullama::opencl {
namespace {

constexpr uint64_t kMinLocalMemory = 32768;  // the tiles of matmul and attention
constexpr size_t kMinWorkGroup = 256;
constexpr uint32_t kMinVersion = 12;  // 1.2

template <typename T>
T Get(const Api& api, cl_device_id device, cl_device_info what, T absent = {}) {
  T value = absent;
  if (api.GetDeviceInfo(device, what, sizeof(value), &value, nullptr) != CL_SUCCESS) return absent;
  return value;
}

std::string Get(const Api& api, cl_device_id device, cl_device_info what) {
  return TextFrom([&](size_t size, void* text, size_t* needed) {
    return api.GetDeviceInfo(device, what, size, text, needed);
  });
}

std::string Get(const Api& api, cl_platform_id platform, cl_platform_info what) {
  return TextFrom([&](size_t size, void* text, size_t* needed) {
    return api.GetPlatformInfo(platform, what, size, text, needed);
  });
}

// "OpenCL 3.0 ..." is 30.
uint32_t VersionOf(const std::string& text) {
  unsigned major = 0, minor = 0;
  if (std::sscanf(text.c_str(), "OpenCL %u.%u", &major, &minor) != 2) return 0;
  return major * 10 + minor;
}

uint32_t ComputeCapability(const Api& api, cl_device_id device) {
  const std::string extensions = Get(api, device, CL_DEVICE_EXTENSIONS);
  if (extensions.find("cl_nv_device_attribute_query") == std::string::npos) return 0;
  const auto major = Get<cl_uint>(api, device, CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV);
  const auto minor = Get<cl_uint>(api, device, CL_DEVICE_COMPUTE_CAPABILITY_MINOR_NV);
  return major * 10 + minor;
}

// Fills in what the device can do; a text says what it lacks.
std::string Examine(const Api& api, cl_platform_id platform, cl_device_id device, Facts& out) {
  out.name = Get(api, device, CL_DEVICE_NAME);
  out.driver = Get(api, platform, CL_PLATFORM_NAME) + " " + Get(api, device, CL_DRIVER_VERSION);
  out.type = Get<cl_device_type>(api, device, CL_DEVICE_TYPE);
  out.memory = Get<cl_ulong>(api, device, CL_DEVICE_GLOBAL_MEM_SIZE);
  out.max_allocation = Get<cl_ulong>(api, device, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
  out.local_memory = Get<cl_ulong>(api, device, CL_DEVICE_LOCAL_MEM_SIZE);
  out.max_work_group = Get<size_t>(api, device, CL_DEVICE_MAX_WORK_GROUP_SIZE);
  out.compute_units = Get<cl_uint>(api, device, CL_DEVICE_MAX_COMPUTE_UNITS, 1);
  out.float64 = Get<cl_device_fp_config>(api, device, CL_DEVICE_DOUBLE_FP_CONFIG) != 0;
  out.unified_memory = Get<cl_bool>(api, device, CL_DEVICE_HOST_UNIFIED_MEMORY) != CL_FALSE;
  out.nvidia = ComputeCapability(api, device);

  const std::string version = Get(api, device, CL_DEVICE_VERSION);
  if (VersionOf(version) < kMinVersion) return "it has '" + version + "', needed is OpenCL 1.2";
  if (Get<cl_bool>(api, device, CL_DEVICE_AVAILABLE) == CL_FALSE) return "it is not available";
  if (Get<cl_bool>(api, device, CL_DEVICE_COMPILER_AVAILABLE) == CL_FALSE) {
    return "its driver has no compiler of OpenCL C";
  }
  if (Get<cl_bool>(api, device, CL_DEVICE_ENDIAN_LITTLE) == CL_FALSE) return "it is big-endian";
  if (Get<cl_uint>(api, device, CL_DEVICE_ADDRESS_BITS) != 64) {
    return "its addresses have fewer than 64 bits";
  }
  if (out.local_memory < kMinLocalMemory) {
    return "its work-groups have " + std::to_string(out.local_memory) +
           " bytes of local memory, needed are " + std::to_string(kMinLocalMemory);
  }
  if (out.max_work_group < kMinWorkGroup) {
    return "its work-groups have at most " + std::to_string(out.max_work_group) +
           " work-items, needed are " + std::to_string(kMinWorkGroup);
  }
  return {};
}

// Files that announce drivers to the loader.
std::string RegisteredDrivers() {
  const char* variable = std::getenv("OCL_ICD_VENDORS");
  const std::filesystem::path place = variable == nullptr ? "/etc/OpenCL/vendors" : variable;
  if (place.extension() == ".icd") return std::filesystem::exists(place) ? place.string() : "";
  std::string names;
  std::error_code code;
  for (std::filesystem::directory_iterator it(place, code), end; !code && it != end;
       it.increment(code)) {
    if (it->path().extension() != ".icd") continue;
    names += (names.empty() ? "" : ", ") + it->path().string();
  }
  return names;
}

// Why the loader gives no platform. It does not tell drivers it could not load from none.
std::string WhyNoPlatform(cl_int answer) {
  if (answer == CL_OUT_OF_HOST_MEMORY) return "the OpenCL loader is out of host memory";
  const std::string drivers = RegisteredDrivers();
  if (!drivers.empty()) {
    return "no OpenCL driver could be loaded, though some are installed (" + drivers +
           "): the process may have too little memory for them (ulimit -v) or too few files "
           "(ulimit -n), or their libraries are missing; clinfo shows more";
  }
  return "no OpenCL driver is installed: the loader finds none in /etc/OpenCL/vendors or "
         "$OCL_ICD_VENDORS; install the one of your device (Debian: pocl-opencl-icd for CPUs)";
}

}  // namespace

Instance::Instance() {
  set_reason(LoadApi(writable_api()));
  if (reason().empty()) Enumerate();
}

Instance::Instance(const Api& api) : FoundDevices(api) { Enumerate(); }

void Instance::Enumerate() {
  const KeptSignals kept;
  cl_uint count = 0;
  const cl_int found = api().GetPlatformIDs(0, nullptr, &count);
  if (found != CL_SUCCESS || count == 0) {
    set_reason(WhyNoPlatform(found));
    return;
  }
  std::vector<cl_platform_id> platforms(count);
  if (api().GetPlatformIDs(count, platforms.data(), nullptr) != CL_SUCCESS) platforms.clear();
  for (cl_platform_id platform : platforms) EnumeratePlatform(platform);
  if (devices().empty() && reason().empty()) {
    set_reason("OpenCL finds no device; is the driver of your GPU installed?");
  }
}

void Instance::EnumeratePlatform(cl_platform_id platform) {
  cl_uint count = 0;
  if (api().GetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &count) != CL_SUCCESS) return;
  std::vector<cl_device_id> ids(count);
  if (api().GetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, count, ids.data(), nullptr) != CL_SUCCESS) {
    return;
  }
  for (cl_device_id id : ids) {
    Facts facts;
    const std::string lack = Examine(api(), platform, id, facts);
    Add({platform, id, facts}, facts.name, lack);
  }
}

}  // namespace rullama::opencl
