// `tpsim verify`: every backend, --tp and way to serve, against the dense reference.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "attention/selection/registry.h"
#include "launch/cli/flag_command.h"
#include "launch/cli/flag_set.h"
#include "launch/cli/flag_values.h"
#include "launch/cli/terminal.h"
#include "launch/deployment/deployment.h"
#include "launch/flags/server_args.h"
#include "launch/numeric/numeric_commands.h"
#include "launch/numeric/verify.h"
#include "proto/base/error.h"
#include "proto/base/stop_flag.h"
#include "rank/config/shard.h"

namespace tpsim::launch {
namespace {

struct VerifyArgs {
  ServerArgs server;
  std::vector<std::string> backends;  // "all", names and pairs
  std::string prompts;
  std::uint32_t prompt_length = 48;
  VerifyPlan plan;
};

void declare_flags(FlagSet& flags, VerifyArgs& args) {
  flags.group("Verification");
  flags.add_list("--attention-backends", "LIST",
                 "all, or backends and PREFILL+DECODE pairs, for example fa3,flashinfer+triton (default all)",
                 name_list(args.backends));
  flags.add_value("--prompts", "FILE",
                  "JSONL of prompts, {\"prompt_ids\": [1, 2, 3]} a line (default: seeded random ones that "
                  "share prefixes)",
                  text(args.prompts));
  flags.add_value("--prompt-length", "TOKENS", "of the longest random prompt (default 48)",
                  count(args.prompt_length, 2, 1U << 20));
  flags.add_value("--max-new-tokens", "N", "greedy tokens of each prompt (default 16)",
                  count(args.plan.max_new_tokens, 1, 1U << 20));
  flags.add_value("--tolerance", "X",
                  "largest difference of a logit, relative to the largest logit of its prompt (default 1e-4)",
                  real(args.plan.tolerance, 0, false, 1, true));
  declare_deployment_flags(flags, args.server);
}

std::vector<std::string> all_backends() {
  std::vector<std::string> names;
  for (const attention::BackendDescription* backend : attention::backend_list()) {
    names.emplace_back(backend->row.name);
  }
  return names;
}

// --tp, and what lies below it in powers of two.
std::vector<std::uint32_t> tp_sizes(const ServerArgs& args, const rank::ModelConfig& model) {
  rank::make_shard(model, args.tp_size, 0, args.parallel.ep_size);  // refuses --tp itself
  std::vector<std::uint32_t> sizes;
  for (std::uint32_t size = 1; size < args.tp_size; size *= 2) {
    if (args.tp_size % size == 0) sizes.push_back(size);
  }
  sizes.push_back(args.tp_size);
  return sizes;
}

void print_head() {
  print(fmt::format("{:>4}  {:<24} {:>8} {:>8}  {:>10}  {:>12}  {}\n", "tp", "backend", "variants", "reused",
                    "largest", "tokens", "worst variant"));
}

void print_row(const VerifyRow& row, double tolerance) {
  if (!row.refused.empty()) {
    print(fmt::format("{:>4}  {:<24} cannot: {}\n", row.tp_size, row.backend, row.refused));
  } else {
    print(fmt::format("{:>4}  {:<24} {:>8} {:>8}  {:>10.2e}  {:>12}  {}{}\n", row.tp_size, row.backend,
                      row.variants, row.cached_tokens, row.largest_difference,
                      fmt::format("{}/{}", row.tokens - row.wrong_tokens, row.tokens), row.worst_variant,
                      row.agrees(tolerance) ? "" : "  DISAGREES"));
  }
  flush_output();
}

int verify_command(VerifyArgs& args, const rank::MpiSession& session) {
  set_up_logging(args.server, session.process() == 0);
  if (session.num_processes() > 1)
    throw_user_error("verify computes the ranks of every --tp in one process; start it without mpirun");
  if (args.server.attention_backend || args.server.prefill_attention_backend ||
      args.server.decode_attention_backend)
    throw_user_error("--attention-backend: verify takes a list, give --attention-backends");
  if (args.server.disable_radix_cache)
    throw_user_error("--disable-radix-cache: verify serves with and without reuse of prefixes; leave it out");
  const rank::ModelConfig model = rank::load_model_config(args.server.model_path);
  VerifyPlan& plan = args.plan;
  const bool all = args.backends.empty() || args.backends == std::vector<std::string>{"all"};
  plan.backends = all ? all_backends() : args.backends;
  plan.tp_sizes = tp_sizes(args.server, model);
  plan.prompts = args.prompts.empty()
                     ? make_verify_prompts(model.vocab_size, args.prompt_length, args.server.random_seed)
                     : read_prompts(args.prompts);
  // Rows as they are done, and a bar below them.
  ProgressBar progress(ProgressBar::mode_for_stderr(!args.server.no_progress), "verify");
  const auto on_progress = [&progress](const std::string& what, std::uint64_t served, std::uint64_t total) {
    progress.set_label(what);
    progress.update({0, served, total, 0});
  };
  bool headed = false;
  const auto on_row = [&](const VerifyRow& row) {
    progress.erase();
    if (!std::exchange(headed, true)) print_head();
    print_row(row, plan.tolerance);
  };
  std::vector<VerifyRow> rows;
  try {
    rows = verify(args.server, plan, on_progress, on_row);
  } catch (const Stopped&) {
    spdlog::error("interrupted; the rows that were finished are above");
    return kStoppedEarly;
  }
  const auto refused = std::ranges::count_if(rows, [](const VerifyRow& row) { return !row.refused.empty(); });
  const auto disagreeing = std::ranges::count_if(
      rows, [&plan](const VerifyRow& row) { return row.refused.empty() && !row.agrees(plan.tolerance); });
  // What was asked for by name must work; "all" means all that can.
  if (refused == std::ssize(rows) || (refused > 0 && !all))
    throw_user_error("--attention-backends: {} of {} rows could not be computed, see above", refused,
                     rows.size());
  print(fmt::format(
      "\n{}\n",
      disagreeing == 0
          ? fmt::format("All agree with the dense reference: logits within {:g}, every greedy token.",
                        plan.tolerance)
          : fmt::format("{} of {} rows disagree with the dense reference.", disagreeing,
                        std::ssize(rows) - refused)));
  return disagreeing == 0 ? kDone : kDisagreement;
}

}  // namespace

void add_verify_command(CLI::App& command, rank::MpiSession& session, Action& action) {
  add_flag_command<VerifyArgs>(
      command, action,
      [](FlagSet& flags, VerifyArgs& args) {
        args.server.executor = "numeric";
        args.server.dtype = "float32";  // the KV cache follows: what is left is the order of sums
        declare_flags(flags, args);
      },
      [&session](VerifyArgs& args, FlagSet&) {
        if (!args.server.numeric())
          throw_user_error("--executor modeled: has nothing to verify; leave it out");
        check_deployment_args(args.server);
        return verify_command(args, session);
      });
}

}  // namespace tpsim::launch
