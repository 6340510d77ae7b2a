#include "rank/parallel/numeric_ranks.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "proto/base/error.h"
#include "rank/numeric/sampler.h"

namespace tpsim::rank {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

RankStateConfig state_of(const NumericRanksConfig& config) {
  RankStateConfig state = config.deployment.state;
  state.rank = config.first_rank;
  return state;
}

}  // namespace

NumericRanks::NumericRanks(NumericRanksConfig config, std::unique_ptr<TokenForward> forward,
                           const Collectives* collectives)
    : config_(std::move(config)),
      state_(state_of(config_)),
      forward_(std::move(forward)),
      collectives_(collectives) {}

std::uint32_t NumericRanks::fold(std::uint64_t id, std::uint32_t vocab_size) {
  if (id < vocab_size) return static_cast<std::uint32_t>(id);
  std::uint64_t h = id * 0x9e3779b97f4a7c15ULL;  // neighbours must not fold to neighbours
  h ^= h >> 32;
  return static_cast<std::uint32_t>(h * 0xff51afd7ed558ccdULL % vocab_size);
}

// The page numbers of row `row`, one by one.
void NumericRanks::append_pages(std::uint32_t row, std::vector<std::uint32_t>& out) const {
  for (const kvcache::PageRun& run : state_.pages(row)) {
    for (std::uint32_t i = 0; i < run.count; ++i) out.push_back(run.first + i);
  }
}

void NumericRanks::add_request(std::uint32_t row, std::uint32_t prefix_len, std::uint32_t q_len) {
  const std::size_t request = rows_.size();
  rows_.push_back(row);
  prefix_lens_.push_back(prefix_len);
  q_lens_.push_back(q_len);
  if (tables_.size() <= request) tables_.emplace_back();
  std::vector<std::uint32_t>& table = tables_[request];
  table.clear();
  append_pages(row, table);
}

// The token ids of the extend part, and of the decode set.
void NumericRanks::read_input(const proto::ForwardBatch& batch) {
  token_ids_.clear();
  std::uint64_t wanted = 0;
  for (const std::uint32_t length : batch.extend_lens()) wanted += length;
  std::uint64_t given = 0;
  for (const std::uint32_t length : batch.input_run_length()) given += length;
  if (given != wanted || batch.input_run_first_size() != batch.input_run_length_size()) {
    throw_user_error(
        "batch {} extends by {} tokens and carries the ids of {}: numeric execution needs them all, record "
        "the "
        "stream by --record-batches",
        batch.sequence_number(), wanted, given);
  }
  for (int i = 0; i < batch.input_run_first_size(); ++i) {
    for (std::uint32_t k = 0; k < batch.input_run_length(i); ++k)
      token_ids_.push_back(fold(batch.input_run_first(i) + k, config_.vocab_size));
  }
  if (batch.extend_sampling_size() != 0 && batch.extend_sampling_size() != batch.extend_lens_size()) {
    throw_user_error("batch {} has sampling parameters for {} of {} requests", batch.sequence_number(),
                     batch.extend_sampling_size(), batch.extend_lens_size());
  }
}

void NumericRanks::sample_tokens(const proto::ForwardBatch& batch, std::span<const float> logits) {
  const std::size_t highest = rows_.empty() ? 0 : *std::max_element(rows_.begin(), rows_.end());
  if (last_token_.size() <= highest) {
    last_token_.resize(highest + 1, 0);
    sampling_.resize(highest + 1);
  }
  for (int i = 0; i < batch.extend_lens_size(); ++i) {
    proto::SamplingParams& sampling = sampling_[rows_[static_cast<std::size_t>(i)]];
    sampling = batch.extend_sampling_size() > 0 ? batch.extend_sampling(i) : proto::SamplingParams();
  }
  sampled_.clear();
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const std::uint32_t token = sample(logits.subspan(i * config_.vocab_size, config_.vocab_size),
                                       sampling_[rows_[i]], prefix_lens_[i] + q_lens_[i]);
    sampled_.push_back(token);
    last_token_[rows_[i]] = token;
  }
}

// Of the requests in decoding_, those that have left the decode set.
void NumericRanks::release_left() {
  if (!config_.exclusive_pages) return;
  const std::span<const std::uint32_t> now = state_.decode_set();
  if (now.size() >= decoding_.size() && std::equal(decoding_.begin(), decoding_.end(), now.begin())) return;
  std::vector<std::uint32_t> remaining(now.begin(), now.end());
  std::sort(remaining.begin(), remaining.end());
  for (const std::uint32_t row : decoding_) {
    if (std::binary_search(remaining.begin(), remaining.end(), row)) continue;
    std::vector<std::uint32_t> pages;
    append_pages(row, pages);
    forward_->release_pages(pages);
  }
}

scheduler::StepOutcome NumericRanks::compute(const proto::ForwardBatch& batch) {
  const double start = now();
  TokenBatch pass;
  decoding_.assign(state_.decode_set().begin(), state_.decode_set().end());
  pass.metadata = state_.apply(batch);
  release_left();
  scheduler::StepOutcome outcome;
  if (pass.metadata.forward_mode == proto::IDLE || batch.end_of_run()) return outcome;

  rows_.clear();
  prefix_lens_.clear();
  q_lens_.clear();
  read_input(batch);
  for (int i = 0; i < batch.extend_lens_size(); ++i)
    add_request(batch.extend_req_pool_indices(i), batch.extend_prefix_lens(i), batch.extend_lens(i));
  const std::size_t extends = rows_.size();
  if (pass.metadata.forward_mode != proto::EXTEND) {
    for (std::size_t i = 0; i < state_.decode_set().size(); ++i) {
      const std::uint32_t row = state_.decode_set()[i];
      add_request(row, state_.decode_seq_lens()[i] - 1, 1);
      token_ids_.push_back(row < last_token_.size() ? last_token_[row] : 0);
    }
  }
  views_.assign(tables_.begin(), tables_.begin() + static_cast<std::ptrdiff_t>(rows_.size()));
  pass.token_ids = token_ids_;
  pass.q_lens = q_lens_;
  pass.prefix_lens = prefix_lens_;
  pass.page_tables = views_;
  pass.rows = rows_;

  const NumericTimes before = forward_->times();
  const std::span<const float> logits = forward_->forward(pass);
  account(pass.metadata.forward_mode, before);
  sample_tokens(batch, logits);
  outcome.next_token_ids = sampled_;
  outcome.next_token_rows = rows_;
  if (config_.return_logits) outcome.extend_logits = logits.first(extends * config_.vocab_size);
  outcome.step_time = now() - start;
  return outcome;
}

// Adds what forward_ spent since `before`.
void NumericRanks::account(proto::ForwardMode mode, const NumericTimes& before) {
  NumericTimes& total = mode == proto::DECODE ? decode_ : mode == proto::MIXED ? mixed_ : prefill_;
  const NumericTimes& after = forward_->times();
  total.gemm += after.gemm - before.gemm;
  total.attention += after.attention - before.attention;
  total.collective += after.collective - before.collective;
  total.other += after.other - before.other;
}

void NumericRanks::forward(const proto::ForwardBatch& batch, bool, std::vector<char>&) { compute(batch); }

std::vector<proto::RankReport> NumericRanks::reports() const {
  std::vector<proto::RankReport> reports;
  const NumericTimes& times = forward_->times();
  for (std::uint32_t i = 0; i < config_.num_ranks; ++i) {
    const std::uint32_t rank = config_.first_rank + i;
    proto::RankReport report = config_.deployment.ranks[rank];
    report.set_rank(rank);
    report.set_slowdown(config_.deployment.slowdown[rank]);
    report.set_peak_kv_bytes(state_.peak_held_bytes());
    if (collectives_ != nullptr) report.set_communicated_bytes(collectives_->bytes_sent());
    // Ranks of one process compute in turns: each has its share of the process's time.
    const auto share = [this](const NumericTimes& t, proto::PassSeconds& seconds) {
      seconds.set_attention(t.attention / config_.num_ranks);
      seconds.set_gemm(t.gemm / config_.num_ranks);
      seconds.set_collective(t.collective / config_.num_ranks);
      seconds.set_other(t.other / config_.num_ranks);
    };
    share(prefill_, *report.mutable_prefill());
    share(decode_, *report.mutable_decode());
    share(mixed_, *report.mutable_mixed());
    report.set_attention_seconds(times.attention / config_.num_ranks);
    report.set_gemm_seconds(times.gemm / config_.num_ranks);
    report.set_collective_seconds(times.collective / config_.num_ranks);
    report.set_other_seconds(times.other / config_.num_ranks);
    reports.push_back(std::move(report));
  }
  return reports;
}

}  // namespace tpsim::rank
