// Reads a trace file of any supported format into a Workload.
//
//   mooncake  JSON lines: timestamp (ms), input_length, output_length, hash_ids (one per 512-token block)
//   azure     CSV: TIMESTAMP, ContextTokens, GeneratedTokens
//   burstgpt  CSV: Timestamp, [Session ID, Elapsed time,] Model, Request tokens, Response tokens, …
//   sharegpt  JSON array or lines of objects with prompt_len and output_len (or token-id arrays)
//   tpsim     JSON lines: arrival_time, prompt, max_new_tokens, … (what `tpsim trace` writes)
//
// Where a format knows prompts only by their length, every prompt gets ids of its own: nothing is shared.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "scheduler/workload/read_options.h"
#include "scheduler/workload/workload.h"

namespace tpsim::scheduler {

// The names that ReadOptions::format accepts besides "auto".
std::vector<std::string> trace_format_names();

// Plain or gzip-compressed, told by the first bytes. Throws UserError "FILE:LINE: what is wrong; what would
// be right" for anything that is not a complete, ordered trace of at least one request.
Workload read_trace(const std::filesystem::path& path, const ReadOptions& options = {});

// The same from memory; `name` stands for the file in messages and becomes Workload::name.
Workload read_trace(std::string_view bytes, const std::string& name, const ReadOptions& options = {});

}  // namespace tpsim::scheduler
