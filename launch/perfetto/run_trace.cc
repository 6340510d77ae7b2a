#include "launch/perfetto/run_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "proto/forward.pb.h"

namespace tpsim::launch {
namespace {

// Where tracks stand in their process.
enum Place : std::int32_t { kScheduler, kRanks, kCounters = 1000, kRequests = 2000 };

std::uint64_t nanoseconds(double seconds) {
  return static_cast<std::uint64_t>(std::llround(std::max(0.0, seconds) * 1e9));
}

// "ranks 0 to 3, 6", "rank 0".
std::string ranks_text(const std::vector<std::uint32_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (i > 0) text += ", ";
    text += last == i ? fmt::format("{}", ranks[i]) : fmt::format("{} to {}", ranks[i], ranks[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace

RunTrace::RunTrace(OutputFile& file, const TraceWindow& window, std::uint64_t most_bytes)
    : writer_(file), window_(window), most_bytes_(most_bytes) {}

std::array<RunTrace::Name, 7> RunTrace::Names::mode_names(PerfettoWriter& writer) {
  std::array<Name, 7> names;
  for (std::size_t i = 0; i < names.size(); ++i)
    names[i] = writer.slice_name(proto::ForwardMode_Name(static_cast<proto::ForwardMode>(i)));
  return names;
}

void RunTrace::begin_run(const std::string& name, std::uint32_t num_ranks, std::uint32_t stages,
                         std::vector<rank::RankGroup> groups, bool scheduled) {
  process_ = writer_.add_process(1, name);
  if (scheduled) scheduler_ = writer_.add_track(process_, "scheduler", kScheduler);
  if (groups.empty()) {
    groups.resize(stages);
    for (std::uint32_t rank = 0; rank < num_ranks; ++rank) {
      rank::RankGroup& group = groups[rank / (num_ranks / stages)];
      group.stage = rank / (num_ranks / stages);
      group.ranks.push_back(rank);
    }
  }
  for (const rank::RankGroup& group : groups) {
    std::string text = ranks_text(group.ranks);
    if (stages > 1) text += fmt::format(" (stage {})", group.stage);
    const auto place = kRanks + static_cast<std::int32_t>(groups_.size());
    groups_.push_back({group.stage, writer_.add_track(process_, text, place)});
  }
  if (!scheduled) return;
  std::int32_t place = kCounters;
  const auto add = [&](std::span<Counter> counters, std::span<const char* const> texts, const char* unit) {
    for (std::size_t i = 0; i < texts.size(); ++i)
      counters[i].track = writer_.add_counter(process_, texts[i], unit, place++);
  };
  constexpr std::array kRequestTexts = {"running requests", "waiting requests"};
  constexpr std::array kKvTexts = {"KV tokens held", "KV tokens cached", "KV tokens free"};
  add(std::span(counters_).first(2), kRequestTexts, "requests");
  add(std::span(counters_).subspan(2), kKvTexts, "tokens");
  hit_rate_ = writer_.add_counter(process_, "prefix hit rate", "%", place);
}

bool RunTrace::full(double time) {
  if (writer_.bytes() < most_bytes_) return false;
  if (std::isinf(cut_at_)) cut_at_ = time;
  return true;
}

void RunTrace::slice(Track track, Name category, Name name, std::uint64_t begin, std::uint64_t end) {
  writer_.begin(track, begin, category, name, {});
  writer_.end(track, end);
}

void RunTrace::add_step(const scheduler::StepRecord& step, std::span<const rank::RankSeconds> seconds) {
  last_time_ = std::max(last_time_, step.start_time + step.step_time);
  prompt_tokens_ += step.cached_tokens + step.extend_tokens;
  cached_tokens_ += step.cached_tokens;
  if (step.start_time < window_.from || step.start_time >= window_.until || full(step.start_time)) return;
  arguments_.clear();
  const auto say = [this](Name key, std::uint64_t count) {
    if (count > 0) arguments_.push_back(Argument::of(key, count));
  };
  arguments_.push_back(Argument::of(names_.step_number, step.sequence_number));
  say(names_.extend_requests, step.extend_requests);
  say(names_.extend_tokens, step.extend_tokens);
  say(names_.cached_tokens, step.cached_tokens);
  say(names_.decode_requests, step.decode_requests);
  say(names_.decode_tokens, step.decode_tokens == step.decode_requests ? 0 : step.decode_tokens);
  say(names_.capture_bucket, step.capture_bucket);
  const std::uint64_t formed = nanoseconds(step.formed_time);
  if (scheduler_ != Track::kNone) {
    const Name mode = names_.modes[static_cast<std::size_t>(step.forward_mode)];
    writer_.begin(scheduler_, formed, names_.scheduler, mode, arguments_);
    writer_.end(scheduler_, std::max(formed, nanoseconds(step.returned_time)));
    add_counters(step, formed);
    arguments_.resize(1);  // a click away, passes need not say it again
  }
  for (std::size_t i = 0; i < groups_.size(); ++i)
    add_pass(groups_[i], step, i < seconds.size() ? &seconds[i] : nullptr);
}

void RunTrace::add_pass(const Group& group, const scheduler::StepRecord& step,
                        const rank::RankSeconds* seconds) {
  double start = step.start_time, end = step.start_time + step.step_time;
  if (!step.stages.empty()) {
    start = step.stages[group.stage].start;
    end = step.stages[group.stage].end;
  }
  const std::uint64_t last = nanoseconds(end);
  writer_.begin(group.track, nanoseconds(start), names_.step,
                names_.modes[static_cast<std::size_t>(step.forward_mode)], arguments_);
  if (seconds != nullptr) {
    const std::array parts = {seconds->encoder, seconds->attention, seconds->gemm,      seconds->other,
                              seconds->launch,  seconds->wait,      seconds->collective};
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (parts[i] <= 0) continue;
      const std::uint64_t begin = std::min(last, nanoseconds(start));
      start += parts[i];
      slice(group.track, names_.step, names_.parts[i], begin, std::min(last, nanoseconds(start)));
    }
  }
  writer_.end(group.track, last);
}

void RunTrace::count(Counter& counter, std::uint64_t time, std::uint64_t value) {
  if (std::exchange(counter.last, value) != value) writer_.count(counter.track, time, value);
}

void RunTrace::add_counters(const scheduler::StepRecord& step, std::uint64_t time) {
  count(counters_[0], time, step.running);
  count(counters_[1], time, step.waiting);
  const auto& [tokens, windows, states, host] = step.pools;
  count(counters_[2], time, tokens.held);
  count(counters_[3], time, tokens.cached);
  count(counters_[4], time, tokens.free);
  // Pools that only some models have: their tracks come with their first figures.
  const auto add_pool = [&](std::array<Counter, 3>& counters, const std::array<const char*, 3>& texts,
                            const char* unit, const scheduler::PoolUse& use) {
    const std::array<std::uint64_t, 3> values = {use.held, use.cached, use.free};
    for (std::size_t i = 0; i < counters.size(); ++i) {
      if (counters[i].track == Track::kNone)
        counters[i].track =
            writer_.add_counter(process_, texts[i], unit, kCounters + 10 + static_cast<std::int32_t>(i));
      count(counters[i], time, values[i]);
    }
  };
  if (windows.capacity() > 0)
    add_pool(swa_counters_, {"window KV tokens held", "window KV tokens cached", "window KV tokens free"},
             "tokens", windows);
  if (states.capacity() > 0)
    add_pool(state_counters_, {"states held", "states cached", "states free"}, "states", states);
  if (step.extend_tokens > 0)
    writer_.count(hit_rate_, time,
                  100 * static_cast<double>(cached_tokens_) / static_cast<double>(prompt_tokens_));
}

void RunTrace::add_request(const scheduler::RequestRecord& request) {
  const bool unfinished = request.state == scheduler::RequestState::kUnfinished;
  const double finish = unfinished ? last_time_ : request.finish_time;
  if (finish < window_.from || request.arrival_time >= window_.until || full(last_time_)) return;
  const std::uint64_t begin = nanoseconds(request.arrival_time);
  const std::uint64_t end = std::max(begin, nanoseconds(finish));
  const std::size_t lane = lanes_.take(begin, end);
  if (lane == lane_tracks_.size()) lane_tracks_.push_back(writer_.add_track(process_, "requests", kRequests));
  const Track track = lane_tracks_[lane];
  arguments_.clear();
  arguments_.push_back(Argument::of(names_.state, names_.states[static_cast<std::size_t>(request.state)]));
  arguments_.push_back(Argument::of(names_.input_tokens, std::uint64_t{request.input_tokens}));
  arguments_.push_back(Argument::of(names_.output_tokens, std::uint64_t{request.output_tokens}));
  if (request.cached_tokens > 0)
    arguments_.push_back(Argument::of(names_.cached_tokens, std::uint64_t{request.cached_tokens}));
  if (request.retractions > 0)
    arguments_.push_back(Argument::of(names_.retractions, std::uint64_t{request.retractions}));
  if (request.session > 0) arguments_.push_back(Argument::of(names_.session, std::uint64_t{request.session}));
  if (request.state == scheduler::RequestState::kCompleted) {
    arguments_.push_back(Argument::of(names_.ttft_ms, 1e3 * request.ttft()));
    if (request.output_tokens > 1) arguments_.push_back(Argument::of(names_.tpot_ms, 1e3 * request.tpot()));
  }
  writer_.begin(track, begin, names_.request, fmt::format("request {}", request.id), arguments_);
  add_phases(request, track, begin, end);
  writer_.end(track, end);
}

// Phases follow each other within [begin, end]: clients see tokens a little after the scheduler does, so its
// times are held to theirs.
void RunTrace::add_phases(const scheduler::RequestRecord& request, Track track, std::uint64_t begin,
                          std::uint64_t end) {
  const auto at = [&](double seconds, std::uint64_t after) {
    return seconds > 0 ? std::clamp(nanoseconds(seconds), after, end) : end;
  };
  // The first request of a run may be scheduled at 0; one that never was has no token either.
  const bool at_once = request.first_scheduled_time == 0 && request.first_token_time > 0;
  const std::uint64_t scheduled = at_once ? begin : at(request.first_scheduled_time, begin);
  const std::uint64_t first_token = at(request.first_token_time, scheduled);
  slice(track, names_.request, names_.waiting, begin, scheduled);
  if (scheduled == end) return;
  slice(track, names_.request, names_.prefill, scheduled, first_token);
  if (first_token == end) return;
  writer_.begin(track, first_token, names_.request, names_.decode, {});
  std::uint64_t after = first_token;
  for (const scheduler::Interruption& interruption : request.interruptions) {
    const std::uint64_t from = at(interruption.retracted, after);
    after = at(interruption.readmitted, from);
    slice(track, names_.request, names_.retracted, from, after);
  }
  writer_.end(track, end);
}

}  // namespace tpsim::launch
