// The files of measurements that tpsim reads. Each format is one function in a file of its own and a line in
// the list of measurement_formats.cc, which says by which words its first filled line is known.
//
//   requests    CSV, a row a request: server, load, request, sent_s, first_token_s, last_token_s,
//               input_tokens, output_tokens, …; servers.jsonl, batches.csv[.gz] and models/ lie in its folder
//   kit         JSON lines, a line a request, as a measuring client writes them: NAME.jsonl, with the
//               server's own account NAME.info.json and its log NAME.log beside it
//   loads       CSV, a row a load: server, model, backend, flags, load, tpot_ms, ttft_ms, duration_s, …
//   benchmark   CSV, a row a closed-loop benchmark: model_path, system, isl, osl, concurrency, tp_size, …,
//               silicon_ttft_ms, silicon_tpot_ms
//   published   CSV, a row a published run of SGLang's benchmark: id, model, gpu, launch, bench, …
//   bench_serving  JSON lines, a line a run, of sglang.bench_serving --output-file; NAME.info.json where the
//               lines lack "server_info", and NAME.log, lie beside it
//   server log  what an SGLang server started with --decode-log-interval 1 printed, from its beginning; known
//               by its first line or by a name that ends in .log
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "launch/lab/measurements/measured_load.h"
#include "scheduler/workload/trace_input.h"

namespace tpsim::launch {

struct MeasurementOptions {
  // Where slices of traces are looked for; empty: ../traces beside the folder of the file.
  std::filesystem::path traces;
  // Of files that do not name their GPU.
  std::string hardware = "h200-sxm";
};

// A file that is being read, and where its companions are.
struct MeasurementFile {
  std::filesystem::path path;
  MeasurementOptions options;

  std::filesystem::path folder() const { return path.parent_path(); }
  std::filesystem::path traces() const;
  // NAME and `end`, of a file NAME.jsonl[.gz].
  std::filesystem::path beside(const std::string& end) const;
  // `name` with the folder of configs beside the file put before it, where that has it.
  std::string model_path(const std::string& name) const;
};

// One for each format: the loads of a file, whose first line is the next to be read.
std::vector<MeasuredLoad> read_requests_file(scheduler::TraceInput& input, const MeasurementFile& file);
std::vector<MeasuredLoad> read_kit_file(scheduler::TraceInput& input, const MeasurementFile& file);
std::vector<MeasuredLoad> read_loads_file(scheduler::TraceInput& input, const MeasurementFile& file);
std::vector<MeasuredLoad> read_benchmark_file(scheduler::TraceInput& input, const MeasurementFile& file);
std::vector<MeasuredLoad> read_published_file(scheduler::TraceInput& input, const MeasurementFile& file);
std::vector<MeasuredLoad> read_bench_serving_file(scheduler::TraceInput& input, const MeasurementFile& file);
std::vector<MeasuredLoad> read_server_log_file(scheduler::TraceInput& input, const MeasurementFile& file);

// A file plain or gzip-compressed, line by line.
scheduler::TraceInput open_input(const std::filesystem::path& path);

// Plain or gzip-compressed. Throws UserError "FILE:LINE: what is wrong; what would be right" for a file of no
// known format, a malformed line, and a companion that is not there or malformed; --measurements where the
// file itself cannot be read.
std::vector<MeasuredLoad> read_measurements(const std::filesystem::path& path,
                                            const MeasurementOptions& options);
// The same of bytes that stand for the file at `path`.
std::vector<MeasuredLoad> read_measurements(std::string_view bytes, const std::filesystem::path& path,
                                            const MeasurementOptions& options);

}  // namespace tpsim::launch
