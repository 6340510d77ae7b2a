// Drives random streams of batches through a deployment, as `tpsim` drives scheduled ones, and writes down
// everything that came back. Started plainly or under mpirun; see mpi_test.py for what is expected of it.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <stdexcept>

#include "proto/base/error.h"
#include "proto/base/stop_flag.h"
#include "rank/parallel/deployment_executor.h"
#include "rank/parallel/local_ranks.h"
#include "rank/parallel/mpi_executor.h"
#include "rank/parallel/mpi_session.h"
#include "rank/parallel/worker_link.h"
#include "tests/unit/rank/parallel/fake_model.h"
#include "tests/unit/rank/parallel/random_stream.h"

namespace {

using namespace tpsim;
using namespace tpsim::rank;

struct Options {
  std::uint32_t tp = 8;
  std::uint32_t deployments = 1;
  std::uint32_t runs = 1;
  std::uint32_t steps = 1000;
  int work = 1;
  std::uint32_t extend_percent = 25;
  std::uint32_t page_size = 1;
  bool each = false;  // one model per rank instead of one for all
  std::vector<std::string> slowdown;
  std::string out;
  std::string pid_dir;
  // Faults, by process.
  int odd_price = -1;
  int odd_hash = -1;
  int bad_setup = -1;
  int bad_stream = -1;  // not a process: batch that breaks the rules
  bool forever = false;
  MpiOptions mpi;
};

constexpr std::uint32_t kNumPages = 8192;

struct PreparedRun {
  LocalRanks ranks;
  std::uint64_t configuration_hash = 0;
};

PreparedRun make_run(const Options& options, const ProcessGroup& group, std::uint32_t run_index) {
  const int process = static_cast<int>(group.process);
  if (process == options.bad_setup) throw UserError("model.json: no such file");
  DeploymentConfig config;
  config.tp_size = options.tp;
  config.state.page_size = options.page_size;
  config.state.num_pages = kNumPages;
  config.state.kv_bytes_per_token = 40960;
  config.slowdown = parse_rank_slowdowns(options.slowdown, options.tp);
  config.ranks.resize(options.tp);
  for (std::uint32_t r = 0; r < options.tp; ++r) config.ranks[r].set_weight_bytes(1000 + r);
  const double bias = process == options.odd_price ? 1.0 + 1e-15 : 1.0;
  std::vector<std::shared_ptr<RankModel>> models;
  const std::uint32_t count = options.each ? group.ranks_per_process() : 1;
  for (std::uint32_t i = 0; i < count; ++i) {
    // With a model per rank, shards are unlike: rank r is a little dearer than rank r - 1.
    const double shard = options.each ? 1.0 + 0.01 * (group.first_rank(group.process) + i) : 1.0;
    models.push_back(std::make_unique<FakeModel>(bias * shard, options.work));
  }
  return {LocalRanks(config, group.first_rank(group.process), group.ranks_per_process(), std::move(models)),
          configuration_hash(fmt::format("run {}", run_index)) + (process == options.odd_hash ? 1 : 0)};
}

std::vector<proto::ForwardBatch> make_stream(const Options& options, std::uint32_t run_index) {
  RandomStream::Options stream_options;
  stream_options.seed = 1 + run_index;
  stream_options.num_pages = kNumPages;
  stream_options.page_size = options.page_size;
  stream_options.extend_percent = options.extend_percent;
  RandomStream stream(stream_options);
  std::vector<proto::ForwardBatch> batches(options.steps);
  for (proto::ForwardBatch& batch : batches) stream.next(batch);
  if (options.bad_stream >= 0) batches.at(static_cast<std::size_t>(options.bad_stream)).add_decode_leave(99);
  return batches;
}

// One run in process 0. Returns false where a signal stopped it.
bool drive(const Options& options, DeploymentExecutor& executor,
           const std::vector<proto::ForwardBatch>& batches, std::ostream& out) {
  const auto start = std::chrono::steady_clock::now();
  bool stopped = false;
  for (const proto::ForwardBatch& batch : batches) {
    if (StopFlag::requested()) {
      stopped = true;
      break;
    }
    const scheduler::StepOutcome outcome = executor.forward(batch);
    out.write(reinterpret_cast<const char*>(&outcome.step_time), sizeof outcome.step_time);
    out.write(reinterpret_cast<const char*>(&outcome.host_time), sizeof outcome.host_time);
  }
  // Steady decode steps after the stream, until somebody stops it.
  proto::ForwardBatch idle;
  idle.set_version(1);
  idle.set_forward_mode(proto::IDLE);
  for (std::uint64_t number = batches.size(); options.forever && !stopped; ++number) {
    idle.set_sequence_number(number);
    executor.forward(idle);
    stopped = StopFlag::requested();
    if (number % 1000 == 0) usleep(1000);
  }
  for (const proto::RankReport& report : executor.finish()) out << report.SerializeAsString() << '\n';
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("%zu steps in %.3f s\n", batches.size(), seconds);
  std::fflush(stdout);
  return !stopped;
}

int run_process_0(const Options& options, MpiSession& session, const ProcessGroup& group) {
  const std::string suffix = group.deployment == 0 ? "" : fmt::format(".{}", group.deployment);
  std::ofstream out(options.out.empty() ? "/dev/null" : options.out + suffix, std::ios::binary);
  std::optional<WorkerLink> link;
  if (group.num_processes > 1) link.emplace(session, group, options.mpi);
  int exit_status = 0;
  try {
    for (std::uint32_t run_index = 0; run_index < options.runs && exit_status == 0; ++run_index) {
      const auto batches = make_stream(options, run_index);
      PreparedRun run = make_run(options, group, run_index);
      std::unique_ptr<DeploymentExecutor> executor;
      if (link) {
        executor = std::make_unique<MpiExecutor>(*link, std::move(run.ranks), run.configuration_hash);
      } else {
        executor = std::make_unique<ModeledExecutor>(std::move(run.ranks));
      }
      if (!drive(options, *executor, batches, out)) exit_status = 3;
    }
  } catch (const UserError& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    exit_status = 2;
  } catch (const RankLost& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    exit_status = 3;
  }
  out.flush();
  if (exit_status == 3) std::printf("report written\n");
  std::fflush(stdout);
  if (link) link->shutdown(exit_status);
  return exit_status;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app;
  app.add_option("--tp", options.tp);
  app.add_option("--deployments", options.deployments);
  app.add_option("--runs", options.runs);
  app.add_option("--steps", options.steps);
  app.add_option("--work", options.work);
  app.add_option("--extend-percent", options.extend_percent);
  app.add_option("--page-size", options.page_size);
  app.add_option("--rank-slowdown", options.slowdown);
  app.add_option("--out", options.out);
  app.add_option("--pid-dir", options.pid_dir);
  app.add_option("--odd-price", options.odd_price);
  app.add_option("--odd-hash", options.odd_hash);
  app.add_option("--bad-setup", options.bad_setup);
  app.add_option("--bad-stream", options.bad_stream);
  app.add_option("--timeout", options.mpi.answer_timeout_seconds);
  app.add_option("--batches-per-message", options.mpi.batches_per_message);
  app.add_option("--window", options.mpi.window);
  app.add_flag("--synchronous", options.mpi.synchronous);
  app.add_flag("--each", options.each);
  app.add_flag("--forever", options.forever);
  CLI11_PARSE(app, argc, argv);

  StopFlag::install();
  MpiSession session;
  if (session.process() > 0) StopFlag::leave_to_process_0();  // one deployment, where signals are tested
  if (!options.pid_dir.empty()) {
    std::ofstream(fmt::format("{}/{}", options.pid_dir, session.process())) << getpid() << '\n';
  }
  try {
    const ProcessGroup group = session.process_group(options.tp, options.deployments);
    if (group.process == 0) return run_process_0(options, session, group);
    return run_worker(group, [&](std::uint32_t run_index) {
      PreparedRun run = make_run(options, group, run_index);
      return WorkerRun{std::make_unique<PricedRanks>(std::move(run.ranks)), run.configuration_hash};
    });
  } catch (const UserError& error) {
    if (session.process() == 0) std::fprintf(stderr, "error: %s\n", error.what());
    return 2;
  }
}
