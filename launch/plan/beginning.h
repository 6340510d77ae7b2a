// What a plan's short runs are made of: the first requests of a load, and a clock that ends them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "scheduler/engine.h"
#include "scheduler/workload/workload.h"

namespace tpsim::launch {

// The first requests of a workload, which must outlive it.
class Beginning : public scheduler::StreamedWorkload {
 public:
  Beginning(const scheduler::StreamedWorkload& all, std::uint64_t requests)
      : scheduler::StreamedWorkload(all.outline().name, all.outline().format, {}, [&all, requests] {
          return [reader = all.read(), left = requests]() mutable {
            if (left == 0) return std::shared_ptr<const scheduler::WorkloadRequest>();
            --left;
            return reader();
          };
        }) {}
};

// Stops where a run's clock has gone beyond `deadline` seconds (0: never), or somebody asks for it.
class Deadline : public scheduler::NoRecords {
 public:
  Deadline(double deadline, const std::atomic<bool>& stop) : deadline_(deadline), stop_(stop) {}
  bool on_progress(const scheduler::Progress& progress) override {
    return !stop_ && (deadline_ <= 0 || progress.time <= deadline_);
  }

 private:
  const double deadline_;
  const std::atomic<bool>& stop_;
};

}  // namespace tpsim::launch
