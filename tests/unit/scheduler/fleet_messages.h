// Processes of one fleet that take turns on one core, and what their messages would cost between nodes: how
// fast more processes would be than there are cores for.
//
// What is computed is computed, by the code that real processes run and from the bytes that they tell; only
// the network is a model, and waiting: a round lasts as long as its slowest process, then all gather what all
// told.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <condition_variable>
#include <cstdint>
#include <ctime>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/peers.h"

namespace tpsim::scheduler {

struct Network {
  std::uint32_t per_node = 1;                        // processes
  double node_latency = 1e-6, node_bandwidth = 5e9;  // within a node: seconds a message, bytes/s of a process
  double latency = 5e-6, bandwidth = 12.5e9;         // between nodes: bytes/s of a node

  // As rank/parallel/gather.h, by doubling: every process has a place in a first message, more follow in a
  // second where one of them does not fit.
  double all_gather_seconds(const std::vector<std::string>& bytes) const {
    const std::size_t processes = bytes.size();
    if (processes < 2) return 0;
    const std::size_t room = std::max<std::size_t>(64, 8192 / processes);
    double rest = 0;
    for (const std::string& each : bytes)
      rest += each.size() + sizeof(int) > room ? static_cast<double>(each.size() + sizeof(int) - room) : 0;
    return doubling_seconds(processes, static_cast<double>(room * processes)) +
           (rest > 0 ? doubling_seconds(processes, rest) : 0);
  }

 private:
  double doubling_seconds(std::size_t processes, double bytes) const {
    const std::size_t here = std::min<std::size_t>(processes, per_node),
                      nodes = (processes + here - 1) / here;
    return std::bit_width(here - 1) * node_latency + std::bit_width(nodes - 1) * latency +
           (nodes > 1 ? bytes / bandwidth : 0) + bytes / node_bandwidth;
  }
};

class Turns {
 public:
  // `tells_steps`: as Peers.
  Turns(std::uint32_t processes, const Network& network, bool tells_steps = false)
      : network_(network),
        tells_steps_(tells_steps),
        said_({std::vector<std::string>(processes), {}}),
        spent_(processes),
        total_(processes) {
    said_[1].resize(processes);
  }

  class Seat final : public Peers {
   public:
    Seat(Turns& turns, std::uint32_t number) : Peers(turns.tells_steps_), turns_(turns), number_(number) {
      turns_.wait_for(number_);
    }
    ~Seat() override { turns_.leave(number_); }
    std::uint32_t process() const override { return number_; }
    std::uint32_t size() const override { return static_cast<std::uint32_t>(turns_.spent_.size()); }
    std::vector<std::string> exchange(std::string bytes) override {
      return turns_.exchange(number_, round_++ % 2, std::move(bytes));
    }

   private:
    Turns& turns_;
    const std::uint32_t number_;
    std::uint64_t round_ = 0;
  };

  // Seconds: of all rounds, each as long as its slowest process; and of their messages.
  double computed() const { return computed_; }
  double gathered() const { return gathered_; }
  std::uint64_t rounds() const { return rounds_; }
  std::uint64_t bytes() const { return bytes_; }             // that were told, by all together
  const std::vector<double>& cpu() const { return total_; }  // of each process, without messages

 private:
  static double cpu_now() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }
  void wait_for(std::uint32_t number) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return turn_ == number; });
    began_ = cpu_now();
  }
  // The turn of `number` is over; after the last one's a round is. REQUIRES: mutex_ is locked.
  void pass_on(std::uint32_t number, const std::vector<std::string>* said) {
    spent_[number] = cpu_now() - began_;
    total_[number] += spent_[number];
    turn_ = (number + 1) % static_cast<std::uint32_t>(spent_.size());
    changed_.notify_all();
    if (turn_ != 0) return;
    computed_ += *std::ranges::max_element(spent_);
    if (said == nullptr) return;
    ++rounds_;
    for (const std::string& each : *said) bytes_ += each.size();
    gathered_ += network_.all_gather_seconds(*said);
  }
  std::vector<std::string> exchange(std::uint32_t number, std::size_t which, std::string bytes) {
    {
      const std::lock_guard lock(mutex_);
      said_[which][number] = std::move(bytes);
      pass_on(number, &said_[which]);
    }
    wait_for(number);
    return said_[which];
  }
  void leave(std::uint32_t number) {
    const std::lock_guard lock(mutex_);
    pass_on(number, nullptr);
  }

  const Network network_;
  const bool tells_steps_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint32_t turn_ = 0;
  double began_ = 0;                              // of this turn
  std::array<std::vector<std::string>, 2> said_;  // in this round, and in the one before
  std::vector<double> spent_, total_;
  double computed_ = 0, gathered_ = 0;
  std::uint64_t rounds_ = 0, bytes_ = 0;
};

}  // namespace tpsim::scheduler
