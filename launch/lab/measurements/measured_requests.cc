#include "launch/lab/measurements/measured_requests.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <string>
#include <system_error>
#include <utility>

#include "launch/lab/measurements/csv_rows.h"
#include "launch/lab/measurements/server_account.h"
#include "proto/base/text.h"
#include "scheduler/workload/trace_reader.h"

namespace tpsim::launch {
namespace {

using scheduler::Place;

// The numbers after the kind, `count` of them.
std::vector<double> numbers_of(const MeasuredLoad& load, std::size_t count, bool whole, const Place& place,
                               std::string_view form) {
  const std::vector<std::string> words = split_list(load.load, ':');
  std::vector<double> numbers;
  for (std::size_t i = 1; i < words.size(); ++i) {
    double value = 0;
    const char* const end = words[i].data() + words[i].size();
    const auto [stop, error] = std::from_chars(words[i].data(), end, value);
    const bool good = error == std::errc() && stop == end && value >= 0 && value <= 1e9 &&
                      (!whole || (value >= 1 && value == static_cast<double>(static_cast<long>(value))));
    if (!good) place.fail("load is {}; {} is needed", in_quotes(load.load), form);
    numbers.push_back(value);
  }
  if (numbers.size() != count) place.fail("load is {}; {} is needed", in_quotes(load.load), form);
  return numbers;
}

bool is_drawn(const MeasuredLoad& load) { return load.load_kind == "closed" || load.load_kind == "burst"; }

// Of a closed loop or a burst.
std::vector<double> numbers_of_drawn(const MeasuredLoad& load, const Place& place) {
  return load.load_kind == "closed"
             ? numbers_of(load, 4, true, place,
                          "closed:INPUT:OUTPUT:CONCURRENCY:PROMPTS, whole numbers from 1 up,")
             : numbers_of(load, 3, true, place, "burst:INPUT:OUTPUT:PROMPTS, whole numbers from 1 up,");
}

std::string text(double number) { return fmt::format("{:.0f}", number); }

// numbers: of a closed loop, or of a burst, which is one without the number in flight.
void offer_equal(const std::vector<double>& numbers, bool closed, std::uint64_t prompts, MeasuredLoad& load) {
  add_flags(load.flags, {"--dataset-name", "random", "--random-input-len", text(numbers[0]),
                         "--random-output-len", text(numbers[1]), "--random-range-ratio", "1"});
  if (closed) add_flags(load.flags, {"--max-concurrency", text(numbers[2])});
  add_flags(load.flags, {"--num-prompts", std::to_string(prompts)});
}

std::string workload_name(const MeasuredLoad& load) { return fmt::format("{}#{}", load.file, load.load); }

std::vector<MeasuredRequest> in_order_of_sending(std::vector<MeasuredRequest> requests) {
  std::stable_sort(requests.begin(), requests.end(),
                   [](const auto& a, const auto& b) { return a.sent_s < b.sent_s; });
  return requests;
}

// The trace of slices, or nothing where the folder has none.
std::filesystem::path find_trace(const std::filesystem::path& folder) {
  for (const char* name :
       {"mooncake_conversation.jsonl", "mooncake_conversation.jsonl.gz", "mooncake.jsonl"}) {
    std::error_code error;
    if (std::filesystem::is_regular_file(folder / name, error)) return folder / name;
  }
  return {};
}

// Prompts of the slice, at the times at which the requests were sent.
void offer_slice(const std::vector<MeasuredRequest>& requests, const std::vector<double>& numbers,
                 const MeasurementFile& file, MeasuredLoad& load) {
  const std::filesystem::path path = find_trace(file.traces());
  if (path.empty()) {
    load.refusal = fmt::format(
        "only its trace tells which prompts of {} share a prefix, and {} has no mooncake_conversation.jsonl; "
        "name its folder with --traces",
        load.load, file.traces().string());
    return;
  }
  const scheduler::Workload trace = scheduler::read_trace(path, {.format = "mooncake", .sort = false});
  std::vector<const scheduler::WorkloadRequest*> slice;
  for (const scheduler::WorkloadRequest& request : trace.requests)
    if (request.arrival_time >= numbers[0] && request.arrival_time < numbers[1]) slice.push_back(&request);
  scheduler::Workload workload = replay(requests, true, load);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const MeasuredRequest& request = requests[i];
    if (request.request >= slice.size() || slice[request.request]->prompt.size() != request.input_tokens) {
      load.refusal =
          fmt::format("request {} of {} has {} tokens, unlike that of the slice of {}; it is another trace",
                      request.request, load.load, request.input_tokens, path.string());
      return;
    }
    workload.requests[i].prompt = slice[request.request]->prompt;
  }
  load.workload = std::move(workload);
}

bool equal_lengths(const std::vector<MeasuredRequest>& requests, const std::vector<double>& numbers) {
  return std::all_of(requests.begin(), requests.end(), [&](const MeasuredRequest& request) {
    return request.input_tokens == numbers[0] && request.output_tokens == numbers[1];
  });
}

}  // namespace

MeasuredRequest read_request(const CsvRows& cells, std::string_view first, std::string_view last) {
  constexpr std::uint32_t kMost{scheduler::kMaxRequestTokens};
  MeasuredRequest request;
  request.request = cells.count("request", 0, std::uint64_t{1} << 40);
  request.sent_s = cells.number("sent_s");
  request.first_token_s = cells.number(first);
  request.last_token_s = cells.number(last);
  request.input_tokens = cells.small_count("input_tokens", 1, kMost);
  request.output_tokens = cells.small_count("output_tokens", 1, kMost);
  request.cached_tokens = cells.small_count("cached_tokens", 0, kMost);
  check_times(request, cells.place());
  return request;
}

void check_times(const MeasuredRequest& request, const Place& place) {
  if (request.first_token_s < request.sent_s)
    place.fail("the first token came at {:g} s, before the request was sent at {:g} s", request.first_token_s,
               request.sent_s);
  if (request.last_token_s < request.first_token_s)
    place.fail("the last token came at {:g} s, before the first one at {:g} s", request.last_token_s,
               request.first_token_s);
}

void FigureSums::add(double sent, double first_token, double last_token, std::uint64_t output_tokens) {
  begin_ = requests_ == 0 ? sent : std::min(begin_, sent);
  end_ = requests_ == 0 ? last_token : std::max(end_, last_token);
  ++requests_;
  ttft_ += first_token - sent;
  e2e_ += last_token - sent;
  spans_ += last_token - first_token;
  tokens_ += output_tokens - 1;
}

MeasuredFigures FigureSums::figures() const {
  MeasuredFigures figures;
  if (requests_ == 0) return figures;
  const auto count = static_cast<double>(requests_);
  figures.ttft_ms = 1e3 * ttft_ / count;
  figures.e2e_ms = 1e3 * e2e_ / count;
  if (tokens_ > 0) figures.tpot_ms = 1e3 * spans_ / static_cast<double>(tokens_);
  figures.duration_s = end_ - begin_;
  if (end_ > begin_) figures.output_throughput = (static_cast<double>(tokens_) + count) / (end_ - begin_);
  return figures;
}

MeasuredFigures figures_of(const std::vector<MeasuredRequest>& requests) {
  FigureSums sums;
  for (const MeasuredRequest& request : requests)
    sums.add(request.sent_s, request.first_token_s, request.last_token_s, request.output_tokens);
  return sums.figures();
}

scheduler::Workload replay(const std::vector<MeasuredRequest>& requests, bool timed,
                           const MeasuredLoad& load) {
  scheduler::Workload workload;
  workload.name = workload_name(load);
  workload.format = "measured";
  kvcache::TokenId next = 0;
  for (const MeasuredRequest& request : requests) {
    scheduler::WorkloadRequest out;
    out.arrival_time = timed ? request.sent_s - requests.front().sent_s : 0;
    out.prompt.append({next, request.input_tokens});
    next += request.input_tokens + 1;  // two prompts do not become one run
    out.max_new_tokens = request.output_tokens;
    workload.requests.push_back(std::move(out));
  }
  return workload;
}

std::uint64_t cached_of(const std::vector<MeasuredRequest>& requests) {
  std::uint64_t sum = 0;
  for (const MeasuredRequest& request : requests) sum += request.cached_tokens;
  return sum;
}

std::uint32_t longest_answer(const std::vector<MeasuredRequest>& requests) {
  std::uint32_t longest = 0;
  for (const MeasuredRequest& request : requests) longest = std::max(longest, request.output_tokens);
  return longest;
}

std::string load_kind(std::string_view load) { return std::string(load.substr(0, load.find(':'))); }

void offer_requests(const std::vector<MeasuredRequest>& requests, const MeasurementFile& file,
                    const Place& place, MeasuredLoad& load) {
  load.load_kind = load_kind(load.load);
  add_flags(load.flags, {"--front-end", is_drawn(load) ? "kit" : "ids"});
  if (is_drawn(load)) {
    const bool closed = load.load_kind == "closed";
    const std::vector<double> numbers = numbers_of_drawn(load, place);
    if (equal_lengths(requests, numbers)) return offer_equal(numbers, closed, requests.size(), load);
    add_flags(load.flags, {"--trace", workload_name(load), "--request-rate", "inf"});
    if (closed) add_flags(load.flags, {"--max-concurrency", text(numbers[2])});
    load.workload = replay(requests, false, load);
    return;
  }
  const std::vector<MeasuredRequest> sent = in_order_of_sending(requests);
  add_flags(load.flags, {"--trace", workload_name(load)});
  if (load.load_kind == "mooncake") {
    offer_slice(sent, numbers_of(load, 3, false, place, "mooncake:FROM_S:TO_S:SCALE"), file, load);
    return;
  }
  std::uint64_t input = 0, cached = 0;
  for (const MeasuredRequest& request : sent) {
    input += request.input_tokens;
    cached += request.cached_tokens;
  }
  // A few tokens may be found by chance: prompts begin with a template, or the same random token.
  if (cached > input / 50 && load.load_kind != "azure") {
    load.refusal = fmt::format(
        "{} of the {} prompt tokens of {} were cached, and the rows do not say which prompts share what",
        cached, input, load.load);
    return;
  }
  load.workload = replay(sent, true, load);
}

// Every server was started for these loads and compiled what it met: each load says what its server had
// served before it; of one with prompts of all lengths more need not be known.
void expect_compiles(std::vector<MeasuredLoad>& loads) {
  std::map<std::string, std::string> served;
  for (MeasuredLoad& load : loads) {
    std::string& before = served.try_emplace(load.server, "warmup").first->second;
    if (load.refusal.empty()) add_flags(load.flags, {"--served-before", before});
    const bool sized = load.refusal.empty() && is_drawn(load);
    before += "," + (sized ? load.load : std::string("other:"));
  }
}

void keep_last_of_each(std::vector<MeasuredLoad>& loads) {
  std::map<std::pair<std::string, std::string>, std::size_t> known;
  std::size_t kept = 0;
  for (MeasuredLoad& load : loads) {
    const auto [entry, is_new] = known.emplace(std::pair(load.server, load.load), kept);
    kept += is_new ? 1 : 0;
    if (&load != &loads[entry->second]) loads[entry->second] = std::move(load);
  }
  loads.resize(kept);
}

void offer_by_name(const Place& place, MeasuredLoad& load) {
  load.load_kind = load_kind(load.load);
  add_flags(load.flags, {"--front-end", "kit"});
  if (!is_drawn(load)) {
    load.refusal = fmt::format("the name {} does not tell its requests, whose rows are needed", load.load);
    return;
  }
  const std::vector<double> numbers = numbers_of_drawn(load, place);
  offer_equal(numbers, load.load_kind == "closed", static_cast<std::uint64_t>(numbers.back()), load);
}

}  // namespace tpsim::launch
