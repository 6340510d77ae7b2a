#include "rank/parallel/numeric_ranks.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "proto/base/error.h"
#include "rank/config/image_layout.h"
#include "rank/numeric/sampler.h"
#include "rank/parallel/idle_backoff.h"
#include "rank/parallel/local_ranks.h"

namespace tpsim::rank {
namespace {

// Adds what was spent between two readings, and returns all of it.
double add_spent(const NumericTimes& before, const NumericTimes& after, NumericTimes& total) {
  total.gemm += after.gemm - before.gemm;
  total.attention += after.attention - before.attention;
  total.collective += after.collective - before.collective;
  total.other += after.other - before.other;
  return after.gemm - before.gemm + after.attention - before.attention + after.collective -
         before.collective + after.other - before.other;
}

[[noreturn]] void refuse(const proto::ForwardBatch& batch, const char* what) {
  throw_user_error("batch {} is refused: {}", batch.sequence_number(), what);
}

}  // namespace

NumericRanks::NumericRanks(NumericRanksConfig config, std::unique_ptr<TokenForward> forward,
                           const Collectives* collectives, std::unique_ptr<TokenForward> draft)
    : config_(std::move(config)),
      forward_(std::move(forward)),
      speculation_(config_.drafting, std::move(draft)),
      collectives_(collectives) {
  const DeploymentConfig& deployment = config_.deployment;
  for (std::uint32_t dp = 0; dp < deployment.dp_size; ++dp) {
    RankStateConfig state = deployment.state;
    state.rank = deployment.dp_size == 1 ? config_.first_rank : deployment.tp_size / deployment.dp_size * dp;
    dp_ranks_.emplace_back(state);
  }
  passes_.resize(dp_ranks_.size());
  requests_.resize(dp_ranks_.size());
}

std::uint32_t NumericRanks::fold(std::uint64_t id, std::uint32_t vocab_size) {
  if (id < vocab_size) return static_cast<std::uint32_t>(id);
  std::uint64_t h = id * 0x9e3779b97f4a7c15ULL;  // neighbours must not fold to neighbours
  h ^= h >> 32;
  return static_cast<std::uint32_t>(h * 0xff51afd7ed558ccdULL % vocab_size);
}

// The page numbers of row `row`, one by one.
void NumericRanks::append_pages(const RankState& state, std::uint32_t row, std::vector<std::uint32_t>& out) {
  for (const kvcache::PageRun& run : state.pages(row)) {
    for (std::uint32_t i = 0; i < run.count; ++i) out.push_back(run.first + i);
  }
}

void NumericRanks::add_request(const RankState& state, std::uint32_t row, std::uint32_t prefix_len,
                               std::uint32_t q_len) {
  const std::size_t request = rows_.size();
  rows_.push_back(row);
  prefix_lens_.push_back(prefix_len);
  q_lens_.push_back(q_len);
  if (tables_.size() <= request) tables_.emplace_back();
  std::vector<std::uint32_t>& table = tables_[request];
  table.clear();
  append_pages(state, row, table);
}

// The token ids of the extend part.
void NumericRanks::read_input(const proto::ForwardBatch& batch) {
  std::uint64_t wanted = 0;
  for (const std::uint32_t length : batch.extend_lens()) wanted += length;
  std::uint64_t given = 0;
  for (const std::uint32_t length : batch.input_run_length()) given += length;
  if (given != wanted || batch.input_run_first_size() != batch.input_run_length_size()) {
    throw_user_error(
        "batch {} extends by {} tokens and carries the ids of {}: numeric execution needs them all, record "
        "the stream by --record-batches",
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

// Slots of the pool of states, where there is one: of the requests from `first` on, copies, snapshots.
void NumericRanks::read_states(DpRank& dp_rank, const proto::ForwardBatch& batch, std::size_t first,
                               TokenBatch& pass) {
  const int extends = batch.extend_state_slots_size();
  if (extends != 0 && extends != batch.extend_lens_size())
    refuse(batch, "it names the state slots of some requests of its extend part only");
  if (batch.state_copy_from_size() != batch.state_copy_to_size() ||
      batch.state_snapshot_rows_size() != batch.state_snapshot_lens_size() ||
      batch.state_snapshot_rows_size() != batch.state_snapshot_slots_size())
    refuse(batch, "its copies and snapshots of states have arrays of different lengths");
  for (int i = 0; i < extends; ++i) {
    const std::size_t row = rows_[first + static_cast<std::size_t>(i)];
    if (dp_rank.state_slot.size() <= row) dp_rank.state_slot.resize(row + 1, 0);
    dp_rank.state_slot[row] = batch.extend_state_slots(i);
  }
  if (dp_rank.state_slot.empty()) return;
  dp_rank.state_slots.clear();
  for (std::size_t i = first; i < rows_.size(); ++i) {
    const bool known = rows_[i] < dp_rank.state_slot.size() && dp_rank.state_slot[rows_[i]] != 0;
    if (!known) refuse(batch, "it does not say where the state of a request is");
    dp_rank.state_slots.push_back(dp_rank.state_slot[rows_[i]]);
  }
  dp_rank.snapshots.clear();
  for (int i = 0; i < batch.state_snapshot_rows_size(); ++i) {
    const auto begin = rows_.begin() + static_cast<std::ptrdiff_t>(first);
    const auto found = std::find(begin, rows_.end(), batch.state_snapshot_rows(i));
    const auto request = static_cast<std::uint32_t>(found - begin);
    const std::uint32_t tokens = batch.state_snapshot_lens(i);
    if (found == rows_.end() || tokens <= prefix_lens_[first + request] ||
        tokens > prefix_lens_[first + request] + q_lens_[first + request])
      refuse(batch, "it wants the state of a request after a token that it does not compute");
    dp_rank.snapshots.push_back({request, tokens, batch.state_snapshot_slots(i)});
  }
  const auto span_of = [](const auto& field) {
    return std::span<const std::uint32_t>(field.data(), static_cast<std::size_t>(field.size()));
  };
  pass.state_slots = dp_rank.state_slots;
  pass.state_copy_from = span_of(batch.state_copy_from());
  pass.state_copy_to = span_of(batch.state_copy_to());
  pass.state_snapshots = dp_rank.snapshots;
}

// The images of the extend part's prompts, and then those of all requests from `first` on.
void NumericRanks::read_images(DpRank& dp_rank, const proto::ForwardBatch& batch, std::size_t first,
                               TokenBatch& pass) {
  if (dp_rank.images.empty() && batch.prompt_images_size() == 0) return;
  for (int i = 0; i < batch.extend_lens_size(); ++i) {
    const std::size_t row = batch.extend_req_pool_indices(i);
    if (dp_rank.images.size() <= row) dp_rank.images.resize(row + 1);
    dp_rank.images[row].clear();
  }
  for (const proto::PromptImage& image : batch.prompt_images()) {
    if (image.request() >= static_cast<std::uint32_t>(batch.extend_lens_size()))
      refuse(batch, "it has an image of a request that is not in its extend part");
    if (std::min(image.width(), image.height()) == 0 ||
        std::max(image.width(), image.height()) > kMaxImageSide || image.tokens() == 0)
      refuse(batch, "it has an image without pixels or tokens, or of more pixels than there may be");
    std::vector<BatchImage>& of =
        dp_rank.images[batch.extend_req_pool_indices(static_cast<int>(image.request()))];
    if (!of.empty() && image.position() < of.back().position + of.back().tokens)
      refuse(batch, "the images of a prompt overlap, or are not in order");
    of.push_back({image.position(), image.tokens(), image.width(), image.height(), image.content()});
  }
  dp_rank.images_of_pass.clear();
  bool any = false;
  for (std::size_t i = first; i < rows_.size(); ++i) {
    const std::size_t row = rows_[i];
    std::span<const BatchImage>& images = dp_rank.images_of_pass.emplace_back();
    if (row < dp_rank.images.size()) images = dp_rank.images[row];
    any = any || !images.empty();
  }
  if (any) pass.images = dp_rank.images_of_pass;
}

void NumericRanks::sample_tokens(DpRank& dp_rank, const proto::ForwardBatch& batch, std::size_t first,
                                 std::size_t count, std::span<const float> logits) {
  if (count == 0) return;
  const auto begin = rows_.begin() + static_cast<std::ptrdiff_t>(first);
  const std::size_t highest = *std::max_element(begin, begin + static_cast<std::ptrdiff_t>(count));
  if (dp_rank.last_token.size() <= highest) {
    dp_rank.last_token.resize(highest + 1, 0);
    dp_rank.sampling.resize(highest + 1);
  }
  for (int i = 0; i < batch.extend_lens_size(); ++i) {
    proto::SamplingParams& sampling = dp_rank.sampling[rows_[first + static_cast<std::size_t>(i)]];
    sampling = batch.extend_sampling_size() > 0 ? batch.extend_sampling(i) : proto::SamplingParams();
  }
  for (std::size_t i = first; i < first + count; ++i) {
    const std::uint32_t token = sample(logits.subspan(i * config_.vocab_size, config_.vocab_size),
                                       dp_rank.sampling[rows_[i]], prefix_lens_[i] + q_lens_[i]);
    sampled_.push_back(token);
    dp_rank.last_token[rows_[i]] = token;
  }
}

// Of the requests that decoded before the pass, those that have left the decode set.
void NumericRanks::release_left(std::uint32_t dp_rank) {
  if (!config_.exclusive_pages) return;
  const std::vector<std::uint32_t>& before = dp_ranks_[dp_rank].decoding;
  const RankState& state = dp_ranks_[dp_rank].state;
  const std::span<const std::uint32_t> now = state.decode_set();
  if (now.size() >= before.size() && std::equal(before.begin(), before.end(), now.begin())) return;
  std::vector<std::uint32_t> remaining(now.begin(), now.end());
  std::sort(remaining.begin(), remaining.end());
  for (const std::uint32_t row : before) {
    if (std::binary_search(remaining.begin(), remaining.end(), row)) continue;
    std::vector<std::uint32_t> pages;
    append_pages(state, row, pages);
    forward_->release_pages(dp_rank, pages);
  }
}

// The requests of a pass that verifies, with what is to be verified.
void NumericRanks::draft_tokens(DpRank& of, TokenBatch& pass) {
  const std::span<const std::uint32_t> members = of.state.decode_set();
  const std::uint32_t drafts = config_.drafting.num_draft_tokens;
  verified_.resize(members.size());
  for (std::size_t i = 0; i < members.size(); ++i)
    add_request(of.state, members[i], of.state.decode_seq_lens()[i], drafts);
  for (std::size_t i = 0; i < members.size(); ++i)
    verified_[i] = {.row = members[i],
                    .prefix_len = prefix_lens_[i],
                    .page_table = tables_[i],
                    .tree = {},
                    .path = {},
                    .sampled = {}};
  const NumericTimes before = speculation_.times();
  speculation_.draft(verified_, of.last_token);
  draft_seconds_ += add_spent(before, speculation_.times(), decode_);
  parents_.clear();
  for (const Verified& request : verified_) {
    token_ids_.insert(token_ids_.end(), request.tree.tokens.begin(), request.tree.tokens.end());
    parents_.insert(parents_.end(), request.tree.parents.begin(), request.tree.parents.end());
  }
  if (!speculation_.chains()) {
    pass.parents = parents_;
    pass.metadata.tree_mask = true;
  }
  pass.all_logits = true;
}

// The tokens that the target samples along the accepted paths: those that it would have sampled one by one.
void NumericRanks::verify_tokens(DpRank& of, std::span<const float> logits, scheduler::StepOutcome& outcome) {
  const std::uint32_t drafts = config_.drafting.num_draft_tokens;
  std::vector<std::uint32_t> predicted(drafts);
  accept_lens_.clear();
  for (std::size_t i = 0; i < verified_.size(); ++i) {
    Verified& request = verified_[i];
    const std::vector<std::uint32_t> depths = depths_of(request.tree.parents);
    for (std::uint32_t node = 0; node < drafts; ++node)
      predicted[node] = sample(logits.subspan((i * drafts + node) * config_.vocab_size, config_.vocab_size),
                               of.sampling[request.row], request.prefix_len + depths[node] + 1);
    verify_tree(request.tree, predicted, request.path);
    request.sampled.clear();
    for (const std::uint32_t node : request.path) request.sampled.push_back(predicted[node]);
    sampled_.insert(sampled_.end(), request.sampled.begin(), request.sampled.end());
    of.last_token[request.row] = sampled_.back();
    accept_lens_.push_back(static_cast<std::uint32_t>(request.path.size()));
  }
  const NumericTimes before = speculation_.times();
  speculation_.keep(verified_, *forward_);
  draft_extend_seconds_ += add_spent(before, speculation_.times(), decode_);
  of.state.accept(accept_lens_);
  outcome.accept_lens = accept_lens_;
}

// What follows a chunk of a prompt is the prompt's next token, not what was sampled.
void NumericRanks::extend_drafts(const proto::ForwardBatch& batch) {
  next_tokens_ = sampled_;
  if (batch.has_chunked_request()) {
    if (batch.chunked_request() >= next_tokens_.size())
      throw_user_error("batch {} is refused: it has no request {} whose prompt goes on",
                       batch.sequence_number(), batch.chunked_request());
    next_tokens_[batch.chunked_request()] = fold(batch.chunked_next_token(), config_.vocab_size);
  }
  const NumericTimes before = speculation_.times();
  speculation_.extend(passes_.front(), next_tokens_, *forward_);
  add_spent(before, speculation_.times(), prefill_);
}

void NumericRanks::copy_pages(std::uint32_t dp_rank, const proto::ForwardBatch& batch) {
  const std::span<const std::uint32_t> from(batch.page_copy_from().data(),
                                            static_cast<std::size_t>(batch.page_copy_from_size()));
  const std::span<const std::uint32_t> to(batch.page_copy_to().data(),
                                          static_cast<std::size_t>(batch.page_copy_to_size()));
  const std::uint32_t pages = config_.deployment.state.num_pages + config_.host_pages;
  const auto beyond = [pages](std::uint32_t page) { return page >= pages; };
  if (from.size() != to.size() || std::ranges::any_of(from, beyond) || std::ranges::any_of(to, beyond))
    refuse(batch, "it copies pages that are not there");
  forward_->copy_pages(dp_rank, from, to);
  speculation_.copy_pages(from, to);
}

// Adds the requests of one data-parallel rank to those of the pass.
void NumericRanks::apply(std::uint32_t dp_rank, const proto::ForwardBatch& batch, TokenBatch& pass) {
  DpRank& of = dp_ranks_[dp_rank];
  of.decoding.assign(of.state.decode_set().begin(), of.state.decode_set().end());
  pass = TokenBatch{};
  pass.metadata = of.state.apply(batch);
  release_left(dp_rank);
  copy_pages(dp_rank, batch);
  const std::size_t first = rows_.size();
  if (pass.metadata.forward_mode != proto::IDLE && !batch.end_of_run()) {
    read_input(batch);
    for (int i = 0; i < batch.extend_lens_size(); ++i)
      add_request(of.state, batch.extend_req_pool_indices(i), batch.extend_prefix_lens(i),
                  batch.extend_lens(i));
    if (pass.metadata.forward_mode == proto::TARGET_VERIFY) {
      draft_tokens(of, pass);
    } else if (pass.metadata.forward_mode != proto::EXTEND) {
      for (std::size_t i = 0; i < of.state.decode_set().size(); ++i) {
        const std::uint32_t row = of.state.decode_set()[i];
        add_request(of.state, row, of.state.decode_seq_lens()[i] - 1, 1);
        token_ids_.push_back(row < of.last_token.size() ? of.last_token[row] : 0);
      }
    }
    read_states(of, batch, first, pass);
    read_images(of, batch, first, pass);
  }
  requests_[dp_rank] = static_cast<std::uint32_t>(rows_.size() - first);
}

scheduler::StepOutcome NumericRanks::compute(const proto::ForwardBatch& batch) {
  const double start = now();
  scheduler::StepOutcome outcome;
  const bool lockstep = dp_ranks_.size() > 1 && !batch.end_of_run();
  if (!batch.end_of_run()) check_dp_batches(batch, dp_ranks_.size());
  const auto batch_of = [&](std::size_t dp) -> const proto::ForwardBatch& {
    return lockstep ? batch.dp_batches(static_cast<int>(dp)) : batch;
  };
  rows_.clear();
  prefix_lens_.clear();
  q_lens_.clear();
  token_ids_.clear();
  for (std::uint32_t dp = 0; dp < dp_ranks_.size(); ++dp) apply(dp, batch_of(dp), passes_[dp]);
  if (rows_.empty()) return outcome;

  views_.assign(tables_.begin(), tables_.begin() + static_cast<std::ptrdiff_t>(rows_.size()));
  std::size_t request = 0, token = 0;
  for (std::size_t dp = 0; dp < dp_ranks_.size(); ++dp) {
    TokenBatch& pass = passes_[dp];
    pass.q_lens = std::span(q_lens_).subspan(request, requests_[dp]);
    pass.prefix_lens = std::span(prefix_lens_).subspan(request, requests_[dp]);
    pass.page_tables = std::span(views_).subspan(request, requests_[dp]);
    pass.rows = std::span(rows_).subspan(request, requests_[dp]);
    const std::size_t tokens = std::accumulate(pass.q_lens.begin(), pass.q_lens.end(), std::size_t{0});
    pass.token_ids = std::span(token_ids_).subspan(token, tokens);
    request += requests_[dp];
    token += tokens;
  }
  const NumericTimes before = forward_->times();
  const std::span<const float> logits = forward_->forward(passes_);
  add_spent(before, forward_->times(), spent_in(batch.forward_mode()));
  sampled_.clear();
  extend_logits_.clear();
  if (batch.forward_mode() == proto::TARGET_VERIFY) {
    verify_tokens(dp_ranks_.front(), logits, outcome);
    outcome.next_token_ids = sampled_;
    outcome.next_token_rows = rows_;
    outcome.step_time = now() - start;
    return outcome;
  }
  std::size_t first = 0;
  for (std::size_t dp = 0; dp < dp_ranks_.size(); ++dp) {
    sample_tokens(dp_ranks_[dp], batch_of(dp), first, requests_[dp], logits);
    if (config_.return_logits) {
      const auto extends = static_cast<std::size_t>(batch_of(dp).extend_lens_size());
      const auto part = logits.subspan(first * config_.vocab_size, extends * config_.vocab_size);
      extend_logits_.insert(extend_logits_.end(), part.begin(), part.end());
    }
    first += requests_[dp];
  }
  if (speculation_.enabled()) extend_drafts(batch);
  outcome.next_token_ids = sampled_;
  outcome.next_token_rows = rows_;
  if (dp_ranks_.size() > 1) outcome.requests_of_dp_rank = requests_;
  outcome.extend_logits = extend_logits_;
  outcome.step_time = now() - start;
  return outcome;
}

NumericTimes& NumericRanks::spent_in(proto::ForwardMode mode) {
  if (mode == proto::MIXED) return mixed_;
  return mode == proto::DECODE || mode == proto::TARGET_VERIFY ? decode_ : prefill_;
}

std::vector<proto::RankReport> NumericRanks::reports() const {
  std::vector<proto::RankReport> reports;
  const NumericTimes& times = forward_->times();
  for (std::uint32_t i = 0; i < config_.num_ranks; ++i) {
    const std::uint32_t rank = config_.first_rank + i;
    proto::RankReport report = config_.deployment.ranks[rank];
    report.set_rank(rank);
    report.set_slowdown(config_.deployment.slowdown[rank]);
    const std::uint32_t dp_rank = rank / (config_.deployment.tp_size / config_.deployment.dp_size);
    report.set_peak_kv_bytes(dp_ranks_[dp_rank].state.peak_held_bytes());
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
    if (draft_seconds_ > 0) {
      report.mutable_decode()->set_draft(draft_seconds_ / config_.num_ranks);
      report.mutable_decode()->set_draft_extend(draft_extend_seconds_ / config_.num_ranks);
    }
    report.set_attention_seconds(times.attention / config_.num_ranks);
    report.set_gemm_seconds(times.gemm / config_.num_ranks);
    report.set_collective_seconds(times.collective / config_.num_ranks);
    report.set_other_seconds(times.other / config_.num_ranks);
    if (const std::optional<ImageTotals> images = forward_->image_totals(dp_rank)) {
      report.set_encoder_seconds(images->seconds / config_.num_ranks);
      report.set_encoded_images(images->encoded);
      report.set_embedding_cache_hits(images->cache_hits);
    }
    reports.push_back(std::move(report));
  }
  return reports;
}

}  // namespace tpsim::rank
