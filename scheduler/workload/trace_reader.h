// Reads a trace file of any supported format (format_*.cc). Where a format knows prompts only by their
// length, every prompt gets ids of its own: nothing is shared.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "scheduler/workload/trace_input.h"
#include "scheduler/workload/workload.h"

namespace tpsim::scheduler {

// Plain or gzip-compressed, told by the first bytes. Throws UserError "FILE:LINE: what is wrong; what would
// be right" for anything that is not a complete, ordered trace of at least one request.
Workload read_trace(const std::filesystem::path& path, const ReadOptions& options = {});

// The same from memory; `name` stands for the file in messages and becomes Workload::name.
Workload read_trace(std::string_view bytes, const std::string& name, const ReadOptions& options = {});

// The requests that stay in memory take as many bytes at most: 120,000 with short prompts.
inline constexpr std::size_t kMostHeldBytes = std::size_t{32} << 20;

// A trace file as a workload that is read while it is served. Throws UserError as read_trace() does.
//
// The file is read twice. The first reading finds every mistake and makes the outline; requests are held
// meanwhile, and where the trace is short it stays in memory. Of a longer one nothing stays but a bit for
// each request, where there are conversations of several turns, and each run reads the file again. The first
// reading holds four bytes and a hash (LabelNumbers) for every conversation, a later one the hash of those
// that go on.
//
// Traces that are to be put in order and are not (ReadOptions::sort) stay in memory whatever their length.
std::unique_ptr<StreamedWorkload> open_trace(const std::filesystem::path& path, const ReadOptions& options,
                                             std::size_t most_held_bytes = kMostHeldBytes);

}  // namespace tpsim::scheduler
