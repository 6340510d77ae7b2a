#include "launch/simulation/sweep.h"

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

// "2 of --tp-size x 3 of --page-size".
std::string product_of(const proto::Sweep& axes) {
  std::string text;
  for (const proto::SweepAxis& axis : axes.axes())
    text += fmt::format("{}{} of {}", text.empty() ? "" : " x ", axis.values_size(), flag_of(axis));
  return text;
}

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
    for (const Candidate& setting : settings_) {
      std::string obstacle =
          judge_pair(*setting.args, pair, std::string(kFlag), setting.hardware, model_).obstacle;
      if (obstacle.empty()) return "";
      if (first.empty()) first = std::move(obstacle);
    }
    return first;
  }

  // Whether the half serves in that role beside some other backend.
  bool fits(const attention::BackendRow& row) const {
    return std::ranges::any_of(settings_, [&](const Candidate& setting) {
      return attention::unfit(row, selection_of(setting.hardware, model_)).empty();
    });
  }

 private:
  struct Candidate {
    const ServerArgs* args;
    proto::HardwareProfile hardware;
  };
  const rank::ModelConfig model_;
  std::vector<Candidate> settings_;
};

}  // namespace

std::string axis_name(const std::string& flag) {
  std::string name = flag.substr(flag.find_first_not_of('-'));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

Sweep expand_sweep(FlagSet& flags, ServerArgs& args) {
  Sweep sweep;
  if (flags.lists().empty()) return sweep;
  std::vector<FlagSet::List> lists = flags.lists();
  const std::vector<BackendPair> backends = args.attention_backends;
  if (backends.size() > 1) {
    FlagSet::List list{"--attention-backends", {}};
    for (const BackendPair& pair : backends) list.values.push_back(pair.name());
    lists.insert(lists.begin(), std::move(list));
  }
  // Stops growing beyond any number that is allowed, before it can overflow.
  constexpr std::size_t kEnough = 1'000'000'000;
  std::size_t product = 1;
  for (const FlagSet::List& list : lists) {
    proto::SweepAxis& axis = *sweep.axes.add_axes();
    axis.set_flag(axis_name(list.flag));
    for (const std::string& value : list.values) axis.add_values(value);
    product = std::min(kEnough, product * std::min(kEnough, list.values.size()));
  }
  if (product > kMaxSettings)
    throw_user_error("{} make {} settings, at most {} are compared at once: shorten a list",
                     product_of(sweep.axes), product, kMaxSettings);

  for (std::size_t i = 0; i < product; ++i) {
    Setting setting;
    std::size_t rest = i;
    for (std::size_t a = lists.size(); a-- > 0;) {
      const FlagSet::List& list = lists[a];
      const std::size_t chosen = rest % list.values.size();
      rest /= list.values.size();
      const std::string& axis = sweep.axes.axes(static_cast<int>(a)).flag();
      setting.values[axis] = list.values[chosen];
      if (axis == kBackendAxis) {
        args.attention_backends = {backends[chosen]};
      } else {
        flags.set(list.flag, list.values[chosen]);
      }
    }
    setting.args = args;
    setting.args.swept = true;
    setting.args.given = flags.given();
    for (const FlagSet::List& list : lists)
      setting.args.given[list.flag] = setting.values.at(axis_name(list.flag));
    sweep.settings.push_back(std::move(setting));
  }
  return sweep;
}

std::string describe(const Sweep& sweep) {
  return fmt::format("{} settings: {}", sweep.settings.size(), product_of(sweep.axes));
}

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
  const auto is_slow = [captured](const attention::BackendRow* row) {
    return captured && !row->supports_cuda_graph;
  };
  std::vector<std::string_view> slow;  // halves that are left out
  for (const attention::BackendRow* row : halves) {
    if (is_slow(row)) slow.push_back(row->name);
  }
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
