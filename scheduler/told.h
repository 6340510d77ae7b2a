// What replicas tell a run, at once or later: of those that run side by side, on threads or in processes, it
// is written down, and told in the order of the run when all have come to the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "proto/base/archive.h"
#include "scheduler/records.h"

namespace tpsim::scheduler {

// Who keeps the records of a run.
class RunListener {
 public:
  virtual ~RunListener() = default;
  // As ReplicaEvents has them. `now`: of the replica.
  virtual void on_step(const StepRecord& record, bool computed, double now) = 0;
  virtual void on_finished(const RequestRecord& record, const char* because) = 0;
};

// Of one replica, turn by turn: a request that is sent to it, or a round of its scheduler.
class Told final : public RunListener {
 public:
  // Turns are told by their times, requests before rounds at the same time, requests in their order and
  // rounds in that of their replicas.
  struct Turn {
    double time = 0;
    bool round = false;
    std::uint64_t order = 0;  // of the request among all, or the replica's number
    std::size_t first = 0;    // event; those up to the next turn's are its own
    bool operator<(const Turn& other) const {
      return std::tie(time, round, order) < std::tie(other.time, other.round, other.order);
    }
  };
  void begin(double time, bool round, std::uint64_t order) {
    if (!turns_.empty() && turns_.back().first == events_.size())
      turns_.pop_back();  // nothing was told in it
    turns_.push_back({time, round, order, events_.size()});
  }
  const std::vector<Turn>& turns() const { return turns_; }
  void tell(std::size_t turn, RunListener& to) const;
  void clear() {
    turns_.clear();
    events_.clear();
  }
  // For other processes. `steps`: with passes; else only what finished, and turns in which something did.
  // Not of numeric execution.
  void write(bool steps, StateWriter& out) const;
  // What was written comes behind what is there; without `steps` passes are left out, and turns in which
  // nothing finished.
  void read(bool steps, StateReader& in);

  void on_step(const StepRecord& record, bool computed, double now) override;
  void on_finished(const RequestRecord& record, const char* because) override;

 private:
  // Records with what their spans point to, which are empty here.
  struct Step {
    StepRecord record;
    std::vector<StageTimes> stages;
    bool computed;
    double now;

    auto state() { return std::tie(record, stages, computed, now); }
  };
  struct Finished {
    RequestRecord record;
    std::vector<Interruption> interruptions;
    std::optional<std::string> because;

    auto state() { return std::tie(record, interruptions, because); }
  };
  std::size_t end_of(std::size_t turn) const {
    return turn + 1 < turns_.size() ? turns_[turn + 1].first : events_.size();
  }
  // In their written form.
  static constexpr std::uint64_t kEnd = ~std::uint64_t{0};
  static constexpr std::uint8_t kEndOfTurn = 255;

  std::vector<Turn> turns_;
  std::vector<std::variant<Step, Finished>> events_;
};

}  // namespace tpsim::scheduler
