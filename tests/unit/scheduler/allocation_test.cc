// A steady decode step takes nothing from the heap. This executable replaces operator new to count.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <utility>

#include "scheduler/scheduler.h"

namespace {
std::atomic<std::uint64_t> allocations{0};
}

void* operator new(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace tpsim::scheduler {
namespace {

TEST(Allocation, SteadyDecodeStepsTakeNothingFromTheHeap) {
  for (const std::uint32_t page_size : {1u, 16u}) {
    SchedulerConfig config;
    config.page_size = page_size;
    config.max_total_num_tokens = 1 << 20;
    config.max_running_requests = 256;
    config.context_length = 1 << 17;
    config.cuda_graph_bs = {64};
    Workload workload;
    for (int i = 0; i < 64; ++i) {
      WorkloadRequest request;
      request.prompt.append({static_cast<kvcache::TokenId>(1000000 * (i + 1)), 100});
      request.max_new_tokens = 100000;
      workload.requests.push_back(std::move(request));
    }
    Scheduler scheduler(
        config, [](const Req&, const char*) {}, [](double, std::uint32_t) {});
    for (std::size_t i = 0; i < workload.requests.size(); ++i)
      scheduler.add_request(i, borrowed(workload.requests[i]), 0);
    proto::ForwardBatch message;
    double now = 0;
    PassResult result;
    std::uint32_t output_len = 0;
    int told = 0;  // how often the first request was told of its tokens
    const auto step = [&] {
      ScheduleBatch* batch = scheduler.end_pass(scheduler.begin_pass(now, 0), true);
      ASSERT_NE(batch, nullptr);
      scheduler.write_forward_batch(*batch, message);
      now += 0.01;
      scheduler.process_batch_result(*batch, now, result);
      told += std::exchange(output_len, batch->reqs.front()->output_len) != output_len ? 1 : 0;
    };
    for (int i = 0; i < 200; ++i) step();
    const std::uint64_t before = allocations;
    told = 0;
    for (int i = 0; i < 500; ++i) step();
    EXPECT_EQ(allocations - before, 0u) << "page size " << page_size;
    EXPECT_LT(told, 50) << "page size " << page_size;  // not step by step
  }
}

}  // namespace
}  // namespace tpsim::scheduler
