// Data-parallel attention: what SGLang's prepare_mlp_sync_batch asks of a pass, on random runs.
#include "scheduler/data_parallel_group.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/scheduler/fake_executor.h"

namespace tpsim::scheduler {
namespace {

Workload random_workload(std::mt19937_64& random, int count) {
  Workload workload;
  workload.name = "random";
  kvcache::TokenId fresh = 1;
  double time = 0;
  for (int i = 0; i < count; ++i) {
    WorkloadRequest request;
    time += static_cast<double>(random() % 60) * 1e-3;
    request.arrival_time = time;
    if (i > 0 && random() % 3 == 0) request.prompt = workload.requests[random() % i].prompt;
    const auto length = static_cast<std::uint32_t>(1 + random() % 80);
    request.prompt.append({fresh, length});
    fresh += length + 1;
    request.max_new_tokens = static_cast<std::uint32_t>(1 + random() % 80);
    workload.requests.push_back(std::move(request));
  }
  return workload;
}

SchedulerConfig random_config(std::mt19937_64& random) {
  SchedulerConfig config;
  config.sglang_release = sglang_releases()[random() % 3];
  config.page_size = random() % 2 == 0 ? 1 : 16;
  config.max_total_num_tokens = 16 * (16 + random() % 60);
  config.max_running_requests = static_cast<std::uint32_t>(2 + random() % 12);
  config.max_prefill_tokens = 400;
  config.chunked_prefill_size = random() % 2 == 0 ? 0 : 64;
  config.enable_mixed_chunk = config.chunked_prefill_size > 0 && random() % 2 == 0;
  config.schedule_policy = static_cast<SchedulePolicy>(random() % 4);
  config.disable_radix_cache = random() % 4 == 0;
  config.disable_overlap_schedule = random() % 2 == 0;
  config.schedule_conservativeness = random() % 2 == 0 ? 0.3 : 0.05;
  config.context_length = 4096;
  config.cuda_graph_bs = {1, 2, 4, 8, 12};
  config.scheduler_step_seconds = config.decode_step_seconds = 0.0005;
  config.check_invariants = true;
  config.data_parallel.load_balance = static_cast<LoadBalanceMethod>(random() % 3);
  config.prefill_delayer.enabled = !config.disable_overlap_schedule && random() % 2 == 0;
  if (random() % 2 == 0) config.prefill_delayer.queue_min_ratio = 0.5;
  return config;
}

std::uint32_t captured(const std::vector<std::uint32_t>& sizes, std::size_t requests) {
  const auto found = std::lower_bound(sizes.begin(), sizes.end(), requests);
  return found == sizes.end() ? 0 : *found;
}

// What every pass of `config` must be.
void check_passes(const SchedulerConfig& config, const std::vector<proto::ForwardBatch>& batches) {
  std::vector<std::set<std::uint32_t>> decoding(config.data_parallel.size);
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const proto::ForwardBatch& batch = batches[i];
    SCOPED_TRACE("batch " + std::to_string(i));
    ASSERT_EQ(static_cast<std::uint32_t>(batch.dp_batches_size()), config.data_parallel.size);
    EXPECT_EQ(batch.sequence_number(), i);
    EXPECT_EQ(batch.extend_lens_size() + batch.decode_join_size() + batch.table_req_size(), 0);
    bool extends = false, decodes = false, verifies = false, works = false;
    std::size_t most = 0;
    std::vector<std::size_t> sizes;
    for (int r = 0; r < batch.dp_batches_size(); ++r) {
      const proto::ForwardBatch& of = batch.dp_batches(r);
      EXPECT_EQ(of.sequence_number(), i);  // in step
      for (const auto row : of.decode_leave()) EXPECT_EQ(decoding[r].erase(row), 1U);
      for (const auto row : of.decode_join()) EXPECT_TRUE(decoding[r].insert(row).second);
      const proto::ForwardMode mode = of.forward_mode();
      extends = extends || mode == proto::EXTEND || mode == proto::MIXED;
      decodes = decodes || mode == proto::DECODE || mode == proto::MIXED;
      verifies = verifies || mode == proto::TARGET_VERIFY;
      works = works || mode != proto::IDLE;
      EXPECT_EQ(of.extend_lens_size() > 0, mode == proto::EXTEND || mode == proto::MIXED);
      sizes.push_back(mode == proto::DECODE || mode == proto::TARGET_VERIFY ? decoding[r].size() : 0);
      most = std::max(most, sizes.back());
    }
    EXPECT_TRUE(works);  // an idle pass is only run beside others' work
    EXPECT_EQ(batch.forward_mode(), extends && decodes ? proto::MIXED
                                    : extends          ? proto::EXTEND
                                    : verifies         ? proto::TARGET_VERIFY
                                                       : proto::DECODE);
    EXPECT_EQ(verifies, config.speculation.enabled() && !extends);
    EXPECT_FALSE(verifies && decodes);
    // Graphs: everybody or nobody, and of one size where a layer gathers all tokens.
    const std::uint32_t bucket = extends ? 0 : captured(config.cuda_graph_bs, most);
    EXPECT_EQ(batch.capture_bucket(), bucket);
    for (int r = 0; r < batch.dp_batches_size(); ++r) {
      const bool own = !config.data_parallel.gathers_mlp && bucket > 0;
      EXPECT_EQ(batch.dp_batches(r).capture_bucket(),
                own ? captured(config.cuda_graph_bs, sizes[r]) : bucket);
    }
  }
}

void speculate(std::mt19937_64& random, SchedulerConfig& config) {
  SpeculationConfig& speculation = config.speculation;
  speculation.algorithm = SpeculativeAlgorithm::kEagle;
  speculation.num_steps = static_cast<std::uint32_t>(1 + random() % 4);
  speculation.num_draft_tokens = speculation.num_steps + 1;
  speculation.v2 = random() % 3 != 0;
  if (!speculation.v2) config.disable_overlap_schedule = true;
  speculation.accepted =
      AcceptLengths::from_rates(std::vector{0.7}, speculation.num_steps, 1, speculation.num_draft_tokens);
  config.enable_mixed_chunk = false;
}

class DataParallelRuns : public ::testing::TestWithParam<bool> {};  // whether they speculate

TEST_P(DataParallelRuns, PassesAreInStepAndEveryRequestIsServedOnce) {
  std::uint64_t idle = 0, retractions = 0;
  for (std::uint64_t seed = 0; seed < (GetParam() ? 60U : 120U); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const Workload workload = random_workload(random, 30);
    SchedulerConfig config = random_config(random);
    if (GetParam()) speculate(random, config);
    config.data_parallel.size = static_cast<std::uint32_t>(2 + random() % 5);
    config.data_parallel.gathers_mlp = random() % 3 != 0;
    // Room for each request alone, or its output is clipped.
    for (const WorkloadRequest& request : workload.requests) {
      const std::uint64_t tokens = request.prompt.size() + request.max_new_tokens + (GetParam() ? 96 : 32);
      config.max_total_num_tokens = std::max(config.max_total_num_tokens, tokens / 16 * 16 + 16);
    }
    LoadConfig load;
    if (random() % 3 == 0) load.max_concurrency = static_cast<std::uint32_t>(1 + random() % 10);
    FakeExecutor executor;
    RecordingObserver observer;
    const proto::RunReport report = run_workload(config, load, WorkloadView(workload), executor, observer);
    check_passes(config, executor.batches);

    std::map<std::uint64_t, int> seen;
    std::uint64_t outputs = 0;
    for (const RequestRecord& record : observer.requests) {
      ++seen[record.id];
      EXPECT_EQ(record.state, RequestState::kCompleted);
      EXPECT_EQ(record.output_tokens, workload.requests[record.id].max_new_tokens);
      outputs += record.output_tokens;
    }
    ASSERT_EQ(seen.size(), workload.requests.size());
    ASSERT_EQ(observer.requests.size(), workload.requests.size());
    EXPECT_EQ(report.total_output_tokens(), outputs);

    ASSERT_EQ(report.data_parallel_ranks_size(), static_cast<int>(config.data_parallel.size));
    std::uint64_t requests = 0, most = 0, capacity = 0;
    for (const proto::DataParallelRank& rank : report.data_parallel_ranks()) {
      EXPECT_EQ(rank.steps() + rank.idle_steps(), report.steps());
      EXPECT_LE(rank.peak_kv_usage(), 1.0);
      requests += rank.requests();
      most = std::max(most, rank.requests());
      capacity += rank.kv_pool_tokens();
      idle += rank.idle_steps();
      retractions += rank.retractions();
    }
    EXPECT_EQ(requests, workload.requests.size());
    EXPECT_EQ(report.kv_pool_tokens(), capacity);
    if (config.data_parallel.load_balance == LoadBalanceMethod::kRoundRobin) {
      EXPECT_EQ(most, (workload.requests.size() + config.data_parallel.size - 1) / config.data_parallel.size);
    }
  }
  EXPECT_GT(idle, 1000U);  // or it tests nothing
  EXPECT_GT(retractions, 10U);
}
INSTANTIATE_TEST_SUITE_P(Plain, DataParallelRuns, ::testing::Values(false));
INSTANTIATE_TEST_SUITE_P(Speculating, DataParallelRuns, ::testing::Values(true));

// A rank without work of its own changes nothing for the one that has it.
TEST(DataParallelGroup, OneBusyRankServesAsAloneDoes) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    Workload alone = random_workload(random, 20);
    SchedulerConfig config = random_config(random);
    config.data_parallel.load_balance = LoadBalanceMethod::kRoundRobin;
    config.prefill_delayer = {};  // for which they do wait
    FakeExecutor plain;
    plain.per_prefill_token = 0;
    RecordingObserver expected;
    run_workload(config, {}, WorkloadView(alone), plain, expected);

    // Every other request goes to the second rank, which refuses it at once.
    Workload both;
    both.name = "both";
    for (const WorkloadRequest& request : alone.requests) {
      both.requests.push_back(request);
      WorkloadRequest refused = request;
      refused.prompt = {};
      refused.prompt.append({1, 1U << 20});
      both.requests.push_back(refused);
    }
    config.data_parallel.size = 2;
    FakeExecutor executor;
    executor.per_prefill_token = 0;
    RecordingObserver observer;
    run_workload(config, {}, WorkloadView(both), executor, observer);
    std::map<std::uint64_t, const RequestRecord*> of;
    for (const RequestRecord& record : observer.requests) of[record.id] = &record;
    for (const RequestRecord& record : expected.requests) {
      ASSERT_TRUE(of.contains(2 * record.id));
      const RequestRecord& other = *of[2 * record.id];
      EXPECT_EQ(other.first_token_time, record.first_token_time);
      EXPECT_EQ(other.finish_time, record.finish_time);
      EXPECT_EQ(other.cached_tokens, record.cached_tokens);
      EXPECT_EQ(other.retractions, record.retractions);
    }
    ASSERT_EQ(executor.batches.size(), plain.batches.size());
    for (std::size_t i = 0; i < plain.batches.size(); ++i) {
      EXPECT_EQ(executor.batches[i].dp_batches(0).SerializeAsString(), plain.batches[i].SerializeAsString());
      EXPECT_EQ(executor.batches[i].dp_batches(1).forward_mode(), proto::IDLE);
    }
  }
}

}  // namespace
}  // namespace tpsim::scheduler
