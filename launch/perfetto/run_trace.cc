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

void RunTrace::add_replica(const std::string& name, std::uint32_t num_ranks, std::uint32_t stages,
                           std::vector<rank::RankGroup> groups, bool scheduled) {
  ReplicaTracks& of = replicas_.emplace_back();
  of.process = writer_.add_process(++processes_, name);
  if (scheduled) of.scheduler = writer_.add_track(of.process, "scheduler", kScheduler);
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
    const auto place = kRanks + static_cast<std::int32_t>(of.groups.size());
    of.groups.push_back({group.stage, writer_.add_track(of.process, text, place)});
  }
  if (!scheduled) return;
  std::int32_t place = kCounters;
  const auto add = [&](std::span<Counter> counters, std::span<const char* const> texts, const char* unit) {
    for (std::size_t i = 0; i < texts.size(); ++i)
      counters[i].track = writer_.add_counter(of.process, texts[i], unit, place++);
  };
  constexpr std::array kRequestTexts = {"running requests", "waiting requests"};
  constexpr std::array kKvTexts = {"KV tokens held", "KV tokens cached", "KV tokens free"};
  add(std::span(of.counters).first(2), kRequestTexts, "requests");
  add(std::span(of.counters).subspan(2), kKvTexts, "tokens");
  of.hit_rate = writer_.add_counter(of.process, "prefix hit rate", "%", place);
}

RunTrace::Track RunTrace::add_other_process(const char* name) {
  return writer_.add_process(++processes_, name);
}

RunTrace::Track RunTrace::lane(LaneTracks& lanes, Track process, std::string_view name, std::int32_t place,
                               std::uint64_t begin, std::uint64_t end) {
  const std::size_t lane = lanes.lanes.take(begin, end);
  if (lane == lanes.tracks.size()) lanes.tracks.push_back(writer_.add_track(process, name, place));
  return lanes.tracks[lane];
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
  ReplicaTracks& of = replicas_[step.replica];
  of.prompt_tokens += step.cached_tokens + step.extend_tokens;
  of.cached_tokens += step.cached_tokens;
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
  if (of.scheduler != Track::kNone) {
    const Name mode = names_.modes[static_cast<std::size_t>(step.forward_mode)];
    writer_.begin(of.scheduler, formed, names_.scheduler, mode, arguments_);
    writer_.end(of.scheduler, std::max(formed, nanoseconds(step.returned_time)));
    add_counters(of, step, formed);
    arguments_.resize(1);  // a click away, passes need not say it again
  }
  for (std::size_t i = 0; i < of.groups.size(); ++i)
    add_pass(of.groups[i], step, i < seconds.size() ? &seconds[i] : nullptr);
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

void RunTrace::add_counters(ReplicaTracks& of, const scheduler::StepRecord& step, std::uint64_t time) {
  count(of.counters[0], time, step.running);
  count(of.counters[1], time, step.waiting);
  const auto& [tokens, windows, states, host] = step.pools;
  count(of.counters[2], time, tokens.held);
  count(of.counters[3], time, tokens.cached);
  count(of.counters[4], time, tokens.free);
  // Pools that only some models have: their tracks come with their first figures.
  const auto add_pool = [&](std::array<Counter, 3>& counters, const std::array<const char*, 3>& texts,
                            const char* unit, const scheduler::PoolUse& use) {
    const std::array<std::uint64_t, 3> values = {use.held, use.cached, use.free};
    for (std::size_t i = 0; i < counters.size(); ++i) {
      if (counters[i].track == Track::kNone)
        counters[i].track =
            writer_.add_counter(of.process, texts[i], unit, kCounters + 10 + static_cast<std::int32_t>(i));
      count(counters[i], time, values[i]);
    }
  };
  if (windows.capacity() > 0)
    add_pool(of.swa_counters, {"window KV tokens held", "window KV tokens cached", "window KV tokens free"},
             "tokens", windows);
  if (states.capacity() > 0)
    add_pool(of.state_counters, {"states held", "states cached", "states free"}, "states", states);
  if (step.extend_tokens > 0)
    writer_.count(of.hit_rate, time,
                  100 * static_cast<double>(of.cached_tokens) / static_cast<double>(of.prompt_tokens));
}

void RunTrace::add_request(const scheduler::RequestRecord& request) {
  const bool unfinished = request.state == scheduler::RequestState::kUnfinished;
  const double finish = unfinished ? last_time_ : request.finish_time;
  if (finish < window_.from || request.arrival_time >= window_.until || full(last_time_)) return;
  const std::uint64_t begin = nanoseconds(request.arrival_time);
  const std::uint64_t end = std::max(begin, nanoseconds(finish));
  ReplicaTracks& of = replicas_[request.replica];
  const Track track = lane(of.requests, of.process, "requests", kRequests, begin, end);
  arguments_.clear();
  arguments_.push_back(Argument::of(names_.state, names_.states[static_cast<std::size_t>(request.state)]));
  arguments_.push_back(Argument::of(names_.input_tokens, std::uint64_t{request.input_tokens}));
  arguments_.push_back(Argument::of(names_.output_tokens, std::uint64_t{request.output_tokens}));
  if (request.cached_tokens > 0)
    arguments_.push_back(Argument::of(names_.cached_tokens, std::uint64_t{request.cached_tokens}));
  if (request.retractions > 0)
    arguments_.push_back(Argument::of(names_.retractions, std::uint64_t{request.retractions}));
  if (request.prefill_replica)
    arguments_.push_back(Argument::of(names_.prefill_replica(), std::uint64_t{*request.prefill_replica}));
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

void RunTrace::add_choice(const scheduler::RoutedRecord& routed) {
  if (routed.time < window_.from || routed.time >= window_.until || full(routed.time)) return;
  if (routes_.empty()) {
    const Track router = add_other_process("router");
    for (std::size_t i = 0; i < routed.in_flight.size(); ++i)
      routes_.push_back({writer_.add_track(router, fmt::format("to replica {}", i), kScheduler), {}});
    for (std::size_t i = 0; i < routes_.size(); ++i)
      routes_[i].in_flight.track =
          writer_.add_counter(router, fmt::format("in flight, replica {}", i), "requests", kCounters);
  }
  const std::uint64_t time = nanoseconds(routed.time);
  for (std::size_t i = 0; i < routes_.size(); ++i) count(routes_[i].in_flight, time, routed.in_flight[i]);
  const std::uint64_t least = *std::ranges::min_element(routed.in_flight);
  const auto chose = [&](std::uint32_t replica) {
    const std::array arguments = {Argument::of(names_.in_flight(), routed.in_flight[replica]),
                                  Argument::of(names_.least_in_flight(), least)};
    writer_.instant(routes_[replica].choices, time, names_.router(), fmt::format("request {}", routed.id),
                    arguments);
  };
  chose(routed.replica);
  if (routed.decode_replica) chose(*routed.decode_replica);
}

void RunTrace::add_transfer(const scheduler::KvSentRecord& sent) {
  if (sent.end < window_.from || sent.begin >= window_.until || full(sent.begin)) return;
  if (transfers_ == Track::kNone) transfers_ = add_other_process("KV transfers");
  const std::string name = fmt::format("request {}", sent.id);
  const std::uint64_t begin = nanoseconds(sent.begin), end = nanoseconds(sent.end);
  const Track track = lane(links_[{sent.from, sent.to}], transfers_,
                           fmt::format("replica {} to replica {}", sent.from, sent.to),
                           static_cast<std::int32_t>(sent.from), begin, end);
  const std::array arguments = {Argument::of(names_.tokens(), std::uint64_t{sent.tokens})};
  writer_.begin(track, begin, names_.transfers(), name, arguments);
  writer_.end(track, end);
  if (!sent.last) return;
  const std::uint64_t arrival = nanoseconds(sent.arrival_time);
  const std::uint64_t scheduled = nanoseconds(sent.first_scheduled_time);
  ReplicaTracks& of = replicas_[sent.from];
  const Track there = lane(of.requests, of.process, "requests", kRequests, arrival, end);
  writer_.begin(there, arrival, names_.request, name, {});
  slice(there, names_.request, names_.waiting, arrival, scheduled);
  slice(there, names_.request, names_.prefill, scheduled, begin);
  slice(there, names_.request, names_.transfer(), begin, end);
  writer_.end(there, end);
}

}  // namespace tpsim::launch
