#include "backends/webgpu/kernels.h"

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backends/gpu/kernel_source.h"
#include "backends/webgpu/driver.h"
#include "backends/webgpu/wgsl.h"

// Written when the backend vulkan is built: the code of each shader as kNamePlain.
#include "plain_spirv.h"

namespace rullama::webgpu {
namespace {

constexpr std::span<const uint32_t> kCode[] = {
#define RL_KERNEL(file, Name, Arguments) k##Name##Plain,
#include "backends/gpu/kernels.def"
};

}  // namespace

Layout MakeLayout(const Api& api, WGPUDevice device, uint32_t buffers) {
  std::vector<WGPUBindGroupLayoutEntry> entries(buffers + 1);
  for (uint32_t i = 0; i <= buffers; ++i) {
    const bool arguments = i == kArgumentsBinding;
    entries[i].binding = i;
    entries[i].visibility = WGPUShaderStage_Compute;
    entries[i].buffer.type =
        arguments ? WGPUBufferBindingType_ReadOnlyStorage : WGPUBufferBindingType_Storage;
    entries[i].buffer.hasDynamicOffset = arguments ? 1 : 0;
  }
  WGPUBindGroupLayoutDescriptor group{};
  group.entryCount = entries.size();
  group.entries = entries.data();
  Layout layout;
  layout.group = Own(api.DeviceCreateBindGroupLayout(device, &group), api.BindGroupLayoutRelease);
  WGPUBindGroupLayout handle = layout.group.get();
  WGPUPipelineLayoutDescriptor pipeline{};
  pipeline.bindGroupLayoutCount = 1;
  pipeline.bindGroupLayouts = &handle;
  layout.pipeline =
      Own(api.DeviceCreatePipelineLayout(device, &pipeline), api.PipelineLayoutRelease);
  return layout;
}

WGPUComputePipeline WebGpuKernel::PipelineFor(WebGpuDriver& driver,
                                              const std::map<uint32_t, uint32_t>& bindings,
                                              uint32_t buffers) const {
  Owned<WGPUComputePipeline>& pipeline = pipelines_[{bindings, buffers}];
  if (pipeline != nullptr) return pipeline.get();
  const Api& api = driver.api();
  const std::string name(gpu::NameOf(key_.shader));
  const std::string text =
      WgslOf({kCode[static_cast<size_t>(key_.shader)], key_.constants, bindings, buffers});
  WGPUShaderSourceWGSL source{};
  source.chain.sType = WGPUSType_ShaderSourceWGSL;
  source.code = ViewOf(text);
  WGPUShaderModuleDescriptor descriptor{};
  descriptor.nextInChain = &source.chain;
  descriptor.label = ViewOf(name);
  // Kernels stay inside of the memory that they are given, and their loops end, as with other APIs.
  const Owned<WGPUShaderModule> module =
      Own(api.DeviceCreateShaderModuleTrusted(driver.device(), &descriptor,
                                              WGPUShaderRuntimeChecks_None),
          api.ShaderModuleRelease);
  driver.Check(("wgpuDeviceCreateShaderModule of " + name).c_str());
  WGPUComputePipelineDescriptor wanted{};
  wanted.layout = driver.LayoutFor(buffers).pipeline.get();
  wanted.compute.module = module.get();
  wanted.compute.entryPoint = ViewOf("main");
  auto created =
      Own(api.DeviceCreateComputePipeline(driver.device(), &wanted), api.ComputePipelineRelease);
  driver.Check(("wgpuDeviceCreateComputePipeline of " + name).c_str());
  pipeline = std::move(created);
  return pipeline.get();
}

}  // namespace rullama::webgpu
