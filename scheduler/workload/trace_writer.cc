#include "scheduler/workload/trace_writer.h"

#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <system_error>

#include "proto/error.h"

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

void put_runs(Buffer& out, const kvcache::TokenSequence& sequence) {
  char separator = '[';
  for (const kvcache::TokenRun& run : sequence.runs()) {
    put(out, "{}[{},{}]", separator, run.first, run.length);
    separator = ',';
  }
  put(out, "]");
}

std::string format_tpsim(const Workload& workload) {
  Buffer out;
  for (const WorkloadRequest& request : workload.requests) {
    put(out, "{{\"arrival_time\":{},\"prompt\":", request.arrival_time);
    put_runs(out, request.prompt);
    put(out, ",\"max_new_tokens\":{}", request.max_new_tokens);
    if (!request.output.empty()) {
      put(out, ",\"output\":");
      put_runs(out, request.output);
    }
    if (request.priority != 0) put(out, ",\"priority\":{}", request.priority);
    if (request.extra_key != 0) {
      put(out, ",\"extra_key\":{}", nlohmann::json(workload.extra_keys[request.extra_key]).dump());
    }
    if (request.session != 0) put(out, ",\"session_id\":{}", request.session);
    if (request.think_time) put(out, ",\"think_time\":{}", *request.think_time);
    put(out, "}}\n");
  }
  return fmt::to_string(out);
}

// The formats of others have no place for these.
void refuse_extras(const WorkloadRequest& request, std::size_t index, const std::string& format) {
  if (!request.output.empty()) refuse(index, format, "it names the ids of its answer");
  if (request.priority != 0) refuse(index, format, "it has a priority");
  if (request.extra_key != 0) refuse(index, format, "it has a cache namespace (extra_key)");
  if (request.session != 0) refuse(index, format, "it belongs to a conversation (session_id)");
}

std::string format_mooncake(const Workload& workload) {
  constexpr std::uint64_t kBlock = 512;
  Buffer out;
  for (std::size_t i = 0; i < workload.requests.size(); ++i) {
    const WorkloadRequest& request = workload.requests[i];
    refuse_extras(request, i, "mooncake");
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

std::string compress(const std::string& text) {
  z_stream stream{};
  constexpr int kGzip = 16;  // the header that zlib writes has no time and no name
  if (deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, MAX_WBITS + kGzip, 9, Z_DEFAULT_STRATEGY) !=
      Z_OK) {
    throw std::bad_alloc();
  }
  std::string out;
  std::string block(std::size_t{1} << 18, '\0');
  std::size_t used = 0;
  int status = Z_OK;
  while (status != Z_STREAM_END) {
    if (stream.avail_in == 0) {
      const std::size_t count = std::min(text.size() - used, std::size_t{1} << 30);
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data() + used));  // zlib only reads it
      stream.avail_in = static_cast<uInt>(count);
      used += count;
    }
    stream.next_out = reinterpret_cast<Bytef*>(block.data());
    stream.avail_out = static_cast<uInt>(block.size());
    status = deflate(&stream, used == text.size() ? Z_FINISH : Z_NO_FLUSH);
    out.append(block, 0, block.size() - stream.avail_out);
  }
  deflateEnd(&stream);
  return out;
}

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

}  // namespace

std::vector<std::string> writable_format_names() { return {"tpsim", "mooncake", "azure"}; }

std::string format_trace(const Workload& workload, const std::string& format) {
  if (format == "tpsim") return format_tpsim(workload);
  if (format == "mooncake") return format_mooncake(workload);
  if (format == "azure") return format_azure(workload);
  throw_user_error("traces cannot be written as \"{}\"; the formats are {}", format,
                   fmt::join(writable_format_names(), ", "));
}

void write_trace_file(const std::filesystem::path& path, const std::string& text) {
  const std::string packed = path.extension() == ".gz" ? compress(text) : std::string();
  const std::string& bytes = packed.empty() ? text : packed;
  if (std::filesystem::is_directory(path)) {
    throw_user_error("{}: is a folder; give the name of a file", path.string());
  }
  // Beside its place, so that the renaming stays within one file system and is atomic.
  const std::filesystem::path partial = path.string() + fmt::format(".partial-{}", ::getpid());
  const auto fail = [&](const char* doing) {
    const std::string reason = std::strerror(errno);
    std::error_code ignored;
    std::filesystem::remove(partial, ignored);
    throw_user_error("{}: cannot be {} ({}); give a place where you may write", path.string(), doing, reason);
  };
  std::unique_ptr<std::FILE, FileCloser> file(std::fopen(partial.c_str(), "wb"));
  if (!file) fail("created");
  if (std::fwrite(bytes.data(), 1, bytes.size(), file.get()) != bytes.size()) fail("written");
  if (std::fclose(file.release()) != 0) fail("written");
  if (std::rename(partial.c_str(), path.c_str()) != 0) fail("put in place");
}

}  // namespace tpsim::scheduler
