#include "scheduler/workload/trace_reader.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "scheduler/workload/trace_input.h"
#include "scheduler/workload/trace_stream.h"

namespace tpsim::scheduler {
namespace {

// A trace whose requests are held in memory while it is read.
class HeldTrace {
 public:
  void add(TraceRecord&& record) {
    // Most traces are not longer: their requests are moved once. What is not used takes no memory.
    constexpr std::size_t kFirstRoom = 1 << 14;
    if (workload_.requests.empty()) workload_.requests.reserve(kFirstRoom);
    if (record.prompt_length > 0) unique_.push_back({workload_.requests.size(), record.prompt_length});
    workload_.requests.push_back(std::move(record.request));
  }
  // Names the tokens of prompts that are known by their length and moves the first arrival to 0; `sort`: puts
  // the requests in order. REQUIRES: every request of `stream` was added, and nothing is called afterwards.
  // Throws UserError as TraceStream::first_unique_id() and check_span() do.
  Workload finish(const TraceStream& stream, bool sort) {
    kvcache::TokenId id = stream.first_unique_id();
    workload_.name = stream.name();
    workload_.format = stream.format();
    workload_.extra_keys = stream.extra_keys();
    workload_.models = stream.models();
    workload_.notes = stream.notes();
    workload_.lengths_only = stream.lengths_only();
    for (const UniquePrompt& prompt : unique_) {
      workload_.requests[prompt.request].prompt.append({id, prompt.length});
      id += prompt.length;
    }
    if (sort) {
      sort_by_arrival(workload_);
    } else {
      start_at_zero(workload_);
    }
    TraceStream::check_span(workload_.name, workload_.requests.back().arrival_time);
    return std::move(workload_);
  }

 private:
  struct UniquePrompt {
    std::size_t request;
    std::uint32_t length;
  };
  std::vector<UniquePrompt> unique_;
  Workload workload_;
};

Workload read(std::unique_ptr<ByteSource> source, const std::string& name, const ReadOptions& options) {
  TraceStream stream(std::move(source), name, options);
  HeldTrace held;
  TraceRecord record;
  while (stream.next(record)) held.add(std::move(record));
  return held.finish(stream, options.sort);
}

std::size_t bytes_of(const WorkloadRequest& request) {
  return sizeof(WorkloadRequest) + request.images.size() * sizeof(ImageInput) +
         (request.prompt.runs().size() + request.output.runs().size()) * sizeof(kvcache::TokenRun) +
         request.accept_lens.size() * sizeof(std::uint32_t);
}

// What a trace has beside its outline.
struct Readable {
  Readable(const std::filesystem::path& path, const ReadOptions& with) : file(path), options(with) {}

  RereadableFile file;
  ReadOptions options;
  kvcache::TokenId first_unique_id = 0;
  double first_arrival = 0;  // of the file's own clock, seconds
  WorkloadOutline outline;
};

// One reading of it.
class Reading {
 public:
  explicit Reading(const Readable& trace)
      : trace_(trace),
        stream_(trace.file.read_again(), trace.outline.name, trace.options),
        next_unique_id_(trace.first_unique_id) {}

  std::shared_ptr<const WorkloadRequest> next() {
    if (!stream_.next(record_)) return nullptr;
    const std::uint64_t position = stream_.requests() - 1;
    auto request = std::make_shared<WorkloadRequest>(std::move(record_.request));
    request->arrival_time -= trace_.first_arrival;
    if (record_.prompt_length > 0) request->prompt.append({next_unique_id_, record_.prompt_length});
    next_unique_id_ += record_.prompt_length;
    const std::vector<bool>& followed = trace_.outline.followed;
    if (request->session != 0 && (followed.empty() || !followed[position]))
      stream_.end_session(record_.session);
    return request;
  }

 private:
  const Readable& trace_;
  TraceStream stream_;
  TraceRecord record_;
  kvcache::TokenId next_unique_id_;
};

class StreamedTrace : public StreamedWorkload {
 public:
  explicit StreamedTrace(const std::shared_ptr<const Readable>& trace)
      : StreamedWorkload(trace->outline, [trace] {
          return [reading = std::make_shared<Reading>(*trace)] { return reading->next(); };
        }) {}
};

}  // namespace

Workload read_trace(const std::filesystem::path& path, const ReadOptions& options) {
  TraceStream::check_format_name(options.format);  // a wrong name is said before the file is opened
  return read(open_file(path), path.string(), options);
}

Workload read_trace(std::string_view bytes, const std::string& name, const ReadOptions& options) {
  return read(open_memory(bytes), name, options);
}

std::unique_ptr<StreamedWorkload> open_trace(const std::filesystem::path& path, const ReadOptions& options,
                                             std::size_t most_held_bytes) {
  TraceStream::check_format_name(options.format);
  auto trace = std::make_shared<Readable>(path, options);
  TraceStream stream(trace->file.read_first(), path.string(), options);
  OutlineBuilder builder;
  std::optional<HeldTrace> held(std::in_place);
  std::size_t held_bytes = 0;
  double last_arrival = -std::numeric_limits<double>::infinity();
  bool in_order = true;
  TraceRecord record;
  while (stream.next(record)) {
    const WorkloadRequest& request = record.request;
    in_order = in_order && request.arrival_time >= last_arrival;
    last_arrival = request.arrival_time;
    builder.add(request, request.prompt.size() + record.prompt_length);
    if (!held) continue;
    held_bytes += bytes_of(request);
    held->add(std::move(record));
    if (held_bytes > most_held_bytes && (!options.sort || in_order)) held.reset();
  }
  if (!held && options.sort && !in_order) {
    TraceStream again(trace->file.read_again(), path.string(), options);
    held.emplace();
    while (again.next(record)) held->add(std::move(record));
  }
  if (held) return std::make_unique<WorkloadInMemory>(held->finish(stream, options.sort));
  trace->first_unique_id = stream.first_unique_id();
  WorkloadOutline& outline = trace->outline = builder.finish();
  outline.name = stream.name();
  outline.format = stream.format();
  outline.notes = stream.notes();
  outline.models = stream.models();
  outline.lengths_only = stream.lengths_only();
  trace->first_arrival = std::exchange(outline.first_arrival, 0);
  outline.last_arrival -= trace->first_arrival;
  outline.last_start -= trace->first_arrival;
  TraceStream::check_span(outline.name, outline.last_arrival);
  return std::make_unique<StreamedTrace>(trace);
}

}  // namespace tpsim::scheduler
