#include "rank/parallel/local_ranks.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "proto/base/archive.h"
#include "proto/base/error.h"

namespace tpsim::rank {
namespace {

// The one place where a slowdown meets a cost: every process must round alike.
StepCost slowed(const StepCost& cost, double slowdown) {
  StepCost result = cost;
  result.attention *= slowdown;
  result.gemm *= slowdown;
  result.other *= slowdown;
  result.encoder *= slowdown;
  return result;
}

double arrival_of(const StepCost& cost) {
  return cost.attention + cost.gemm + cost.other + cost.launch + cost.encoder;
}

StepTimes times_of(const StepCost& cost) {
  return StepTimes{arrival_of(cost), cost.collective, cost.host_seconds, cost.issue_seconds, cost.launches};
}

template <typename T>
void append(std::vector<char>& answer, const T& value) {
  const char* const bytes = reinterpret_cast<const char*>(&value);
  answer.insert(answer.end(), bytes, bytes + sizeof value);
}

// The whole of `text` as a number, locale or not.
template <typename Number>
bool parse_whole(std::string_view text, Number& number) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end;
}

}  // namespace

void StepTimes::take_slowest(const StepTimes& other) {
  arrival = std::max(arrival, other.arrival);
  collective = std::max(collective, other.collective);
  host = std::max(host, other.host);
  issue = std::max(issue, other.issue);
  launches = std::max(launches, other.launches);
}

LocalRanks::LocalRanks(const DeploymentConfig& config, std::uint32_t first_rank, std::uint32_t num_ranks,
                       std::vector<std::shared_ptr<RankModel>> models)
    : ranks_(config.ranks),
      slowdown_(config.slowdown),
      first_rank_(first_rank),
      num_ranks_(num_ranks),
      tp_size_(config.tp_size),
      pp_size_(config.pp_size),
      ranks_of_dp_(config.dp_size == 0 ? 0 : config.tp_size / config.dp_size),
      stage_kv_bytes_(config.stage_kv_bytes),
      page_tokens_(config.state.page_size),
      models_(std::move(models)),
      encodings_(config.dp_size, ImageEncoding(config.images)),
      encoder_costs_(config.dp_size),
      metadata_(config.dp_size),
      global_num_tokens_(config.dp_size),
      global_num_tokens_for_logprob_(config.dp_size),
      costs_(identical_shards() ? models_.size() * config.dp_size : models_.size()) {
  const std::uint32_t all = config.num_ranks();
  if (config.slowdown.size() != all || config.ranks.size() != all || num_ranks == 0 ||
      first_rank + num_ranks > all ||
      (!identical_shards() && (pp_size_ > 1 || models_.size() != num_ranks)) ||
      (!stage_kv_bytes_.empty() && stage_kv_bytes_.size() != pp_size_) || ranks_of_dp_ == 0 ||
      config.tp_size % config.dp_size != 0) {
    throw std::invalid_argument("LocalRanks: numbers of ranks, slowdowns, reports or models do not fit");
  }
  for (std::uint32_t part = 0; part < pp_size_ * config.dp_size; ++part) {
    const auto first = slowdown_.begin() + part * ranks_of_dp_;
    slowest_slowdown_.push_back(*std::max_element(first, first + ranks_of_dp_));
  }
  if (pp_size_ > 1) {
    stage_times_.resize(pp_size_);
    stages_.resize(pp_size_);
  }
  states_.reserve(config.dp_size);
  for (std::uint32_t dp = 0; dp < config.dp_size; ++dp) {
    RankStateConfig state = config.state;
    state.rank = config.dp_size == 1 ? first_rank : dp * ranks_of_dp_;
    states_.emplace_back(state);
  }
  for (std::uint32_t i = 0; i < num_ranks; ++i) {
    const GroupKey key = key_of(first_rank + i);
    const auto found = std::find_if(classes_.begin(), classes_.end(), [&](const Class& c) {
      return c.cost == key.cost && c.slowdown == key.slowdown;
    });
    class_of_.push_back(static_cast<std::size_t>(found - classes_.begin()));
    if (found == classes_.end())
      classes_.push_back(Class{key.cost, stage_of(first_rank + i), key.slowdown, {}, {}, {}});
  }
  const std::uint32_t first_known = identical_shards() ? 0 : first_rank;
  const std::uint32_t known = identical_shards() ? all : num_ranks;
  for (std::uint32_t rank = first_known; rank < first_known + known; ++rank) {
    const GroupKey key = key_of(rank);
    if (std::find(group_keys_.begin(), group_keys_.end(), key) == group_keys_.end())
      group_keys_.push_back(key);
  }
}

std::size_t LocalRanks::dp_rank_of(std::size_t cost) const {
  return identical_shards() ? cost % states_.size() : dp_rank(first_rank_ + static_cast<std::uint32_t>(cost));
}

void LocalRanks::apply(const proto::ForwardBatch& batch) {
  if (!batch.end_of_run()) check_dp_batches(batch, states_.size());
  mode_ = batch.forward_mode();
  if (states_.size() == 1 || batch.end_of_run()) {
    for (std::size_t dp = 0; dp < states_.size(); ++dp) metadata_[dp] = states_[dp].apply(batch);
    encoder_costs_[0] = encodings_[0].apply(batch);
    mode_ = metadata_.front().forward_mode;
    return;
  }
  bool extends = false, decodes_alone = false, verifies_drafts = false;
  for (std::size_t dp = 0; dp < states_.size(); ++dp) {
    metadata_[dp] = states_[dp].apply(batch.dp_batches(static_cast<int>(dp)));
    encoder_costs_[dp] = encodings_[dp].apply(batch.dp_batches(static_cast<int>(dp)));
    const attention::ForwardMetadata& metadata = metadata_[dp];
    const auto decodes = static_cast<std::uint32_t>(metadata.decode_seq_lens.size());
    global_num_tokens_[dp] =
        std::accumulate(metadata.extend_lens.begin(), metadata.extend_lens.end(), decodes);
    // Verifying wants the logits of every token.
    const bool verifies = metadata.forward_mode == proto::TARGET_VERIFY;
    global_num_tokens_for_logprob_[dp] =
        verifies ? global_num_tokens_[dp] : static_cast<std::uint32_t>(metadata.extend_lens.size()) + decodes;
    extends = extends || (!verifies && !metadata.extend_lens.empty());
    decodes_alone = decodes_alone || metadata.forward_mode == proto::DECODE;
    verifies_drafts = verifies_drafts || verifies;
  }
  for (attention::ForwardMetadata& metadata : metadata_) {
    metadata.global_num_tokens = global_num_tokens_;
    metadata.global_num_tokens_for_logprob = global_num_tokens_for_logprob_;
    metadata.is_extend_in_batch = extends;
    metadata.is_decode_in_batch = decodes_alone;
    metadata.is_verify_in_batch = verifies_drafts;
  }
}

StepTimes LocalRanks::price(const proto::ForwardBatch& batch) {
  apply(batch);
  for (std::size_t i = 0; i < costs_.size(); ++i) {
    const attention::ForwardMetadata& metadata = metadata_[dp_rank_of(i)];
    const bool idle = metadata.forward_mode == proto::IDLE && metadata.global_num_tokens.empty();
    costs_[i] = idle ? StepCost{} : model_of(i).forward(metadata);
    // Later stages have the encoder's weights, but get hidden states (general_mm_embed_routine of SGLang's
    // managers/mm_utils.py).
    if (pp_size_ > 1 && i >= states_.size()) continue;
    const EncoderCost& encoder = encoder_costs_[dp_rank_of(i)];
    costs_[i].encoder = encoder.seconds;
    costs_[i].flops += encoder.flops;
    costs_[i].memory_bytes += encoder.memory_bytes;
    costs_[i].communicated_bytes += encoder.communicated_bytes;
  }
  if (pp_size_ > 1) {
    price_stages();
    return slowest_of_deployment();
  }
  StepTimes slowest;
  for (const Class& c : classes_) slowest.take_slowest(times_of(slowed(costs_[c.cost], c.slowdown)));
  return slowest;
}

StepTimes LocalRanks::slowest_of_stage(std::uint32_t stage) const {
  const std::size_t first = std::size_t{stage} * states_.size();
  StepTimes slowest = times_of(slowed(costs_[first], slowest_slowdown_[first]));
  for (std::size_t i = first + 1; i < first + states_.size(); ++i)
    slowest.take_slowest(times_of(slowed(costs_[i], slowest_slowdown_[i])));
  return slowest;
}

void LocalRanks::price_stages() {
  for (std::uint32_t stage = 0; stage < pp_size_; ++stage) {
    stage_times_[stage] = slowest_of_stage(stage);
    scheduler::StageOutcome& outcome = stages_[stage];
    outcome = {.seconds = stage_times_[stage].step_time()};
    for (std::size_t i = 0; i < states_.size(); ++i) {
      const StepCost& cost = costs_[std::size_t{stage} * states_.size() + i];
      outcome.receive = std::max(outcome.receive, cost.receive);
      outcome.send = std::max(outcome.send, cost.send);
    }
  }
}

StepTimes LocalRanks::slowest_of_deployment() const {
  if (pp_size_ == 1) return slowest_of_stage(0);
  StepTimes sum;
  for (const StepTimes& stage : stage_times_) {
    sum.arrival += stage.arrival;
    sum.collective += stage.collective;
  }
  sum.host = stage_times_.front().host;  // that of the others is hidden by the stages before them
  return sum;
}

std::vector<RankGroup> LocalRanks::groups() const {
  std::vector<RankGroup> groups(group_keys_.size());
  const std::uint32_t first = identical_shards() ? 0 : first_rank_;
  const std::uint32_t end = identical_shards() ? tp_size_ * pp_size_ : first_rank_ + num_ranks_;
  for (std::uint32_t rank = first; rank < end; ++rank) {
    const auto found = std::find(group_keys_.begin(), group_keys_.end(), key_of(rank));
    RankGroup& group = groups[static_cast<std::size_t>(found - group_keys_.begin())];
    group.stage = stage_of(rank);
    group.ranks.push_back(rank);
  }
  return groups;
}

void LocalRanks::last_pass(std::vector<RankSeconds>& seconds) const {
  seconds.clear();
  for (const GroupKey& key : group_keys_) {
    const StepCost cost = slowed(costs_[key.cost], key.slowdown);
    const double arrival = pp_size_ > 1 ? stage_times_[key.cost / states_.size()].arrival : arrival_;
    seconds.push_back({.encoder = cost.encoder,
                       .attention = cost.attention,
                       .gemm = cost.gemm,
                       .other = cost.other,
                       .launch = cost.launch,
                       .wait = arrival - arrival_of(cost),
                       .collective = cost.collective});
  }
}

void LocalRanks::account(double arrival) {
  arrival_ = arrival;
  for (Class& c : classes_) {
    const StepCost cost = slowed(costs_[c.cost], c.slowdown);
    PassTotal& total = c.total(mode_);
    total.cost += cost;
    total.wait += (pp_size_ > 1 ? stage_times_[c.stage].arrival : arrival) - arrival_of(cost);
  }
}

LocalRanks::PassTotal& LocalRanks::Class::total(proto::ForwardMode mode) {
  return mode == proto::DECODE || mode == proto::TARGET_VERIFY ? decode
         : mode == proto::MIXED                                ? mixed
                                                               : prefill;
}

void LocalRanks::PassTotal::write(proto::PassSeconds& seconds) const {
  seconds.set_attention(cost.attention);
  seconds.set_gemm(cost.gemm);
  seconds.set_collective(cost.collective);
  seconds.set_other(cost.other);
  seconds.set_launch(cost.launch);
  seconds.set_wait(wait);
  if (cost.encoder > 0) seconds.set_encoder(cost.encoder);
  if (cost.draft_seconds > 0) seconds.set_draft(cost.draft_seconds);
  if (cost.draft_extend_seconds > 0) seconds.set_draft_extend(cost.draft_extend_seconds);
}

std::vector<proto::RankReport> LocalRanks::reports() const {
  std::vector<proto::RankReport> reports;
  for (std::uint32_t i = 0; i < num_ranks_; ++i) {
    const Class& c = classes_[class_of_[i]];
    proto::RankReport report = ranks_[first_rank_ + i];
    report.set_rank(first_rank_ + i);
    report.set_slowdown(slowdown_[first_rank_ + i]);
    const RankState& state = states_[dp_rank(first_rank_ + i)];
    report.set_peak_kv_bytes(stage_kv_bytes_.empty()
                                 ? state.peak_held_bytes()
                                 : state.peak_held_pages() * page_tokens_ * stage_kv_bytes_[c.stage]);
    c.prefill.write(*report.mutable_prefill());
    c.decode.write(*report.mutable_decode());
    c.mixed.write(*report.mutable_mixed());
    const auto sum = [&c](double StepCost::*part) {
      return c.prefill.cost.*part + c.decode.cost.*part + c.mixed.cost.*part;
    };
    report.set_flops(sum(&StepCost::flops));
    report.set_memory_bytes(sum(&StepCost::memory_bytes));
    report.set_communicated_bytes(sum(&StepCost::communicated_bytes));
    if (const double crossing = sum(&StepCost::network_bytes); crossing > 0) {
      report.set_network_bytes(crossing);
      report.set_network_seconds(sum(&StepCost::network_seconds));
    }
    report.set_attention_seconds(sum(&StepCost::attention));
    report.set_gemm_seconds(sum(&StepCost::gemm));
    report.set_collective_seconds(sum(&StepCost::collective));
    report.set_other_seconds(sum(&StepCost::other));
    report.set_launch_seconds(sum(&StepCost::launch));
    report.set_wait_seconds(c.prefill.wait + c.decode.wait + c.mixed.wait);
    if (const ImageEncoding& images = encodings_[dp_rank(first_rank_ + i)]; images.active() && c.stage == 0) {
      report.set_encoder_seconds(sum(&StepCost::encoder));
      report.set_encoded_images(images.encoded());
      report.set_embedding_cache_hits(images.cache_hits());
    }
    reports.push_back(std::move(report));
  }
  return reports;
}

void PricedRanks::forward(const proto::ForwardBatch& batch, bool synchronous, std::vector<char>& answer) {
  const StepTimes local = ranks_.price(batch);
  if (batch.end_of_run()) return;
  if (synchronous) {
    append(answer, local);
    return;
  }
  const StepTimes slowest = ranks_.slowest_of_deployment();
  ranks_.account(slowest.arrival);
  append(answer, slowest.step_time());
}

void LocalRanks::restart() {
  for (RankState& state : states_) state.restart();
  for (ImageEncoding& encoding : encodings_) encoding.restart();
}

scheduler::StepOutcome ModeledExecutor::forward(const proto::ForwardBatch& batch) {
  const StepTimes times = ranks_.price(batch);
  ranks_.account(times.arrival);
  scheduler::StepOutcome outcome = times.outcome();
  outcome.stages = ranks_.stages();
  return outcome;
}

void ModeledExecutor::save(StateWriter& state) { state(ranks_); }

void ModeledExecutor::load(StateReader& state) { state(ranks_); }

std::vector<double> parse_rank_slowdowns(std::span<const std::string> values, std::uint32_t tp_size) {
  std::vector<double> factors(tp_size, 1.0);
  std::vector<bool> named(tp_size, false);
  for (const std::string& value : values) {
    const std::size_t colon = value.find(':');
    std::uint32_t rank = 0;
    double factor = 0;
    if (colon == std::string::npos || !parse_whole(std::string_view(value).substr(0, colon), rank) ||
        !parse_whole(std::string_view(value).substr(colon + 1), factor) || !std::isfinite(factor)) {
      throw_user_error("--rank-slowdown {}: expected RANK:FACTOR, for example 3:1.2", value);
    }
    if (rank >= tp_size) {
      throw_user_error("--rank-slowdown {}: --tp {} has ranks 0 to {}", value, tp_size, tp_size - 1);
    }
    if (factor < 1.0) {
      throw_user_error("--rank-slowdown {}: the factor must be at least 1 (1.2 = 20% slower)", value);
    }
    if (named[rank]) throw_user_error("--rank-slowdown {}: rank {} is named twice", value, rank);
    named[rank] = true;
    factors[rank] = factor;
  }
  return factors;
}

}  // namespace tpsim::rank
