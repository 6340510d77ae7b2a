// A load that somebody's real server served: what was asked of it, as the flags of `tpsim run`, and what was
// measured. Every measurement format (measurement_formats.h) comes down to a list of these.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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
  std::string refusal;  // why it cannot be asked, one sentence; empty: it can

  MeasuredFigures measured;
  std::vector<MeasuredBatch> batches;        // in their order; empty: not logged
  std::optional<std::uint64_t> pool_tokens;  // of the server's KV pool
};

}  // namespace tpsim::launch
