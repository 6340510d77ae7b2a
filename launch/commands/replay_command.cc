// `tpsim replay`: a recorded stream of batches through another backend, hardware or executor. The schedule is
// the recorded one; what changes is what its passes take.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "kvcache/storage/kv_store.h"
#include "launch/cli/flag_command.h"
#include "launch/cli/flag_set.h"
#include "launch/cli/terminal.h"
#include "launch/commands/commands.h"
#include "launch/deployment/resolve.h"
#include "launch/deployment/router.h"
#include "launch/flags/server_args.h"
#include "launch/report/json_writer.h"
#include "launch/report/report_dir.h"
#include "launch/simulation/batch_stream.h"
#include "launch/simulation/report_output.h"
#include "launch/simulation/run_monitor.h"
#include "launch/simulation/stage.h"
#include "proto/base/error.h"
#include "proto/base/output_file.h"
#include "proto/base/stop_flag.h"
#include "rank/parallel/deployment_executor.h"

namespace tpsim::launch {
namespace {

struct ReplayArgs {
  ServerArgs server;
  std::string file;
};

// What a recorded schedule has decided already is refused, not ignored.
void check_recorded(const ReplayArgs& args) {
  const ServerArgs& server = args.server;
  const ServerArgs usual;
  const struct {
    const char* flag;
    bool given;
  } decided[] = {
      {"--mem-fraction-static", server.mem_fraction_static.has_value()},
      {"--max-running-requests", server.max_running_requests.has_value()},
      {"--max-prefill-tokens", server.max_prefill_tokens != usual.max_prefill_tokens},
      {"--chunked-prefill-size", server.chunked_prefill_size.has_value()},
      {"--enable-mixed-chunk", server.enable_mixed_chunk},
      {"--scheduler-recv-interval", server.scheduler_recv_interval != usual.scheduler_recv_interval},
      {"--enable-prefill-delayer", server.prefill_delayer.enabled},
      {"--schedule-policy", server.schedule_policy != usual.schedule_policy},
      {"--schedule-conservativeness", server.schedule_conservativeness != usual.schedule_conservativeness},
      {"--sglang-version", server.sglang_release != usual.sglang_release},
      {"--enable-priority-scheduling", server.priority.enable_scheduling},
      {"--retraction-policy", server.retraction_policy != usual.retraction_policy},
      {"--disable-radix-cache", server.disable_radix_cache},
      {"--radix-eviction-policy", server.radix_eviction_policy != usual.radix_eviction_policy},
      {"--cuda-graph-max-bs", server.cuda_graph_max_bs.has_value()},
      {"--cuda-graph-bs", !server.cuda_graph_bs.empty()},
  };
  if (server.parallel.pp_size > 1)
    throw_user_error(
        "--pp-size {}: a replay carries out one pass after another, stages overlap them; leave it out",
        server.parallel.pp_size);
  for (const auto& [flag, given] : decided) {
    if (given)
      throw_user_error("{}: the schedule of {} is recorded; record with it, or leave it out", flag,
                       args.file);
  }
  if (server.max_total_tokens) {
    throw_user_error("--max-total-tokens {}: the pool of {} is recorded; record with it, or leave it out",
                     *server.max_total_tokens, args.file);
  }
}

// Pages, buckets and rows are the stream's.
std::vector<Deployment> resolve(ReplayArgs& args, const proto::BatchStreamHeader& header) {
  ServerArgs& server = args.server;
  if (server.page_size && *server.page_size != header.page_size())
    throw_user_error("--page-size {}: the batches of {} were recorded with {}", *server.page_size, args.file,
                     header.page_size());
  server.page_size = header.page_size();
  server.speculation.accept_from_trace = !server.speculation.algorithm.empty();  // what is kept is recorded
  server.max_total_tokens = std::uint64_t{header.num_pages()} * header.page_size();
  std::vector<Deployment> deployments = resolve_deployments(server, /*compare=*/false);
  Deployment& deployment = deployments.front();
  refuse_replicas(deployment, "replay");
  deployment.ranks.state.num_pages = header.num_pages();
  // Nothing is captured where the backend cannot be, or the user says so.
  if (!deployment.scheduler.cuda_graph_bs.empty())
    deployment.scheduler.cuda_graph_bs.assign(header.cuda_graph_bs().begin(), header.cuda_graph_bs().end());
  deployment.header.set_trace(args.file);
  return deployments;
}

void count(const proto::ForwardBatch& batch, const scheduler::StepRecord& record, proto::RunReport& report) {
  report.set_total_input_tokens(report.total_input_tokens() + record.extend_tokens);
  report.set_steps(report.steps() + 1);
  switch (batch.forward_mode()) {
    case proto::EXTEND:
      report.set_prefill_steps(report.prefill_steps() + 1);
      break;
    case proto::MIXED:
      report.set_mixed_steps(report.mixed_steps() + 1);
      break;
    default:
      report.set_decode_steps(report.decode_steps() + 1);
  }
  std::uint64_t tokens = record.decode_requests;
  if (batch.forward_mode() == proto::TARGET_VERIFY)
    tokens = std::accumulate(batch.accept_lens().begin(), batch.accept_lens().end(), std::uint64_t{0});
  report.set_total_output_tokens(report.total_output_tokens() + tokens);
}

std::string summary(const proto::RunReport& report) {
  return fmt::format(
      "{} on {}, {}: {} passes ({} prefill, {} decode, {} mixed)\n"
      "{} prefill tokens and {} decode tokens in {:.6g} s of passes: {:.0f} tokens/s\n",
      report.model(), report.hardware(), report.backend(), report.steps(), report.prefill_steps(),
      report.decode_steps(), report.mixed_steps(), report.total_input_tokens(), report.total_output_tokens(),
      report.duration(), report.total_throughput());
}

// Throws scheduler::ExecutorLost where the replay cannot go on; what was replayed until then is reported.
scheduler::StepOutcome compute(scheduler::Executor& executor, const proto::ForwardBatch& batch,
                               const std::string& file) {
  try {
    return executor.forward(batch);
  } catch (const kvcache::UnwrittenRead& error) {
    throw_user_error("{}: batch {} is wrong: {}", file, batch.sequence_number(), error.what());
  }
}

// The pass that `batch` was, as a trace shows it; it began at `start`.
scheduler::StepRecord record_of(const proto::ForwardBatch& batch, std::uint64_t decoding, double start,
                                const scheduler::StepOutcome& outcome) {
  scheduler::StepRecord record;
  record.sequence_number = batch.sequence_number();
  record.forward_mode = batch.forward_mode();
  record.start_time = start;
  record.step_time = outcome.step_time;
  record.extend_requests = static_cast<std::uint32_t>(batch.extend_lens_size());
  for (const std::uint32_t length : batch.extend_lens()) record.extend_tokens += length;
  if (batch.forward_mode() != proto::EXTEND) record.decode_requests = static_cast<std::uint32_t>(decoding);
  record.capture_bucket = batch.capture_bucket();
  return record;
}

// A stream that verifies drafts is priced by what drafts them, which only the flags say.
void check_drafts(const proto::ForwardBatch& batch, const scheduler::SpeculationConfig& speculation,
                  const std::string& file) {
  if (batch.forward_mode() != proto::TARGET_VERIFY) return;
  if (!speculation.enabled())
    throw_user_error(
        "{}: was recorded with speculative decoding; give the --speculative-* flags that it was recorded "
        "with",
        file);
  if (batch.num_draft_tokens() != speculation.num_draft_tokens)
    throw_user_error("{}: batch {} verifies {} tokens of each request, the flags say {}", file,
                     batch.sequence_number(), batch.num_draft_tokens(), speculation.num_draft_tokens);
}

int replay_on(const Stage& stage, const ReplayArgs& args, BatchStreamReader& stream,
              const Deployment& deployment) {
  for (const std::string& note : deployment.notes) spdlog::info("{}", note);
  for (const std::string& warning : deployment.warnings) spdlog::warn("{}", warning);
  // What cannot be written is found out before the first batch.
  std::optional<ReportDir> folder;
  OutputFile* json = nullptr;
  if (!args.server.report_dir.empty()) json = &folder.emplace(args.server.report_dir).open("report.json");
  PerfettoOutput perfetto(args.server);
  const std::unique_ptr<rank::DeploymentExecutor> executor = stage.make_executor(deployment);
  proto::RunReport report = deployment.header;
  ProgressBar progress(ProgressBar::mode_for_stderr(!args.server.no_progress),
                       deployment.attention.backends.name());
  proto::ForwardBatch batch;
  std::uint64_t decoding = 0;  // size of the decode set
  double duration = 0;
  const auto& buckets = deployment.scheduler.cuda_graph_bs;
  LossTolerantExecutor tolerant(*executor);
  scheduler::RunObserver* const traced = perfetto.begin_replay(deployment, *executor);
  while (!report.stopped_early() && stream.next(batch)) {
    if (batch.micro_batch() > 0)
      throw_user_error("{}: was recorded with --pp-size above 1, whose micro-batches are not replayed",
                       args.file);
    if (!std::binary_search(buckets.begin(), buckets.end(), batch.capture_bucket()))
      batch.set_capture_bucket(0);
    check_drafts(batch, deployment.scheduler.speculation, args.file);
    decoding += static_cast<std::uint64_t>(batch.decode_join_size());
    decoding -= std::min(decoding, static_cast<std::uint64_t>(batch.decode_leave_size()));
    scheduler::StepOutcome outcome;
    try {
      outcome = compute(tolerant, batch, args.file);
    } catch (const scheduler::ExecutorLost&) {
      report.set_stopped_early(true);
      break;
    }
    const scheduler::StepRecord record = record_of(batch, decoding, duration, outcome);
    if (traced != nullptr) traced->on_step(record);
    duration += outcome.step_time + (deployment.scheduler.disable_overlap_schedule ? outcome.host_time : 0);
    count(batch, record, report);
    constexpr std::uint64_t kParts = 10000;
    progress.update(
        {duration, static_cast<std::uint64_t>(stream.progress() * kParts), kParts, report.steps()});
    report.set_stopped_early(StopFlag::requested());
  }
  report.set_duration(duration);
  report.set_page_size(deployment.scheduler.page_size);
  report.set_kv_pool_tokens(std::uint64_t{deployment.ranks.state.num_pages} * deployment.scheduler.page_size);
  if (duration > 0) {
    report.set_input_throughput(static_cast<double>(report.total_input_tokens()) / duration);
    report.set_output_throughput(static_cast<double>(report.total_output_tokens()) / duration);
    report.set_total_throughput(report.input_throughput() + report.output_throughput());
  }
  if (!tolerant.loss()) {
    for (proto::RankReport& rank : executor->finish()) *report.add_ranks() = std::move(rank);
  }
  const StopFlag::Writing results;
  if (folder) {
    json->write(to_json(report).dump(2) + "\n");
    folder->commit_all();
  }
  perfetto.write();
  print(summary(report));
  if (tolerant.loss()) throw rank::RankLost(*tolerant.loss());
  if (!report.stopped_early()) return kDone;
  spdlog::error("interrupted; what was replayed is reported");
  return kStoppedEarly;
}

int replay(ReplayArgs& args, rank::MpiSession& session) {
  set_up_logging(args.server, session.process() == 0);
  BatchStreamReader stream(args.file);
  const std::vector<Deployment> deployments = resolve(args, stream.header());
  return run_on_ranks(args.server, deployments, session, [&](const Stage& stage) {
    return replay_on(stage, args, stream, deployments.front());
  });
}

}  // namespace

void add_replay_command(CLI::App& command, rank::MpiSession& session, Action& action) {
  add_flag_command<ReplayArgs>(
      command, action,
      [](FlagSet& flags, ReplayArgs& args) {
        flags.add_word("FILE", "stream of `tpsim run --record-batches`", args.file);
        declare_deployment_flags(flags, args.server);
        flags.add_value(
            "--report-dir", "DIR", "receives report.json",
            [&args](std::string_view, const std::string& value) { args.server.report_dir = value; });
        declare_trace(flags, args.server);
      },
      [&session](ReplayArgs& args, FlagSet&) {
        check_deployment_args(args.server);
        check_trace(args.server);
        check_recorded(args);
        return replay(args, session);
      });
}

}  // namespace tpsim::launch
