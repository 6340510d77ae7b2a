#include "rank/numeric/vision/tower.h"

#include <algorithm>

namespace tpsim::rank {

TowerRanks::TowerRanks(const ParallelLayout& layout, bool replicated, Collectives& collectives,
                       ThreadPool& pool)
    : layout_(layout), replicated_(replicated), collectives_(collectives), pool_(pool) {
  const std::uint32_t first = collectives.first_rank();
  for (std::uint32_t rank = first; rank < first + collectives.num_ranks(); ++rank) {
    const Split shard = replicated ? Split{} : layout.attention(rank);
    const auto same = [&](const Split& known) { return known.rank == shard.rank; };
    if (std::none_of(shards_.begin(), shards_.end(), same)) shards_.push_back(shard);
  }
  parts_.resize(shards_.size());
}

bool TowerRanks::begin_image(std::uint32_t dp_rank, std::uint32_t index) {
  const std::uint32_t first = collectives_.first_rank();
  const std::uint32_t end = first + collectives_.num_ranks();
  const std::uint32_t tp = layout_.attn_tp_size();
  dp_rank_ = dp_rank;
  owner_ = dp_rank * tp + index % tp;
  active_.clear();
  if (replicated_) {
    const bool mine = owner_ >= first && owner_ < end;
    if (mine) active_.push_back(0);
    return mine;
  }
  for (std::uint32_t i = 0; i < shards_.size(); ++i) {
    const std::uint32_t rank = dp_rank * tp + shards_[i].rank;
    if (rank >= first && rank < end) active_.push_back(i);
  }
  return true;
}

std::vector<float>& TowerRanks::part(std::uint32_t shard, std::size_t count) {
  parts_[shard].resize(count);
  return parts_[shard];
}

void TowerRanks::reduce(std::size_t count, float* out) {
  if (replicated_) {
    std::copy_n(parts_.front().data(), count, out);
    return;
  }
  zeros_.resize(std::max(zeros_.size(), count));
  views_.clear();
  for (std::uint32_t i = 0; i < collectives_.num_ranks(); ++i) {
    const std::uint32_t rank = collectives_.first_rank() + i;
    const float* view = zeros_.data();
    if (layout_.dp_rank(rank) == dp_rank_) {
      for (const std::uint32_t shard : active_) {
        if (shards_[shard].rank == layout_.attention(rank).rank) view = parts_[shard].data();
      }
    }
    views_.push_back(view);
  }
  sum_.resize(count);
  collectives_.all_reduce(views_, count, sum_.data());
  std::copy_n(sum_.data(), count, out);
}

void TowerRanks::share(std::size_t count, float* out) {
  if (!replicated_) return;
  zeros_.resize(std::max(zeros_.size(), count));
  sum_.resize(count);
  views_.clear();
  for (std::uint32_t i = 0; i < collectives_.num_ranks(); ++i)
    views_.push_back(collectives_.first_rank() + i == owner_ ? out : zeros_.data());
  collectives_.all_reduce(views_, count, sum_.data());
  std::copy_n(sum_.data(), count, out);
}

Share share_of(std::uint32_t count, const Split& split) {
  const std::uint32_t share = (count + split.size - 1) / split.size;
  return {split.rank * share, share};
}

}  // namespace tpsim::rank
