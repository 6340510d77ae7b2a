#include "launch/flags/priority_flags.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>

#include "launch/cli/flag_values.h"
#include "launch/flags/batch_flags.h"
#include "proto/base/error.h"

namespace tpsim::launch {
namespace {

constexpr std::array<Named<scheduler::RetractionPolicy>, 2> kRetractionPolicies = {{
    {"length", scheduler::RetractionPolicy::kLength},
    {"priority", scheduler::RetractionPolicy::kPriority},
}};

FlagSet::ReadValue priority_value(std::function<void(std::int32_t)> take) {
  return [take = std::move(take)](std::string_view flag, const std::string& value) {
    constexpr double kMost = std::numeric_limits<std::int32_t>::max();
    const double number = parse_real(flag, value, -kMost, true, kMost, true);
    if (number != std::floor(number)) throw_user_error("{} {}: must be a whole number", flag, value);
    take(static_cast<std::int32_t>(number));
  };
}

}  // namespace

void declare_priorities(FlagSet& flags, PriorityArgs& args) {
  scheduler::PriorityConfig& priority = args.priority;
  flags.add_switch("--enable-priority-scheduling",
                   "requests of a higher priority first, with fcfs or lof; they may preempt running ones",
                   priority.enable_scheduling);
  flags.add_switch("--schedule-low-priority-values-first", "a lower number is a higher priority",
                   priority.low_values_first);
  flags.add_value("--priority-scheduling-preemption-threshold", "N",
                  "a request preempts where its priority is higher by more (default 10)",
                  priority_value([&](std::int32_t value) { priority.preemption_threshold = value; }));
  flags.add_switch("--disable-priority-preemption", "priorities order the queue only",
                   priority.disable_preemption);
  flags.add_value("--default-priority-value", "N", "priority of requests without one (default: the lowest)",
                  priority_value([&](std::int32_t value) { priority.default_value = value; }));
  flags.add_switch("--abort-on-priority-when-disabled",
                   "refuses requests with a priority unless priorities are scheduled",
                   priority.abort_when_disabled);
  flags.add_value("--retraction-policy", "NAME",
                  "what gives way first where the pool is full: length (few generated tokens) or priority "
                  "(default length)",
                  choice(kRetractionPolicies, args.retraction_policy));
}

void check_priorities(const PriorityArgs& args, scheduler::SchedulePolicy policy) {
  const bool enabled = args.priority.enable_scheduling;
  if (enabled && policy != scheduler::SchedulePolicy::kFcfs && policy != scheduler::SchedulePolicy::kLof)
    throw_user_error("--enable-priority-scheduling: goes with --schedule-policy fcfs or lof, not {}",
                     to_string(policy));
  if (!enabled && args.retraction_policy == scheduler::RetractionPolicy::kPriority)
    throw_user_error("--retraction-policy priority: needs --enable-priority-scheduling");
  const std::pair<const char*, bool> dependent[] = {
      {"--schedule-low-priority-values-first", args.priority.low_values_first},
      {"--disable-priority-preemption", args.priority.disable_preemption},
      {"--default-priority-value", args.priority.default_value.has_value()}};
  for (const auto& [flag, given] : dependent) {
    if (given && !enabled) throw_user_error("{}: has no effect without --enable-priority-scheduling", flag);
  }
}

std::string_view to_string(scheduler::RetractionPolicy policy) {
  return name_of(kRetractionPolicies, policy);
}

}  // namespace tpsim::launch
