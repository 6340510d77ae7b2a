#include "rank/parallel/group_farm.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "proto/base/error.h"
#include "proto/base/stop_flag.h"
#include "rank/parallel/idle_backoff.h"
#include "rank/parallel/rank_lost.h"
#include "rank/parallel/wall_clock.h"

namespace tpsim::rank {
namespace {

// Tags. The bytes of a task are its number; of a result the number, then what the task returned.
constexpr int kReadyTag = 1;     // leader -> first leader: its group is free; empty
constexpr int kResultTag = 2;    // leader -> first leader: a result; its group is free again
constexpr int kErrorTag = 3;     // leader -> first leader: a sentence
constexpr int kLossTag = 4;      // leader -> first leader: a sentence
constexpr int kGoodbyeTag = 5;   // leader -> first leader: the answer to kShutdownTag; empty
constexpr int kTaskTag = 6;      // first leader -> leader
constexpr int kShutdownTag = 7;  // first leader -> leader: the exit status

// A leader notices the shutdown between two steps.
constexpr double kGoodbyeSeconds = 10;
constexpr double kGoodbyeSecondsAfterSignal = 1;
constexpr double kDeathCheckSeconds = 0.05;

}  // namespace

GroupFarm::GroupFarm(MpiSession& session, const ProcessGroup& leaders)
    : session_(session),
      leaders_(leaders),
      post_(leaders_),
      asks_(leaders.num_processes, false),
      owes_(leaders.num_processes, false) {}

GroupFarm::~GroupFarm() {
  if (leaders_.process == 0) shutdown(2);
}

void GroupFarm::take_messages(const Run& run) {
  while (const std::optional<FarmPost::Message> message = post_.receive()) {
    const std::uint32_t leader = message->process;
    switch (message->tag) {
      case kErrorTag:
        throw_user_error("group {}: {}", leader, message->bytes);
      case kLossTag:
        owes_[leader] = false;
        session_.mark_lost();
        loss_ = fmt::format("group {}: {}", leader, message->bytes);
        return;
      case kResultTag:
        owes_[leader] = false;
        ++done_;
        run.on_result(number_in<std::uint32_t>(message->bytes), message->bytes.substr(sizeof(std::uint32_t)));
        [[fallthrough]];
      default:
        asks_[leader] = true;
    }
  }
}

void GroupFarm::hand_out(const Run& run) {
  for (std::uint32_t leader = 1; leader < leaders_.num_processes && next_ < run.num_tasks; ++leader) {
    if (!asks_[leader]) continue;
    post_.send(leader, kTaskTag, bytes_of(next_++));
    asks_[leader] = false;
    owes_[leader] = true;
  }
}

void GroupFarm::look_for_dead() {
  if (now() < next_check_) return;
  next_check_ = now() + kDeathCheckSeconds;
  for (std::uint32_t leader = 1; leader < leaders_.num_processes; ++leader) {
    if (!owes_[leader] || !leaders_.is_dead(leader)) continue;
    session_.mark_lost();
    loss_ = fmt::format("process 0 of group {} has died with the setting that it was serving", leader);
    return;
  }
}

// What the first leader does between two steps. Whether the run goes on.
bool GroupFarm::look_around(const Run& run) {
  take_messages(run);
  hand_out(run);
  look_for_dead();
  return !loss_ && run.go_on();
}

bool GroupFarm::run(const Run& run) {
  IdleBackoff backoff(false);
  const auto go_on = [&] { return look_around(run); };
  while (done_ < run.num_tasks) {
    const std::uint32_t before = done_;
    if (!go_on()) return false;
    if (next_ < run.num_tasks) {
      const std::uint32_t mine = next_++;
      try {
        const std::optional<std::string> result = run.task(mine, go_on);
        if (!result) return false;
        run.on_result(mine, *result);
        ++done_;
      } catch (const RankLost& lost) {
        loss_ = lost.what();
        return false;
      }
    }
    if (done_ != before) {
      backoff.reset();
    } else {
      backoff.wait();
    }
  }
  return true;
}

void GroupFarm::shutdown(int exit_status) noexcept {
  if (std::exchange(shut_down_, true) || leaders_.num_processes == 1 || session_.lost()) return;
  for (std::uint32_t leader = 1; leader < leaders_.num_processes; ++leader)
    post_.send(leader, kShutdownTag, bytes_of(exit_status));
  std::uint32_t goodbyes = 0;
  IdleBackoff backoff(false);
  const double latest = now() + (StopFlag::requested() ? kGoodbyeSecondsAfterSignal : kGoodbyeSeconds);
  while (goodbyes + 1 < leaders_.num_processes) {
    if (const std::optional<FarmPost::Message> message = post_.receive()) {
      if (message->tag == kGoodbyeTag) ++goodbyes;
      continue;
    }
    if (now() > latest) {
      session_.mark_lost(exit_status);
      return;
    }
    backoff.wait();
  }
}

int GroupFarm::serve(const Task& task) {
  IdleBackoff backoff(false);
  post_.send(0, kReadyTag, "");
  while (!status_) {
    const std::optional<FarmPost::Message> message = post_.receive();
    if (!message) {
      backoff.wait();
      continue;
    }
    backoff.reset();
    if (message->tag == kShutdownTag) {
      status_ = number_in<int>(message->bytes);
      break;
    }
    try {
      const auto number = number_in<std::uint32_t>(message->bytes);
      const std::optional<std::string> result = task(number, [this] {
        // Nothing else comes while it works.
        if (const std::optional<FarmPost::Message> end = post_.receive())
          status_ = number_in<int>(end->bytes);
        return !status_;
      });
      if (result) post_.send(0, kResultTag, bytes_of(number) + *result);
    } catch (const RankLost& lost) {
      post_.send(0, kLossTag, lost.what());
    } catch (const std::exception& error) {
      post_.send(0, kErrorTag, error.what());
    }
  }
  post_.send(0, kGoodbyeTag, "");
  return *status_;
}

}  // namespace tpsim::rank
