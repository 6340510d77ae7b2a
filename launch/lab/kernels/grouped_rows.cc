#include "launch/lab/kernels/grouped_rows.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <random>
#include <string_view>
#include <utility>

#include "launch/lab/kernels/kernel_table.h"
#include "rank/llm/expert_load.h"

namespace tpsim::kernels {
namespace {

constexpr std::string_view kPowerLaw = "power_law_";
constexpr int kDraws = 16;

struct Spread {
  double tokens = 0;  // of all ranks
  std::uint32_t experts = 0, top_k = 0, ep_size = 0;
  double visits() const { return tokens * top_k; }
};

// Rows and experts hit of the rank that has most, in the mean of some draws as AIConfigurator makes them
// (power_law_logits_v3 of collector/helper.py): whole numbers of tokens, which add up to all visits.
std::pair<double, double> drawn(const Spread& spread, double alpha) {
  std::mt19937_64 random(1);
  double rows = 0, hit = 0;
  for (int draw = 0; draw < kDraws; ++draw) {
    std::vector<double> counts =
        rank::power_law_weights(alpha, std::max(1.0001, 0.8 * spread.tokens), spread.experts, random);
    const double scale = spread.visits() / std::accumulate(counts.begin(), counts.end(), 0.0);
    for (double& count : counts) count = std::round(count * scale);
    const auto each = static_cast<std::ptrdiff_t>(spread.experts / spread.ep_size);
    double most = 0, its = 0;
    for (auto begin = counts.begin(); begin != counts.end(); begin += each) {
      const double sum = std::accumulate(begin, begin + each, 0.0);
      if (sum <= most) continue;
      most = sum;
      its = static_cast<double>(std::count_if(begin, begin + each, [](double n) { return n > 0; }));
    }
    rows += most / kDraws;
    hit += its / kDraws;
  }
  return {rows, hit};
}

// nullopt: not told by the table. Of fewer visits than experts nobody says which are left without, and draws
// called "sampled" are not described.
std::optional<std::pair<double, double>> busiest(const std::string& distribution, const Spread& spread,
                                                 rank::GroupedKernel kernel) {
  const double even = std::max(1.0, spread.visits() / spread.ep_size);
  const double experts = double(spread.experts) / spread.ep_size;
  // Even prefills fill whole tiles of 128 of one expert after the other; decodes go round them.
  if (distribution == "uniform" || distribution == "balanced")
    return std::pair(
        even, std::min(experts, kernel == rank::GroupedKernel::kNormal ? std::ceil(even / 128) : even));
  double alpha = 0;
  const char* const end = distribution.data() + distribution.size();
  if (!distribution.starts_with(kPowerLaw) ||
      std::from_chars(distribution.data() + kPowerLaw.size(), end, alpha).ptr != end ||
      (spread.visits() < spread.experts && kernel != rank::GroupedKernel::kNormal))
    return std::nullopt;
  return drawn(spread, alpha);
}

}  // namespace

std::optional<rank::GroupedKernel> grouped_kernel(const std::string& table) {
  if (table == "wideep_context_moe_perf") return rank::GroupedKernel::kNormal;
  if (table == "wideep_generation_moe_perf") return rank::GroupedKernel::kLowLatency;
  if (table == "dsv4_megamoe_module_perf") return rank::GroupedKernel::kMegaMoe;
  return std::nullopt;
}

GroupedRows grouped_rows(const std::filesystem::path& folder, const std::string& name) {
  using Kind = rank::WeightFormat::Kind;
  GroupedRows out;
  out.kernel = *grouped_kernel(name);
  const bool mega = out.kernel == rank::GroupedKernel::kMegaMoe;
  out.weight = mega ? rank::WeightFormat{.kind = Kind::kMxfp4, .block_n = 1, .block_k = 32}
                    : rank::WeightFormat{.kind = Kind::kFp8, .block_n = 128, .block_k = 128};
  const KernelTable table(table_file(folder, name));
  for (std::size_t i = 0; i < table.size(); ++i) {
    for (const char* column : {"num_experts", "moe_ep_size", "topk"}) table.check(i, column, 1, 1e6);
    const Spread spread = {.tokens = table.number(i, mega ? "global_num_tokens" : "num_tokens"),
                           .experts = table.count(i, "num_experts"),
                           .top_k = table.count(i, "topk"),
                           .ep_size = table.count(i, "moe_ep_size")};
    if (spread.experts % spread.ep_size != 0) table.fail(i, "moe_ep_size does not divide num_experts");
    const auto most = busiest(table.text(i, "distribution"), spread, out.kernel);
    if (!most) {
      ++out.unknown;
      continue;
    }
    GroupedRow& row = out.rows.emplace_back();
    row.work = {.hidden = table.count(i, "hidden_size"),
                .width = table.count(i, "inter_size"),
                .rows = most->first,
                .hit = most->second,
                .tokens = spread.tokens};
    row.seconds = table.number(i, "latency_ms") / 1e3;
  }
  if (out.kernel == rank::GroupedKernel::kNormal && !out.rows.empty())
    out.least_seconds =
        std::min_element(out.rows.begin(), out.rows.end(), [](const GroupedRow& a, const GroupedRow& b) {
          return a.seconds < b.seconds;
        })->seconds;
  return out;
}

}  // namespace tpsim::kernels
