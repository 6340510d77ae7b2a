#include "launch/simulation/sweep.h"

#include <algorithm>
#include <utility>

#include "launch/report/run_names.h"
#include "proto/base/error.h"
#include "proto/base/text.h"

namespace tpsim::launch {
namespace {

// "--page-size" -> "page_size"
std::string axis_name(const std::string& flag) {
  std::string name = flag.substr(flag.find_first_not_of('-'));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// "2 of --tp-size x 3 of --page-size", and the product. Lists are short enough for it not to overflow: it
// stops growing beyond any number that is allowed.
std::string product_of(const std::vector<FlagSet::List>& lists, std::size_t& product) {
  constexpr std::size_t kEnough = 1'000'000'000;
  std::string text;
  product = 1;
  for (const FlagSet::List& list : lists) {
    text += fmt::format("{}{} of {}", text.empty() ? "" : " x ", list.values.size(), list.flag);
    product = std::min(kEnough, product * std::min(kEnough, list.values.size()));
  }
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
  std::size_t product = 1;
  const std::string text = product_of(lists, product);
  if (product > kMaxSettings)
    throw_user_error("{} make {} settings, at most {} are compared at once: shorten a list", text, product,
                     kMaxSettings);

  for (const FlagSet::List& list : lists) {
    proto::SweepAxis& axis = *sweep.axes.add_axes();
    axis.set_flag(axis_name(list.flag));
    for (const std::string& value : list.values) axis.add_values(value);
  }
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
  std::string text = fmt::format("{} settings: ", sweep.settings.size());
  for (int i = 0; i < sweep.axes.axes_size(); ++i) {
    const proto::SweepAxis& axis = sweep.axes.axes(i);
    text += fmt::format("{}{} of {}", i == 0 ? "" : " x ", axis.values_size(), flag_of(axis));
  }
  return text;
}

}  // namespace tpsim::launch
