// A trace file as a workload that is read while it is served.
//
// The file is read twice. The first reading finds every mistake and makes the outline; requests are held
// meanwhile, and where the trace is short it stays in memory. Of a longer one nothing stays but a bit for
// each request, where there are conversations of several turns, and each run reads the file again. The first
// reading holds four bytes and a hash (label_numbers.h) for every conversation, a later one the hash of those
// that go on.
//
// Traces that are to be put in order and are not (ReadOptions::sort) stay in memory whatever their length.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>

#include "scheduler/workload/streamed_workload.h"
#include "scheduler/workload/trace_reader.h"

namespace tpsim::scheduler {

// The requests that stay in memory take as many bytes at most: 120,000 with short prompts.
inline constexpr std::size_t kMostHeldBytes = std::size_t{32} << 20;

// Throws UserError as read_trace() does.
std::unique_ptr<StreamedWorkload> open_trace(const std::filesystem::path& path, const ReadOptions& options,
                                             std::size_t most_held_bytes = kMostHeldBytes);

}  // namespace tpsim::scheduler
