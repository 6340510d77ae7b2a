// What a forward pass costs on the wire: bytes of its ForwardBatch, and the time to serialise it, parse it
// and bring a rank's tables up to date.
#include <benchmark/benchmark.h>

#include <memory>
#include <string>

#include "kvcache/pools/page_allocator.h"
#include "rank/parallel/rank_state.h"
#include "scheduler/scheduler.h"

namespace tpsim::scheduler {
namespace {

struct Stream {
  explicit Stream(std::uint32_t running, std::uint32_t page_size) {
    config.page_size = page_size;
    config.max_total_num_tokens = 1 << 24;
    config.max_running_requests = running;
    config.context_length = 1 << 30;
    config.cuda_graph_bs = {running};
    for (std::uint32_t i = 0; i < running; ++i) {
      WorkloadRequest request;
      request.prompt.append({kvcache::TokenId{1000000} * (i + 1), 2000});
      request.max_new_tokens = 1U << 28;
      workload.requests.push_back(std::move(request));
    }
    scheduler = std::make_unique<Scheduler>(
        config, [](const Req&, const char*) {}, [](double, std::uint32_t) {});
    rank::RankStateConfig rank_config;
    rank_config.page_size = page_size;
    rank_config.num_pages = kvcache::PageAllocator::with_slack((1 << 24) / page_size);
    rank_config.max_requests = 65535;
    state = std::make_unique<rank::RankState>(rank_config);
    for (std::uint32_t i = 0; i < running; ++i) scheduler->add_request(i, borrowed(workload.requests[i]), 0);
  }
  // One pass through the wire; returns its bytes.
  std::size_t step() {
    ScheduleBatch* batch = scheduler->end_pass(scheduler->begin_pass(now, 0), true);
    scheduler->write_forward_batch(*batch, message);
    message.set_sequence_number(sequence_number++);
    message.SerializeToString(&bytes);
    received.ParseFromString(bytes);
    benchmark::DoNotOptimize(state->apply(received));
    now += 0.01;
    scheduler->process_batch_result(*batch, now, result);
    return bytes.size();
  }

  SchedulerConfig config;
  Workload workload;
  std::unique_ptr<Scheduler> scheduler;
  std::unique_ptr<rank::RankState> state;
  proto::ForwardBatch message, received;
  std::string bytes;
  std::uint64_t sequence_number = 0;
  double now = 0;
  PassResult result;
};

void BM_SteadyDecode(benchmark::State& state) {
  const auto running = static_cast<std::uint32_t>(state.range(0));
  const auto page_size = static_cast<std::uint32_t>(state.range(1));
  std::unique_ptr<Stream> stream;
  const std::int64_t fresh_every = (1 << 24) / running - 5000;
  std::int64_t steps = 0;
  std::size_t bytes = 0;
  for (auto _ : state) {
    if (steps++ % fresh_every == 0) {
      state.PauseTiming();
      stream = std::make_unique<Stream>(running, page_size);
      for (int i = 0; i < 64; ++i) stream->step();
      state.ResumeTiming();
    }
    bytes += stream->step();
  }
  state.counters["bytes/step"] = static_cast<double>(bytes) / static_cast<double>(state.iterations());
}
BENCHMARK(BM_SteadyDecode)->ArgNames({"running", "page_size"})->Args({64, 1})->Args({64, 16})->Args({256, 1});

void BM_PrefillOf64(benchmark::State& state) {
  std::size_t bytes = 0;
  std::size_t passes = 0;
  for (auto _ : state) {
    state.PauseTiming();
    Stream stream(64, static_cast<std::uint32_t>(state.range(0)));
    state.ResumeTiming();
    while (!stream.scheduler->waiting_queue().empty()) {
      bytes += stream.step();
      ++passes;
    }
  }
  state.counters["bytes/pass"] = static_cast<double>(bytes) / static_cast<double>(passes);
}
BENCHMARK(BM_PrefillOf64)->ArgName("page_size")->Arg(1)->Arg(16);

}  // namespace
}  // namespace tpsim::scheduler
