#include "scheduler/workload/trace_writer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <utility>

#include "proto/base/error.h"
#include "proto/base/output_file.h"
#include "proto/base/stop_flag.h"

namespace tpsim::scheduler {
namespace {

using Buffer = fmt::memory_buffer;

template <typename... Args>
void put(Buffer& out, fmt::format_string<Args...> format, Args&&... args) {
  fmt::format_to(std::back_inserter(out), format, std::forward<Args>(args)...);
}

[[noreturn]] void refuse(std::size_t index, const std::string& format, const char* what) {
  throw_user_error("request {} cannot be written as {}: {}; use --format tpsim, which holds everything",
                   index + 1, format, what);
}

// `text` of each of `values`, as a JSON array.
template <typename Values, typename Text>
void put_list(Buffer& out, const Values& values, const Text& text) {
  char separator = '[';
  for (const auto& value : values) put(out, "{}{}", std::exchange(separator, ','), text(value));
  put(out, "]");
}

void put_runs(Buffer& out, const kvcache::TokenSequence& sequence) {
  put_list(out, sequence.runs(),
           [](const kvcache::TokenRun& run) { return fmt::format("[{},{}]", run.first, run.length); });
}

void put_images(Buffer& out, const WorkloadRequest& request) {
  if (request.images.empty()) return;
  put(out, ",\"images\":");
  put_list(out, request.images,
           [](const ImageInput& image) { return fmt::format("[{},{}]", image.width, image.height); });
  // Images without a name get one again when they are read.
  if (request.images.front().content < std::uint64_t{1} << 63) {
    put(out, ",\"image_ids\":");
    put_list(out, request.images, [](const ImageInput& image) { return image.content; });
  }
  put(out, ",\"image_positions\":");
  put_list(out, request.images, [](const ImageInput& image) { return image.position; });
}

std::string format_tpsim(const Workload& workload) {
  Buffer out;
  for (std::size_t i = 0; i < workload.requests.size(); ++i) {
    const WorkloadRequest& request = workload.requests[i];
    StopFlag::throw_if_requested();
    if (request.images_in_prompt)
      throw_user_error(
          "request {} has images of unknown size, which no format but its own can hold; give the trace as it "
          "is to tpsim run, with --image-resolution",
          i + 1);
    put(out, "{{\"arrival_time\":{},\"prompt\":", request.arrival_time);
    put_runs(out, request.prompt);
    put(out, ",\"max_new_tokens\":{}", request.max_new_tokens);
    if (!request.output.empty()) {
      put(out, ",\"output\":");
      put_runs(out, request.output);
    }
    if (!request.sampling.ignore_eos) put(out, ",\"ignore_eos\":false");
    if (request.priority) put(out, ",\"priority\":{}", *request.priority);
    if (request.extra_key != 0) {
      put(out, ",\"extra_key\":{}", nlohmann::json(workload.extra_keys[request.extra_key]).dump());
    }
    if (request.model != 0)
      put(out, ",\"model\":{}", nlohmann::json(workload.models[request.model - 1]).dump());
    if (request.session != 0) put(out, ",\"session_id\":{}", request.session);
    if (request.think_time) put(out, ",\"think_time\":{}", *request.think_time);
    if (!request.accept_lens.empty()) put(out, ",\"accept_lens\":[{}]", fmt::join(request.accept_lens, ","));
    put_images(out, request);
    put(out, "}}\n");
  }
  return fmt::to_string(out);
}

// The formats of others have no place for these.
void refuse_extras(const WorkloadRequest& request, std::size_t index, const std::string& format) {
  if (!request.images.empty()) refuse(index, format, "it has images");
  if (!request.output.empty()) refuse(index, format, "it names the ids of its answer");
  if (request.priority) refuse(index, format, "it has a priority");
  if (request.extra_key != 0) refuse(index, format, "it has a cache namespace (extra_key)");
  if (!request.accept_lens.empty()) refuse(index, format, "it says what speculative decoding keeps");
  if (request.model != 0) refuse(index, format, "it names a model");
  if (request.session != 0) refuse(index, format, "it belongs to a conversation (session_id)");
}

std::string format_mooncake(const Workload& workload) {
  constexpr std::uint64_t kBlock = 512;
  Buffer out;
  for (std::size_t i = 0; i < workload.requests.size(); ++i) {
    const WorkloadRequest& request = workload.requests[i];
    refuse_extras(request, i, "mooncake");
    StopFlag::throw_if_requested();
    const double milliseconds = std::floor(request.arrival_time * 1000 + 0.5);
    if (milliseconds / 1000 != request.arrival_time) {
      refuse(i, "mooncake", "its arrival time is not a whole number of milliseconds");
    }
    put(out,
        "{{\"timestamp\": {:.0f}, \"input_length\": {}, \"output_length\": {}, \"hash_ids\": ", milliseconds,
        request.prompt.size(), request.max_new_tokens);
    char separator = '[';
    const std::span<const kvcache::TokenRun> runs = request.prompt.runs();
    for (std::size_t r = 0; r < runs.size(); ++r) {
      const bool whole_blocks = runs[r].length % kBlock == 0 || r + 1 == runs.size();
      if (runs[r].first % kBlock != 0 || !whole_blocks) {
        refuse(i, "mooncake", "its prompt is not made of blocks of 512 tokens");
      }
      for (std::uint64_t token = 0; token < runs[r].length; token += kBlock) {
        put(out, "{}{}", separator, (runs[r].first + token) / kBlock);
        separator = ',';
      }
    }
    put(out, "]}}\n");
  }
  return fmt::to_string(out);
}

// Refuses two prompts that have a token in common.
void refuse_sharing(const Workload& workload) {
  struct Interval {
    kvcache::TokenId first, end;
    std::size_t request;
  };
  std::vector<Interval> intervals;
  for (std::size_t i = 0; i < workload.requests.size(); ++i) {
    for (const kvcache::TokenRun& run : workload.requests[i].prompt.runs()) {
      intervals.push_back({run.first, run.first + run.length, i});
    }
  }
  std::sort(intervals.begin(), intervals.end(), [](const Interval& a, const Interval& b) {
    return a.first != b.first ? a.first < b.first : a.request < b.request;
  });
  for (std::size_t k = 1; k < intervals.size(); ++k) {
    if (intervals[k].first < intervals[k - 1].end) {
      refuse(std::max(intervals[k].request, intervals[k - 1].request), "azure",
             "its prompt shares tokens, and this format has only lengths");
    }
  }
}

std::string format_azure(const Workload& workload) {
  constexpr double kTicksPerSecond = 1e7;
  refuse_sharing(workload);
  Buffer out;
  put(out, "TIMESTAMP,ContextTokens,GeneratedTokens\n");
  for (std::size_t i = 0; i < workload.requests.size(); ++i) {
    const WorkloadRequest& request = workload.requests[i];
    refuse_extras(request, i, "azure");
    const double ticks = std::floor(request.arrival_time * kTicksPerSecond + 0.5);
    if (ticks / kTicksPerSecond != request.arrival_time) {
      refuse(i, "azure", "its arrival time is not a whole number of 100 nanoseconds");
    }
    const auto whole = static_cast<std::int64_t>(ticks);
    const std::int64_t seconds = whole / 10'000'000;
    // The date says nothing: the trace begins on 1 January 2000.
    const std::chrono::sys_days begin{std::chrono::year(2000) / 1 / 1};
    const std::chrono::year_month_day date{begin + std::chrono::days(seconds / 86400)};
    if (static_cast<int>(date.year()) > 9999) refuse(i, "azure", "its arrival time is beyond the year 9999");
    put(out, "{:04}-{:02}-{:02} {:02}:{:02}:{:02}.{:07},{},{}\n", static_cast<int>(date.year()),
        static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()), seconds / 3600 % 24,
        seconds / 60 % 60, seconds % 60, whole % 10'000'000, request.prompt.size(), request.max_new_tokens);
  }
  return fmt::to_string(out);
}

}  // namespace

std::vector<std::string> writable_format_names() { return {"tpsim", "mooncake", "azure"}; }

std::string format_trace(const Workload& workload, const std::string& format) {
  if (format == "tpsim") return format_tpsim(workload);
  if (format == "mooncake") return format_mooncake(workload);
  if (format == "azure") return format_azure(workload);
  throw_user_error("traces cannot be written as \"{}\"; the formats are {}", format,
                   fmt::join(writable_format_names(), ", "));
}

bool write_trace_file(const std::filesystem::path& path, const std::string& text) {
  OutputFile file(path, path.string());
  constexpr std::size_t kBlock = std::size_t{1} << 20;
  for (std::size_t at = 0; at < text.size(); at += kBlock) {
    StopFlag::throw_if_requested();
    file.write(std::string_view(text).substr(at, kBlock));
  }
  const bool standard_output = file.is_standard_output();
  file.commit();
  return standard_output;
}

}  // namespace tpsim::scheduler
