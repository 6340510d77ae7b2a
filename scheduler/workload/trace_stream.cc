#include "scheduler/workload/trace_stream.h"

#include <algorithm>
#include <array>
#include <utility>

#include "proto/base/stop_flag.h"

namespace tpsim::scheduler {
namespace {

// More requests than any trace has; their numbers are kept in 32 bits elsewhere.
constexpr std::uint64_t kMaxRequests = 1'000'000'000;
constexpr std::size_t kMaxModels = 1000;

struct KnownFormat {
  std::string_view name;
  std::unique_ptr<TraceFormat> (*open_records)(JsonRecords& records,
                                               const ReadOptions& options);  // JSON formats
  std::unique_ptr<TraceFormat> (*open_lines)(TraceInput& input);             // CSV formats
};

constexpr std::array<KnownFormat, 5> kFormats = {{{"mooncake", open_mooncake, nullptr},
                                                  {"azure", nullptr, open_azure},
                                                  {"burstgpt", nullptr, open_burstgpt},
                                                  {"sharegpt", open_sharegpt, nullptr},
                                                  {"tpsim", open_tpsim, nullptr}}};

const KnownFormat& format_named(std::string_view name) {
  for (const KnownFormat& format : kFormats) {
    if (format.name == name) return format;
  }
  throw_user_error("there is no trace format {}; the formats are auto, {}", in_quotes(name),
                   fmt::join(trace_format_names(), ", "));
}

// A JSON format by keys that only it has; "" for none.
std::string_view format_of_record(std::string_view text, const Place& place) {
  enum { kInputLength, kHashIds, kArrivalTime, kMaxNewTokens, kFirstOfShareGpt };
  constexpr std::array<std::string_view, 9> kKeys = {"input_length",   "hash_ids",      "arrival_time",
                                                     "max_new_tokens", "prompt_len",    "input_len",
                                                     "prompt",         "conversations", "conversation"};
  JsonRecord record(kKeys);
  record.parse(text, place);
  if (record.has(kInputLength) || record.has(kHashIds)) return "mooncake";
  if (record.has(kArrivalTime) || record.has(kMaxNewTokens)) return "tpsim";
  for (std::size_t key = kFirstOfShareGpt; key < kKeys.size(); ++key) {
    if (record.has(key)) return "sharegpt";
  }
  return "";
}

// A CSV format by a column that only it has; "" for none.
std::string_view format_of_header(std::string_view header) {
  if (header.find("ContextTokens") != std::string_view::npos) return "azure";
  if (header.find("Request tokens") != std::string_view::npos) return "burstgpt";
  return "";
}

// The format of what `input` begins with. The first record or line will be read again.
std::string_view detect_format(TraceInput& input, JsonRecords& records) {
  const int first = input.peek_filled();
  if (first == -1)
    throw_user_error("{}: the file is empty; a trace of at least one request is needed", input.name());
  std::string_view text;
  std::string_view format;
  Place place;
  if (first == '{' || first == '[') {
    if (!records.next(text, place))
      throw_user_error("{}: the trace has no requests; give a file with at least one", input.name());
    format = format_of_record(text, place);
    records.unread();
  } else {
    input.next_filled_line(text);
    place = input.place();
    format = format_of_header(text);
    input.unread_line();
  }
  if (format.empty()) {
    place.fail("the trace format is not known; the file begins with {}, and the formats tried are {}",
               in_quotes(text), fmt::join(trace_format_names(), ", "));
  }
  return format;
}

}  // namespace

std::vector<std::string> trace_format_names() {
  std::vector<std::string> names;
  names.reserve(kFormats.size());
  for (const KnownFormat& format : kFormats) names.emplace_back(format.name);
  return names;
}

void TraceStream::check_format_name(const std::string& format) {
  if (format != "auto") format_named(format);
}

TraceStream::TraceStream(std::unique_ptr<ByteSource> source, const std::string& name,
                         const ReadOptions& options)
    : input_(decode(std::move(source), name), name),
      records_(input_),
      limit_(options.num_prompts == 0 ? kMaxRequests : options.num_prompts),
      sort_(options.sort) {
  const KnownFormat& format =
      format_named(options.format == "auto" ? detect_format(input_, records_) : options.format);
  format_name_ = format.name;
  format_ =
      format.open_records != nullptr ? format.open_records(records_, options) : format.open_lines(input_);
}

void TraceStream::check_span(const std::string& name, double seconds) {
  if (seconds > kMaxSeconds) {
    throw_user_error("{}: the trace lasts {} seconds; {:g} are the most", name, seconds, kMaxSeconds);
  }
}

bool TraceStream::next(TraceRecord& record) {
  if (requests_ == limit_) return false;
  StopFlag::throw_if_requested();
  record = {};
  if (!format_->next(record)) return false;
  ++requests_;
  contents_ = contents_ || record.prompt_length == 0;
  if (!record.extra_key.empty()) {
    const auto next = static_cast<std::uint32_t>(extra_keys_.size());
    const auto [entry, is_new] = namespaces_.try_emplace(record.extra_key, next);
    if (is_new) extra_keys_.push_back(record.extra_key);
    record.request.extra_key = entry->second;
  }
  if (!record.model.empty()) {
    auto named = std::ranges::find(models_, record.model);
    if (named == models_.end()) {
      if (models_.size() == kMaxModels)
        record.place.fail("{} is one model more than the {} that a trace may name", in_quotes(record.model),
                          kMaxModels);
      named = models_.insert(named, record.model);
    }
    record.request.model = static_cast<std::uint16_t>(named - models_.begin() + 1);
  }
  if (!record.session.empty()) record.request.session = sessions_.of(record.session);
  check(record);
  return true;
}

void TraceStream::check(const TraceRecord& record) {
  const Place& place = record.place;
  const WorkloadRequest& request = record.request;
  unique_tokens_ += record.prompt_length;
  if (unique_tokens_ > kGeneratedTokenBase) {
    place.fail("the prompts up to here have more than 2^48 tokens together; give a shorter trace");
  }
  const double time = request.arrival_time;
  if (time > kMaxSeconds) {
    place.fail("the request arrives at {} seconds; times are at most {:g} seconds", time, kMaxSeconds);
  }
  if (request.think_time.value_or(0) > kMaxSeconds) {
    place.fail("think_time is {} seconds; it is at most {:g} seconds", *request.think_time, kMaxSeconds);
  }
  if (time < last_arrival_ && !sort_) {
    place.fail(
        "the request arrives {:g} seconds before the one in front of it; put the file in order with `tpsim "
        "trace convert --sort`",
        last_arrival_ - time);
  }
  last_arrival_ = time;
  for (const kvcache::TokenSequence* sequence : {&request.prompt, &request.output}) {
    for (const kvcache::TokenRun& run : sequence->runs()) id_end_ = std::max(id_end_, run.first + run.length);
  }
}

kvcache::TokenId TraceStream::first_unique_id() const {
  if (requests_ == 0) {
    throw_user_error("{}: the trace has no requests; give a file with at least one", name());
  }
  if (kGeneratedTokenBase - id_end_ < unique_tokens_) {
    throw_user_error("{}: ids up to {} leave no room for {} tokens of prompts given by length; use lower ids",
                     name(), id_end_ - 1, unique_tokens_);
  }
  return id_end_;
}

}  // namespace tpsim::scheduler
