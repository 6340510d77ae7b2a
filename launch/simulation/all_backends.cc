#include "launch/simulation/all_backends.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <string_view>
#include <utility>

#include "attention/selection/registry.h"
#include "launch/deployment/attention.h"
#include "launch/report/comparison.h"
#include "proto/base/error.h"
#include "rank/config/model_config.h"
#include "rank/cost/hardware.h"

namespace tpsim::launch {
namespace {

constexpr std::string_view kFlag = "--attention-backends";

// Why `pair` cannot be run in any of the settings; empty where it can in one.
class Judge {
 public:
  explicit Judge(std::span<const ServerArgs> settings)
      : model_(rank::load_model_config(settings.front().model_path)) {
    std::set<std::string> seen;
    for (const ServerArgs& args : settings) {
      const std::string what =
          fmt::format("{} {} {}", hardware_name(args), args.kv_cache_dtype, args.page_size.value_or(0));
      if (seen.insert(what).second) settings_.push_back({&args, rank::load_hardware(hardware_name(args))});
    }
  }

  std::string obstacle(const BackendPair& pair) const {
    std::string first;
    for (const Setting& setting : settings_) {
      std::string obstacle =
          judge_pair(*setting.args, pair, std::string(kFlag), setting.hardware, model_).obstacle;
      if (obstacle.empty()) return "";
      if (first.empty()) first = std::move(obstacle);
    }
    return first;
  }

  // Whether the half serves in that role beside some other backend.
  bool fits(const attention::BackendRow& row) const {
    return std::ranges::any_of(settings_, [&](const Setting& setting) {
      return attention::unfit(row, selection_of(setting.hardware, model_)).empty();
    });
  }

 private:
  struct Setting {
    const ServerArgs* args;
    proto::HardwareProfile hardware;
  };
  const rank::ModelConfig model_;
  std::vector<Setting> settings_;
};

}  // namespace

AllBackends all_backends(std::span<const ServerArgs> settings) {
  const Judge judge(settings);
  AllBackends all;
  const auto refuse = [&all](const std::string& backends, const std::string& reason) {
    proto::RefusedSetting& refused = *all.others.add_refused();
    (*refused.mutable_settings())[std::string(kBackendAxis)] = backends;
    refused.set_reason(reason);
  };
  std::vector<const attention::BackendRow*> halves;
  bool captured = false;
  for (const attention::BackendDescription* backend : attention::backend_list()) {
    const attention::BackendRow& row = backend->row;
    const std::string name(row.name);
    const std::string obstacle = judge.obstacle({name, name});
    if (obstacle.empty())
      all.pairs.push_back({name, name});
    else
      refuse(name, obstacle);
    if (!judge.fits(row)) continue;
    halves.push_back(&row);
    captured = captured || row.supports_cuda_graph;
  }
  std::vector<std::string> slow;  // halves that are left out
  for (const attention::BackendRow* row : halves) {
    if (captured && !row->supports_cuda_graph) slow.emplace_back(row->name);
  }
  const auto is_slow = [&](const attention::BackendRow* row) {
    return std::ranges::find(slow, row->name) != slow.end();
  };
  std::size_t unrun = 0;
  for (const attention::BackendRow* prefill : halves) {
    for (const attention::BackendRow* decode : halves) {
      if (prefill == decode || decode->prefill_only) continue;
      const BackendPair pair{std::string(prefill->name), std::string(decode->name)};
      const std::string obstacle = judge.obstacle(pair);
      const bool left_out = is_slow(prefill) || is_slow(decode);
      if (obstacle.empty() && left_out)
        ++unrun;
      else if (obstacle.empty())
        all.pairs.push_back(pair);
      else if (!left_out)
        refuse(pair.name(), obstacle);
    }
  }
  if (unrun > 0)
    all.others.add_left_out(fmt::format(
        "{} pairs with {}: no CUDA graph captures such a half, and each is compared alone; name a "
        "pair to run it",
        unrun, fmt::join(slow, " or ")));
  if (all.pairs.empty()) throw UserError(all.others.refused(0).reason());
  return all;
}

}  // namespace tpsim::launch
