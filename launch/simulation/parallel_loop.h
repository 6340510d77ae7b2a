// The same work for many numbers, shared out over threads of this process: a thread that is free takes the
// next one.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace tpsim::launch {

// Calls `work` for 0 … count - 1, up to `threads` at once; where its `stop` becomes true it returns early.
// `on_tick` is called on this thread about twenty times a second, and when all is done, with how many are.
// What either throws stops the others, and is thrown here when all threads have ended; on_tick's first.
void parallel_loop(std::size_t count, std::uint32_t threads,
                   const std::function<void(std::size_t index, const std::atomic<bool>& stop)>& work,
                   const std::function<void(std::size_t done)>& on_tick);

}  // namespace tpsim::launch
