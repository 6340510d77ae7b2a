#include "launch/lab/generations/asked_generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <regex>
#include <utility>

#include "launch/cli/flag_values.h"
#include "launch/diffusion/deployment_rule.h"
#include "launch/diffusion/pipeline_args.h"
#include "proto/base/error.h"
#include "proto/base/text.h"
#include "rank/config/pipeline_names.h"
#include "rank/cost/hardware.h"
#include "rank/diffusion/pipeline.h"

namespace tpsim::launch {
namespace {

using Flags = std::vector<std::string>;

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// Without what stands in brackets.
std::string plain(const std::string& text) {
  static const std::regex kBrackets(R"(\s*\([^)]*\))");
  return std::regex_replace(text, kBrackets, "");
}

// The number that a cell begins with: "25 (24 rounded to 4k+1) -> 7 latent frames"; "30 + 3" is none.
std::optional<std::uint32_t> leading_count(const std::string& text) {
  static const std::regex kCount(R"((\d{1,5})(?:$| (?!\+).*))");
  std::smatch match;
  if (!std::regex_match(text, match, kCount)) return std::nullopt;
  return static_cast<std::uint32_t>(std::stoul(match[1]));
}

// The longest beginnings first where one begins as another.
struct PartRow {
  std::string_view begin;
  TimedPart part;
};
constexpr PartRow kParts[] = {
    {"end to end (DiT)", TimedPart::kDenoising}, {"end to end", TimedPart::kEndToEnd},
    {"pipeline forward", TimedPart::kEndToEnd},  {"whole denoising loop", TimedPart::kDenoising},
    {"generator only", TimedPart::kDenoising},   {"one denoising step", TimedPart::kStep},
    {"text encoding", TimedPart::kTextEncoding}, {"image VAE encoding", TimedPart::kImageEncoding},
    {"VAE decoding", TimedPart::kDecoding},      {"one attention call", TimedPart::kAttention}};
constexpr std::string_view kPartNames[] = {"end to end",     "denoising", "step",     "text encoding",
                                           "image encoding", "decoding",  "attention"};

// Names of cards as pages have them. Cards for China differ from their twins in links alone, so one of them
// is its twin.
struct Card {
  std::string_view name, hardware;
  bool alone = false;  // one GPU only
};
constexpr Card kCards[] = {
    {"H100", "h100-sxm"},
    {"H100 80GB", "h100-sxm"},
    {"H100 80GB HBM3", "h100-sxm"},
    {"H100/H800", "h100-sxm", true},
    {"H800/H100", "h100-sxm", true},
    {"H800", "h100-sxm", true},
    {"H200", "h200-sxm"},
    {"H20", "h20"},
    {"H20 NVLink", "h20"},
    {"B200", "b200"},
    {"A100", "a100-sxm"},
    {"A100 80GB NVLink", "a100-sxm"},
    {"A100-SXM4-80GB", "a100-sxm"},
    {"A100-SXM4-80GB NVLink", "a100-sxm"},
    {"A100/A800", "a100-sxm", true},
    {"A800/A100", "a100-sxm", true},
    {"A800", "a100-sxm", true},
    {"RTX 4090", "rtx-4090"},
    {"RTX PRO 6000 Blackwell", "rtx-pro-6000"},
    {"RTX PRO 6000 Blackwell Server", "rtx-pro-6000"},
    {"MI300X", "mi300x"},
};

// Kernels as pages name them. SDPA is FlashAttention 2 unless cuDNN is named, and so is flash-attn without
// its version (its third is a package of another name); SGLang's fa is FlashAttention 3 on Hopper, 2 before
// it.
struct KernelName {
  std::string_view begin, backend, settings = {};
};
constexpr std::string_view kSecondFlash = "FlashAttention 2";
constexpr KernelName kKernels[] = {{"FA3 fp8", ""},
                                   {"FA3", "fa"},
                                   {"fa", "fa"},
                                   {"FA2", kSecondFlash},
                                   {"FlashAttn", kSecondFlash},
                                   {"flash-attn", kSecondFlash},
                                   {"SDPA", kSecondFlash},
                                   {"native", kSecondFlash},
                                   {"original", kSecondFlash},
                                   {"torch_sdpa", "torch_sdpa"},
                                   {"torch flash SDPA", "torch_sdpa"},
                                   {"torch_cudnn_sdpa", "torch_cudnn_sdpa"},
                                   {"Sage1", "sage_attn", "release=1"},
                                   {"Sage2", "sage_attn", "release=2"},
                                   {"Sage 8+16", "sage_attn", "release=2"},
                                   {"sage_attn_3", "sage_attn_3"},
                                   {"Sage3 fp4", "sage_attn_3"},
                                   {"sage_attn", "sage_attn"},
                                   {"video_sparse_attn", "video_sparse_attn"},
                                   {"sparse_video_gen_2_attn", "sparse_video_gen_2_attn"},
                                   {"cuDNN", "dynamic_cudnn_sdpa"},
                                   {"sla_attn", "sla_attn"},
                                   {"sage_sla_attn", "sage_sla_attn"}};

std::string model_of(const PublishedGeneration& row) {
  // Of one checkpoint or resolution, where pages name a family.
  static const std::pair<std::string_view, std::string_view> kOthers[] = {
      {"wan2.2-ti2v-5b t2v", "wan2.2-ti2v-5b"},
      {"wan2.2-ti2v-5b i2v", "wan2.2-ti2v-5b"},
      {"wan2.1-i2v-14b", "wan2.1-i2v-14b-720p"},
      {"qwen-image-2512", "qwen-image"},
      {"ltx-2 two-stage", "ltx-2"}};
  std::string name = to_lower(row.model);
  for (const auto& [other, own] : kOthers)
    if (name == other) name = own;
  const std::vector<std::string> known = rank::pipeline_catalogue();
  if (std::ranges::find(known, name) == known.end())
    throw_user_error("the model is not in rank/catalogue/pipelines");
  return name;
}

void add_parallel(const PublishedGeneration& row, Flags& flags) {
  if (row.num_gpus == 1) return;
  if (has(row.parallel, "FSDP")) throw_user_error("FSDP is not simulated");
  std::string text = plain(row.parallel);
  // SGLang's own choices, and what follows from the other words.
  for (const std::string_view said : {", CFG serial", ", auto kv_gather_degree=2", "unified "}) {
    if (const std::size_t at = text.find(said); at != std::string::npos) text.erase(at, said.size());
  }
  if (text == "sp 2") return;  // its default
  if (text == "2x2") text = "ulysses 2 ring 2";
  static const std::regex kPair(R"((ulysses|ring|cfg|tp) (\d{1,3})(?: x | |$))");
  std::string rest = text;
  std::smatch match;
  while (std::regex_search(rest, match, kPair, std::regex_constants::match_continuous)) {
    const std::string kind = match[1];
    flags.push_back(kind == "ulysses" ? "--ulysses-degree"
                    : kind == "ring"  ? "--ring-degree"
                    : kind == "cfg"   ? "--cfg-parallel-size"
                                      : "--tp-size");
    flags.push_back(match[2]);
    rest = match.suffix();
  }
  if (!rest.empty() || text.empty())
    throw_user_error("how its GPUs share the work was not published, or is of no SGLang flag");
}

constexpr std::string_view kTwoStage = "two-stage";

void add_size(const PublishedGeneration& row, TimedPart part, const rank::PipelineConfig& config,
              Flags& flags) {
  static const std::regex kSize(R"((\d{2,5})x(\d{2,5})(?: \(([^)]*)\))?)");
  std::smatch match;
  if (!std::regex_match(row.resolution, match, kSize) || has(match[3].str(), "not in"))
    throw_user_error("its size was not published");
  const bool image = config.needs_image || has(match[3].str(), "input") || row.model.ends_with(" I2V");
  if (image && config.image_input) {
    flags.insert(flags.end(), {"--image-path", match[1].str() + "x" + match[2].str()});
  } else if (image) {
    throw_user_error("the model takes no input image");
  }
  flags.insert(flags.end(), {"--width", match[1], "--height", match[2]});
  if (config.video) {
    const std::optional<std::uint32_t> frames = leading_count(row.frames);
    if (!frames) throw_user_error("its frames were not published");
    flags.insert(flags.end(), {"--num-frames", std::to_string(*frames)});
  }
  const bool loops = part == TimedPart::kEndToEnd || part == TimedPart::kDenoising;
  // 40 + 3: of both stages.
  const std::string first =
      has(row.model, kTwoStage) ? row.steps.substr(0, row.steps.find(" + ")) : row.steps;
  const std::optional<std::uint32_t> steps = leading_count(first);
  if (loops && !steps) throw_user_error("its steps were not published");
  if (steps) flags.insert(flags.end(), {"--num-inference-steps", std::to_string(*steps)});
}

void add_guidance(const PublishedGeneration& row, const rank::PipelineConfig& config, Flags& flags) {
  if (row.guidance.empty() || row.guidance == "not stated") return;
  const bool guided = row.guidance.starts_with("CFG");
  if (guided == config.defaults.guided) return;
  if (guided)
    flags.insert(flags.end(), {"--guidance-scale", "5", "--negative-prompt", "none"});
  else
    flags.insert(flags.end(), {"--guidance-scale", fmt::format("{}", deployment_rule(config).guided_above)});
}

constexpr std::string_view kQuality = "quality=";

// attn_params: sparsity, a batch, or remarks that change nothing here.
void add_settings(const PublishedGeneration& row, AskedBackend backend, Flags& flags) {
  static const std::regex kSparsity(R"(sparsity ([\d.]+)(%?)(?: in training)?)"),
      kBatch(R"(batch (\d{1,3}))");
  const std::string& text = row.backend_settings;
  std::smatch match;
  const bool blocks = backend.name == "video_sparse_attn", linear = backend.name.ends_with("sla_attn");
  if (std::regex_match(text, match, kSparsity)) {
    const double sparsity =
        parse_real("sparsity", match[1], 0, true, 100, true) / (match[2].length() > 0 ? 100 : 1);
    if (blocks)
      backend.settings = fmt::format("sparsity={:g}", sparsity);
    else if (linear)
      backend.settings = fmt::format("sla_topk={:g}", 1 - sparsity);
    else if (sparsity > 0)
      throw_user_error("a sparsity is no setting of its attention backend");
  } else if (std::regex_match(text, match, kBatch)) {
    flags.insert(flags.end(), {"--num-outputs-per-prompt", match[1]});
  } else if (blocks || linear) {
    throw_user_error("the settings of its sparse attention were not published");
  } else if (text.starts_with(kQuality)) {
    const std::string level = text.substr(kQuality.size(), text.find(' ') - kQuality.size());
    if (level == "exact") flags.insert(flags.end(), {"--quality", level});
  } else if (!text.empty() && text != "no offload" && !text.ends_with("tokens")) {
    throw_user_error("its setting \"{}\" is of no SGLang flag", text);
  }
  if (!backend.name.empty()) flags.insert(flags.end(), {"--attention-backend", backend.name});
  if (!backend.settings.empty()) flags.insert(flags.end(), {"--attention-backend-config", backend.settings});
}

// Checkpoints of ModelOpt's: in fp8 as --quantization fp8 has it, but for scales of inputs that are stored,
// or in NVFP4. Empty: another.
std::string modelopt_format(std::string_view dtype) {
  if (dtype == "modelopt fp8") return "fp8";
  return dtype == "nvfp4" || dtype.starts_with("modelopt nvfp4") ? "nvfp4" : "";
}

// The published checkpoint of that format, or any.
void add_checkpoint(const rank::PipelineConfig& config, const std::string& format, Flags& flags) {
  const auto known = std::ranges::find_if(config.quantised,
                                          [&](const auto& c) { return quantised_by_name(c.id) == format; });
  if (known != config.quantised.end() && known->whole)
    *(std::ranges::find(flags, "--model-path") + 1) = known->id;
  else
    flags.insert(flags.end(), {"--transformer-path", known == config.quantised.end() ? format : known->id});
}

// Refuses what SGLang's flags do not say, or tpsim does not simulate.
void check_simulated(const PublishedGeneration& row) {
  const std::string dtype = to_lower(row.dtype);
  for (const std::string_view quantised : {"fp8", "fp4", "int8", "w8a8"})
    if (has(dtype, quantised) && modelopt_format(dtype).empty())
      throw_user_error("quantised weights are not simulated, but those of ModelOpt's fp8 and NVFP4");
  if (has(dtype, "resident"))
    throw_user_error("layers that stay resident while others stream are not simulated");
  if (!row.caching.empty() && row.caching != "none" && !has(row.caching, "no-op"))
    throw_user_error("how many steps its cache computes depends on the prompt and was not published");
  if (has(row.timed, "cold") || has(row.timed, "at once"))
    throw_user_error("its first request compiles and loads, or several share the server");
  if (has(row.parallel, "disaggregated")) throw_user_error("disaggregated roles are not simulated");
  const bool image = leading_count(row.frames) == 1U;
  if ((has(row.notes, "image decode is only the enqueue") && row.timed.starts_with("VAE decoding") &&
       image) ||
      (has(row.notes, "host enqueue times") && row.timed.starts_with("one denoising step")))
    throw_user_error("its clock stops when the kernels are queued, not when they are done");
  if (has(row.notes, "tiny VAE")) throw_user_error("its VAE is another one than the pipeline's");
}

}  // namespace

std::string_view to_string(TimedPart part) { return kPartNames[static_cast<std::size_t>(part)]; }

TimedPart timed_part(const PublishedGeneration& row) {
  for (const PartRow& part : kParts)
    if (row.timed.starts_with(part.begin)) return part.part;
  throw_user_error("\"{}\" is none of the figures that tpsim has", row.timed);
}

bool is_sglang(const PublishedGeneration& row) { return row.source.starts_with("sgl"); }

std::string hardware_of(const PublishedGeneration& row) {
  const std::string name = plain(row.gpu);
  const auto* const card = std::ranges::find(kCards, name, &Card::name);
  if (card == std::end(kCards) || (card->alone && row.num_gpus > 1))
    throw_user_error("its GPU is not in rank/catalogue/hardware, or was not published");
  return std::string(card->hardware);
}

AskedBackend backend_of(const PublishedGeneration& row, const std::string& hardware) {
  const std::string& name = row.backend;
  if (name.empty() || has(name, "platform default") || name.starts_with("default") || has(name, "forced"))
    return {};
  if (name.starts_with("sliding_tile_attn"))
    throw_user_error("the windows of its sliding tiles are no flag's, but a file's, which was not published");
  const auto* const kernel =
      std::ranges::find_if(kKernels, [&](const KernelName& k) { return name.starts_with(k.begin); });
  if (kernel == std::end(kKernels) || kernel->backend.empty() || has(name, " if ") || has(name, "backend"))
    throw_user_error("its attention backend, {}, is none of tpsim's", name);
  if (kernel->backend != kSecondFlash) return {std::string(kernel->backend), std::string(kernel->settings)};
  const bool second = rank::load_hardware(hardware).architecture() != "hopper";
  const bool torch = name.starts_with("SDPA") || name.starts_with("native");
  return {second && !torch ? "fa" : "torch_sdpa", ""};
}

std::vector<std::string> generation_flags(const PublishedGeneration& row, TimedPart part) {
  const std::string model = model_of(row), hardware = hardware_of(row);
  check_simulated(row);
  const rank::PipelineConfig config = rank::load_pipeline(model);
  Flags flags = {"--model-path", model, "--hardware", hardware};
  if (has(row.model, kTwoStage)) flags.insert(flags.end(), {"--pipeline-class-name", "LTX2TwoStagePipeline"});
  if (row.num_gpus > 1) flags.insert(flags.end(), {"--num-gpus", std::to_string(row.num_gpus)});
  add_parallel(row, flags);
  add_settings(row, backend_of(row, hardware), flags);
  // Other engines decode images with Diffusers' own VAEs.
  if (!is_sglang(row)) flags.insert(flags.end(), {"--quality", "exact"});
  // Wan's own script moves each model to the GPU before it runs.
  if (row.num_gpus == 1 && has(row.notes, "offload_model"))
    flags.insert(flags.end(), {"--cpu-offload-components", "all"});
  // Other engines make as many frames as they are asked for, and Wan's own script decodes on one GPU.
  if (!is_sglang(row) && config.video && row.num_gpus > 1) {
    flags.insert(flags.end(), {"--adjust-frames", "false"});
    if (row.source.starts_with("Wan-Video/"))
      flags.insert(flags.end(), {"--vae-config.use-parallel-decode", "false"});
  }
  if (const std::string format = modelopt_format(to_lower(row.dtype)); !format.empty())
    add_checkpoint(config, format, flags);
  if (row.compile == "on") flags.emplace_back("--enable-torch-compile");
  add_size(row, part, config, flags);
  add_guidance(row, config, flags);
  return flags;
}

std::optional<PublishedGeneration> baseline_of(const PublishedGeneration& row) {
  static const std::regex kSplit(R"((ulysses|ring|tp|cfg) (\d{1,3}))");
  PublishedGeneration out = row;
  if (row.baseline.starts_with("1 GPU") || row.baseline == "diffusers 1 GPU") {
    out.num_gpus = 1;
    out.parallel = "none";
    if (has(row.baseline, "eager")) out.compile = "off";
  } else if (std::regex_match(row.baseline, kSplit)) {
    out.parallel = row.baseline;
  } else {
    constexpr std::string_view kDense[] = {"dense", "full attention"};
    const bool dense = std::ranges::any_of(kDense, [&](auto word) { return row.baseline.starts_with(word); });
    const bool kernel = std::ranges::any_of(kKernels, [&](const KernelName& k) {
      return row.baseline.starts_with(k.begin) && row.baseline != "original";
    });
    if (!dense && !kernel) return std::nullopt;
    out.backend = dense ? std::string("FA2") : row.baseline;
    // A kernel's shape stands with its settings.
    if (!row.timed.starts_with("one attention")) out.backend_settings.clear();
  }
  const bool same = out.num_gpus == row.num_gpus && out.parallel == row.parallel &&
                    out.backend == row.backend && out.compile == row.compile;
  return same ? std::nullopt : std::optional(std::move(out));
}

AskedAttention attention_call(const PublishedGeneration& row) {
  // Of kernels whose batch and heads no page says, those of SageAttention's own benchmark (bench/*.py of
  // thu-ml/SageAttention: batch 4, 32 heads), of which rates hardly depend.
  static const std::regex kSequence(R"(seq (\d{1,3})K)"), kHead(R"(head dim (\d{2,3}), non-causal.*)"),
      kList(R"(\[(\d{1,3}),(\d{1,3}),(\d{1,7}),(\d{2,3})\].*)"),
      kWords(R"(batch (\d{1,3}), heads (\d{1,3}), seq (\d{1,7}), head dim (\d{2,3}))");
  std::smatch a, b;
  const auto count = [](const std::ssub_match& match) {
    return static_cast<std::uint32_t>(std::stoul(match.str()));
  };
  if (row.num_gpus > 1) throw_user_error("the tokens and the exchange of its GPUs are those of no pipeline");
  if (std::regex_match(row.resolution, a, kSequence) && std::regex_match(row.backend_settings, b, kHead))
    return {.batch = 4, .tokens = 1024.0 * count(a[1]), .heads = 32, .head_dim = count(b[1])};
  if (std::regex_match(row.resolution, a, kList) || std::regex_match(row.resolution, a, kWords))
    return {.batch = 1.0 * count(a[1]),
            .tokens = 1.0 * count(a[3]),
            .heads = count(a[2]),
            .head_dim = count(a[4])};
  throw_user_error("the shape of its attention was not published");
}

}  // namespace tpsim::launch
