#include "launch/simulation/sweep.h"

#include <algorithm>
#include <utility>

#include "launch/report/comparison.h"
#include "proto/base/error.h"

namespace tpsim::launch {
namespace {

// "--page-size" -> "page_size"
std::string axis_name(const std::string& flag) {
  std::string name = flag.substr(flag.find_first_not_of('-'));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// "2 of --tp-size x 3 of --page-size".
std::string product_of(const proto::Sweep& axes) {
  std::string text;
  for (const proto::SweepAxis& axis : axes.axes())
    text += fmt::format("{}{} of {}", text.empty() ? "" : " x ", axis.values_size(), flag_of(axis));
  return text;
}

}  // namespace

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
    sweep.settings.push_back(std::move(setting));
  }
  return sweep;
}

std::string describe(const Sweep& sweep) {
  return fmt::format("{} settings: {}", sweep.settings.size(), product_of(sweep.axes));
}

}  // namespace tpsim::launch
