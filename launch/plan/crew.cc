#include "launch/plan/crew.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "proto/base/error.h"
#include "proto/base/stop_flag.h"
#include "rank/parallel/farm.h"
#include "rank/parallel/gather.h"

namespace tpsim::launch {
namespace {

// Positions of `numbers` by process. Numbers are dealt out in an order that has nothing to do with what they
// stand for: settings that stand beside each other often differ in what makes every other one slow.
std::vector<std::vector<std::size_t>> share_out(const std::vector<std::uint32_t>& numbers,
                                                std::uint32_t processes) {
  std::vector<std::uint32_t> order = numbers;
  constexpr std::uint32_t kGolden = 2'654'435'769;  // of 32-bit multiplicative hashing
  std::ranges::sort(order, {}, [](std::uint32_t number) { return number * kGolden; });
  order.erase(std::ranges::unique(order).begin(), order.end());
  std::map<std::uint32_t, std::uint32_t> owners;
  for (std::size_t i = 0; i < order.size(); ++i) owners[order[i]] = static_cast<std::uint32_t>(i) % processes;
  std::vector<std::vector<std::size_t>> shares(processes);
  for (std::size_t i = 0; i < numbers.size(); ++i) shares[owners[numbers[i]]].push_back(i);
  return shares;
}

}  // namespace

PlanCrew::PlanCrew(rank::MpiSession& session) : group_(session.process_group(session.num_processes())) {
  if (!leads()) StopFlag::leave_to_process_0();
}

std::uint32_t PlanCrew::cores() const { return rank::cores_of_process(group_); }

std::vector<proto::PlanTrial> PlanCrew::carry_out(const std::vector<std::uint32_t>& numbers,
                                                  const Work& work) const {
  const auto shares = share_out(numbers, group_.num_processes);
  const std::vector<std::size_t>& mine = shares[group_.process];
  std::vector<proto::PlanTrial> trials(numbers.size());
  if (group_.num_processes == 1) {
    work(mine, trials);
    return trials;
  }
  proto::PlanTrials told;
  try {
    work(mine, trials);
    for (const std::size_t i : mine) *told.add_trials() = std::move(trials[i]);
  } catch (const UserError& error) {
    told.set_error(error.what());
  }
  const std::vector<std::string> all =
      rank::gather_by_all(group_, told.SerializeAsString(), [] { StopFlag::throw_if_requested(); });
  for (std::size_t process = 0; process < all.size(); ++process) {
    proto::PlanTrials heard;
    heard.ParseFromString(all[process]);
    if (!heard.error().empty()) throw UserError(heard.error());
    for (std::size_t i = 0; i < shares[process].size(); ++i)
      trials[shares[process][i]] = std::move(*heard.mutable_trials(static_cast<int>(i)));
  }
  return trials;
}

void PlanCrew::first_does(const std::function<void()>& work) const {
  carry_out({}, [&](const auto&, auto&) {
    if (leads()) work();
  });
}

}  // namespace tpsim::launch
