#include "scheduler/workload/trace_reader.h"

#include <array>
#include <memory>
#include <utility>

#include "scheduler/workload/json_record.h"
#include "scheduler/workload/trace_formats.h"

namespace tpsim::scheduler {
namespace {

struct TraceFormat {
  std::string_view name;
  void (*read_records)(JsonRecords& records, WorkloadBuilder& builder);  // JSON formats
  void (*read_lines)(TraceInput& input, WorkloadBuilder& builder);       // CSV formats
};

constexpr std::array<TraceFormat, 5> kFormats = {{{"mooncake", read_mooncake, nullptr},
                                                  {"azure", nullptr, read_azure},
                                                  {"burstgpt", nullptr, read_burstgpt},
                                                  {"sharegpt", read_sharegpt, nullptr},
                                                  {"tpsim", read_tpsim, nullptr}}};

const TraceFormat& format_named(std::string_view name) {
  for (const TraceFormat& format : kFormats) {
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

Workload read(std::unique_ptr<ByteSource> source, const std::string& name, const ReadOptions& options) {
  TraceInput input(decode(std::move(source), name), name);
  JsonRecords records(input);
  const TraceFormat& format =
      format_named(options.format == "auto" ? detect_format(input, records) : options.format);
  WorkloadBuilder builder(name, std::string(format.name), options);
  if (format.read_records != nullptr) {
    format.read_records(records, builder);
  } else {
    format.read_lines(input, builder);
  }
  return builder.finish();
}

}  // namespace

std::vector<std::string> trace_format_names() {
  std::vector<std::string> names;
  names.reserve(kFormats.size());
  for (const TraceFormat& format : kFormats) names.emplace_back(format.name);
  return names;
}

Workload read_trace(const std::filesystem::path& path, const ReadOptions& options) {
  if (options.format != "auto")
    format_named(options.format);  // a wrong name is said before the file is opened
  return read(open_file(path), path.string(), options);
}

Workload read_trace(std::string_view bytes, const std::string& name, const ReadOptions& options) {
  return read(open_memory(bytes), name, options);
}

}  // namespace tpsim::scheduler
