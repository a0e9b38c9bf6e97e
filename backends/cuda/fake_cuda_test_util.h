// A driver of CUDA without a device: its memory is the host's, and it keeps what it is asked to do.
// It lacks most functions, which nothing calls.
//
// Thread safety: none; one test at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "backends/cuda/api.h"
#include "backends/cuda/forms.h"

namespace rullama::cuda {

struct FakeCuda {
  struct Launched {
    uint32_t groups[3];
    uint32_t threads;
    uint32_t overlap;     // with the kernels before and after it
    uint32_t attributes;  // of the launch
  };
  // The answers of the functions, and the calls that they noted. Functions of CUDA have no context
  // of the caller.
  static inline FakeCuda* now = nullptr;

  CUresult init = CUDA_SUCCESS, allocates = CUDA_SUCCESS, finishes = CUDA_SUCCESS,
           pushes = CUDA_SUCCESS, launches = CUDA_SUCCESS, instantiates = CUDA_SUCCESS;
  int devices = 1, capability = 90, version = CUDA_VERSION;
  std::vector<Launched> launched;  // one by one
  size_t captured = 0;             // kernels of the graph
  int replays = 0;                 // of it
  int events = 0;                  // that are not destroyed
  int graphs = 0;                  // that are not destroyed
  int contexts = 0;                // that are current
  int modules = 0;                 // that are loaded
  std::vector<uint32_t> constants = std::vector<uint32_t>(kConstantWords);  // of the last one
  size_t constant_bytes = kConstantWords * sizeof(uint32_t);  // that a module has for them
  bool copying = false;                                       // constants, until it is waited for
  bool capturing = false;
  Api api;

  FakeCuda() {
    now = this;
    api.Init = [](unsigned) { return now->init; };
    api.DriverGetVersion = [](int* to) { return Give(to, now->version); };
    api.DeviceGetCount = [](int* count) { return Give(count, now->devices); };
    api.DeviceGet = [](CUdevice* device, int i) { return Give(device, i); };
    api.DeviceGetName = [](char* name, int, CUdevice) {
      std::strcpy(name, "Fake");
      return CUDA_SUCCESS;
    };
    api.DeviceTotalMem = [](size_t* bytes, CUdevice) { return Give(bytes, size_t{1} << 30); };
    api.DeviceGetAttribute = [](int* value, CUdevice_attribute what, CUdevice) {
      if (what == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) {
        return Give(value, now->capability / 10);
      }
      if (what == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR) {
        return Give(value, now->capability % 10);
      }
      return Give(value, what == CU_DEVICE_ATTRIBUTE_INTEGRATED ? 0 : 49152);
    };
    api.GetErrorName = [](CUresult, const char** name) {
      return Give(name, static_cast<const char*>("CUDA_ERROR_FAKE"));
    };
    MakeContext();
    MakeMemory();
    MakeWork();
  }
  ~FakeCuda() { now = nullptr; }
  FakeCuda(const FakeCuda&) = delete;
  FakeCuda& operator=(const FakeCuda&) = delete;

 private:
  template <typename T>
  static CUresult Give(T* to, T value) {
    *to = value;
    return CUDA_SUCCESS;
  }
  template <typename Handle>
  static CUresult GiveHandle(Handle* to) {
    static int object = 0;
    *to = reinterpret_cast<Handle>(&object);
    return CUDA_SUCCESS;
  }

  void MakeContext() {
    api.DevicePrimaryCtxRetain = [](CUcontext* context, CUdevice) { return GiveHandle(context); };
    api.DevicePrimaryCtxRelease = [](CUdevice) { return CUDA_SUCCESS; };
    api.CtxPushCurrent = [](CUcontext) {
      if (now->pushes == CUDA_SUCCESS) ++now->contexts;
      return now->pushes;
    };
    api.CtxPopCurrent = [](CUcontext*) {
      --now->contexts;
      return CUDA_SUCCESS;
    };
    api.StreamCreate = [](CUstream* stream, unsigned) { return GiveHandle(stream); };
    api.StreamDestroy = [](CUstream) { return CUDA_SUCCESS; };
    api.StreamSynchronize = [](CUstream stream) {
      if (stream == nullptr) now->copying = false;
      return now->finishes;
    };
  }

  void MakeMemory() {
    api.MemAlloc = [](CUdeviceptr* address, size_t bytes) {
      if (now->allocates != CUDA_SUCCESS) return now->allocates;
      return Give(address, reinterpret_cast<CUdeviceptr>(new std::byte[bytes]));
    };
    api.MemFree = [](CUdeviceptr address) {
      delete[] reinterpret_cast<std::byte*>(address);
      return CUDA_SUCCESS;
    };
    api.MemHostAlloc = [](void** memory, size_t bytes, unsigned) {
      return Give(memory, static_cast<void*>(new std::byte[bytes]));
    };
    api.MemFreeHost = [](void* memory) {
      delete[] static_cast<std::byte*>(memory);
      return CUDA_SUCCESS;
    };
    api.MemGetInfo = [](size_t* free, size_t* total) {
      *free = 1000;
      return Give(total, size_t{1} << 30);
    };
    api.MemcpyHtoDAsync = [](CUdeviceptr to, const void* from, size_t bytes, CUstream) {
      std::memcpy(reinterpret_cast<void*>(to), from, bytes);
      return CUDA_SUCCESS;
    };
    api.MemcpyDtoHAsync = [](void* to, CUdeviceptr from, size_t bytes, CUstream) {
      std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
      return CUDA_SUCCESS;
    };
    api.MemcpyHtoD = [](CUdeviceptr to, const void* from, size_t bytes) {
      now->copying = true;
      std::memcpy(reinterpret_cast<void*>(to), from, bytes);
      return CUDA_SUCCESS;
    };
    api.MemsetD32Async = [](CUdeviceptr to, unsigned, size_t words, CUstream) {
      std::memset(reinterpret_cast<void*>(to), 0, words * 4);
      return CUDA_SUCCESS;
    };
  }

  void MakeWork() {
    api.ModuleLoadData = [](CUmodule* module, const void*) {
      ++now->modules;
      return GiveHandle(module);
    };
    api.ModuleUnload = [](CUmodule) {
      --now->modules;
      return CUDA_SUCCESS;
    };
    api.ModuleGetFunction = [](CUfunction* function, CUmodule, const char*) {
      return GiveHandle(function);
    };
    api.FuncSetAttribute = [](CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; };
    api.ModuleGetGlobal = [](CUdeviceptr* place, size_t* bytes, CUmodule, const char*) {
      *bytes = now->constant_bytes;
      return Give(place, reinterpret_cast<CUdeviceptr>(now->constants.data()));
    };
    api.LaunchKernelEx = [](const CUlaunchConfig* config, CUfunction, void** arguments, void**) {
      if (now->launches != CUDA_SUCCESS) return now->launches;
      if (now->capturing) {
        ++now->captured;
      } else {
        now->launched.push_back({{config->gridDimX, config->gridDimY, config->gridDimZ},
                                 config->blockDimX,
                                 *static_cast<const uint32_t*>(arguments[1]),
                                 config->numAttrs});
      }
      return CUDA_SUCCESS;
    };
    api.StreamBeginCapture = [](CUstream, CUstreamCaptureMode) {
      now->capturing = true;
      return CUDA_SUCCESS;
    };
    api.StreamEndCapture = [](CUstream, CUgraph* graph) {
      now->capturing = false;
      ++now->graphs;
      return GiveHandle(graph);
    };
    api.GraphInstantiateWithFlags = [](CUgraphExec* executable, CUgraph, unsigned long long) {
      if (now->instantiates != CUDA_SUCCESS) return now->instantiates;
      return GiveHandle(executable);
    };
    api.GraphDestroy = [](CUgraph) {
      --now->graphs;
      return CUDA_SUCCESS;
    };
    api.GraphExecDestroy = [](CUgraphExec) { return CUDA_SUCCESS; };
    api.GraphLaunch = [](CUgraphExec, CUstream) {
      ++now->replays;
      return CUDA_SUCCESS;
    };
    api.EventCreate = [](CUevent* event, unsigned) {
      ++now->events;
      return GiveHandle(event);
    };
    api.EventDestroy = [](CUevent) {
      --now->events;
      return CUDA_SUCCESS;
    };
    api.EventRecord = [](CUevent, CUstream) { return CUDA_SUCCESS; };
    api.EventElapsedTime = [](float* milliseconds, CUevent, CUevent) {
      return Give(milliseconds, 0.5F);
    };
  }
};

}  // namespace rullama::cuda
