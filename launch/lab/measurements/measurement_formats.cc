#include "launch/lab/measurements/measurement_formats.h"

#include <algorithm>
#include <memory>
#include <system_error>
#include <utility>

#include "proto/base/error.h"
#include "scheduler/workload/trace_input.h"

namespace tpsim::launch {
namespace {

struct Format {
  bool json;                            // the first filled line begins an object
  std::vector<std::string_view> words;  // that it has
  std::vector<MeasuredLoad> (*read)(scheduler::TraceInput& input, const MeasurementFile& file);

  bool is_of(std::string_view line) const {
    return (line.front() == '{') == json &&
           std::all_of(words.begin(), words.end(),
                       [&](std::string_view word) { return line.find(word) != std::string_view::npos; });
  }
};

// In this order: a row a load is known by fewer words than a benchmark.
const std::vector<Format>& formats() {
  static const std::vector<Format> formats = {
      {false, {"sent_s", "first_token_s"}, read_requests_file},
      {false, {"prefill_server", "decode_server", "sent_s"}, read_pd_requests_file},
      {false, {"policy,load,worker,", "sent_s"}, read_router_requests_file},
      {false, {"sent_s", "first_s", "cached_host"}, read_hicache_file},
      {true, {"\"load\"", "\"server\""}, read_kit_file},
      {false, {"silicon_tpot_ms"}, read_benchmark_file},
      {false, {"launch,bench,"}, read_published_file},
      {false, {"tpot_ms", "load"}, read_loads_file},
      {true, {"\"total_input_tokens\"", "\"mean_ttft_ms\""}, read_bench_serving_file},
      {false, {"server_args=ServerArgs("}, read_server_log_file},
  };
  return formats;
}

// "[2026-11-21 17:31:44] …", "[2026-11-21 17:31:44 TP0] …"; warnings of libraries may come before a log's own
// first line, which is then known by its name.
bool is_log(std::string_view line, const std::string& name) {
  return name.ends_with(".log") || name.ends_with(".log.gz") ||
         (line.starts_with("[2") && line.find(']') != std::string_view::npos && line.find('-') == 5);
}

// Names go into reports and onto terminals.
void check_names(const MeasuredLoad& load) {
  for (const std::string* name :
       {&load.id, &load.server, &load.load, &load.model, &load.hardware, &load.backend, &load.settings}) {
    if (std::all_of(name->begin(), name->end(), [](char c) { return c >= ' ' && c <= '~'; })) continue;
    throw_user_error("{}: {} is not a name; printable ASCII is needed", load.file, in_quotes(*name));
  }
}

scheduler::TraceInput input_of(std::unique_ptr<scheduler::ByteSource> bytes,
                               const std::filesystem::path& path) {
  return {scheduler::decode(std::move(bytes), path.string()), path.string()};
}

std::vector<MeasuredLoad> read(scheduler::TraceInput input, const MeasurementFile& file) {
  const std::string& name = input.name();
  std::string_view line;
  if (!input.next_filled_line(line)) throw_user_error("{}: is empty; a file of measurements is needed", name);
  for (const Format& format : formats()) {
    if (!format.is_of(line) && !(format.read == read_server_log_file && is_log(line, name))) continue;
    input.unread_line();
    std::vector<MeasuredLoad> loads = format.read(input, file);
    if (loads.empty()) throw_user_error("{}: has no measurement; rows are needed after the first line", name);
    std::for_each(loads.begin(), loads.end(), check_names);
    return loads;
  }
  input.place().fail(
      "the line is of no format of measurements; they are requests.csv of a measured server, a client's JSON "
      "lines, those of sglang.bench_serving, a server's log, and CSV files with a row a load (tpot_ms, "
      "ttft_ms, duration_s) or a benchmark (silicon_ttft_ms, silicon_tpot_ms)");
}

}  // namespace

std::filesystem::path MeasurementFile::traces() const {
  if (!options.traces.empty()) return options.traces;
  // Of a bare name the folder is empty, which has no absolute path.
  return std::filesystem::absolute(path).lexically_normal().parent_path().parent_path() / "traces";
}

std::filesystem::path MeasurementFile::beside(const std::string& end) const {
  std::string stem = path.filename().string();
  for (const std::string_view known : {".gz", ".jsonl"})
    if (stem.ends_with(known)) stem.resize(stem.size() - known.size());
  return path.parent_path() / (stem + end);
}

std::string MeasurementFile::model_path(const std::string& name) const {
  if (name.empty()) return name;
  // A path of the machine that measured: its last part is the model's name.
  const std::string last = std::filesystem::path(name).filename().string();
  std::error_code error;
  const std::filesystem::path beside = folder() / "models" / (last.empty() ? name : last);
  if (std::filesystem::is_directory(beside, error)) return beside.string();
  return name.front() == '/' ? last : name;
}

scheduler::TraceInput open_input(const std::filesystem::path& path) {
  return input_of(scheduler::open_file(path), path);
}

std::vector<MeasuredLoad> read_measurements(const std::filesystem::path& path,
                                            const MeasurementOptions& options) {
  std::error_code error;
  if (!std::filesystem::exists(path, error))
    throw_user_error("--measurements {}: no such file", path.string());
  return read(open_input(path), {path, options});
}

std::vector<MeasuredLoad> read_measurements(std::string_view bytes, const std::filesystem::path& path,
                                            const MeasurementOptions& options) {
  return read(input_of(scheduler::open_memory(bytes), path), {path, options});
}

}  // namespace tpsim::launch
