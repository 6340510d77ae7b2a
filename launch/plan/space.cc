#include "launch/plan/space.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "launch/deployment/attention.h"
#include "proto/base/error.h"
#include "rank/config/model_config.h"

namespace tpsim::launch {
namespace {

// An axis beside layouts and backends; "" leaves the flag to SGLang.
struct FreeAxis {
  std::string flag;
  std::vector<std::string> values;
};

// What is tried where the user does not say: chunks trade first tokens against those of running requests,
// mixed chunks do the same, and a queue in order of prefixes finds more of them in the cache.
const std::array<FreeAxis, 3> kFreeAxes = {{{"--chunked-prefill-size", {"", "2048", "4096", "8192", "16384"}},
                                            {"--enable-mixed-chunk", {"", "true"}},
                                            {"--schedule-policy", {"", "lpm"}}}};

constexpr std::array<std::string_view, 7> kLayoutFlags = {"--tp-size",      "--pp-size", "--dp-size",
                                                          "--attn-dp-size", "--ep-size", "--moe-a2a-backend",
                                                          "--router-policy"};

const FlagSet::List* find_list(const FlagSet& flags, std::string_view flag) {
  const auto list = std::ranges::find(flags.lists(), flag, &FlagSet::List::flag);
  return list == flags.lists().end() ? nullptr : &*list;
}

// Whether the user leaves room for the flag's being `value`, its default where a layout does not set it.
bool allowed(const FlagSet& flags, const std::string& flag, const std::string& value) {
  if (const FlagSet::List* const list = find_list(flags, flag))
    return std::ranges::count(list->values, value) > 0;
  const auto given = flags.given().find(flag);
  return given == flags.given().end() || given->second == value;
}

std::vector<std::uint32_t> divisors(std::uint32_t number) {
  std::vector<std::uint32_t> out;
  for (std::uint32_t i = 1; i <= number; ++i) {
    if (number % i == 0) out.push_back(i);
  }
  return out;
}

std::string text_of(const FlagValues& layout) {
  std::string out;
  for (const auto& [flag, value] : layout) {
    if (flag != "--router-policy") out += fmt::format("{}{} {}", out.empty() ? "" : " ", flag, value);
  }
  return out;
}

// The axes that neither layouts nor backends make.
std::vector<FreeAxis> other_axes(const FlagSet& flags) {
  std::vector<FreeAxis> axes;
  for (const FlagSet::List& list : flags.lists()) {
    // Each type of GPU has a space of its own.
    if (list.flag != "--hardware" && std::ranges::find(kLayoutFlags, list.flag) == kLayoutFlags.end())
      axes.push_back({list.flag, list.values});
  }
  for (const FreeAxis& axis : kFreeAxes) {
    if (!flags.given().contains(axis.flag)) axes.push_back(axis);
  }
  return axes;
}

// All combinations, those with fewer flags set first.
std::vector<FlagValues> product_of(const std::vector<FreeAxis>& axes) {
  std::vector<FlagValues> out = {{}};
  for (const FreeAxis& axis : axes) {
    std::vector<FlagValues> longer;
    for (const FlagValues& values : out) {
      for (const std::string& value : axis.values) {
        longer.push_back(values);
        if (!value.empty()) longer.back()[axis.flag] = value;
      }
    }
    out = std::move(longer);
    if (out.size() > kMaxPlanned) break;
  }
  std::ranges::stable_sort(out, {}, [](const FlagValues& values) { return values.size(); });
  return out;
}

// What a layout decides, as if nothing had been said of it.
void clear_layout(ServerArgs& args) {
  ParallelArgs& parallel = args.parallel;
  parallel.pp_size = parallel.dp_size = parallel.ep_size = 1;
  parallel.attn_dp_size.reset();
  parallel.moe_a2a_backend = "none";
  for (const std::string_view flag : kLayoutFlags) args.given.erase(std::string(flag));
}

void clear_router(ServerArgs& args) {
  args.router = {};
  std::erase_if(args.given, [](const auto& given) { return given.first.starts_with("--router-"); });
}

// Flags by which the settings of a group differ.
bool tunes(const std::string& flag) {
  return flag == "--chunked-prefill-size" || flag == "--schedule-policy";
}

// Notes the values of a setting in the axes, in order of appearance.
void note_values(const std::map<std::string, std::string>& values, proto::Sweep& axes) {
  for (proto::SweepAxis& axis : *axes.mutable_axes()) {
    const auto value = values.find(axis.flag());
    if (value == values.end()) continue;
    if (std::ranges::find(axis.values(), value->second) == axis.values().end())
      axis.add_values(value->second);
  }
}

// Leaves out what the release that launch commands are for has no more.
void leave_out_dropped(const ServerArgs& args, std::vector<BackendPair>& pairs) {
  std::erase_if(pairs, [&](const BackendPair& pair) {
    return release_lacks(args, pair.prefill) || release_lacks(args, pair.decode);
  });
  if (pairs.empty())
    throw_user_error(
        "--model-path {}: SGLang {} has no attention backend for it; say --sglang-version 0.5.12",
        args.model_path, args.sglang_release.name);
}

}  // namespace

std::vector<FlagValues> plan_layouts(const FlagSet& flags, std::uint32_t gpus, bool experts) {
  std::vector<FlagValues> out;
  const auto add = [&](const FlagValues& layout) {
    for (const std::string_view flag : kLayoutFlags) {
      const std::string name(flag);
      const auto set = layout.find(name);
      if (set == layout.end() && name == "--router-policy") continue;  // there is no router
      const std::string nothing = name == "--moe-a2a-backend" ? "none" : "1";
      if (!allowed(flags, name, set == layout.end() ? nothing : set->second)) return;
    }
    out.push_back(layout);
  };
  // With the experts of each tensor parallel group cut like all else, or spread over it.
  const auto add_with_experts = [&](const FlagValues& layout, std::uint32_t tp) {
    add(layout);
    if (!experts || tp == 1) return;
    FlagValues spread = layout;
    spread["--ep-size"] = std::to_string(tp);
    add(spread);
    spread["--moe-a2a-backend"] = "deepep";
    add(spread);
  };
  std::vector<std::uint32_t> sizes = divisors(gpus);
  std::ranges::reverse(sizes);
  for (const std::uint32_t tp : sizes) {
    const std::uint32_t rest = gpus / tp;
    const FlagValues whole = {{"--tp-size", std::to_string(tp)}};
    if (rest == 1) {
      add_with_experts(whole, tp);
      for (const std::uint32_t dp : divisors(tp)) {
        if (dp == 1) continue;
        FlagValues layout = whole;
        layout["--attn-dp-size"] = std::to_string(dp);
        add_with_experts(layout, tp);
      }
      continue;
    }
    for (const char* policy : {"cache_aware", "round_robin"}) {
      FlagValues layout = whole;
      layout["--dp-size"] = std::to_string(rest);
      layout["--router-policy"] = policy;
      add_with_experts(layout, tp);
    }
    FlagValues staged = whole;
    staged["--pp-size"] = std::to_string(rest);
    add_with_experts(staged, tp);
  }
  return out;
}

void add_setting(PlanSpace& space, std::size_t like, Setting setting,
                 const std::vector<std::pair<std::string, std::string>>& flags, std::string layout) {
  for (const auto& [flag, value] : flags) {
    setting.args.given[flag] = value;
    setting.values[axis_name(flag)] = value;
    if (std::ranges::find(space.axes.axes(), axis_name(flag), &proto::SweepAxis::flag) ==
        space.axes.axes().end())
      space.axes.add_axes()->set_flag(axis_name(flag));
  }
  note_values(setting.values, space.axes);
  space.groups.push_back(1 + *std::ranges::max_element(space.groups));
  space.gpus.push_back(space.gpus[like]);
  space.layouts.push_back(std::move(layout));
  space.settings.push_back(std::move(setting));
}

void add_pairs(PlanSpace& space, std::size_t replicas, std::uint32_t prefill) {
  Setting setting = space.settings[replicas];
  ServerArgs& args = setting.args;
  const std::uint32_t decode = args.parallel.replicas() - prefill;
  args.parallel.dp_size = 1;
  args.given.erase("--dp-size");
  setting.values.erase(axis_name("--dp-size"));
  args.disaggregation.pd_disaggregation = true;
  args.disaggregation.prefill = prefill;
  args.disaggregation.decode = decode;
  // A server that prefills has no decodes to mix with.
  if (setting.values.erase(axis_name("--enable-mixed-chunk")) > 0) {
    args.enable_mixed_chunk = false;
    args.given.erase("--enable-mixed-chunk");
  }
  std::string layout = "--pd-disaggregation";
  for (const std::string_view flag : kLayoutFlags) {
    const auto value = args.given.find(std::string(flag));
    if (value != args.given.end() && flag != "--router-policy")
      layout += fmt::format(" {} {}", flag, value->second);
  }
  add_setting(space, replicas, std::move(setting),
              {{"--pd-disaggregation", "true"},
               {"--prefill", std::to_string(prefill)},
               {"--decode", std::to_string(decode)}},
              std::move(layout));
}

PlanSpace plan_space(const FlagSet& flags, ServerArgs& args, const std::vector<std::uint32_t>& gpus) {
  PlanSpace space;
  const ServerArgs base = args;
  const bool experts = rank::load_model_config(base.model_path).moe.num_layers > 0;
  std::vector<BackendPair> pairs = base.attention_backends;
  if (pairs.empty()) {
    space.backends = all_backends({&base, 1});
    pairs = space.backends.pairs;
    leave_out_dropped(base, pairs);
  }
  const std::vector<FreeAxis> others = other_axes(flags);
  const std::vector<FlagValues> combinations = product_of(others);
  space.axes.add_axes()->set_flag("attention_backends");
  for (const std::string_view flag : kLayoutFlags)
    space.axes.add_axes()->set_flag(axis_name(std::string(flag)));
  for (const FreeAxis& axis : others) space.axes.add_axes()->set_flag(axis_name(axis.flag));
  std::map<std::string, std::uint32_t> groups;
  for (const std::uint32_t count : gpus) {
    const std::vector<FlagValues> layouts = plan_layouts(flags, count, experts);
    const std::size_t product = layouts.size() * pairs.size() * combinations.size();
    if (product > kMaxPlanned)
      throw_user_error(
          "--gpus {}: {} layouts x {} backends x {} other settings are more than the {} that are planned "
          "with at once; give flags that are settled, such as --chunked-prefill-size, or shorter lists",
          count, layouts.size(), pairs.size(), combinations.size(), kMaxPlanned);
    for (const FlagValues& layout : layouts) {
      for (const BackendPair& pair : pairs) {
        for (const FlagValues& combination : combinations) {
          Setting setting;
          args = base;
          args.attention_backends = {pair};
          args.given = flags.given();
          args.given["--hardware"] = base.hardware;
          clear_layout(args);
          if (!layout.contains("--dp-size")) clear_router(args);
          setting.values["attention_backends"] = pair.name();
          for (const FlagValues* const values : {&layout, &combination}) {
            for (const auto& [flag, value] : *values) {
              flags.set(flag, value);
              args.given[flag] = value;
              setting.values[axis_name(flag)] = value;
            }
          }
          std::string group = fmt::format("{} {} {}", count, layout, pair.name());
          for (const auto& [flag, value] : combination) {
            if (!tunes(flag)) group += fmt::format(" {} {}", flag, value);
          }
          space.groups.push_back(groups.try_emplace(group, groups.size()).first->second);
          args.swept = true;
          setting.args = args;
          note_values(setting.values, space.axes);
          space.settings.push_back(std::move(setting));
          space.gpus.push_back(count);
          space.layouts.push_back(text_of(layout));
        }
      }
    }
  }
  args = base;
  if (space.settings.empty())
    throw_user_error(
        "--gpus {}: cannot be shared out with the flags given (--tp-size times --pp-size or --dp-size "
        "must be as many); leave some of them to plan",
        fmt::join(gpus, ","));
  auto& axes = *space.axes.mutable_axes();
  axes.erase(std::remove_if(axes.begin(), axes.end(), [](const auto& axis) { return axis.values().empty(); }),
             axes.end());
  return space;
}

}  // namespace tpsim::launch
