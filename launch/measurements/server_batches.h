// The batches that a server logged with --decode-log-interval 1.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "launch/measurements/measured_load.h"
#include "scheduler/workload/trace_input.h"

namespace tpsim::launch {

// batches.csv: server, load, step, mode (extend or decode), new_seqs, new_tokens, cached_tokens, running,
// gen_tokens_per_s, kv_tokens and, with speculative decoding, accept_len. By server and load, in the order of
// the file. Throws UserError "FILE:LINE: …".
std::map<std::pair<std::string, std::string>, std::vector<MeasuredBatch>> read_batches(
    scheduler::TraceInput& input);

// A log of the server itself ("Prefill batch, #new-seq: 1, …", "Decode batch, #running-req: 1, …"), cut where
// the cache was flushed, which a measuring client does before each load: element 0 is what came before the
// first. Other lines mean nothing here; a batch line that lacks a figure throws UserError.
std::vector<std::vector<MeasuredBatch>> read_server_log(scheduler::TraceInput& input);

// How often a request kept so many tokens of a decode step, (tokens, weight) in ascending order. A batch
// tells its mean: what lies between two whole numbers is a mixture of both.
std::vector<std::pair<std::uint32_t, double>> accept_lengths(const std::vector<MeasuredBatch>& batches);
std::vector<std::pair<std::uint32_t, double>> accept_lengths(double mean);

}  // namespace tpsim::launch
