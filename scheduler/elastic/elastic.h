// What becomes of the replicas of a run, event by event, and which of them a router sends requests to.
//
// A replica is off, starting, up, draining (it ends what it has and gets no more) or dead. Events happen at
// their times, but none by itself keeps a run going: a run without requests is over.
//
// Invariants: a replica that is neither up nor draining has no requests; one is in its state `since` a time
// that is not before those of the events before.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "proto/report.pb.h"
#include "scheduler/elastic/autoscaler.h"
#include "scheduler/elastic/config.h"
#include "scheduler/router/worker_health.h"

namespace tpsim::scheduler {

// What the replicas are told.
class ElasticServers {
 public:
  virtual ~ElasticServers() = default;
  // All that it has is lost, at `time`.
  virtual void on_death(std::uint32_t replica, double time) = 0;
  // It begins anew, with nothing cached.
  virtual void on_start(std::uint32_t replica) = 0;
  virtual void set_slowdown(std::uint32_t replica, double factor) = 0;
  // REQUIRES: not AutoscaleMetric::kSlo, which is of answers.
  virtual double metric(std::uint32_t replica, AutoscaleMetric metric) const = 0;
  virtual bool busy(std::uint32_t replica) const = 0;  // has requests
};

class Elastic {
 public:
  Elastic(const ElasticConfig& config, const std::vector<ReplicaStart>& starts);

  // When something happens next; infinity: nothing will.
  double next_time() const;
  // It happens. REQUIRES: next_time() is not infinite.
  void advance(ElasticServers& servers);
  // A draining replica has ended its last request, at `time`.
  void on_idle(std::uint32_t replica, double time);

  // Asks which replicas the router would choose from at `now`; dead ones among them, of which it does not
  // know. Valid until the next call.
  std::span<const std::uint32_t> look_for_available(double now);
  std::span<const std::uint32_t> available() const { return available_; }
  bool alive(std::uint32_t replica) const;
  // What the router saw: an answer, or no connection.
  void on_success(std::uint32_t replica, double now) { workers_[replica].breaker.on_success(now); }
  void on_failure(std::uint32_t replica, double now) { workers_[replica].breaker.on_failure(now); }
  // Seconds before a request is tried again that failed `failed` times; nothing: it is given up.
  std::optional<double> backoff(std::uint32_t failed);

  // An answer of `replica` ended at `time` and had needed such a share of its service levels
  // (ServiceLevels::needed_by); infinity: it was lost.
  void on_answer(std::uint32_t replica, double time, double needed);
  // A request ended with an error; `begun`: its answer had begun when its replica died.
  void on_lost(bool begun) { ++(begun ? lost_in_flight_ : lost_unreached_); }
  // The router's limits did not let it through.
  void on_refused() { ++refused_; }
  // Of a run that ended at `end`, whose replicas the report has.
  void write(double end, proto::RunReport& report) const;

 private:
  // Of a replica: seconds in which it served, and in which it had its GPUs, dead and starting ones included;
  // how often it died.
  struct Uptime {
    double up = 0, held = 0;
    std::uint32_t deaths = 0;
  };
  enum class State : std::uint8_t { kOff, kStarting, kUp, kDraining, kDead };
  enum class Kind : std::uint8_t { kDies, kStarts, kReady, kSlows, kLook };
  struct Event {
    Kind kind = Kind::kLook;
    std::uint32_t replica = 0;  // kLook: which of the scaled groups
    double factor = 1;          // kSlows
    std::uint64_t life = 0;     // kReady and drawn deaths: of which life; 0: of any
  };
  struct Worker {
    State state = State::kOff;
    double since = 0;  // it is in that state
    ReplicaStart start;
    std::uint64_t life = 1;
    std::uint32_t group = kNoGroup;
    Uptime before;  // this state
    CircuitBreaker breaker;
    HealthChecks health;
  };

  static constexpr std::uint32_t kNoGroup = UINT32_MAX;
  // Replicas that come and go together.
  struct Group {
    AutoscaleConfig config;
    Autoscaler scaler;
    AnswerWindow answers;
  };

  Uptime uptime(std::uint32_t replica, double end) const;
  double draw();
  void plan_death(std::uint32_t replica, double now);
  void enter(std::uint32_t replica, State state, double now);
  void start(std::uint32_t replica, double now, ElasticServers& servers);
  void look(Group& group, double now, ElasticServers& servers);
  // What the replicas of a group come to, `ready` of which serve.
  double sum_of(Group& group, double now, std::uint32_t ready, const ElasticServers& servers) const;
  void scale_down(std::uint32_t replica, double now, const ElasticServers& servers);
  std::uint32_t count(State state) const { return count(state, workers_); }
  static std::uint32_t count(State state, std::span<const Worker> workers);
  std::span<const Worker> workers_of(const Group& group) const;

  const ElasticConfig config_;
  std::vector<Group> groups_;
  std::vector<Worker> workers_;
  std::multimap<double, Event> events_;  // equal times in the order of their coming
  std::vector<std::uint32_t> available_;
  std::uint64_t draws_ = 0;
  std::uint32_t most_up_ = 0;
  std::uint64_t retries_ = 0, lost_in_flight_ = 0, lost_unreached_ = 0, refused_ = 0;
};

}  // namespace tpsim::scheduler
