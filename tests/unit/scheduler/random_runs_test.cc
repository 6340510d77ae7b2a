// Random workloads under random configurations. The pool's sum is checked after every step, and a plain
// model of a rank applies every ForwardBatch and checks that no pass writes into a page that another
// running request reads, and that every table covers its sequence.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "kvcache/page_allocator.h"
#include "scheduler/checkpoints.h"
#include "tests/unit/scheduler/fake_executor.h"

namespace tpsim::scheduler {
namespace {

class CheckingRank : public Executor {
 public:
  explicit CheckingRank(const SchedulerConfig& config)
      : page_size_(config.page_size),
        pages_(kvcache::PageAllocator::with_slack(
            static_cast<std::uint32_t>(config.max_total_num_tokens / config.page_size))),
        stages_(config.pipeline.size) {}

  StepOutcome forward(const proto::ForwardBatch& batch) override {
    edit_tables(batch);
    for (const auto row : batch.decode_leave()) {
      const auto found = std::find(decoding_.begin(), decoding_.end(), row);
      ASSERT_TRUE_OR_THROW(found != decoding_.end(), "leaves without having joined");
      decoding_.erase(found);
    }
    for (const auto row : batch.decode_join()) {
      ASSERT_TRUE_OR_THROW(std::find(decoding_.begin(), decoding_.end(), row) == decoding_.end(),
                           "joins twice");
      decoding_.push_back(row);
    }
    double tokens = 0;
    std::vector<std::pair<std::uint32_t, std::pair<std::uint32_t, std::uint32_t>>> writes;
    for (int i = 0; i < batch.extend_lens_size(); ++i) {
      const auto row = batch.extend_req_pool_indices(i);
      const auto from = batch.extend_prefix_lens(i);
      const auto to = from + batch.extend_lens(i);
      ASSERT_TRUE_OR_THROW(to > from, "extends by nothing");
      seq_len_[row] = to;
      micro_batch_[row] = batch.micro_batch();
      writes.push_back({row, {from, to}});
      tokens += to - from;
    }
    if (batch.forward_mode() == proto::DECODE || batch.forward_mode() == proto::MIXED) {
      bool any = false;
      for (const auto row : decoding_) {
        if (micro_batch_[row] != batch.micro_batch()) continue;
        any = true;
        const auto length = ++seq_len_[row];
        if (table_[row].size() * page_size_ < length) table_[row].push_back(table_[row].back() + 1);
        writes.push_back({row, {length - 1, length}});
      }
      ASSERT_TRUE_OR_THROW(any, "decodes nobody");
    }
    std::map<std::uint32_t, std::uint32_t> kept;
    if (batch.forward_mode() == proto::TARGET_VERIFY) {
      for (int i = 0; i < batch.accept_lens_size(); ++i) {
        ASSERT_TRUE_OR_THROW(batch.accept_lens(i) >= 1 && batch.accept_lens(i) <= batch.num_draft_tokens(),
                             "keeps no token, or more than were verified");
        kept[batch.accept_req_pool_indices(i)] = batch.accept_lens(i);
      }
      ASSERT_TRUE_OR_THROW(!decoding_.empty() && kept.size() == decoding_.size(),
                           "keeps nothing of somebody");
      for (const auto row : decoding_) {
        ASSERT_TRUE_OR_THROW(kept.contains(row), "keeps nothing of a member");
        writes.push_back({row, {seq_len_[row], seq_len_[row] + batch.num_draft_tokens()}});
        seq_len_[row] += batch.num_draft_tokens();
      }
    }
    check(batch, writes);
    for (const auto& [row, count] : kept) {
      seq_len_[row] -= batch.num_draft_tokens() - count;
      ++verified_;
      accepted_ += count;
    }
    const double seconds = 0.004 + 2e-5 * tokens;
    for (StageOutcome& stage : stages_) stage = {1e-5, seconds / static_cast<double>(stages_.size()), 2e-5};
    return {.step_time = seconds, .stages = stages_};
  }

  std::uint64_t verified() const { return verified_; }
  std::uint64_t accepted() const { return accepted_; }

 private:
  static void ASSERT_TRUE_OR_THROW(bool condition, const char* what) {
    if (!condition) throw std::logic_error(what);
  }

  void edit_tables(const proto::ForwardBatch& batch) {
    int run = 0;
    for (int i = 0; i < batch.table_req_size(); ++i) {
      auto& table = table_[batch.table_req(i)];
      ASSERT_TRUE_OR_THROW(batch.table_start_page(i) <= table.size(), "edit leaves a hole");
      table.resize(batch.table_start_page(i));
      for (std::uint32_t k = 0; k < batch.table_num_runs(i); ++k, ++run) {
        for (std::uint32_t p = 0; p < batch.run_num_pages(run); ++p) {
          table.push_back(batch.run_first_page(run) + p);
          ASSERT_TRUE_OR_THROW(table.back() < pages_, "page beyond the pool");
        }
      }
    }
    ASSERT_TRUE_OR_THROW(run == batch.run_first_page_size(), "runs left over");
  }

  template <typename Writes>
  void check(const proto::ForwardBatch& batch, const Writes& writes) {
    // How many running sequences read each page.
    std::map<std::uint32_t, int> readers;
    std::vector<std::uint32_t> rows = decoding_;
    for (const auto row : batch.extend_req_pool_indices()) {
      ASSERT_TRUE_OR_THROW(std::find(rows.begin(), rows.end(), row) == rows.end(),
                           "extends and decodes at once");
      rows.push_back(row);
    }
    for (const auto row : rows) {
      const auto needed = (seq_len_[row] + page_size_ - 1) / page_size_;
      ASSERT_TRUE_OR_THROW(table_[row].size() >= needed, "table shorter than its sequence");
      for (std::size_t i = 0; i < needed; ++i) ++readers[table_[row][i]];
    }
    for (const auto& [row, range] : writes) {
      for (auto p = range.first / page_size_; p * page_size_ < range.second; ++p) {
        ASSERT_TRUE_OR_THROW(readers[table_[row][p]] == 1, "writes into a page that another request reads");
      }
    }
  }

  std::uint32_t page_size_;
  std::uint64_t pages_;
  std::map<std::uint32_t, std::vector<std::uint32_t>> table_;
  std::map<std::uint32_t, std::uint32_t> seq_len_;
  std::vector<std::uint32_t> decoding_;                 // of all micro-batches
  std::map<std::uint32_t, std::uint32_t> micro_batch_;  // that extended a row last
  std::vector<StageOutcome> stages_;
  std::uint64_t verified_ = 0, accepted_ = 0;
};

Workload random_workload(std::mt19937_64& random, std::uint64_t capacity) {
  Workload workload;
  workload.extra_keys = {"", "a", "b"};
  std::vector<kvcache::TokenSequence> earlier;
  double time = 0;
  kvcache::TokenId fresh = 1;
  const int count = 20 + static_cast<int>(random() % 100);
  for (int i = 0; i < count; ++i) {
    WorkloadRequest r;
    time += static_cast<double>(random() % 100) * 1e-3;
    r.arrival_time = time;
    // Often a continuation of an earlier prompt, cut somewhere.
    if (!earlier.empty() && random() % 3 != 0) {
      r.prompt = earlier[random() % earlier.size()];
      r.prompt.truncate(random() % (r.prompt.size() + 1));
    }
    const auto length = static_cast<std::uint32_t>(1 + random() % (capacity / 6));
    r.prompt.append({fresh, length});
    fresh += length + 7;
    r.max_new_tokens = static_cast<std::uint32_t>(1 + random() % 60);
    if (random() % 2 == 0) {
      r.output.append({fresh, r.max_new_tokens});
      fresh += r.max_new_tokens + 3;
    }
    r.session = static_cast<std::uint32_t>(random() % 12);
    if (random() % 2 == 0) r.think_time = static_cast<double>(random() % 4) * 0.05;
    r.priority = static_cast<std::int32_t>(random() % 3);
    r.extra_key = static_cast<std::uint32_t>(random() % 8 == 0 ? random() % 3 : 0);
    earlier.push_back(r.prompt);
    earlier.back().append(r.output);
    workload.requests.push_back(std::move(r));
  }
  return workload;
}

// Closed: no turn is sent before the end of the answer before it and its think time, and none without think
// time before its distance in the trace. Timestamps: the report counts exactly those that were early.
void check_turns(const Workload& workload, const std::vector<RequestRecord>& records, SessionMode mode,
                 const proto::RunReport& report) {
  std::vector<const RequestRecord*> by_id(workload.requests.size());
  for (const RequestRecord& record : records) by_id[record.id] = &record;
  std::map<std::uint32_t, std::size_t> last;
  std::uint64_t turns = 0;
  std::uint64_t early = 0;
  for (std::size_t i = 0; i < workload.requests.size(); ++i) {
    const WorkloadRequest& request = workload.requests[i];
    if (request.session == 0) continue;
    const auto [entry, first] = last.try_emplace(request.session, i);
    if (first) continue;
    const RequestRecord& before = *by_id[entry->second];
    const double sent = by_id[i]->arrival_time;
    const double gap = request.arrival_time - workload.requests[entry->second].arrival_time;
    entry->second = i;
    ++turns;
    early += sent < before.finish_time ? 1 : 0;
    if (mode == SessionMode::kTimestamps) continue;
    EXPECT_GE(sent, before.finish_time + request.think_time.value_or(0));
    if (!request.think_time) {
      EXPECT_GE(sent, before.arrival_time + gap);
    }
  }
  EXPECT_EQ(report.turns(), turns);
  EXPECT_EQ(report.early_turns(), early);
  EXPECT_EQ(report.session_mode(), mode == SessionMode::kClosed ? "closed" : "timestamps");
  if (mode == SessionMode::kClosed) {
    EXPECT_EQ(early, 0u);
  }
}

SchedulerConfig random_config(std::mt19937_64& random) {
  SchedulerConfig config;
  config.page_size = std::vector<std::uint32_t>{1, 16, 32, 64, 128}[random() % 5];
  config.max_total_num_tokens = std::uint64_t{config.page_size} * (20 + random() % 200);
  if (config.page_size == 1) config.max_total_num_tokens *= 10;
  config.max_running_requests = static_cast<std::uint32_t>(1 + random() % 20);
  config.max_prefill_tokens = static_cast<std::uint32_t>(100 + random() % 2000);
  config.chunked_prefill_size =
      random() % 3 == 0 ? 0 : config.page_size * static_cast<std::uint32_t>(1 + random() % 8);
  config.enable_mixed_chunk = random() % 3 == 0;
  config.schedule_policy = static_cast<SchedulePolicy>(random() % 5);
  config.radix_eviction_policy = static_cast<kvcache::EvictionPolicy>(random() % 6);
  config.disable_radix_cache = random() % 5 == 0;
  config.disable_overlap_schedule = random() % 2 == 0;
  config.schedule_conservativeness = random() % 2 == 0 ? 1.0 : 0.05;
  config.context_length = static_cast<std::uint32_t>(config.max_total_num_tokens);
  config.scheduler_step_seconds = 0.001;
  config.check_invariants = true;
  return config;
}

// Some algorithm, tree and acceptance; spec v1 runs without overlap.
void speculate(std::mt19937_64& random, SchedulerConfig& config,
               SglangRelease release = SglangRelease::k0_5_23) {
  SpeculationConfig& speculation = config.speculation;
  speculation.algorithm = std::vector{SpeculativeAlgorithm::kEagle, SpeculativeAlgorithm::kStandalone,
                                      SpeculativeAlgorithm::kNgram}[random() % 3];
  speculation.num_steps = static_cast<std::uint32_t>(1 + random() % 5);
  speculation.topk = random() % 2 == 0 ? 1 : static_cast<std::uint32_t>(2 + random() % 4);
  const std::uint32_t most =
      speculation.topk == 1 ? speculation.num_steps : speculation.num_steps * speculation.topk;
  speculation.num_draft_tokens =
      speculation.topk == 1 ? most + 1 : static_cast<std::uint32_t>(2 + random() % most);
  config.sglang_release = release;
  speculation.follow(config.sglang_release, config.disable_overlap_schedule);
  if (!speculation.v2) config.disable_overlap_schedule = true;
  const double rate = static_cast<double>(random() % 11) / 10;
  speculation.accepted = AcceptLengths::from_rates(std::vector{rate, rate * 0.9}, speculation.num_steps,
                                                   speculation.topk, speculation.num_draft_tokens);
  if (!speculation.has_head() || !rules_of(config.sglang_release).heads_mix_chunks)
    config.enable_mixed_chunk = false;
}

// Window layers with a pool that holds a window and a page at least.
void give_windows(std::mt19937_64& random, SchedulerConfig& config) {
  const std::uint64_t page = config.page_size;
  config.sliding_window_size = static_cast<std::uint32_t>(1 + random() % (config.max_total_num_tokens / 4));
  // Room for chunks of some length: one token a pass would take its time.
  const std::uint64_t least = (config.sliding_window_size + 100) / page + 3;
  const std::uint64_t most = config.max_total_num_tokens / page;
  config.swa_max_total_num_tokens = page * (least + random() % (most - std::min(least, most - 1)));
}

// States of gated delta-nets: enough for one request at least, kept with or without snapshots.
void give_states(std::mt19937_64& random, SchedulerConfig& config) {
  config.disable_radix_cache = false;
  const bool snapshots = config.page_size > 1 || !config.disable_overlap_schedule || random() % 2 == 0;
  config.states.tracking_slots = !snapshots ? 0 : config.disable_overlap_schedule ? 1 : 2;
  config.states.chunk = std::max(64U, config.page_size);
  config.states.track_interval = config.states.chunk * static_cast<std::uint32_t>(1 + random() % 3);
  const std::uint32_t each = 3 + config.states.tracking_slots;
  config.states.slots = each * static_cast<std::uint32_t>(1 + random() % 8);
  config.max_running_requests = std::min(config.max_running_requests, config.states.slots / each);
  config.enable_mixed_chunk = false;
  if (config.chunked_prefill_size > 0) config.chunked_prefill_size = config.states.chunk;
}

// Keeps the state of a run at one of its moments, with the rank's and the number of records at that moment.
class OneCheckpoint : public Checkpoints {
 public:
  OneCheckpoint(std::uint64_t at, const CheckingRank& rank, const RecordingObserver& observer)
      : left_(at), rank_(rank), observer_(observer) {}

  std::string_view resumed() override { return {}; }
  void read_rest(StateReader&) override {}
  bool due() override { return left_-- == 0; }
  void save(StateWriter& state) override {
    bytes = state.bytes();
    rank.emplace(rank_);
    requests = observer_.requests.size();
    steps = observer_.steps.size();
  }

  std::string bytes;
  std::optional<CheckingRank> rank;
  std::size_t requests = 0, steps = 0;

 private:
  std::uint64_t left_;
  const CheckingRank& rank_;
  const RecordingObserver& observer_;
};

class Resumed : public Checkpoints {
 public:
  explicit Resumed(std::string_view bytes) : bytes_(bytes) {}
  std::string_view resumed() override { return bytes_; }
  void read_rest(StateReader& state) override { all_read = state.at_end(); }
  bool due() override { return false; }
  void save(StateWriter&) override {}

  bool all_read = false;

 private:
  std::string_view bytes_;
};

std::string text_of(const RequestRecord& r) {
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {}", r.id, static_cast<int>(r.state), r.session,
                     r.input_tokens, r.output_tokens, r.cached_tokens, r.retractions, r.arrival_time,
                     r.first_scheduled_time, r.first_token_time, r.finish_time);
}

std::string text_of(const StepRecord& r) {
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", r.sequence_number,
                     static_cast<int>(r.forward_mode), r.start_time, r.step_time, r.extend_requests,
                     r.extend_tokens, r.cached_tokens, r.decode_requests, r.decode_tokens, r.capture_bucket,
                     r.waiting, r.running, r.kv_allocated_tokens, r.kv_cached_tokens, r.kv_free_tokens,
                     r.swa_allocated_tokens, r.swa_cached_tokens, r.swa_free_tokens, r.states_held,
                     r.states_cached);
}

// The same run again, interrupted at some moment and gone on with in another one.
void resume_and_check(std::mt19937_64& random, const SchedulerConfig& config, const LoadConfig& load,
                      const Workload& workload, const proto::RunReport& report,
                      const RecordingObserver& observer) {
  CheckingRank rank(config);
  RecordingObserver watched;
  const WorkloadView view(workload);
  // Not always reached: then there is nothing to go on from.
  OneCheckpoint checkpoint(random() % (report.steps() + workload.requests.size()), rank, watched);
  const proto::RunReport same = run_workload(config, load, view, rank, watched, &checkpoint);
  ASSERT_EQ(same.SerializeAsString(), report.SerializeAsString());
  if (checkpoint.bytes.empty()) return;
  Resumed resumed(checkpoint.bytes);
  RecordingObserver rest;
  const proto::RunReport later = run_workload(config, load, view, *checkpoint.rank, rest, &resumed);
  ASSERT_TRUE(resumed.all_read);
  ASSERT_EQ(later.SerializeAsString(), report.SerializeAsString());
  ASSERT_EQ(checkpoint.requests + rest.requests.size(), observer.requests.size());
  ASSERT_EQ(checkpoint.steps + rest.steps.size(), observer.steps.size());
  for (std::size_t i = 0; i < rest.requests.size(); ++i)
    ASSERT_EQ(text_of(rest.requests[i]), text_of(observer.requests[checkpoint.requests + i]));
  for (std::size_t i = 0; i < rest.steps.size(); ++i)
    ASSERT_EQ(text_of(rest.steps[i]), text_of(observer.steps[checkpoint.steps + i]));
}

// Serves a random workload and checks what its records must say.
void run_and_check(std::mt19937_64& random, const SchedulerConfig& config) {
  const Workload workload = random_workload(random, config.max_total_num_tokens);
  LoadConfig load;
  if (random() % 3 == 0) load.max_concurrency = static_cast<std::uint32_t>(1 + random() % 10);
  if (random() % 4 == 0) load.request_rate = 20;
  if (random() % 4 == 0) load.session_mode = SessionMode::kTimestamps;

  CheckingRank rank(config);
  RecordingObserver observer;
  const proto::RunReport report = run_workload(config, load, workload, rank, observer);
  ASSERT_EQ(report.completed() + report.failed(), workload.requests.size());
  ASSERT_EQ(observer.requests.size(), workload.requests.size());
  for (const auto& record : observer.requests) {
    if (record.state == RequestState::kRejected) continue;
    const auto& source = workload.requests[record.id];
    EXPECT_EQ(record.input_tokens, source.prompt.size());
    EXPECT_LE(record.output_tokens, source.max_new_tokens);
    EXPECT_LT(record.cached_tokens, record.input_tokens);
    EXPECT_GE(record.first_scheduled_time, record.arrival_time);
    EXPECT_GT(record.first_token_time, record.first_scheduled_time);
    EXPECT_GE(record.finish_time, record.first_token_time);
  }
  check_turns(workload, observer.requests, load.session_mode, report);
  for (int moment = 0; moment < 2; ++moment)
    resume_and_check(random, config, load, workload, report, observer);
  if (config.speculation.enabled() && rank.verified() > 0) {
    if (!config.enable_mixed_chunk) {
      EXPECT_EQ(report.mixed_steps(), 0u);
    }
    EXPECT_LE(rank.verified(), rank.accepted());
  }
}

class RandomRuns : public ::testing::TestWithParam<int> {};

TEST_P(RandomRuns, KeepEveryInvariant) {
  for (int round = 0; round < 25; ++round) {
    const std::uint64_t seed =
        static_cast<std::uint64_t>(GetParam()) * 1000 + static_cast<std::uint64_t>(round);
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    SchedulerConfig config = random_config(random);
    if (random() % 3 == 0) {
      config.pipeline.size = static_cast<std::uint32_t>(2 + random() % 4);
      config.pipeline.async_batch_depth = static_cast<std::uint32_t>(random() % 3);
    }
    run_and_check(random, config);
  }
}

TEST_P(RandomRuns, KeepEveryInvariantWhileTheySpeculate) {
  for (int round = 0; round < 6; ++round) {
    const std::uint64_t seed =
        static_cast<std::uint64_t>(GetParam()) * 1000 + static_cast<std::uint64_t>(round) + 500;
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    SchedulerConfig config = random_config(random);
    speculate(random, config, static_cast<SglangRelease>(round % 3));
    run_and_check(random, config);
  }
}

TEST_P(RandomRuns, KeepEveryInvariantOfBothPools) {
  for (int round = 0; round < 4; ++round) {
    const std::uint64_t seed =
        static_cast<std::uint64_t>(GetParam()) * 1000 + static_cast<std::uint64_t>(round) + 700;
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    SchedulerConfig config = random_config(random);
    give_windows(random, config);
    if (random() % 4 == 0) speculate(random, config);
    run_and_check(random, config);
  }
}

TEST_P(RandomRuns, KeepEveryInvariantOfStatesWhileTheySpeculate) {
  for (int round = 0; round < 4; ++round) {
    const std::uint64_t seed =
        static_cast<std::uint64_t>(GetParam()) * 1000 + static_cast<std::uint64_t>(round) + 800;
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    SchedulerConfig config = random_config(random);
    speculate(random, config);
    give_states(random, config);
    run_and_check(random, config);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomRuns, ::testing::Range(0, 12));

}  // namespace
}  // namespace tpsim::scheduler
