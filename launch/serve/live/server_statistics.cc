#include "launch/serve/live/server_statistics.h"

#include <algorithm>
#include <utility>

namespace tpsim::launch {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLookEvery{20};
constexpr std::chrono::seconds kSampleEvery{1};
// "The last few seconds" of rates.
constexpr std::size_t kRateSamples = 5;

LiveQueues queues_of(const scheduler::DataParallelGroup::Totals& totals, double new_token_ratio) {
  const auto& [tokens, windows, states, host] = totals.pools;
  return {.num_running_reqs = static_cast<std::uint32_t>(totals.running),
          .num_queue_reqs = static_cast<std::uint32_t>(totals.waiting),
          .kv_used_tokens = tokens.held,
          .kv_evictable_tokens = tokens.cached,
          .kv_available_tokens = tokens.free,
          .swa_used_tokens = windows.held,
          .swa_evictable_tokens = windows.cached,
          .swa_available_tokens = windows.free,
          .states_used = states.held,
          .states_evictable = states.cached,
          .states_available = states.free,
          .new_token_ratio = new_token_ratio};
}

void add(const scheduler::DataParallelGroup::Totals& more, scheduler::DataParallelGroup::Totals& to) {
  to.waiting += more.waiting;
  to.running += more.running;
  for (std::size_t pool = 0; pool < more.pools.size(); ++pool) {
    to.pools[pool].held += more.pools[pool].held;
    to.pools[pool].cached += more.pools[pool].cached;
    to.pools[pool].free += more.pools[pool].free;
  }
}

}  // namespace

ServerStatistics::ServerStatistics(LiveDescription description, const WallClock& clock)
    : clock_(clock), sampled_(steady_clock::now()), looked_(sampled_) {
  live_.description = std::move(description);
}

void ServerStatistics::on_arrival(bool accepted) {
  const std::lock_guard lock(mutex_);
  ++(accepted ? live_.accepted_requests : live_.rejected_requests);
  live_.open_requests += accepted ? 1 : 0;
}

void ServerStatistics::on_scheduled(double queue_seconds, std::uint32_t prompt_tokens,
                                    std::uint32_t cached_tokens) {
  const std::lock_guard lock(mutex_);
  live_.queue_time.observe(queue_seconds);
  current_.prompt_tokens += prompt_tokens;
  current_.cached_tokens += cached_tokens;
}

void ServerStatistics::on_first_token(double ttft) {
  const std::lock_guard lock(mutex_);
  live_.ttft.observe(ttft);
  ++ttft_count_;
  current_.mean_ttft += (ttft - current_.mean_ttft) / static_cast<double>(ttft_count_);
}

void ServerStatistics::on_inter_token(double gap, std::uint32_t count) {
  const std::lock_guard lock(mutex_);
  live_.inter_token.observe(gap, count);
  inter_token_count_ += count;
  current_.mean_inter_token +=
      (gap - current_.mean_inter_token) * count / static_cast<double>(inter_token_count_);
}

void ServerStatistics::on_finished(const scheduler::Req& req, scheduler::RequestState state, double latency) {
  const std::lock_guard lock(mutex_);
  --live_.open_requests;
  live_.retractions += req.retractions;
  switch (state) {
    case scheduler::RequestState::kCompleted:
      ++live_.finished_requests;
      ++current_.finished;
      live_.prompt_tokens += req.input_len;
      live_.cached_tokens += req.cached_tokens;
      live_.generation_tokens += req.output_len;
      live_.e2e.observe(latency);
      live_.prompt_length.observe(req.input_len);
      live_.uncached_prompt_length.observe(req.input_len - std::min(req.input_len, req.cached_tokens));
      live_.generation_length.observe(req.output_len);
      return;
    case scheduler::RequestState::kRejected:
      ++live_.rejected_requests;
      ++current_.rejected;
      return;
    default:
      ++live_.aborted_requests;
      ++current_.aborted;
  }
}

void ServerStatistics::on_step(const scheduler::StepRecord& record, double gpu_seconds) {
  const std::lock_guard lock(mutex_);
  ++live_.steps;
  ++current_.steps;
  if (record.capture_bucket > 0) ++live_.graph_steps;
  live_.gpu_seconds += gpu_seconds;
  current_.gpu_seconds += gpu_seconds;
  if (record.extend_requests > 0) {
    ++live_.prefill_steps;
    live_.prefill_gpu_seconds += gpu_seconds;
  }
  live_.prefill_compute_tokens += record.extend_tokens;
  live_.prefill_cache_tokens += record.cached_tokens;
  live_.decode_tokens += record.decode_tokens;
  current_.prefill_tokens += record.extend_tokens;
  current_.decode_tokens += record.decode_tokens + record.extend_requests;
  live_.last_pass_used_graph = record.capture_bucket > 0;
  if (record.forward_mode == proto::TARGET_VERIFY) {
    accepted_steps_ += record.decode_requests;
    accepted_tokens_ += record.decode_tokens;
  }
}

void ServerStatistics::on_lag(double due, double now) {
  const std::lock_guard lock(mutex_);
  live_.wall_lag = std::max(now - due, 0.0) / clock_.speedup();
  live_.max_wall_lag = std::max(live_.max_wall_lag, live_.wall_lag);
}

bool ServerStatistics::wants_to_look(bool at_leisure) const {
  const auto now = steady_clock::now();
  return now - sampled_ >= kSampleEvery || now - looked_ >= (at_leisure ? kLookEvery / 10 : kLookEvery);
}

void ServerStatistics::look(std::span<const scheduler::DataParallelGroup* const> replicas,
                            const Lengths& lengths) {
  const auto now = steady_clock::now();
  const bool sampling = now - sampled_ >= kSampleEvery;
  looked_ = now;
  const std::lock_guard lock(mutex_);
  live_.ranks.clear();
  live_.retracted_input_tokens = live_.retracted_output_tokens = live_.evicted_tokens = 0;
  scheduler::DataParallelGroup::Totals totals;
  for (const scheduler::DataParallelGroup* schedulers : replicas) {
    const scheduler::DataParallelGroup::Totals of_replica = schedulers->totals();
    add(of_replica, totals);
    live_.evicted_tokens += schedulers->evicted_tokens();
    if (replicas.size() > 1)
      live_.ranks.push_back(queues_of(of_replica, schedulers->scheduler(0).new_token_ratio()));
    for (std::size_t rank = 0; rank < schedulers->size(); ++rank) {
      const scheduler::Scheduler& scheduler = schedulers->scheduler(rank);
      if (replicas.size() == 1 && schedulers->size() > 1)
        live_.ranks.push_back(queues_of(schedulers->totals_of(rank), scheduler.new_token_ratio()));
      live_.retracted_input_tokens += scheduler.retracted_input_tokens();
      live_.retracted_output_tokens += scheduler.retracted_output_tokens();
    }
  }
  static_cast<LiveQueues&>(live_) = queues_of(totals, replicas.front()->scheduler(0).new_token_ratio());
  live_.pending_prefill_tokens = lengths.pending;
  live_.decode_sum_seq_lens = lengths.decoding;
  if (accepted_steps_ > 0)
    live_.spec_accept_length = static_cast<double>(accepted_tokens_) / static_cast<double>(accepted_steps_);
  if (sampling) sample(clock_.seconds_at(now));
}

void ServerStatistics::sample(double now) {
  const auto wall = steady_clock::now();
  current_.time = now;
  current_.seconds = std::chrono::duration<double>(wall - sampled_).count() * clock_.speedup();
  sampled_ = wall;
  current_.wall_lag = live_.wall_lag;
  current_.waiting = live_.num_queue_reqs;
  current_.running = live_.num_running_reqs;
  current_.kv_used_tokens = live_.kv_used_tokens;
  current_.kv_cached_tokens = live_.kv_evictable_tokens;
  current_.kv_free_tokens = live_.kv_available_tokens;
  samples_.push_back(current_);
  if (samples_.size() > LiveStatistics::kMostSamples) samples_.pop_front();
  current_ = {};
  ttft_count_ = inter_token_count_ = 0;

  double seconds = 0, generated = 0, prompt = 0, cached = 0, busy = 0;
  const std::size_t first = samples_.size() - std::min(samples_.size(), kRateSamples);
  for (std::size_t i = first; i < samples_.size(); ++i) {
    const LiveSample& one = samples_[i];
    seconds += one.seconds;
    generated += static_cast<double>(one.decode_tokens);
    prompt += static_cast<double>(one.prompt_tokens);
    cached += static_cast<double>(one.cached_tokens);
    busy += one.gpu_seconds;
  }
  live_.gen_throughput = seconds > 0 ? generated / seconds : 0;
  live_.cache_hit_rate = prompt > 0 ? cached / prompt : 0;
  live_.utilization = seconds > 0 ? std::min(busy / seconds / live_.description.replicas, 1.0) : 0;
}

LiveStatistics ServerStatistics::snapshot(bool with_samples) const {
  LiveStatistics copy;
  {
    const std::lock_guard lock(mutex_);
    copy = live_;
    if (with_samples) copy.samples.assign(samples_.begin(), samples_.end());
  }
  copy.now = clock_.now();
  copy.wall_uptime = copy.now / clock_.speedup();
  return copy;
}

}  // namespace tpsim::launch
