#include "scheduler/workload/trace_reader.h"

#include <memory>
#include <utility>

#include "scheduler/workload/held_trace.h"
#include "scheduler/workload/trace_stream.h"

namespace tpsim::scheduler {
namespace {

Workload read(std::unique_ptr<ByteSource> source, const std::string& name, const ReadOptions& options) {
  TraceStream stream(std::move(source), name, options);
  HeldTrace held;
  TraceRecord record;
  while (stream.next(record)) held.add(std::move(record));
  return held.finish(stream, options.sort);
}

}  // namespace

std::vector<std::string> trace_format_names() { return TraceStream::format_names(); }

Workload read_trace(const std::filesystem::path& path, const ReadOptions& options) {
  TraceStream::check_format_name(options.format);  // a wrong name is said before the file is opened
  return read(open_file(path), path.string(), options);
}

Workload read_trace(std::string_view bytes, const std::string& name, const ReadOptions& options) {
  return read(open_memory(bytes), name, options);
}

}  // namespace tpsim::scheduler
