// Real tokens through scheduler, deltas and pages: a stand-in model whose next token is a hash of everything
// it reads through the page table. What comes out must be what the prompt alone says, whatever the
// scheduler, the radix pool and the page tables did on the way.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "kvcache/pools/page_allocator.h"
#include "proto/base/error.h"
#include "rank/parallel/numeric_ranks.h"
#include "scheduler/engine.h"

namespace tpsim::rank {
namespace {

constexpr std::uint32_t kVocab = 97;
constexpr std::uint32_t kUnwritten = UINT32_MAX;

std::uint64_t mix(std::uint64_t h, std::uint32_t token) {
  h = (h ^ token) * 0x100000001b3ULL;
  return h ^ (h >> 29);
}

// Keeps one number per slot of each data-parallel rank: the token whose KV it is.
class HashModel : public TokenForward {
 public:
  HashModel(std::uint32_t dp_size, std::uint32_t num_pages, std::uint32_t page_size)
      : page_size_(page_size),
        kv_(dp_size, std::vector<std::uint32_t>(std::size_t{num_pages} * page_size, kUnwritten)) {}

  std::span<const float> forward(std::span<const TokenBatch> batches) override {
    EXPECT_EQ(batches.size(), kv_.size());
    logits_.clear();
    for (std::size_t dp = 0; dp < batches.size(); ++dp) compute(batches[dp], kv_[dp]);
    return logits_;
  }
  const NumericTimes& times() const override { return times_; }

 private:
  void compute(const TokenBatch& batch, std::vector<std::uint32_t>& kv) {
    const std::size_t first = logits_.size();
    logits_.resize(first + batch.q_lens.size() * kVocab, 0.0F);
    std::size_t next = 0;
    // All writes come before all reads, as in a layer.
    for (std::size_t i = 0; i < batch.q_lens.size(); ++i) {
      for (std::uint32_t k = 0; k < batch.q_lens[i]; ++k)
        slot(batch, kv, i, batch.prefix_lens[i] + k) = batch.token_ids[next++];
    }
    EXPECT_EQ(next, batch.token_ids.size());
    for (std::size_t i = 0; i < batch.q_lens.size(); ++i) {
      std::uint64_t h = 1;
      for (std::uint32_t p = 0; p < batch.prefix_lens[i] + batch.q_lens[i]; ++p) {
        const std::uint32_t token = slot(batch, kv, i, p);
        EXPECT_NE(token, kUnwritten) << "position " << p << " was read before it was written";
        h = mix(h, token);
      }
      logits_[first + i * kVocab + h % kVocab] = 1;
    }
  }
  std::uint32_t& slot(const TokenBatch& batch, std::vector<std::uint32_t>& kv, std::size_t request,
                      std::uint32_t position) const {
    const std::uint32_t page = batch.page_tables[request][position / page_size_];
    return kv.at(std::size_t{page} * page_size_ + position % page_size_);
  }

  std::uint32_t page_size_;
  std::vector<std::vector<std::uint32_t>> kv_;
  std::vector<float> logits_;
  NumericTimes times_;
};

class FixedTimeExecutor : public scheduler::Executor {
 public:
  FixedTimeExecutor(NumericRanks& ranks, std::uint32_t stages)
      : ranks_(ranks), stages_(stages, scheduler::StageOutcome{.seconds = 0.01 / stages}) {}
  scheduler::StepOutcome forward(const proto::ForwardBatch& batch) override {
    scheduler::StepOutcome outcome = ranks_.compute(batch);
    outcome.step_time = 0.01;
    outcome.stages = stages_;
    return outcome;
  }

 private:
  NumericRanks& ranks_;
  std::vector<scheduler::StageOutcome> stages_;
};

class Outputs : public scheduler::RunObserver {
 public:
  void on_request(const scheduler::RequestRecord& record) override {
    EXPECT_EQ(record.state, scheduler::RequestState::kCompleted);
    of[record.id].assign(record.output_ids.begin(), record.output_ids.end());
    logits[record.id].assign(record.prompt_logits.begin(), record.prompt_logits.end());
    retractions += record.retractions;
    cached += record.cached_tokens;
  }
  void on_step(const scheduler::StepRecord&) override {}
  bool on_progress(const scheduler::Progress&) override { return true; }

  std::map<std::uint64_t, std::vector<std::uint32_t>> of;
  std::map<std::uint64_t, std::vector<float>> logits;
  std::uint32_t retractions = 0;
  std::uint64_t cached = 0;
};

std::vector<std::uint32_t> plain(const scheduler::WorkloadRequest& request,
                                 const std::vector<std::uint32_t>& eos) {
  std::uint64_t h = 1;
  for (const kvcache::TokenRun& run : request.prompt.runs()) {
    for (std::uint32_t k = 0; k < run.length; ++k) h = mix(h, NumericRanks::fold(run.first + k, kVocab));
  }
  std::vector<std::uint32_t> out;
  for (std::uint32_t i = 0; i < request.max_new_tokens; ++i) {
    out.push_back(static_cast<std::uint32_t>(h % kVocab));
    h = mix(h, out.back());
    if (!request.sampling.ignore_eos && std::find(eos.begin(), eos.end(), out.back()) != eos.end()) break;
  }
  return out;
}

// Prompts that share prefixes, some of ids beyond the vocabulary.
scheduler::Workload random_workload(std::mt19937_64& random) {
  scheduler::Workload workload;
  workload.name = "random";
  std::vector<kvcache::TokenSequence> stems(3);
  for (auto& stem : stems) stem.append({random() % 1'000'000, static_cast<std::uint32_t>(random() % 40 + 1)});
  for (int i = 0; i < 24; ++i) {
    scheduler::WorkloadRequest request;
    request.arrival_time = static_cast<double>(i) * 0.02;
    request.prompt = stems[random() % stems.size()];
    for (int k = 0; k < 3; ++k)
      request.prompt.append({random() % 90, static_cast<std::uint32_t>(random() % 12 + 1)});
    if (random() % 4 == 0) stems[random() % stems.size()] = request.prompt;  // a conversation goes on
    request.max_new_tokens = static_cast<std::uint32_t>(random() % 30 + 1);
    request.sampling.ignore_eos = random() % 2 == 0;
    workload.requests.push_back(request);
  }
  return workload;
}

scheduler::SchedulerConfig random_config(std::mt19937_64& random, bool small_pool) {
  scheduler::SchedulerConfig config;
  config.sglang_release = scheduler::sglang_releases()[random() % 3];
  constexpr std::uint32_t kPages[] = {1, 1, 4, 16};
  config.page_size = kPages[random() % 4];
  config.max_total_num_tokens = small_pool ? 320 : 8192;
  config.max_running_requests = 12;
  config.max_prefill_tokens = 512;
  config.chunked_prefill_size = random() % 2 == 0 ? 0 : 16;
  config.enable_mixed_chunk = config.chunked_prefill_size > 0 && random() % 2 == 0;
  config.schedule_policy =
      random() % 2 == 0 ? scheduler::SchedulePolicy::kLpm : scheduler::SchedulePolicy::kFcfs;
  config.schedule_conservativeness = small_pool ? 0.1 : 1.0;
  config.disable_radix_cache = random() % 3 == 0;
  config.disable_overlap_schedule = random() % 3 == 0;
  config.context_length = 4096;
  config.cuda_graph_bs = {1, 2, 4, 8, 16};
  config.check_invariants = true;
  config.send_tokens = true;
  config.eos_token_ids = {7, 11};
  return config;
}

Outputs serve(const scheduler::SchedulerConfig& config, const scheduler::Workload& workload) {
  NumericRanksConfig ranks;
  const std::uint32_t pages = kvcache::PageAllocator::with_slack(
      static_cast<std::uint32_t>(config.max_total_num_tokens / config.page_size));
  ranks.deployment.tp_size = ranks.deployment.dp_size = config.data_parallel.size;
  ranks.deployment.slowdown.assign(config.data_parallel.size, 1.0);
  ranks.deployment.ranks.resize(config.data_parallel.size);
  ranks.deployment.state.page_size = config.page_size;
  ranks.deployment.state.num_pages = pages;
  ranks.deployment.state.check = true;
  ranks.vocab_size = kVocab;
  ranks.return_logits = true;
  NumericRanks numeric(ranks, std::make_unique<HashModel>(config.data_parallel.size, pages, config.page_size),
                       nullptr);
  FixedTimeExecutor executor(numeric, config.pipeline.size);
  Outputs outputs;
  scheduler::run_workload(config, {}, scheduler::WorkloadView(workload), executor, outputs);
  return outputs;
}

TEST(TokenStream, OutputsDependOnThePromptAlone) {
  std::uint32_t retractions = 0;
  std::uint64_t cached = 0;
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const scheduler::Workload workload = random_workload(random);
    scheduler::SchedulerConfig config = random_config(random, seed % 2 == 0);
    // Data-parallel attention: whoever a request is dispatched to, and whoever idles meanwhile.
    if (seed % 3 == 2) {
      config.data_parallel.size = static_cast<std::uint32_t>(2 + random() % 4);
      config.max_total_num_tokens +=
          128;  // or a chunk that holds pages makes a pool too small for the others
    }
    // Pipeline stages: micro-batches in turns, chunks of one request in several at once.
    if (seed % 6 == 1) {  // seeds of large pools
      config.pipeline.size = static_cast<std::uint32_t>(2 + random() % 3);
      config.pipeline.async_batch_depth = static_cast<std::uint32_t>(random() % 3);
      config.disable_overlap_schedule = true;
      // Room for all that run: a micro-batch that is left with one request aborts it where the others have
      // the pool, as SGLang does.
      config.max_total_num_tokens = 1536;
    }
    config.data_parallel.load_balance = static_cast<scheduler::LoadBalanceMethod>(random() % 3);
    config.data_parallel.gathers_mlp = random() % 2 == 0;
    const Outputs outputs = serve(config, workload);
    ASSERT_EQ(outputs.of.size(), workload.requests.size());
    for (std::size_t i = 0; i < workload.requests.size(); ++i) {
      const std::vector<std::uint32_t> expected = plain(workload.requests[i], config.eos_token_ids);
      ASSERT_EQ(outputs.of.at(i), expected) << "request " << i;
      // The prompt's logits are those that its first token came from.
      const std::vector<float>& logits = outputs.logits.at(i);
      ASSERT_EQ(logits.size(), kVocab);
      EXPECT_EQ(logits[expected[0]], 1.0F);
    }
    retractions += outputs.retractions;
    cached += outputs.cached;
  }
  EXPECT_GT(retractions, 100U);  // or the small pools test nothing
  EXPECT_GT(cached, 10000U);
}

TEST(TokenStream, BatchesWithoutTokensAreRefused) {
  std::mt19937_64 random(1);
  const scheduler::Workload workload = random_workload(random);
  scheduler::SchedulerConfig config = random_config(random, false);
  config.send_tokens = false;
  EXPECT_THROW(serve(config, workload), UserError);
}

TEST(TokenStream, FoldedIdsAreInTheVocabulary) {
  for (std::uint64_t id = 0; id < kVocab; ++id) EXPECT_EQ(NumericRanks::fold(id, kVocab), id);
  std::map<std::uint32_t, int> seen;
  for (std::uint64_t id = 1'000'000; id < 1'010'000; ++id) ++seen[NumericRanks::fold(id, kVocab)];
  EXPECT_EQ(seen.size(), kVocab);
}

}  // namespace
}  // namespace tpsim::rank
