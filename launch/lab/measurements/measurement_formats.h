// The files of measurements that tpsim reads. Each format is one function in a file of its own and a line in
// the list of measurement_formats.cc, which says by which words its first filled line is known.
//
//   requests    CSV, a row a request: server, load, request, sent_s, first_token_s, last_token_s,
//               input_tokens, output_tokens, …; servers.jsonl, batches.csv[.gz] and models/ lie in its folder
//   pd_requests CSV, a row a request of a pair of servers: tag, load, request, prefill_server, decode_server,
//               sent_s, first_s, last_s, input_tokens, …; servers.jsonl lies in its folder
//   router_requests  CSV, a row a request through a router: policy, load, worker, request, …; servers.jsonl
//               lies in its folder
//   hicache     CSV, a row a request of a server with a hierarchical cache: server, tag, load, …,
//               cached_device, cached_host, cached_storage; servers.jsonl lies in its folder
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

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "scheduler/workload/trace_input.h"
#include "scheduler/workload/workload.h"

namespace tpsim::launch {

// Over the requests of a load; what was not measured is empty.
struct MeasuredFigures {
  std::optional<double> ttft_ms;  // mean, from sending to the first token
  // Time after the first token over tokens after the first, both summed over the requests: a plain mean
  // hangs on the few short answers that waited for a prefill.
  std::optional<double> tpot_ms;
  std::optional<double> e2e_ms;             // mean, from sending to the last token
  std::optional<double> duration_s;         // from the first sending to the last token
  std::optional<double> output_throughput;  // tokens a second of that duration
};

// What a latency of MeasuredFigures is over the requests: as said there, or as SGLang's benchmark prints it.
enum class Statistic : std::uint8_t { kOfAll, kMean, kMedian };

// One line of a server's log.
struct MeasuredBatch {
  bool decode = false;
  // Decode: requests that ran, KV tokens that they held, tokens that each got (more than one with speculative
  // decoding), and tokens a second since the decode line before, prefills in between included.
  std::uint32_t running = 0;
  std::uint64_t kv_tokens = 0;
  double accept_len = 1;
  double tokens_per_second = 0;
  // Prefill.
  std::uint32_t new_seqs = 0;
  std::uint64_t new_tokens = 0;
  std::uint64_t cached_tokens = 0;

  friend bool operator==(const MeasuredBatch&, const MeasuredBatch&) = default;
};

// Prompt tokens of a load that a hierarchical cache had, by where.
struct CachedTokens {
  std::uint64_t device = 0, host = 0, storage = 0;
};

// A load that somebody's real server served: what was asked of it, as the flags of `tpsim run`, and what was
// measured. Every format comes down to a list of these.
struct MeasuredLoad {
  std::string file;  // FILE:LINE
  // A load is known by an id, or by its server and its own name.
  std::string id;
  std::string server, load;

  // What it is grouped by.
  std::string model, hardware, backend, load_kind, settings;
  // Its time told which of two settings it ran with: it cannot show which one is predicted to be faster.
  bool setting_by_time = false;
  std::uint32_t tp = 1;

  std::vector<std::string> flags;  // of `tpsim run`
  // Serves instead of what the flags name; --trace is then its name.
  std::optional<scheduler::Workload> workload;
  // Mean tokens that a request kept of a step, from each step of its own on (from 0), in ascending order.
  // Empty: no speculative decoding.
  std::vector<std::pair<std::uint32_t, double>> accept_lens;
  // The server was told the mean and drew once for all its requests: they end together.
  bool accept_together = false;
  // A guess is right by chance, alike for each behind right ones: requests part from each other.
  bool accept_chains = false;
  std::string refusal;  // why it cannot be asked, one sentence; empty: it can

  MeasuredFigures measured;
  Statistic ttft = Statistic::kOfAll, tpot = Statistic::kOfAll, e2e = Statistic::kOfAll;
  std::vector<MeasuredBatch> batches;          // in their order; empty: not logged
  std::optional<std::uint64_t> pool_tokens;    // of the server's KV pool
  std::optional<std::uint64_t> cached_tokens;  // of all prompts; of files that were measured for it
  std::optional<CachedTokens> cached;          // by where, of files that say that
  // Served before it, as far as its prompts begin so; then the cache was emptied, but for its storage. So
  // many prompts of so many tokens; 0: nothing was.
  std::uint32_t stored_prompts = 0, stored_tokens = 0;
};

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
std::vector<MeasuredLoad> read_pd_requests_file(scheduler::TraceInput& input, const MeasurementFile& file);
std::vector<MeasuredLoad> read_router_requests_file(scheduler::TraceInput& input,
                                                    const MeasurementFile& file);
std::vector<MeasuredLoad> read_hicache_file(scheduler::TraceInput& input, const MeasurementFile& file);
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
