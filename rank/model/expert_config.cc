// Groups of experts.
#include "rank/model/config_parts.h"

namespace tpsim::rank {

void read_expert_groups(const ConfigReader& config, ModelConfig& model) {
  MoeConfig& moe = model.moe;
  moe.num_groups = config.number_or("n_group", 1);
  moe.topk_groups = config.number_or("topk_group", 1);
  // A group whose score is the sum of its best two needs two.
  if (moe.num_experts % moe.num_groups != 0 || moe.topk_groups > moe.num_groups ||
      (moe.group_score_top2 && moe.num_groups > 1 && moe.num_experts / moe.num_groups < 2)) {
    throw_user_error("{}: n_group {} and topk_group {} do not divide {} experts into groups", config.where(),
                     moe.num_groups, moe.topk_groups, moe.num_experts);
  }
  if (std::uint64_t{moe.num_experts} / moe.num_groups * moe.topk_groups < moe.top_k)
    throw_user_error("{}: {} of {} groups have fewer than num_experts_per_tok {} experts", config.where(),
                     moe.topk_groups, moe.num_groups, moe.top_k);
}

}  // namespace tpsim::rank
