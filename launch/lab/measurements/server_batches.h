// The batches that a server logged with --decode-log-interval 1.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launch/lab/measurements/measurement_formats.h"
#include "scheduler/workload/trace_input.h"

namespace tpsim::launch {

// batches.csv: server, load, step, mode (extend or decode), new_seqs, new_tokens, cached_tokens, running,
// gen_tokens_per_s, kv_tokens and, with speculative decoding, accept_len. By server and load, in the order of
// the file. Throws UserError "FILE:LINE: …".
std::map<std::pair<std::string, std::string>, std::vector<MeasuredBatch>> read_batches(
    scheduler::TraceInput& input);

// What a log says of its server, besides batches.
struct LoggedServer {
  nlohmann::json server_args;                // its arguments; null where the log has none
  std::optional<std::uint64_t> pool_tokens;  // "max_total_num_tokens=906051"
};

// A log of the server itself ("Prefill batch, #new-seq: 1, …", "Decode batch, #running-req: 1, …"), cut where
// the cache was flushed, which a measuring client does before each load: element 0 is what came before the
// first. Other lines mean nothing here; a batch line that lacks a figure throws UserError.
std::vector<std::vector<MeasuredBatch>> read_server_log(scheduler::TraceInput& input,
                                                        LoggedServer* server = nullptr);

// The parts of the log at `path` that belong to loads, in their order, whose prompts have `tokens` in all:
// the cache is flushed before each load, and maybe at other times, too. A load without such a part has no
// batches, and without the file none has.
std::vector<std::vector<MeasuredBatch>> batches_of_log(const std::filesystem::path& path,
                                                       const std::vector<double>& tokens);

// Of a load with batches whose server speculated: sets accept_lens, the mean tokens kept of a request's first
// step, its second …, for an n-gram cache fills while answers grow; and the flag that asks for them. The
// requests that have made most steps are taken to be those that ended; steps that the end of an answer
// of `longest_answer` tokens may have cut short are left out.
void add_accept_lens(std::uint32_t longest_answer, MeasuredLoad& load);

}  // namespace tpsim::launch
