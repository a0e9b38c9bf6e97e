// rullama graph: the model as ops, before the passes and as a backend gets it.
#include <memory>
#include <string>

#include "cli/backend_setup.h"
#include "cli/command.h"
#include "cli/engine.h"
#include "cli/options.h"
#include "cli/placement_text.h"
#include "core/ir/text.h"
#include "core/passes/pipeline.h"
#include "samplers/session_canvas.h"

namespace rullama::cli {
namespace {

struct GraphFlags {
  ConfigFlags config;
  bool before = false;
  bool after = false;
  bool dot = false;
  int64_t rows = 1;
  std::string demand = "asked";
  bool canvas = false;
};

DemandMode DemandOf(const std::string& name) {
  if (name == "all") return DemandMode::kAllRows;
  return name == "state" ? DemandMode::kStateOnly : DemandMode::kAsAsked;
}

std::string Print(const Graph& graph, bool dot) { return dot ? PrintDot(graph) : PrintText(graph); }

Result<int> ShowAfter(const GraphFlags& flags, const Graph& graph, const BackendDevices& devices,
                      Console& console) {
  PipelineOptions options;
  options.demand = DemandOf(flags.demand);
  options.max_t = graph.max_t;
  options.max_r = graph.max_r;
  options.policy = devices.policy;
  for (const auto& device : devices.devices) {
    options.alignments.push_back(device->description().alignment);
  }
  RL_ASSIGN_OR_RETURN(const Program program, BuildProgram(graph, QueryOf(devices), options));
  for (size_t i = 0; i < program.segments.size(); ++i) {
    const PlannedSegment& segment = program.segments[i];
    RL_RETURN_IF_ERROR(console.Write(
        fmt::format("{} segment {} on {}, arena {} bytes\n", flags.dot ? "//" : "#", i,
                    options.policy.device_names[static_cast<size_t>(segment.device)],
                    segment.memory.arena_bytes)));
    RL_RETURN_IF_ERROR(console.Write(Print(segment.graph, flags.dot)));
  }
  DescribePlacement(program.report, options.policy.device_names, console);
  return 0;
}

Result<int> ShowGraph(const GraphFlags& flags, Console& console) {
  RL_ASSIGN_OR_RETURN(const LoadedModel model, LoadModel(flags.config, console));
  RL_ASSIGN_OR_RETURN(const SamplerSettings sampler,
                      ResolveSettings(model.config().sampler, *model.file.file));
  const EntropyBoundSettings diffusion =
      ResolveSettings(model.config().sampler.diffusion, RecommendedBy(model.gemma.canvas));
  const auto build = [&](DType kv_dtype) {
    return BuildModelProgram(model.gemma, model.weights,
                             {.sampler = &sampler,
                              .diffusion = &diffusion,
                              .capacity = model.capacity(),
                              .kv_dtype = kv_dtype,
                              .max_rows = std::min(flags.rows, model.capacity())});
  };
  const auto index = static_cast<size_t>(flags.canvas ? kDenoiseGraph : kEncodeGraph);
  if (flags.canvas && !model.gemma.denoises()) {
    return MakeError(ErrorKind::kUsage, "model.canvas",
                     "--canvas shows how a DiffusionGemma denoises; this model predicts the next "
                     "token");
  }
  if (flags.before) {
    const DType kv = KvDtypeFor(model.config(), model.config().backend.name);
    RL_ASSIGN_OR_RETURN(const ModelProgram program, build(kv));
    RL_RETURN_IF_ERROR(console.Write(Print(program.graphs[index].graph, flags.dot)));
    if (!flags.after) return 0;
  }
  const auto registry =
      MakeRegistry(model.config(), model.loaded.environment, flags.config.plugins);
  Result<int> shown = 0;
  {
    RL_ASSIGN_OR_RETURN(const BackendDevices devices,
                        OpenDevices(*registry, model.config(), console));
    RL_ASSIGN_OR_RETURN(const ModelProgram program,
                        build(KvDtypeFor(model.config(), devices.backend)));
    shown = ShowAfter(flags, program.graphs[index].graph, devices, console);
  }
  registry->Shutdown();
  return shown;
}

}  // namespace

void AddGraphCommand(CLI::App& app, CommandContext& context) {
  const auto flags = std::make_shared<GraphFlags>();
  CLI::App* command = app.add_subcommand("graph", "Show the model as a graph of ops");
  AddModelOptions(*command, flags->config);
  command->add_flag("--before", flags->before, "As the model builder wrote it");
  command->add_flag("--after", flags->after, "As the backend gets it (the default)");
  command->add_flag("--canvas", flags->canvas, "The denoising pass of a DiffusionGemma");
  command->add_flag("--dot", flags->dot, "For GraphViz");
  command->add_option("--rows", flags->rows, "Most rows of a step")
      ->check(CLI::Range(int64_t{1}, int64_t{65536}))
      ->option_text("N");
  command->add_option("--demand", flags->demand, "Rows wanted: asked, all or state (prefill chunk)")
      ->check(CLI::IsMember({"asked", "all", "state"}))
      ->option_text("MODE");
  command->callback([flags, &context] {
    context.action = [flags, &context] { return ShowGraph(*flags, context.console); };
  });
}

}  // namespace rullama::cli
