// V-MoBA: chunks of keys along time, in the plane, or in both (vmoba_plan.h). A query is as like a chunk as
// it is like the mean of the chunk's keys; it meets its own chunk, and of the others the most alike: by their
// number, or until those that it meets hold a share of all likeness, which is scaled to 0 to 1 first. Counted
// for each query, or for all queries of a head together.
//
// Sources: arXiv 2506.23858; SGLang 0.5.23 csrc/attn/vmoba_attn (moba_attn_varlen).
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "attention/diffusion/parameters.h"
#include "attention/diffusion/vmoba_plan.h"
#include "proto/base/error.h"
#include "rank/numeric/diffusion/head_attention.h"
#include "rank/numeric/diffusion/key_blocks.h"

namespace tpsim::rank {
namespace {

constexpr float kEpsilon = 1e-6F;

// `own`: of each likeness, whether it is that of a query's own chunk. Sets `meets` for the others that are
// chosen; there may be so many of them.
void choose_most(std::span<const float> likeness, std::span<const std::uint8_t> own, std::size_t others,
                 std::span<std::uint8_t> meets) {
  for (const std::uint32_t i : by_value(likeness)) {
    if (own[i] != 0) continue;
    if (others-- == 0) return;
    meets[i] = 1;
  }
}

// The same, until own and chosen ones hold `threshold` of all.
void choose_share(std::span<const float> likeness, std::span<const std::uint8_t> own, float threshold,
                  std::span<std::uint8_t> meets) {
  const auto [least, most] = std::ranges::minmax(likeness);
  const float range = most - least <= kEpsilon ? 1 : most - least;
  std::vector<float> others(likeness.size());
  float all = 0, held = 0;
  for (std::size_t i = 0; i < likeness.size(); ++i) {
    const float share = (likeness[i] - least) / range;
    all += share;
    (own[i] != 0 ? held : others[i]) += share;
  }
  const float wanted = threshold - held / (all + kEpsilon);
  if (wanted <= 0) return;
  float sum = 0;
  for (const std::uint32_t i : by_value(others)) {
    meets[i] = 1;
    sum += others[i];
    if (sum / (all + kEpsilon) >= wanted) return;
  }
}

std::vector<std::uint8_t> select_vmoba(const HeadCall& call,
                                       const attention::DiffusionParameters& parameters) {
  const attention::VmobaPlan plan(parameters);
  const std::uint32_t tokens = call.q.count;
  if (plan.full(call.step, call.layer)) return std::vector<std::uint8_t>(std::size_t{tokens} * tokens, 1);
  const attention::VmobaLayer layer = plan.layer(call.layer, call.grid);
  const std::vector<std::uint32_t> chunk_of = blocks_of_tokens(call.grid, layer.chunk);
  const std::vector<float> k = block_means(call.k, call.dim, chunk_of);
  const std::size_t chunks = k.size() / call.dim;

  std::vector<float> likeness;  // [tokens, chunks]
  std::vector<std::uint8_t> own(tokens * chunks);
  for (std::uint32_t token = 0; token < tokens; ++token) {
    const std::vector<float> row = dots(call.q.row(token), k, call.dim);
    likeness.insert(likeness.end(), row.begin(), row.end());
    own[token * chunks + chunk_of[token]] = 1;
  }
  const std::string& together = attention::text_parameter(parameters, "moba_threshold_type");
  if (together != "query_head" && together != "head_global")
    throw_user_error(
        "{}: moba_threshold_type {} counts over all heads of a GPU, which is not computed; query_head and "
        "head_global are",
        attention::kDiffusionConfigFlag, together);
  std::vector<std::uint8_t> meets = own;
  const std::size_t queries = together == "query_head" ? 1 : tokens;  // that are counted together
  const bool most = attention::text_parameter(parameters, "moba_select_mode") == "topk";
  const auto threshold = static_cast<float>(attention::real_parameter(parameters, "moba_threshold"));
  for (std::size_t at = 0; at < meets.size(); at += queries * chunks) {
    const std::size_t size = queries * chunks;
    const auto values = std::span(likeness).subspan(at, size);
    const auto part = std::span(std::as_const(own)).subspan(at, size);
    const auto chosen = std::span(meets).subspan(at, size);
    if (most) {
      choose_most(values, part, queries * (std::min<std::size_t>(layer.topk, chunks) - 1), chosen);
    } else {
      choose_share(values, part, threshold, chosen);
    }
  }
  std::vector<std::uint32_t> rows(tokens);
  std::iota(rows.begin(), rows.end(), 0);
  return pairs_of_blocks(meets, rows, chunk_of);
}

}  // namespace

extern const HeadBackend kVmobaHead;
const HeadBackend kVmobaHead = {.name = "vmoba_attn", .select = select_vmoba};

}  // namespace tpsim::rank
