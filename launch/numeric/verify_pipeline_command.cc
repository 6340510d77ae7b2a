// `tpsim verify` of a diffusion pipeline: every attention backend and split against one dense rank.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attention/diffusion/selection/diffusion_attention.h"
#include "launch/cli/flag_command.h"
#include "launch/cli/flag_set.h"
#include "launch/cli/flag_values.h"
#include "launch/cli/terminal.h"
#include "launch/numeric/numeric_commands.h"
#include "launch/numeric/verify_pipeline.h"
#include "proto/base/error.h"
#include "proto/base/text.h"

namespace tpsim::launch {
namespace {

struct VerifyPipelineArgs {
  std::string model_path, reference, latent_size, load_format = "auto";
  std::vector<std::string> backends;
  std::optional<std::uint32_t> num_gpus, ulysses, ring;
  std::uint32_t tp_size = 1;
  std::optional<bool> cfg_parallel;
  SplitPlan plan;
  double guidance = 5, tolerance = 1e-4;
};

constexpr std::uint64_t kMostGpus = 64, kMostSize = 1024;

void declare_pipeline_flags(FlagSet& flags, VerifyPipelineArgs& args) {
  flags.group("Verification");
  flags.add_value("--model-path,--model", "DIR", "folder with a model_index.json, transformer and scheduler",
                  text(args.model_path));
  flags.add_value(
      "--load-format", "FORMAT",
      "auto: weights of the folder; dummy: seeded ones, so that a configuration is enough (default "
      "auto)",
      word({"auto", "dummy"}, args.load_format));
  flags.add_list(
      "--attention-backends", "LIST",
      "all that are computed and need no --attention-backend-config, or names: fa,sage_attn (default all)",
      name_list(args.backends));
  flags.add_value("--attention-backend-config", "CONFIG", "of the one backend that is named: KEY=VALUE,...",
                  text(args.plan.backend_config));
  flags.add_value(
      "--reference", "FILE",
      "JSON of what Diffusers made (tests/references/make_diffusion_references.py), sizes included",
      text(args.reference));
  flags.add_value(
      "--tolerance", "X",
      "largest difference of a latent with dense attention, relative to the largest (default 1e-4)",
      real(args.tolerance, 0, false, 1, true));
  flags.group("Parallelism");
  flags.add_value("--num-gpus", "N",
                  "ranks (default: processes of mpirun, or 8): 1, 2, 4 ... up to it without mpirun",
                  count(args.num_gpus, 1, kMostGpus));
  flags.add_value("--tp-size", "N", "that share each layer's weights, of encoders, too (default 1)",
                  count(args.tp_size, 1, kMostGpus));
  flags.add_value("--ulysses-degree", "N", "that share heads (default: all that fit)",
                  count(args.ulysses, 1, kMostGpus));
  flags.add_value("--ring-degree", "N", "that pass keys and values round (default: all that fit)",
                  count(args.ring, 1, kMostGpus));
  flags.add_boolean("--enable-cfg-parallel", "a group of ranks for each prompt (default: with and without)",
                    args.cfg_parallel);
  flags.group("Request");
  flags.add_value("--latent-size", "FxRxC", "frames, rows and columns of the latents (default 3x6x10)",
                  text(args.latent_size));
  flags.add_value("--prompt-tokens", "N", "embeddings of a prompt (default 8)",
                  count(args.plan.size.prompt_tokens, 1, kMostSize));
  flags.add_value("--num-inference-steps", "N", "of the denoising loop (default 4)",
                  count(args.plan.size.steps, 1, kMostSize));
  flags.add_value("--guidance-scale", "X",
                  "classifier-free guidance runs above 1, of Z-Image above 0 (default 5)",
                  real(args.guidance, 0, true, 1000, true));
  flags.add_value("--seed", "N", "of latents and embeddings (default 1)",
                  count(args.plan.size.seed, 0, 1U << 31));
}

std::array<std::uint32_t, 3> read_latent_size(const std::string& value) {
  const std::vector<std::string> parts = split_list(value, 'x');
  std::array<std::uint32_t, 3> out{};
  if (parts.size() != out.size())
    throw_user_error("--latent-size {}: must be frames, rows and columns, for example 3x6x10", value);
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<std::uint32_t>(parse_count("--latent-size " + value, parts[i], 1, kMostSize));
  return out;
}

// Of `ranks`, those that the flags allow.
void add_splits(const VerifyPipelineArgs& args, std::uint32_t ranks, bool guided,
                std::vector<rank::SequenceSplit>& splits) {
  for (std::uint32_t cfg = 1; cfg <= (guided ? 2U : 1U); ++cfg) {
    const std::uint32_t others = cfg * args.tp_size;
    if (ranks % others != 0 || (args.cfg_parallel && *args.cfg_parallel != (cfg == 2))) continue;
    for (std::uint32_t ring = 1; ring <= ranks / others; ++ring) {
      const std::uint32_t ulysses = ranks / others / ring;
      if (others * ring * ulysses != ranks || args.ring.value_or(ring) != ring ||
          args.ulysses.value_or(ulysses) != ulysses)
        continue;
      splits.push_back({.cfg = cfg, .ring = ring, .ulysses = ulysses, .tp = args.tp_size});
    }
  }
}

std::string difference_text(double difference) { return fmt::format("{:.2e}", difference); }

void print_pipeline_row(const PipelineRow& row, double tolerance) {
  const auto& [cfg, ring, ulysses, tp] = row.split;
  std::string line = fmt::format("{:>5} {:>3} {:>4} {:>5} {:>8}  {:<18}", row.split.ranks(), tp, cfg, ring,
                                 ulysses, row.backend);
  if (!row.refused.empty()) {
    line += fmt::format(" cannot: {}", row.refused);
  } else {
    line += fmt::format(" {:>6.1f} %  {:>10}  {:>10}{}{}", 100 * row.kept, difference_text(row.difference),
                        row.from_reference ? difference_text(*row.from_reference) : "",
                        row.pixels ? fmt::format("  {:>10}", difference_text(*row.pixels)) : "",
                        row.agrees(tolerance) ? "" : "  DISAGREES");
  }
  print(line + "\n");
  flush_output();
}

int verify_split_pipeline(VerifyPipelineArgs& args, rank::MpiSession& session) {
  if (args.model_path.empty())
    throw_user_error("--model-path: is required, a folder with a model_index.json");
  const bool dummy = args.load_format == "dummy";
  ComputedPipeline pipeline = load_computed_pipeline(args.model_path, dummy, args.tp_size);
  SplitPlan& plan = args.plan;
  plan.size.guidance = static_cast<float>(args.guidance);
  if (!args.latent_size.empty()) plan.size.latents = read_latent_size(args.latent_size);
  if (!args.reference.empty())
    plan.reference = read_loop_reference(args.reference, pipeline.denoiser().channels());
  std::vector<double> encoded;  // how far each text encoder is off
  if (plan.reference && !plan.reference->encoders.empty()) {
    EncodedPrompt made = encode_prompt(args.model_path, pipeline, *plan.reference, dummy, session);
    plan.prompt = std::move(made.prompt);
    encoded = std::move(made.differences);
  }
  if (plan.reference && plan.reference->pixels)
    load_decoder(args.model_path, *plan.reference, dummy, pipeline);
  const bool all = args.backends.empty() || args.backends == std::vector<std::string>{"all"};
  if (!all) plan.backends = args.backends;
  if (!plan.backend_config.empty() && (all || args.backends.size() > 1))
    throw_user_error("--attention-backend-config: is of one backend; name it by --attention-backends");
  if (all) {
    for (const rank::HeadBackend* const backend : rank::head_backends()) {
      const auto& named =
          attention::find_diffusion_backend("--attention-backends", std::string(backend->name));
      // What is to be told something first is computed when it is named.
      if (std::ranges::none_of(named.parameters, &attention::DiffusionParameter::required))
        plan.backends.emplace_back(backend->name);
    }
  }
  const float guidance = plan.reference ? plan.reference->size.guidance : plan.size.guidance;
  const bool guided = pipeline.denoiser().guided(guidance);
  if (guided && pipeline.distilled)
    throw_user_error(
        "--guidance-scale {:g}: the pipeline is distilled (is_distilled of its model_index.json) and makes "
        "no second pass; give 1",
        guidance);
  if (args.cfg_parallel.value_or(false) && !guided)
    throw_user_error(
        "--enable-cfg-parallel: guidance takes no second pass here (--guidance-scale is too small, or "
        "the model is given it as an input)");
  const bool many = session.num_processes() > 1;
  const std::uint32_t most = args.num_gpus.value_or(many ? session.num_processes() : 8);
  if (most % args.tp_size != 0)
    throw_user_error("--num-gpus {}: must be divisible by --tp-size {}", most, args.tp_size);
  for (std::uint32_t ranks = many ? most : 1; ranks < most; ranks *= 2)
    add_splits(args, ranks, guided, plan.splits);
  add_splits(args, most, guided, plan.splits);
  if (plan.splits.empty())
    throw_user_error("--num-gpus {}: is no product of the degrees that are given", most);

  const bool speaks = session.process() == 0;
  bool headed = false;
  const auto rows = verify_pipeline(pipeline, plan, session, [&](const PipelineRow& row) {
    if (!speaks) return;
    if (!headed)
      print(fmt::format("{:>5} {:>3} {:>4} {:>5} {:>8}  {:<18} {:>8}  {:>10}  {:>10}{}\n", "ranks", "tp",
                        "cfg", "ring", "ulysses", "backend", "kept", "from dense",
                        plan.reference ? "reference" : "", pipeline.decoder ? "      pixels" : ""));
    headed = true;
    print_pipeline_row(row, args.tolerance);
  });
  const auto refused =
      std::ranges::count_if(rows, [](const PipelineRow& row) { return !row.refused.empty(); });
  const auto disagreeing =
      std::ranges::count_if(rows, [&](const PipelineRow& row) { return !row.agrees(args.tolerance); });
  if (refused == std::ssize(rows))
    throw_user_error("--num-gpus {}: none of {} rows could be computed: {}", most, rows.size(),
                     rows.front().refused);
  for (std::size_t i = 0; speaks && i < encoded.size(); ++i) {
    const EncoderReference& encoder = plan.reference->encoders[i];
    print(fmt::format("{} of {} tokens: {} from the reference{}\n", encoder.folder, encoder.tokens.ids.size(),
                      difference_text(encoded[i]), encoded[i] <= args.tolerance ? "" : "  DISAGREES"));
  }
  const bool encoders_agree = std::ranges::all_of(encoded, [&](double off) { return off <= args.tolerance; });
  const int status = disagreeing == 0 && encoders_agree ? kDone : kDisagreement;
  if (!speaks) return status;
  const auto judged = std::ranges::count_if(
      rows, [](const PipelineRow& row) { return row.refused.empty() && row.exact && row.kept == 1; });
  if (judged == 0) {
    print("\nNothing here must be the same: all of it rounds or leaves keys out.\n");
  } else if (disagreeing == 0) {
    print(fmt::format("\nAll that meets every key unrounded agrees within {:g}{}: {} of {} rows.\n",
                      args.tolerance, plan.reference ? ", with the reference, too" : "", judged,
                      rows.size()));
  } else {
    print(fmt::format("\n{} of {} rows disagree.\n", disagreeing, rows.size()));
  }
  if (!encoders_agree) print("A text encoder disagrees.\n");
  return status;
}

}  // namespace

void add_verify_pipeline(CLI::App& command, rank::MpiSession& session, Action& action) {
  add_flag_command<VerifyPipelineArgs>(
      command, action, [](FlagSet& flags, VerifyPipelineArgs& args) { declare_pipeline_flags(flags, args); },
      [&session](VerifyPipelineArgs& args, FlagSet&) { return verify_split_pipeline(args, session); });
}

}  // namespace tpsim::launch
