#include "kvcache/pools/window_pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <stdexcept>

namespace tpsim::kvcache {
namespace {

// Calls f(word, bits of the word) for the words that `run` touches.
template <typename F>
void for_each_word(PageRun run, const F& f) {
  while (run.count > 0) {
    const std::uint32_t bit = run.first % 64;
    const std::uint32_t step = std::min(run.count, 64 - bit);
    f(run.first / 64, (step == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << step) - 1) << bit);
    run.first += step;
    run.count -= step;
  }
}

}  // namespace

WindowPages::WindowPages(std::uint32_t num_pages, std::uint32_t addresses)
    : num_pages_(num_pages), available_(num_pages), live_((addresses + 63) / 64) {}

std::uint32_t WindowPages::count(PageRun run) const {
  int live = 0;
  for_each_word(run,
                [&](std::uint32_t word, std::uint64_t bits) { live += std::popcount(live_[word] & bits); });
  return static_cast<std::uint32_t>(live);
}

std::uint32_t WindowPages::change(PageRun run, bool live) {
  int changed = 0;
  for_each_word(run, [&](std::uint32_t word, std::uint64_t bits) {
    const std::uint64_t after = live ? live_[word] | bits : live_[word] & ~bits;
    changed += std::popcount(live_[word] ^ after);
    live_[word] = after;
  });
  available_ += static_cast<std::uint32_t>(live ? -changed : changed);
  return static_cast<std::uint32_t>(changed);
}

void WindowPages::alloc(PageRun run) {
  if (run.count > available_ || count(run) > 0) {
    throw std::logic_error(
        fmt::format("pages {} to {}: {} have their window part, and {} are free in its pool", run.first,
                    run.first + run.count - 1, count(run), available_));
  }
  change(run, /*live=*/true);
}

void WindowPages::free(PageRun run) {
  if (count(run) != run.count) {
    throw std::logic_error(fmt::format("pages {} to {}: {} of them lost their window part before", run.first,
                                       run.first + run.count - 1, run.count - count(run)));
  }
  change(run, /*live=*/false);
}

}  // namespace tpsim::kvcache
