// The loop of a run (scheduler/engine.h): its state, and who does what with it. fleet_run_elastic.cc has
// replicas that die, come and go, fleet_run_ahead.cc those that run side by side, engine.cc the rest.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "proto/base/archive.h"
#include "proto/report.pb.h"
#include "scheduler/checkpoints.h"
#include "scheduler/config.h"
#include "scheduler/crew.h"
#include "scheduler/due_times.h"
#include "scheduler/elastic/elastic.h"
#include "scheduler/executor.h"
#include "scheduler/fleet.h"
#include "scheduler/flights.h"
#include "scheduler/load.h"
#include "scheduler/pairs.h"
#include "scheduler/peers.h"
#include "scheduler/records.h"
#include "scheduler/replica.h"
#include "scheduler/req.h"
#include "scheduler/request_source.h"
#include "scheduler/router/in_flight.h"
#include "scheduler/router/router.h"
#include "scheduler/run_recorder.h"
#include "scheduler/slowable_executor.h"
#include "scheduler/told.h"
#include "scheduler/workload/workload.h"

namespace tpsim::scheduler {

// Replicas, one source, the virtual clock: whichever comes first happens first. Where nothing that replicas
// do decides which request comes next, nor where it is sent, threads and processes run them side by side up
// to the next request for which the router looks at them, and what they tell is told in the order of a single
// thread.
class FleetRun final : ElasticServers, RunListener {
 public:
  FleetRun(const Fleet& fleet, const LoadConfig& load, const StreamedWorkload& workload,
           RunObserver& observer, Checkpoints* checkpoints);

  proto::RunReport run();

 private:
  // Servers of one kind, and who chooses among them.
  struct Group final : RoutedReplicas {
    Group(const FleetRun& run, const RouterConfig& config, std::uint32_t first, std::uint32_t size)
        : run(run), first(first), size(size), router(size > 1 ? make_router(config, size) : nullptr) {}

    std::span<const std::uint64_t> in_flight() const override {
      return run.in_flight_.requests().subspan(first, size);
    }
    std::uint64_t sessions(std::size_t replica) const override {
      return run.in_flight_.sessions(first + replica);
    }
    Load load(std::size_t replica) const override {
      const Worker& worker = *run.workers_[first + replica];
      return run.mine(worker.number) ? worker.replica->schedulers().load() : worker.load;
    }
    std::span<const std::uint32_t> available() const override {
      if (!run.elastic_) return {};
      if (!run.pairs_) return run.elastic_->available();
      available_.clear();
      for (const std::uint32_t worker : run.elastic_->available())
        if (worker >= first && worker - first < size) available_.push_back(worker - first);
      return available_;
    }
    std::uint32_t choose(const RequestSource::Sent& sent) const {
      if (router == nullptr) return first;
      return first + static_cast<std::uint32_t>(router->choose(*sent.request, sent.time, *this));
    }
    // Whether one of the available replicas may get it.
    bool serves(const WorkloadRequest& request) const {
      const std::span<const std::uint32_t> some = available();
      return router == nullptr ? !some.empty() : router->serves(request, some);
    }
    void restart_clock() const {
      if (router != nullptr) router->restart_clock();
    }

    const FleetRun& run;
    const std::uint32_t first, size;
    const std::unique_ptr<Router> router;  // null: there is no choice

   private:
    mutable std::vector<std::uint32_t> available_;  // of pairs
  };

  // A replica, and what it tells.
  struct Worker final : ReplicaEvents {
    Worker(FleetRun& run, std::uint32_t number, const SchedulerConfig& config,
           const FrontEndConfig& front_end, Executor* inner)
        : run(run), number(number), config(config), front_end(front_end) {
      if (!run.mine(number)) return;
      executor.emplace(*inner);
      begin_anew();
    }
    void begin_anew() { replica.emplace(config, front_end, *executor, *this); }

    bool more_to_come() const override {
      if (run.routed_until_) return now < *run.routed_until_;
      return std::min(run.source_->next_time(), run.flights_.next_time()) != RequestSource::kNever;
    }
    void on_inter_token(double gap, std::uint32_t count) override {
      run.recorder_.on_inter_token(number, thread, gap, count);
    }
    void on_step(const StepRecord& step, double gpu_seconds, bool computed) override {
      StepRecord record = step;
      record.replica = number;
      run.recorder_.count_step(record, gpu_seconds);
      if (tally != nullptr && !run.recorder_.warming_up()) tally->on_step(record);
      if (run.tells_steps_ || listener == &run) listener->on_step(record, computed, replica->now());
    }
    void on_finished(const Req& req, RequestState state, const char* because, double time) override {
      listener->on_finished(record_of(req, state, time, number), because);
    }
    void on_kv_message(const KvMessage& message) override { run.on_kv_message(message); }

    void advance() {
      now = replica->next_event_time();
      replica->advance();
    }
    // Takes the requests that are routed to it, and all its rounds before `time`, by itself.
    void run_ahead(double time) {
      listener = &told;
      for (const std::size_t position : routed) {
        const RequestSource::Sent& sent = run.routed_[position].sent;
        run_alone(sent.time);
        told.begin(sent.time, /*round=*/false, position);
        replica->submit(sent);
      }
      run_alone(time);
      listener = &run;
    }
    void run_alone(double until) {
      while (replica->next_event_time() < until) {
        told.begin(replica->next_event_time(), /*round=*/true, number);
        advance();
      }
    }

    FleetRun& run;
    const std::uint32_t number;
    const SchedulerConfig& config;
    const FrontEndConfig& front_end;
    // Of this process; another replica after it died or was off.
    std::optional<SlowableExecutor> executor;
    std::optional<Replica> replica;
    RunListener* listener = &run;
    StepTally* tally = nullptr;  // the observer's, if it has one
    double now = 0;              // of the round
    // Where it runs ahead: positions in FleetRun::routed_, and what is to be told.
    std::vector<std::size_t> routed;
    Told told;
    std::uint32_t thread = 0;
    RoutedReplicas::Load load;  // of another process's, when the router looked last
  };

  void on_step(const StepRecord& record, bool computed, double now) override;
  void on_finished(const RequestRecord& of_server, const char* because) override;

  // Whether replicas may die, come and go now.
  bool elastic() const { return elastic_.has_value() && !recorder_.warming_up(); }

  // At `now` the router lets a request through, has it wait, or refuses it.
  void admit(Flights::Flight& flight, double now);
  void refuse(Flights::Flight& flight, double now);
  // The request is over, at `time`: others may be let through.
  void land(std::uint64_t id, double time);
  // The router tries to send a request at `now`.
  void attempt(Flights::Flight& flight, double now);
  void try_again(Flights::Flight& flight, double now);
  // Its client gets an error.
  void lose(const Req& req, double time, bool begun);
  void fail(const Req& req, double time);
  // The round that was under way is the last. An answer that had begun for its client is lost, other requests
  // are tried again.
  void on_death(std::uint32_t worker, double time) override;
  void on_start(std::uint32_t worker) override { begin_anew(worker); }
  void begin_anew(std::uint32_t worker);
  void set_slowdown(std::uint32_t worker, double factor) override {
    workers_[worker]->executor->set_factor(factor);
  }
  double metric(std::uint32_t worker, AutoscaleMetric metric) const override;
  bool busy(std::uint32_t worker) const override { return in_flight_.requests()[worker] > 0; }

  Replica& replica(std::uint32_t worker) { return *workers_[worker]->replica; }
  // The first time at which some replica, of any process, has something to do.
  double next_due() const { return std::min(due_.time(), others_due_); }
  void look_again(std::uint32_t worker) { due_.set(worker, replica(worker).next_event_time()); }

  void send(const RequestSource::Sent& sent);
  // Hands it to `worker`, which the router chose. Prefill and decode servers get a request at the same time,
  // as from SGLang's router, and find each other.
  void hand_over(const RequestSource::Sent& sent, std::uint32_t worker);
  void on_kv_message(const KvMessage& message);

  // Places the requests of a source on the replicas, event by event: requests come before the round of a
  // scheduler at the same time. `early`: is counted up by those that were sent before the answer that they
  // reply to had ended.
  void serve(RequestSource& source, std::uint64_t& early);
  void advance_first() {
    const std::uint32_t worker = due_.first();
    workers_[worker]->advance();
    look_again(worker);
  }

  // The same where replicas run side by side.
  void serve_ahead(RequestSource& source);
  // All that happens before `until`.
  void run_in_turn(double until);
  // `by_threads`: of this process, where it has several.
  void run_side_by_side(double until, bool by_threads);

  // Whether this process keeps the records of the run.
  bool records() const { return peers_ == nullptr || peers_->process() == 0; }
  // Whether this process has the replica.
  bool mine(std::uint32_t worker) const { return peers_ == nullptr || peers_->has(worker); }
  // Whether only process 0 wants to know what becomes of requests.
  bool only_first_looks() const { return servers_.router != nullptr && servers_.router->never_looks(); }
  // What processes say of their replicas: `write` of each of these, `read` of those of the others, or, if
  // `own`, of all, unless only process 0 wants to know. Whoever is asked to stop says so, too, and when it
  // has something to do.
  template <typename Write, typename Read>
  void tell_all(const std::vector<Worker*>& workers, const Write& write, const Read& read, bool own = false,
                bool to_first = false);
  void share_due();                       // when replicas have something to do
  void exchange_told();                   // and what they told
  std::vector<ReplicaFigures> figures();  // empty ones of others, but in process 0
  void share_counts();                    // of passes, with process 0
  void show_progress(double now);
  void record_unfinished();

  // What a resumed run goes on with. REQUIRES: not between warm-up and run; one replica.
  auto state() { return std::tie(load_, *workers_.front()->replica, recorder_, early_turns_); }
  void save() {
    checkpoints_->save([this](StateWriter& out) { std::apply(out, state()); });
  }
  // Whether the run goes on from a checkpoint.
  bool resume();

  // As SGLang's serving benchmark warms a server up, at once but within the places of the run.
  void warm_up();

  const LoadConfig& offer_;
  const StreamedWorkload& workload_;
  RunObserver& observer_;
  Peers* const peers_;
  Checkpoints* const checkpoints_;
  LoadGenerator load_;
  RequestSource* source_;  // that is served now
  std::vector<std::unique_ptr<Worker>> workers_;
  const Group servers_;
  std::optional<Group> decoders_;  // where prefill and decode are split, as is what lies between them
  std::optional<Pairs> pairs_;
  std::unordered_map<std::uint64_t, Split> split_;  // of each request, until its answer's end
  // Where replicas run side by side: the threads of this process, replicas, requests with their replicas, and
  // when the last of these comes or, if others follow, one of them; empty: requests are sent one by one.
  struct Routed {
    std::uint32_t worker = 0;
    RequestSource::Sent sent;
  };
  std::optional<Crew> crew_;
  std::vector<Worker*> own_, told_;  // of this process; with something to tell, of all processes
  std::vector<Routed> routed_;
  std::optional<double> routed_until_;
  InFlight in_flight_;
  DueTimes due_;
  double others_due_ = RequestSource::kNever;  // as others said last
  RunRecorder recorder_;
  const bool tells_steps_;  // in the order of the run
  const bool ahead_;
  bool asked_ = false;              // to stop, in this process of several
  std::optional<Elastic> elastic_;  // where replicas die, come and go
  Flights flights_;                 // then
  std::optional<Admission> admission_;
  double last_event_ = 0;
  std::uint64_t early_turns_ = 0;
  bool stopped_ = false;
  bool said_refusal_ = false;  // by one side of a pair
};

}  // namespace tpsim::scheduler
