// Scheduler and cache alone: one decode step of N running requests, and a prefill-heavy stream.
#include <benchmark/benchmark.h>

#include "scheduler/scheduler.h"

namespace tpsim::scheduler {
namespace {

void BM_DecodeStep(benchmark::State& state) {
  const auto running = static_cast<std::uint32_t>(state.range(0));
  SchedulerConfig config;
  config.page_size = static_cast<std::uint32_t>(state.range(1));
  config.max_total_num_tokens = 1 << 24;
  config.max_running_requests = running;
  config.context_length = 1 << 30;
  config.cuda_graph_bs = {running};
  Workload workload;
  for (std::uint32_t i = 0; i < running; ++i) {
    WorkloadRequest request;
    request.prompt.append({kvcache::TokenId{1000000} * (i + 1), 2000});
    request.max_new_tokens = 1U << 28;
    workload.requests.push_back(std::move(request));
  }
  std::unique_ptr<Scheduler> scheduler;
  proto::ForwardBatch message;
  double now = 0;
  PassResult result;
  const auto step = [&] {
    ScheduleBatch* batch = scheduler->end_pass(scheduler->begin_pass(now, 0), true);
    scheduler->write_forward_batch(*batch, message);
    now += 0.01;
    scheduler->process_batch_result(*batch, now, result);
  };
  // A request may generate about capacity / running tokens: start again before the pool is full.
  const std::int64_t fresh_every = (config.max_total_num_tokens / running - 4000);
  std::int64_t steps = 0;
  for (auto _ : state) {
    if (steps++ % fresh_every == 0) {
      state.PauseTiming();
      scheduler = std::make_unique<Scheduler>(
          config, [](const Req&, const char*) {}, [](double, std::uint32_t) {});
      for (std::uint32_t i = 0; i < running; ++i)
        scheduler->add_request(i, borrowed(workload.requests[i]), 0);
      while (scheduler->num_running() < running || !scheduler->waiting_queue().empty()) step();
      for (int i = 0; i < 8; ++i) step();
      state.ResumeTiming();
    }
    step();
  }
  state.SetItemsProcessed(state.iterations() * running);
}
BENCHMARK(BM_DecodeStep)->ArgNames({"running", "page_size"})->Args({64, 1})->Args({64, 16})->Args({256, 1});

}  // namespace
}  // namespace tpsim::scheduler
