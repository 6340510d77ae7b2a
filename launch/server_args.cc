#include "launch/server_args.h"

#include <limits>

#include "launch/flag_values.h"
#include "launch/server_flags.h"
#include "proto/base/error.h"

namespace tpsim::launch {

namespace {

constexpr std::string_view kSweepableFlags[] = {
    "--hardware",
    "--tp-size",
    "--pp-size",
    "--page-size",
    "--kv-cache-dtype",
    "--quantization",
    "--mem-fraction-static",
    "--max-total-tokens",
    "--max-running-requests",
    "--max-prefill-tokens",
    "--chunked-prefill-size",
    "--schedule-policy",
    "--schedule-conservativeness",
    "--radix-eviction-policy",
    "--cuda-graph-max-bs",
    "--speculative-num-steps",
    "--speculative-eagle-topk",
    "--speculative-num-draft-tokens",
    "--mm-attention-backend",
    "--vlm-cache-size-mb",
    "--request-rate",
    "--max-concurrency",
    "--time-scale",
};

}  // namespace

void declare_server_flags(FlagSet& flags, ServerArgs& args, bool compare) {
  declare_deployment(flags, args);
  declare_attention(flags, args, compare);
  declare_speculation(flags, args);
  declare_batches(flags, args);
  declare_image_server(flags, args);
  declare_load(flags, args);
  declare_service_levels(flags, args);
  declare_output(flags, args);
  declare_checkpoints(flags, args);
  if (!compare) {
    flags.refuse_lists(sweepable_flags());
    return;
  }
  flags.take_lists(sweepable_flags());
  flags.add_value("--jobs", "N",
                  "settings of a sweep served at once by each process (default: its share of the cores)",
                  count(args.jobs, 1, 1024));
}

void declare_deployment_flags(FlagSet& flags, ServerArgs& args) {
  declare_deployment(flags, args);
  declare_attention(flags, args, /*compare=*/false);
  declare_speculation(flags, args);
  declare_batches(flags, args);
  declare_image_server(flags, args);
  flags.refuse_lists(sweepable_flags());
  flags.group("Output");
  flags.add_value("--random-seed,--seed", "N", "of everything random (default 1)",
                  count(args.random_seed, 0, std::numeric_limits<std::uint32_t>::max()));
  declare_logging(flags, args, /*prints_table=*/false);
  flags.add_switch("--check-invariants", "checks the accounts of the KV pool after every step",
                   args.check_invariants);
}

void declare_backends_flags(FlagSet& flags, ServerArgs& args) {
  flags.add_value("--hardware", "GPU", "only this device of the catalogue", text(args.hardware));
  flags.add_value("--model-path,--model", "MODEL", "for this model: which can run, and what forbids the rest",
                  text(args.model_path));
  declare_cache(flags, args);
}

void check_deployment_args(const ServerArgs& args) {
  if (args.model_path.empty())
    throw_user_error("--model-path: is required, a catalogue name or a folder with a config.json");
  check_executor(args);
  check_priorities(args);
  check_graphs(args);
}

void check_server_args(const ServerArgs& args, bool compare) {
  check_deployment_args(args);
  if (args.report_dir.empty() && args.steps_every != 1)
    throw_user_error("--steps: chooses rows of steps.csv, which --report-dir receives; give both");
  if (args.report_dir.empty() && args.compress)
    throw_user_error("--compress: is for the CSV files of --report-dir; give both");
  if (args.swept && (args.steps_every != 1 || args.compress))
    throw_user_error(
        "--{}: is for requests.csv and steps.csv, a sweep writes one row for each setting to sweep.csv; "
        "leave it out",
        args.compress ? "compress" : "steps");
  if (compare && args.attention_backends.empty() && !args.all_attention_backends && !args.swept)
    throw_user_error("--attention-backends: is required, for example fa3,flashinfer,flashinfer+fa3");
  if (compare && !args.record_batches.empty())
    throw_user_error("--record-batches {}: takes the batches of one run, use `tpsim run`",
                     args.record_batches);
  if (compare && !args.trace_out.empty())
    throw_user_error("--trace-out {}: is a trace of one run, use `tpsim run`", args.trace_out);
  check_trace(args);
  if (args.jobs && !args.swept)
    throw_user_error("--jobs {}: shares out the settings of a sweep, give a flag a list such as --tp 4,8",
                     *args.jobs);
  check_load(args);
  check_images(args);
  check_service_levels(args);
  check_checkpoints(args, compare);
}

std::span<const std::string_view> sweepable_flags() { return kSweepableFlags; }

}  // namespace tpsim::launch
