// How much memory this process may still take, so that too large a model is refused before it is loaded.
#pragma once

#include <cstdint>
#include <string>

namespace tpsim::rank {

// Bytes: MemAvailable of /proc/meminfo, or less where a control group (version 1 or 2) of the process or one
// above it leaves less; the page cache, which the kernel gives back, counts as free. 2^64 - 1 where the host
// does not say. `root` is put before the paths that are read.
std::uint64_t host_memory_available(const std::string& root = "");

// Throws UserError where `needed` bytes are not there, saying how many are and what would help. `what` begins
// the sentence: "the KV cache", "the weights of 2 ranks and their KV cache". `needed` is for all processes of
// the host that check at the same time: each sees the memory that the others are about to take as free.
void check_host_memory(std::uint64_t needed, const std::string& what,
                       std::uint64_t available = host_memory_available());

}  // namespace tpsim::rank
