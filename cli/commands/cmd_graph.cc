// rullama graph: the model as ops, before the passes and as a backend gets it.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands/command.h"
#include "cli/commands/fused_ops.h"
#include "cli/commands/loading.h"
#include "cli/commands/options.h"
#include "cli/commands/placement_text.h"
#include "cli/reports/graph_drawing.h"
#include "cli/reports/graph_page.h"
#include "cli/reports/report_file.h"
#include "core/ir/dot.h"
#include "core/ir/text.h"
#include "core/runtime/device_program.h"
#include "engine/loading/layer_placement.h"

namespace rullama::cli {
namespace {

struct GraphFlags {
  ConfigFlags config;
  bool before = false;
  bool after = false;
  bool fused = false;
  bool dot = false;
  int64_t rows = 1;
  std::string demand = "asked";
  bool canvas = false;
  std::string layers;
  std::optional<std::string> svg;
  std::optional<std::string> html;
};

DemandMode DemandOf(const std::string& name) {
  if (name == "all") return DemandMode::kAllRows;
  return name == "state" ? DemandMode::kStateOnly : DemandMode::kPerOutput;
}

// The parts of each graph that are printed.
struct Form {
  bool dot = false;
  std::optional<BlockRange> layers;
};

// "3" or "0-1", within the model's layers.
Result<Form> FormOf(const GraphFlags& flags, int64_t layer_count) {
  Form form{.dot = flags.dot, .layers = {}};
  if (flags.layers.empty()) return form;
  if (!flags.dot && !flags.svg) {
    return MakeError(ErrorKind::kUsage, "usage.option", "--layers needs --dot or --svg");
  }
  const size_t dash = flags.layers.find('-');
  BlockRange range;
  RL_ASSIGN_OR_RETURN(range.first,
                      ParseInteger(flags.layers.substr(0, dash), "--layers", 0, layer_count - 1));
  range.last = range.first;
  if (dash != std::string::npos) {
    RL_ASSIGN_OR_RETURN(range.last, ParseInteger(flags.layers.substr(dash + 1), "--layers",
                                                 range.first, layer_count - 1));
  }
  form.layers = range;
  return form;
}

std::string Print(const Graph& graph, const Form& form) {
  return form.dot ? PrintDot(graph, form.layers) : PrintText(graph);
}

// Texts on how the backends run the segments; empty for a segment whose ops run one by one. Refuses
// --fused if that is every segment.
Result<std::vector<std::string>> FusedTexts(const Program& program, const BackendDevices& devices) {
  std::vector<std::string> texts;
  for (const PlannedSegment& segment : program.segments) {
    Device& device = *devices.devices[static_cast<size_t>(segment.device)];
    RL_ASSIGN_OR_RETURN(texts.emplace_back(), device.DescribeGraph(segment.graph));
  }
  if (!std::ranges::all_of(texts, &std::string::empty)) return texts;
  return MakeError(ErrorKind::kUsage, "graph.not_fused",
                   "backend '{}' runs every op by itself and fuses none: leave out --fused to see "
                   "the ops that it gets",
                   devices.backend);
}

// The files of --svg and --html.
struct DrawingFiles {
  std::unique_ptr<ReportFile> svg, html;
  [[nodiscard]] bool any() const { return svg != nullptr || html != nullptr; }
};

Result<DrawingFiles> OpenDrawings(const GraphFlags& flags) {
  DrawingFiles files;
  RL_ASSIGN_OR_RETURN(files.svg, ReportFile::Create(flags.svg));
  RL_ASSIGN_OR_RETURN(files.html, ReportFile::Create(flags.html));
  return files;
}

Status WriteDrawings(DrawingFiles& files, const std::string& title, const Form& form,
                     const std::vector<DrawnPart>& parts,
                     const std::vector<std::string>& device_names) {
  if (files.svg != nullptr) {
    DrawingOptions options;
    options.title = title;
    options.opened = form.layers;
    options.device_names = device_names;
    RL_ASSIGN_OR_RETURN(const drawing::Picture picture, DrawGraph(parts, options));
    RL_RETURN_IF_ERROR(files.svg->Write(drawing::SvgFile(picture)));
  }
  if (files.html == nullptr) return OkStatus();
  RL_ASSIGN_OR_RETURN(const std::string page, GraphPage(title, parts, device_names));
  return files.html->Write(page);
}

// The segments with the names of the devices that run them.
Status DrawAfter(DrawingFiles& files, const std::string& title, const Form& form,
                 const Program& program, const std::vector<std::string>& device_names) {
  std::vector<DrawnPart> parts;
  parts.reserve(program.segments.size());
  for (const PlannedSegment& segment : program.segments) {
    parts.push_back({&segment.graph, static_cast<size_t>(segment.device)});
  }
  return WriteDrawings(files, title, form, parts, device_names);
}

// Draws what runs as one, which one step shows.
Result<int> DrawFused(const GraphFlags& flags, const Form& form, DrawingFiles& files,
                      Console& console) {
  if (flags.canvas) {
    return MakeError(ErrorKind::kUsage, "usage.option",
                     "--fused draws the pass of prompts; leave out --canvas, --svg or --html");
  }
  DispatchRecorder recorder;
  ModelSessionOptions options;
  options.observer = &recorder;
  options.max_t = flags.rows;
  RL_ASSIGN_OR_RETURN(const auto engine, OpenModelSession(flags.config, options, console));
  const std::vector<int32_t> tokens(static_cast<size_t>(flags.rows));
  RL_RETURN_IF_ERROR(
      engine->session().Run(StepRows::Consecutive(tokens, 0, 0, DemandOf(flags.demand))));
  RL_ASSIGN_OR_RETURN(const auto parts, recorder.Parts());
  const std::string title = fmt::format("{} on {}, by dispatch", engine->session().graph().name,
                                        engine->devices().backend);
  RL_RETURN_IF_ERROR(WriteDrawings(files, title, form, parts, {}));
  return 0;
}

Result<int> ShowAfter(const GraphFlags& flags, const Form& form, const Graph& graph,
                      const BackendDevices& devices, const PlacementPolicy& policy,
                      DrawingFiles& files, Console& console) {
  RL_ASSIGN_OR_RETURN(
      const Program program,
      BuildDeviceProgram(
          graph, devices.Borrow(), policy,
          {.max_t = graph.max_t, .max_r = graph.max_r, .demand = DemandOf(flags.demand)}, {},
          /*wanted_rows_apart=*/true));
  if (files.any()) {
    const std::string title = fmt::format("{} on {}", graph.name, devices.backend);
    RL_RETURN_IF_ERROR(DrawAfter(files, title, form, program, devices.policy.device_names));
    DescribePlacement(program.report, devices.policy.device_names, console);
    return 0;
  }
  std::vector<std::string> texts;
  if (flags.fused) {
    RL_ASSIGN_OR_RETURN(texts, FusedTexts(program, devices));
  }
  for (size_t i = 0; i < program.segments.size(); ++i) {
    const PlannedSegment& segment = program.segments[i];
    RL_RETURN_IF_ERROR(console.Write(
        fmt::format("{} segment {} on {}, arena {} bytes\n", flags.dot ? "//" : "#", i,
                    devices.policy.device_names[static_cast<size_t>(segment.device)],
                    segment.memory.arena_bytes)));
    const bool fused = !texts.empty() && !texts[i].empty();
    RL_RETURN_IF_ERROR(console.Write(fused ? texts[i] : Print(segment.graph, form)));
  }
  DescribePlacement(program.report, devices.policy.device_names, console);
  return 0;
}

Result<int> ShowGraph(const GraphFlags& flags, Console& console) {
  RL_ASSIGN_OR_RETURN(const ConfiguredModel loaded, LoadModel(flags.config, console));
  const LoadedModel& model = loaded.model;
  RL_ASSIGN_OR_RETURN(const SamplerSettings sampler,
                      ResolveSettings(model.config().sampler, *model.file.file));
  const EntropyBoundSettings diffusion =
      ResolveSettings(model.config().sampler.diffusion, RecommendedBy(model.facts().canvas));
  const auto build = [&](CacheTypes kv_dtype) {
    return BuildModelProgram(*model.model,
                             {.sampler = &sampler,
                              .diffusion = &diffusion,
                              .adapters = &model.adapters,
                              .capacity = model.capacity(),
                              .kv_dtype = kv_dtype,
                              .limits = {.max_t = std::min(flags.rows, model.capacity())}});
  };
  RL_ASSIGN_OR_RETURN(const Form form, FormOf(flags, model.facts().layers));
  const auto shown_of = [&flags](const ModelProgram& program) -> const Graph& {
    const GraphHandle handle =
        flags.canvas ? program.handles.denoise.value() : program.handles.read;
    return program.graphs[handle.index].graph;
  };
  if (flags.canvas && !model.facts().denoises()) {
    return MakeError(ErrorKind::kUsage, "model.canvas",
                     "--canvas shows how a DiffusionGemma denoises; this model predicts the next "
                     "token");
  }
  RL_ASSIGN_OR_RETURN(DrawingFiles files, OpenDrawings(flags));
  if (flags.fused && files.any()) return DrawFused(flags, form, files, console);
  if (flags.before) {
    const CacheTypes kv = KvDtypeFor(model.config(), model.config().backend.name);
    RL_ASSIGN_OR_RETURN(const ModelProgram program, build(kv));
    const Graph& graph = shown_of(program);
    if (files.any()) {
      RL_RETURN_IF_ERROR(WriteDrawings(files, graph.name, form, {{&graph, 0}}, {}));
      return 0;
    }
    RL_RETURN_IF_ERROR(console.Write(Print(graph, form)));
    if (!flags.after) return 0;
  }
  const auto registry = MakeRegistry(model.config(), loaded.environment, flags.config.plugins);
  Result<int> shown = 0;
  {
    RL_ASSIGN_OR_RETURN(const BackendDevices devices,
                        OpenDevices(*registry, model.config(), console));
    RL_ASSIGN_OR_RETURN(const ModelProgram program,
                        build(KvDtypeFor(model.config(), devices.backend)));
    RL_ASSIGN_OR_RETURN(const PlacementPolicy policy,
                        PlaceLayers(program.graphs.front().graph, program.layer_outputs,
                                    model.config().placement.split, devices));
    shown = ShowAfter(flags, form, shown_of(program), devices, policy, files, console);
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
  CLI::Option* fused =
      command->add_flag("--fused", flags->fused, "As the backend fuses it (GPU backends)");
  command->add_flag("--canvas", flags->canvas, "The denoising pass of a DiffusionGemma");
  CLI::Option* dot = command->add_flag("--dot", flags->dot, "For GraphViz")->excludes(fused);
  command->add_option("--svg", flags->svg, "Write a drawing, each layer folded to a box")
      ->excludes(dot)
      ->option_text("FILE");
  command->add_option("--html", flags->html, "Write a page with that drawing and one of each layer")
      ->excludes(dot)
      ->option_text("FILE");
  command
      ->add_option("--layers", flags->layers,
                   "With --dot: draw only these layers; with --svg: unfold these")
      ->option_text("A-B");
  command->add_option("--rows", flags->rows, "Most rows of a step")
      ->check(CLI::Range(int64_t{1}, int64_t{65536}))
      ->option_text("N");
  command->add_option("--demand", flags->demand, "Rows wanted: asked, all or state (prefill chunk)")
      ->check(CLI::IsMember({"asked", "all", "state"}))
      ->option_text("MODE");
  command->footer(R"(Examples:
  rullama graph -m model.gguf --before
  rullama graph -m model.gguf --backend vulkan --fused
  rullama graph -m model.gguf --html model.html
  rullama graph -m model.gguf --backend vulkan --fused --html dispatches.html
  rullama graph -m model.gguf --dot | dot -Tsvg > model.svg)");
  command->callback([flags, &context] {
    context.action = [flags, &context] { return ShowGraph(*flags, context.console); };
  });
}

}  // namespace rullama::cli
