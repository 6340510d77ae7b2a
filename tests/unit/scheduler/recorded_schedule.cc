#include "tests/unit/scheduler/recorded_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "scheduler/policy.h"
#include "scheduler/request_source.h"
#include "scheduler/workload/trace_input.h"

namespace tpsim::scheduler {
namespace {

constexpr kvcache::TokenId kRun = 1 << 16;  // workloads.RUN: runs of ids begin at its multiples
constexpr kvcache::TokenId kEos = 2;        // workloads.EOS

std::string read_all(const std::filesystem::path& path) {
  const std::unique_ptr<ByteSource> source = decode(open_file(path), path.string());
  std::string text;
  std::array<char, 1 << 16> buffer;
  while (const std::size_t count = source->read(buffer.data(), buffer.size())) {
    text.append(buffer.data(), count);
  }
  return text;
}

SchedulePolicy policy_named(std::string_view name) {
  static const std::map<std::string_view, SchedulePolicy> kPolicies = {
      {"lpm", SchedulePolicy::kLpm},
      {"dfs-weight", SchedulePolicy::kDfsWeight},
      {"fcfs", SchedulePolicy::kFcfs},
      {"lof", SchedulePolicy::kLof},
      {"random", SchedulePolicy::kRandom}};
  return kPolicies.at(name);
}

// Words between white space, one after the other.
class Words {
 public:
  explicit Words(std::string_view text) : text_(text) { skip_space(); }

  bool at_end() const { return at_ == text_.size(); }
  bool at_line_end() const { return line_ended_ || at_end(); }

  bool next_is(std::string_view word) const { return text_.substr(at_, word.size()) == word; }

  std::string_view word() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != ' ' && text_[at_] != '\n') ++at_;
    if (at_ == begin) fail("the end");
    const std::string_view found = text_.substr(begin, at_ - begin);
    skip_space();
    return found;
  }

  template <typename Number>
  Number number() {
    return to_number<Number>(word());
  }

  template <typename Number>
  Number to_number(std::string_view text) const {
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) fail(text);
    return value;
  }

  // "3:17" and the like, as two numbers.
  std::pair<std::uint64_t, std::uint32_t> pair(std::string_view text, char between) const {
    const std::size_t at = text.find(between);
    if (at == std::string_view::npos) fail(text);
    return {to_number<std::uint64_t>(text.substr(0, at)), to_number<std::uint32_t>(text.substr(at + 1))};
  }

  void expect(std::string_view name) {
    const std::string_view found = word();
    if (found != name) fail(found);
  }

  [[noreturn]] void fail(std::string_view found) const {
    throw std::runtime_error(
        fmt::format("recorded schedules: \"{}\" before byte {} is not expected there", found, at_));
  }

 private:
  void skip_space() {
    line_ended_ = false;
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) {
      line_ended_ = line_ended_ || text_[at_] == '\n';
      ++at_;
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
  bool line_ended_ = false;
};

kvcache::EvictionPolicy eviction_policy(std::string_view name, const Words& words) {
  constexpr std::pair<std::string_view, kvcache::EvictionPolicy> kNames[] = {
      {"lru", kvcache::EvictionPolicy::kLru},          {"lfu", kvcache::EvictionPolicy::kLfu},
      {"slru", kvcache::EvictionPolicy::kSlru},        {"fifo", kvcache::EvictionPolicy::kFifo},
      {"mru", kvcache::EvictionPolicy::kMru},          {"filo", kvcache::EvictionPolicy::kFilo},
      {"priority", kvcache::EvictionPolicy::kPriority}};
  for (const auto& [known, policy] : kNames) {
    if (name == known) return policy;
  }
  words.fail(name);
}

void read_speculation(Words& words, SchedulerConfig& config) {
  SpeculationConfig& speculation = config.speculation;
  words.expect("speculation");
  const std::string_view name = words.word();
  speculation.algorithm = name == "EAGLE"        ? SpeculativeAlgorithm::kEagle
                          : name == "EAGLE3"     ? SpeculativeAlgorithm::kEagle3
                          : name == "STANDALONE" ? SpeculativeAlgorithm::kStandalone
                                                 : SpeculativeAlgorithm::kNgram;
  speculation.num_steps = words.number<std::uint32_t>();
  speculation.topk = words.number<std::uint32_t>();
  speculation.num_draft_tokens = words.number<std::uint32_t>();
  speculation.follow(config.sglang_release, config.disable_overlap_schedule);
}

void read_deployment(Words& words, RecordedSchedule& schedule) {
  SchedulerConfig& config = schedule.config;
  const auto flag = [&](std::string_view name) {
    words.expect(name);
    return words.number<int>() != 0;
  };
  const auto whole = [&](std::string_view name) {
    words.expect(name);
    return words.number<std::int64_t>();
  };
  config.page_size = static_cast<std::uint32_t>(whole("page_size"));
  config.max_total_num_tokens = static_cast<std::uint64_t>(whole("max_total_tokens"));
  config.max_running_requests = static_cast<std::uint32_t>(whole("max_running_requests"));
  config.max_prefill_tokens = static_cast<std::uint32_t>(whole("max_prefill_tokens"));
  const std::int64_t chunk = whole("chunked_prefill_size");
  config.chunked_prefill_size = chunk < 0 ? 0 : static_cast<std::uint32_t>(chunk);
  words.expect("schedule_policy");
  config.schedule_policy = policy_named(words.word());
  words.expect("schedule_conservativeness");
  config.schedule_conservativeness = words.number<double>();
  words.expect("eviction_policy");
  config.radix_eviction_policy = eviction_policy(words.word(), words);
  schedule.load.max_concurrency = static_cast<std::uint32_t>(whole("max_concurrency"));
  config.enable_mixed_chunk = flag("enable_mixed_chunk");
  config.disable_radix_cache = flag("disable_radix_cache");
  config.disable_overlap_schedule = flag("disable_overlap_schedule");
  config.priority.enable_scheduling = flag("enable_priority_scheduling");
  config.priority.low_values_first = flag("schedule_low_priority_values_first");
  config.priority.preemption_threshold =
      static_cast<std::int32_t>(whole("priority_scheduling_preemption_threshold"));
  config.priority.disable_preemption = flag("disable_priority_preemption");
  words.expect("retraction_policy");
  config.retraction_policy =
      words.word() == "priority" ? RetractionPolicy::kPriority : RetractionPolicy::kLength;
  if (words.next_is("pp_size ")) {
    config.pipeline.size = static_cast<std::uint32_t>(whole("pp_size"));
    config.pipeline.async_batch_depth = static_cast<std::uint32_t>(whole("pp_async_batch_depth"));
    config.pipeline.max_micro_batch_size = static_cast<std::uint32_t>(whole("micro_batch"));
  }
  if (words.next_is("sliding_window")) {
    config.sliding_window_size = static_cast<std::uint32_t>(whole("sliding_window"));
    config.swa_max_total_num_tokens = static_cast<std::uint64_t>(whole("swa_max_total_num_tokens"));
  }
  if (words.next_is("states")) {
    const auto slots = static_cast<std::uint32_t>(whole("states"));
    const auto tracking = words.number<std::uint32_t>();
    const auto chunk = words.number<std::uint32_t>();
    config.states = {slots, tracking, chunk, words.number<std::uint32_t>()};
  }
  if (words.next_is("speculation")) read_speculation(words, config);
  config.context_length = 131072;
  config.scheduler_step_seconds = config.decode_step_seconds = kRecordedSchedulerStep;
  config.check_invariants = true;
}

// "[3:17 0:1]"
kvcache::TokenSequence read_runs(Words& words) {
  kvcache::TokenSequence tokens;
  std::string_view word = words.word();
  if (word.front() != '[') words.fail(word);
  word.remove_prefix(1);
  for (bool last = false; !last; word = last ? word : words.word()) {
    last = !word.empty() && word.back() == ']';
    if (last) word.remove_suffix(1);
    const auto [run, length] = words.pair(word, ':');
    tokens.append({run == 0 ? kEos : run * kRun, length});
  }
  return tokens;
}

void read_requests(Words& words, RecordedSchedule& schedule) {
  Workload& workload = schedule.workload;
  words.expect("requests");
  workload.requests.resize(words.number<std::size_t>());
  std::int64_t ticks = 0;
  std::vector<double> cancels;
  for (WorkloadRequest& request : workload.requests) {
    ticks += words.number<std::int64_t>();
    request.arrival_time = static_cast<double>(ticks) * kTick;
    request.max_new_tokens = words.number<std::uint32_t>();
    request.sampling.ignore_eos = words.number<int>() != 0;
    const std::string_view priority = words.word();
    if (priority != "-") request.priority = words.to_number<std::int32_t>(priority);
    const std::string_view key = words.word();
    if (key != "-") {
      std::size_t index = 1;
      while (index < workload.extra_keys.size() && workload.extra_keys[index] != key) ++index;
      if (index == workload.extra_keys.size()) workload.extra_keys.emplace_back(key);
      request.extra_key = static_cast<std::uint32_t>(index);
    }
    request.prompt = read_runs(words);
    request.output = read_runs(words);
    double& cancel = cancels.emplace_back(RequestSource::kNever);
    while (!words.at_line_end()) {
      std::string_view word = words.word();
      if (word.front() == '@') {
        cancel = static_cast<double>(ticks + words.to_number<std::int64_t>(word.substr(1))) * kTick;
        continue;
      }
      for (std::size_t end = 0; end != std::string_view::npos;
           word.remove_prefix(std::min(word.size(), end + 1))) {
        end = word.find(',');
        request.accept_lens.push_back(words.to_number<std::uint32_t>(word.substr(0, end)));
      }
    }
  }
  const bool nobody =
      std::all_of(cancels.begin(), cancels.end(), [](double time) { return time == RequestSource::kNever; });
  if (!nobody) schedule.cancels = std::move(cancels);
}

RequestState state_of(std::string_view word, const Words& words) {
  if (word == "completed") return RequestState::kCompleted;
  if (word == "refused") return RequestState::kRejected;
  if (word == "cancelled") return RequestState::kCancelled;
  words.fail(word);
}

void read_steps(Words& words, const SchedulerConfig& config, std::vector<RecordedStep>& steps) {
  words.expect("steps");
  steps.resize(words.number<std::size_t>());
  RecordedStep before;
  for (RecordedStep& step : steps) {
    step.mode = words.word().front();
    step.decode_requests = before.decode_requests + words.number<std::int64_t>();
    step.waiting = before.waiting + words.number<std::int64_t>();
    step.running = before.running + words.number<std::int64_t>();
    step.kv_free_tokens = before.kv_free_tokens + words.number<std::int64_t>();
    step.kv_cached_tokens = before.kv_cached_tokens + words.number<std::int64_t>();
    if (config.sliding_window_size > 0) {
      step.swa_free_tokens = before.swa_free_tokens + words.number<std::int64_t>();
      step.swa_cached_tokens = before.swa_cached_tokens + words.number<std::int64_t>();
    }
    if (config.states.slots > 0) {
      step.states_free = before.states_free + words.number<std::int64_t>();
      step.states_cached = before.states_cached + words.number<std::int64_t>();
    }
    if (!words.at_line_end()) step.cached_tokens = words.number<std::int64_t>();
    while (!words.at_line_end()) {
      const auto [prefix, extend] = words.pair(words.word(), '+');
      step.extends.push_back({static_cast<std::uint32_t>(prefix), extend});
    }
    before = step;
  }
}

void read_outcomes(Words& words, RecordedSchedule& schedule) {
  words.expect("evicted");
  schedule.evicted_tokens = words.number<std::uint64_t>();
  words.expect("outcomes");
  schedule.outcomes.resize(schedule.workload.requests.size());
  for (RecordedOutcome& outcome : schedule.outcomes) {
    outcome.state = state_of(words.word(), words);
    outcome.output_tokens = words.number<std::uint32_t>();
    outcome.retractions = words.number<std::uint32_t>();
  }
}

}  // namespace

double recorded_step_seconds(std::uint64_t extend_tokens, std::uint64_t decode_requests) {
  return static_cast<double>(2048 + 20 * extend_tokens + 50 * decode_requests) * kTick;
}

std::vector<RecordedSchedule> read_recorded_schedules(const std::filesystem::path& path,
                                                      SglangRelease release) {
  const std::string text = read_all(path);
  Words words(text);
  std::vector<RecordedSchedule> schedules;
  while (!words.at_end()) {
    RecordedSchedule& schedule = schedules.emplace_back();
    words.expect("workload");
    const std::string_view kind = words.word();
    schedule.name = fmt::format("{} {}", kind, words.word());
    schedule.config.sglang_release = release;
    read_deployment(words, schedule);
    read_requests(words, schedule);
    read_steps(words, schedule.config, schedule.steps);
    read_outcomes(words, schedule);
  }
  return schedules;
}

}  // namespace tpsim::scheduler
