#include "tests/unit/rank/llm/count_allocations.h"

#include <cstdlib>
#include <new>

namespace {
std::uint64_t g_allocations = 0;
}  // namespace

// In a file of their own: inlined, the pair looks mismatched to the compiler.
void* operator new(std::size_t size) {
  ++g_allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
// std::stable_sort takes its buffer like this and gives it back to the operator below.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  ++g_allocations;
  return std::malloc(size);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace tpsim::rank {

std::uint64_t allocations() { return g_allocations; }

}  // namespace tpsim::rank
