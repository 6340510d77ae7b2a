#include "rank/parallel/group_farm.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "proto/base/error.h"
#include "rank/parallel/deployment_executor.h"
#include "rank/parallel/idle_backoff.h"

namespace tpsim::rank {

GroupFarm::GroupFarm(MpiSession& session, const ProcessGroup& leaders)
    : Farm(session, leaders), asks_(leaders.num_processes, false), owes_(leaders.num_processes, 0) {}

void GroupFarm::take_messages(const Run& run) {
  while (const std::optional<Message> message = receive()) {
    const std::uint32_t leader = message->process;
    switch (message->tag) {
      case FarmTag::kError:
        throw_user_error("group {}: {}", leader, message->bytes);
      case FarmTag::kLoss:
        owes_[leader] = 0;
        session_.mark_lost();
        loss_ = fmt::format("group {}: {}", leader, message->bytes);
        return;
      case FarmTag::kResult:
        owes_[leader] = 0;
        ++done_;
        run.on_result(number_in<std::uint32_t>(message->bytes), message->bytes.substr(sizeof(std::uint32_t)));
        [[fallthrough]];
      default:
        asks_[leader] = true;
    }
  }
}

void GroupFarm::hand_out(const Run& run) {
  for (std::uint32_t leader = 1; leader < group_.num_processes && next_ < run.num_tasks; ++leader) {
    if (!asks_[leader]) continue;
    send(leader, FarmTag::kTask, bytes_of(next_++));
    asks_[leader] = false;
    owes_[leader] = 1;
  }
}

// What the first leader does between two steps. Whether the run goes on.
bool GroupFarm::look_around(const Run& run) {
  take_messages(run);
  hand_out(run);
  look_for_dead(owes_, "process 0 of group {} has died with the setting that it was serving");
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

int GroupFarm::serve(const Task& task) {
  IdleBackoff backoff(false);
  send(0, FarmTag::kReady, "");
  while (!status_) {
    const std::optional<Message> message = receive();
    if (!message) {
      backoff.wait();
      continue;
    }
    backoff.reset();
    if (message->tag == FarmTag::kShutdown) {
      status_ = number_in<int>(message->bytes);
      break;
    }
    try {
      const auto number = number_in<std::uint32_t>(message->bytes);
      const std::optional<std::string> result = task(number, [this] {
        // Nothing else comes while it works.
        if (const std::optional<Message> end = receive()) status_ = number_in<int>(end->bytes);
        return !status_;
      });
      if (result) send(0, FarmTag::kResult, bytes_of(number) + *result);
    } catch (const RankLost& lost) {
      send(0, FarmTag::kLoss, lost.what());
    } catch (const std::exception& error) {
      send(0, FarmTag::kError, error.what());
    }
  }
  send(0, FarmTag::kGoodbye, "");
  return *status_;
}

}  // namespace tpsim::rank
