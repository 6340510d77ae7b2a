#include <algorithm>

#include "rank/parallel/rank_state.h"

namespace tpsim::rank {
namespace {

// Adds `step` to `count` numbers; returns how many of them are `zero` before. At most 65535 numbers.
std::uint32_t change(std::uint16_t* numbers, std::uint32_t count, std::uint16_t zero, std::uint16_t step) {
  std::uint16_t zeros = 0;  // as wide as the numbers, so that the loop is one of vectors
  for (std::uint32_t i = 0; i < count; ++i) {
    zeros = static_cast<std::uint16_t>(zeros + (numbers[i] == zero ? 1 : 0));
    numbers[i] = static_cast<std::uint16_t>(numbers[i] + step);
  }
  return zeros;
}

constexpr std::uint16_t kMinusOne = 0xffff;

// Calls pages(first, count) for the parts of `run` that are not whole blocks, and blocks(first, count), in
// blocks, for those between them.
template <typename Pages, typename Blocks>
void divide(kvcache::PageRun run, std::uint32_t block, const Pages& pages, const Blocks& blocks) {
  const std::uint32_t end = run.first + run.count;
  const std::uint32_t first_block = (run.first + block - 1) / block;
  const std::uint32_t end_block = end / block;
  if (first_block >= end_block) {  // none is covered; the run may still cross from one to the next
    const std::uint32_t border = std::min(first_block * block, end);
    if (border > run.first) pages(run.first, border - run.first);
    if (end > border) pages(border, end - border);
    return;
  }
  if (first_block * block > run.first) pages(run.first, first_block * block - run.first);
  blocks(first_block, end_block - first_block);
  if (end > end_block * block) pages(end_block * block, end - end_block * block);
}

}  // namespace

std::uint32_t PageCounts::add(kvcache::PageRun run) {
  if (blocks_.data() == nullptr) [[unlikely]] {
    own_ = ZeroedArray<std::uint32_t>(num_pages_ / kBlock + 1);
    blocks_ = ZeroedArray<std::uint16_t>(num_pages_ / kBlock + 1);
    named_ = ZeroedArray<std::uint16_t>(num_pages_ / kBlock + 1);
  }
  std::uint32_t fresh = 0;
  divide(
      run, kBlock, [&](std::uint32_t first, std::uint32_t count) { fresh += add_pages(first, count); },
      [&](std::uint32_t first, std::uint32_t count) { fresh += add_blocks(first, count); });
  return fresh;
}

std::uint32_t PageCounts::remove(kvcache::PageRun run) {
  std::uint32_t gone = 0;
  divide(
      run, kBlock, [&](std::uint32_t first, std::uint32_t count) { gone += remove_pages(first, count); },
      [&](std::uint32_t first, std::uint32_t count) { gone += remove_blocks(first, count); });
  return gone;
}

std::uint16_t* PageCounts::own(std::uint32_t block) {
  std::uint32_t& place = own_.data()[block];
  if (place == 0 && free_.empty()) {
    counts_.resize(counts_.size() + kBlock);
    place = static_cast<std::uint32_t>(counts_.size() / kBlock);
  } else if (place == 0) {
    place = free_.back();
    free_.pop_back();
  }
  return counts_.data() + std::size_t{place - 1} * kBlock;
}

void PageCounts::unname(std::uint32_t block, std::uint32_t zeros) {
  std::uint16_t& named = named_.data()[block];
  named = static_cast<std::uint16_t>(named - zeros);
  if (named != 0) return;
  free_.push_back(own_.data()[block]);
  own_.data()[block] = 0;
}

// Pages of one block.
std::uint32_t PageCounts::add_pages(std::uint32_t first, std::uint32_t count) {
  const std::uint32_t block = first / kBlock;
  const std::uint32_t zeros = change(own(block) + first % kBlock, count, /*zero=*/0, /*step=*/1);
  named_.data()[block] = static_cast<std::uint16_t>(named_.data()[block] + zeros);
  return blocks_.data()[block] == 0 ? zeros : 0;
}

std::uint32_t PageCounts::remove_pages(std::uint32_t first, std::uint32_t count) {
  const std::uint32_t block = first / kBlock;
  std::uint16_t* const block_pages = own(block);
  std::uint16_t* const pages = block_pages + first % kBlock;
  std::uint16_t& blocks = blocks_.data()[block];
  if (blocks != 0 && std::find(pages, pages + count, 0) != pages + count) {
    // Some page is named with its block only: one of the block's times becomes one of each page.
    change(block_pages, kBlock, 0, 1);
    named_.data()[block] = kBlock;
    --blocks;
  }
  const std::uint32_t zeros = change(pages, count, /*zero=*/1, kMinusOne);
  unname(block, zeros);
  return blocks == 0 ? zeros : 0;
}

std::uint32_t PageCounts::add_blocks(std::uint32_t first, std::uint32_t count) {
  std::uint16_t* const blocks = blocks_.data() + first;
  const std::uint16_t* const named = named_.data() + first;
  std::uint32_t fresh = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    fresh += blocks[i] == 0 ? kBlock - named[i] : 0U;
    blocks[i] = static_cast<std::uint16_t>(blocks[i] + 1);
  }
  return fresh;
}

std::uint32_t PageCounts::remove_blocks(std::uint32_t first, std::uint32_t count) {
  std::uint16_t* const blocks = blocks_.data() + first;
  std::uint16_t* const named = named_.data() + first;
  std::uint32_t gone = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (blocks[i] > 1) {
      --blocks[i];
    } else if (blocks[i] == 1) {
      blocks[i] = 0;
      gone += kBlock - named[i];
    } else {  // it was named in parts
      const std::uint32_t zeros = change(own(first + i), kBlock, /*zero=*/1, kMinusOne);
      unname(first + i, zeros);
      gone += zeros;
    }
  }
  return gone;
}

}  // namespace tpsim::rank
