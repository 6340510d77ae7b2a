#include "scheduler/engine.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "proto/base/archive.h"
#include "proto/base/stop_flag.h"
#include "proto/report.pb.h"
#include "scheduler/config.h"
#include "scheduler/crew.h"
#include "scheduler/disaggregation/kv_link.h"
#include "scheduler/due_times.h"
#include "scheduler/elastic/elastic.h"
#include "scheduler/fleet.h"
#include "scheduler/flights.h"
#include "scheduler/load.h"
#include "scheduler/peers.h"
#include "scheduler/records.h"
#include "scheduler/replica.h"
#include "scheduler/req.h"
#include "scheduler/router/router.h"
#include "scheduler/run_recorder.h"
#include "scheduler/slowable_executor.h"
#include "scheduler/told.h"
#include "scheduler/warm_up.h"

namespace tpsim::scheduler {
namespace {

// Replicas, one source, the virtual clock: whichever comes first happens first. Where nothing that replicas
// do decides which request comes next, nor where it is sent, threads and processes run them side by side up
// to the next request for which the router looks at them, and what they tell is told in the order of a single
// thread.
class Run final : ElasticServers, RunListener {
 public:
  Run(const Fleet& fleet, const LoadConfig& load, const StreamedWorkload& workload, RunObserver& observer,
      Checkpoints* checkpoints)
      : offer_(load),
        workload_(workload),
        observer_(observer),
        checkpoints_(checkpoints),
        load_(load, workload),
        source_(&load_),
        servers_(*this, load.router, 0, static_cast<std::uint32_t>(fleet.servers.size())),
        in_flight_(fleet.size()),
        due_(fleet.size()),
        recorder_(fleet, load, load_.offered(), observer),
        peers_(fleet.peers),
        ahead_((fleet.threads > 1 || peers_ != nullptr) && fleet.servers.size() > 1 && fleet.decode.empty() &&
               comes_by_itself(load, workload.outline())) {
    for (const std::vector<FleetServer>* servers : {&fleet.servers, &fleet.decode})
      for (const FleetServer& server : *servers)
        workers_.push_back(std::make_unique<Worker>(
            *this, static_cast<std::uint32_t>(workers_.size()), *server.config,
            server.front_end ? *server.front_end : load.front_end, *server.executor));
    if (load.elastic.enabled()) {
      std::vector<ReplicaStart> starts;
      for (const FleetServer& server : fleet.servers) starts.push_back(server.start);
      elastic_.emplace(load.elastic, starts);
    }
    for (const auto& worker : workers_) {
      if (!mine(worker->number)) continue;
      own_.push_back(worker.get());
      worker->thread = fleet.thread_of(worker->number);
    }
    if (ahead_ && fleet.threads > 1) crew_.emplace(std::min(fleet.threads, fleet.size()));
    if (fleet.decode.empty()) return;
    decoders_.emplace(*this, load.decode_router, servers_.size,
                      static_cast<std::uint32_t>(fleet.decode.size()));
    links_.emplace(fleet.link, fleet.servers.size(), fleet.decode.size());
  }

  proto::RunReport run() {
    try {
      if (!resume() && (offer_.warmup_requests > 0 || !offer_.prompts_before.empty())) warm_up();
      if (!stopped_) serve(load_, early_turns_);
    } catch (const ExecutorLost&) {
      if (peers_ != nullptr) throw;  // what the others have of the run is gone
      stopped_ = true;               // whoever made the executor knows why
    }
    const StopFlag::Writing results;  // a long run has millions of samples to sort
    if (stopped_) record_unfinished();
    const bool stopped = stopped_;
    proto::RunReport report = recorder_.report(figures(), stopped);
    if (elastic_) elastic_->write(last_event_, report);
    if (load_.turns() > 0) {
      report.set_session_mode(offer_.session_mode == SessionMode::kClosed ? "closed" : "timestamps");
      report.set_turns(load_.turns());
      report.set_early_turns(early_turns_);
    }
    return report;
  }

 private:
  // Servers of one kind, and who chooses among them.
  struct Group final : RoutedReplicas {
    Group(const Run& run, const RouterConfig& config, std::uint32_t first, std::uint32_t size)
        : run(run), first(first), size(size), router(size > 1 ? make_router(config, size) : nullptr) {}

    std::span<const std::uint64_t> in_flight() const override {
      return std::span(run.in_flight_).subspan(first, size);
    }
    Load load(std::size_t replica) const override {
      const Worker& worker = *run.workers_[first + replica];
      return run.mine(worker.number) ? worker.replica->schedulers().load() : worker.load;
    }
    std::span<const std::uint32_t> available() const override {
      return run.elastic_ ? run.elastic_->available() : std::span<const std::uint32_t>();
    }
    std::uint32_t choose(const RequestSource::Sent& sent) const {
      if (router == nullptr) return first;
      return first + static_cast<std::uint32_t>(router->choose(*sent.request, sent.time, *this));
    }
    void restart_clock() const {
      if (router != nullptr) router->restart_clock();
    }

    const Run& run;
    const std::uint32_t first, size;
    const std::unique_ptr<Router> router;  // null: there is no choice
  };

  // A replica, and what it tells.
  struct Worker final : ReplicaEvents {
    Worker(Run& run, std::uint32_t number, const SchedulerConfig& config, const FrontEndConfig& front_end,
           Executor& executor)
        : run(run), number(number), config(config), front_end(front_end), executor(executor) {
      begin_anew();
    }
    void begin_anew() { replica.emplace(config, front_end, executor, *this); }

    bool more_to_come() const override {
      if (run.routed_until_) return now < *run.routed_until_;
      return std::min(run.source_->next_time(), run.flights_.next_time()) != RequestSource::kNever;
    }
    void on_inter_token(double gap, std::uint32_t count) override { listener->on_inter_token(gap, count); }
    void on_step(const StepRecord& step, double gpu_seconds, bool computed) override {
      StepRecord record = step;
      record.replica = number;
      listener->on_step(record, gpu_seconds, computed, replica->now());
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

    Run& run;
    const std::uint32_t number;
    const SchedulerConfig& config;
    const FrontEndConfig& front_end;
    SlowableExecutor executor;
    std::optional<Replica> replica;  // always one; another one after it died or was off
    RunListener* listener = &run;
    double now = 0;  // of the round
    // Where it runs ahead: positions in Run::routed_, and what is to be told.
    std::vector<std::size_t> routed;
    Told told;
    std::uint32_t thread = 0;
    RoutedReplicas::Load load;  // of another process's, when the router looked last
  };

  void on_inter_token(double gap, std::uint32_t count) override {
    if (records()) recorder_.on_inter_token(gap, count);
  }
  void on_step(const StepRecord& record, double gpu_seconds, bool computed, double now) override {
    if (!records()) return;
    recorder_.on_step(record, gpu_seconds);
    // Priced steps take microseconds; computed ones are long enough to look up after each.
    constexpr std::uint64_t kProgressEvery = 512;
    if (record.sequence_number % kProgressEvery != 0 && !computed) return;
    if (!observer_.on_progress(recorder_.progress(now, load_.size()))) (peers_ ? asked_ : stopped_) = true;
  }

  void on_finished(const RequestRecord& of_server, const char* because) override {
    RequestRecord record = of_server;
    const std::uint32_t worker = record.replica;
    if (because != nullptr)
      spdlog::debug("request {} of {} tokens is refused: {}", record.id, record.input_tokens, because);
    if (const auto split = split_.find(record.id); split != split_.end()) {
      if (worker == split->second.prefill) {
        // Its clients wait for the decode server.
        if (record.state != RequestState::kRejected) return;
        const std::uint32_t decoder = split->second.decode;
        replica(decoder).prefill_refused(record.id, record.finish_time);
        look_again(decoder);
        return;
      }
      record.prefill_replica = split->second.prefill;
      --in_flight_[*record.prefill_replica];
      split_.erase(split);
    } else if (links_ && worker < servers_.size) {
      return;  // noticed later than the answer's end
    }
    source_->on_finished(record.id, record.finish_time);
    --in_flight_[worker];
    if (elastic()) record.arrival_time = flights_.at(record.id).first.time;
    if (records()) recorder_.on_finished(record);
    if (!elastic()) return;
    flights_.erase(record.id);
    if (record.state == RequestState::kCompleted) elastic_->on_success(worker, record.finish_time);
    if (in_flight_[worker] == 0) elastic_->on_idle(worker, record.finish_time);
  }

  // Whether replicas may die, come and go now.
  bool elastic() const { return elastic_.has_value() && !recorder_.warming_up(); }

  // The router tries to send a request at `now`.
  void attempt(Flights::Flight& flight, double now) {
    RequestSource::Sent sent = flight.first;
    sent.time = now;
    if (elastic_->look_for_available(now).empty()) {
      try_again(flight, now);
      return;
    }
    flight.replica = servers_.choose(sent);
    if (!elastic_->alive(flight.replica)) {
      elastic_->on_failure(flight.replica, now);
      try_again(flight, now);
      return;
    }
    observer_.on_routed({sent.id, now, flight.replica, std::nullopt, in_flight_});
    ++in_flight_[flight.replica];
    replica(flight.replica).submit(sent);
    look_again(flight.replica);
  }

  void try_again(Flights::Flight& flight, double now) {
    if (const std::optional<double> pause = elastic_->backoff(++flight.failed)) {
      flights_.wait_until(now + *pause, flight.first.id);
    } else {
      lose(unserved(flight.first), now, /*begun=*/false);
    }
  }

  // Its client gets an error.
  void lose(const Req& req, double time, bool begun) {
    const Flights::Flight flight = flights_.at(req.id);
    flights_.erase(req.id);
    elastic_->on_lost(begun);
    RequestRecord record = record_of(req, RequestState::kFailed, time, flight.replica);
    record.arrival_time = flight.first.time;
    recorder_.on_finished(record);
    source_->on_finished(req.id, time);
  }

  // The round that was under way is the last. An answer that had begun for its client is lost, other requests
  // are tried again.
  void on_death(std::uint32_t worker, double time) override {
    const double now = std::max(time, replica(worker).now());
    for (const Req* req : replica(worker).schedulers().unfinished())
      if (req->first_token_time > 0 && req->first_token_time <= now) lose(*req, now, /*begun=*/true);
    const std::vector<std::uint64_t> unanswered = flights_.with(worker);
    in_flight_[worker] = 0;
    begin_anew(worker);
    for (const std::uint64_t id : unanswered) {
      elastic_->on_failure(worker, now);
      try_again(flights_.at(id), now);
    }
  }
  void on_start(std::uint32_t worker) override { begin_anew(worker); }
  void begin_anew(std::uint32_t worker) {
    recorder_.retire(worker, replica(worker));
    workers_[worker]->executor.restart();
    workers_[worker]->begin_anew();
    look_again(worker);
  }
  void set_slowdown(std::uint32_t worker, double factor) override {
    workers_[worker]->executor.set_factor(factor);
  }
  double metric(std::uint32_t worker, AutoscaleMetric metric) const override {
    if (metric == AutoscaleMetric::kQueue) return static_cast<double>(in_flight_[worker]);
    return workers_[worker]->replica->schedulers().totals().pools[kvcache::kKvPool].usage();
  }
  bool busy(std::uint32_t worker) const override { return in_flight_[worker] > 0; }

  Replica& replica(std::uint32_t worker) { return *workers_[worker]->replica; }
  void look_again(std::uint32_t worker) { due_.set(worker, replica(worker).next_event_time()); }

  // Prefill and decode servers get a request at the same time, as from SGLang's router, and find each other.
  void send(const RequestSource::Sent& sent) {
    if (elastic()) {
      attempt(flights_.add(sent), sent.time);
      return;
    }
    if (elastic_) elastic_->look_for_available(0);
    const std::uint32_t worker = servers_.choose(sent);
    std::optional<std::uint32_t> decodes;
    if (links_) decodes = decoders_->choose(sent);
    if (workers_.size() > 1 && !recorder_.warming_up())
      observer_.on_routed({sent.id, sent.time, worker, decodes, in_flight_});
    ++in_flight_[worker];
    if (!decodes) {
      replica(worker).submit(sent);
      look_again(worker);
      return;
    }
    const std::uint32_t decoder = *decodes;
    ++in_flight_[decoder];
    split_[sent.id] = {worker, decoder};
    for (const std::uint32_t side : {worker, decoder}) {
      if (const char* because = replica(side).side().refusal(*sent.request)) {
        on_finished(record_of(unserved(sent), RequestState::kRejected, sent.time, decoder), because);
        return;
      }
    }
    for (const std::uint32_t side : {worker, decoder}) {
      replica(side).submit(sent);
      look_again(side);
    }
  }

  void on_kv_message(const KvMessage& message) {
    const Split& split = split_.at(message.req->id);
    if (message.kind == KvMessage::Kind::kPages) {
      replica(split.prefill)
          .side()
          .on_pages(message.req->id, message.time + links_->config().page_list_seconds);
      look_again(split.prefill);
      return;
    }
    const double done =
        links_->send(split.prefill, split.decode - servers_.size, message.time, message.tokens, message.runs);
    const bool last = message.kind == KvMessage::Kind::kLast;
    if (!recorder_.warming_up())
      observer_.on_kv_sent({message.req->id, split.prefill, split.decode, message.time, done, message.tokens,
                            last, message.req->arrival_time, message.req->first_scheduled_time});
    if (!last) return;
    KvTransfer prefilled;
    prefilled.cached_tokens = message.req->cached_tokens;
    prefilled.first_scheduled_time = message.req->first_scheduled_time;
    replica(split.prefill).side().on_kv(message.req->id, done, prefilled);
    replica(split.decode).side().on_kv(message.req->id, done + links_->config().notice_seconds, prefilled);
    look_again(split.decode);
  }

  // Places the requests of a source on the replicas, event by event: requests come before the round of a
  // scheduler at the same time. `early`: is counted up by those that were sent before the answer that they
  // reply to had ended.
  void serve(RequestSource& source, std::uint64_t& early) {
    source_ = &source;
    Checkpoints* const checkpoints = recorder_.warming_up() ? nullptr : checkpoints_;
    for (std::uint32_t i = 0; i < workers_.size(); ++i) look_again(i);
    tell_all(
        own_, [this](const Worker& worker, StateWriter& out) { out(due_.time_of(worker.number)); },
        [this](const Worker& worker, StateReader& in) {
          double due = 0;
          in(due);
          due_.set(worker.number, due);
        });
    if (ahead_) {
      serve_ahead(source);
      return;
    }
    while (!stopped_) {
      const double next = std::min({source.next_time(), flights_.next_time(), due_.time()});
      if (next == RequestSource::kNever) break;
      if (elastic() && elastic_->next_time() <= next) {
        elastic_->advance(*this);
        continue;
      }
      last_event_ = next;
      if (flights_.next_time() == next) {
        attempt(flights_.pop(), next);
      } else if (source.next_time() <= due_.time()) {
        const RequestSource::Sent sent = source.pop();
        early += sent.early ? 1 : 0;
        send(sent);
      } else {
        advance_first();
      }
      if (checkpoints != nullptr && checkpoints->due()) save();
    }
    // Who stopped it may want to go on later.
    if (stopped_ && checkpoints != nullptr) save();
  }

  void advance_first() {
    const std::uint32_t worker = due_.first();
    workers_[worker]->advance();
    look_again(worker);
  }

  // The same where replicas run side by side.
  void serve_ahead(RequestSource& source) {
    // What is told of the requests that are routed, or of the seconds that are served, at a time is held.
    constexpr std::size_t kMost = 1024;
    constexpr double kLongest = 4;
    constexpr std::size_t kWorthIt = 16;  // of fewer, threads would wait for each other most of the time
    std::optional<RequestSource::Sent> next;
    while (!stopped_) {
      routed_.clear();
      while (routed_.size() < kMost && (next || source.next_time() != RequestSource::kNever)) {
        if (!next) next = source.pop();
        const bool ahead = !routed_.empty() || due_.time() < next->time;  // of the replicas
        if (ahead && servers_.router->looks(*next->request, next->time, servers_.in_flight())) break;
        if (!routed_.empty() && next->time > routed_.front().sent.time + kLongest) break;
        const std::uint32_t worker = servers_.choose(*next);
        ++in_flight_[worker];
        workers_[worker]->routed.push_back(routed_.size());
        routed_.push_back({worker, *std::exchange(next, std::nullopt)});
      }
      double until = next ? next->time : source.next_time();
      if (routed_.empty() && std::min(until, due_.time()) == RequestSource::kNever) break;
      routed_until_ = until != RequestSource::kNever ? until : routed_.empty() ? 0 : routed_.back().sent.time;
      const bool worth_it = routed_.size() >= kWorthIt || until == RequestSource::kNever;
      if (until == RequestSource::kNever)
        until = (routed_.empty() ? due_.time() : routed_.back().sent.time) + kLongest;
      if (peers_ != nullptr || (crew_ && worth_it)) {
        run_side_by_side(until, worth_it);
      } else {
        run_in_turn(until);
      }
      for (const Routed& request : routed_) workers_[request.worker]->routed.clear();
    }
    routed_until_.reset();
  }

  // All that happens before `until`.
  void run_in_turn(double until) {
    for (const Routed& request : routed_) {
      while (!stopped_ && due_.time() < request.sent.time) advance_first();
      if (stopped_) return;
      replica(request.worker).submit(request.sent);
      look_again(request.worker);
    }
    while (!stopped_ && due_.time() < until) advance_first();
  }
  // `by_threads`: of this process, where it has several.
  void run_side_by_side(double until, bool by_threads) {
    told_.clear();
    for (Worker* worker : own_)
      if (!worker->routed.empty() || due_.time_of(worker->number) < until) told_.push_back(worker);
    if (crew_ && by_threads) {
      crew_->run([&](std::uint32_t thread) {
        for (Worker* worker : told_)
          if (worker->thread == thread) worker->run_ahead(until);
      });
    } else {
      for (Worker* worker : told_) worker->run_ahead(until);
    }
    for (const Worker* worker : told_) look_again(worker->number);
    exchange_told();
    // Of each replica its next turn; on top the first of all.
    struct Next {
      const Told* told;
      std::size_t number = 0;
      bool operator<(const Next& other) const {
        return other.told->turns()[other.number] < told->turns()[number];
      }
    };
    std::priority_queue<Next> next;
    for (const Worker* worker : told_)
      if (!worker->told.turns().empty()) next.push({&worker->told});
    while (!next.empty()) {
      Next turn = next.top();
      next.pop();
      turn.told->tell(turn.number, *this);
      if (++turn.number < turn.told->turns().size()) next.push(turn);
    }
    for (Worker* worker : told_) worker->told.clear();
  }

  // Whether this process keeps the records of the run.
  bool records() const { return peers_ == nullptr || peers_->process() == 0; }
  // Whether this process has the replica.
  bool mine(std::uint32_t worker) const { return peers_ == nullptr || peers_->has(worker); }
  // What processes say of their replicas: `write` of each of these, `read` of those of the others, or, if
  // `own`, of all. Whoever is asked to stop says so, too.
  template <typename Write, typename Read>
  void tell_all(const std::vector<Worker*>& workers, const Write& write, const Read& read, bool own = false) {
    if (peers_ == nullptr) return;
    StateWriter out;
    out(asked_);
    for (Worker* worker : workers) {
      out(worker->number);
      write(*worker, out);
    }
    const std::vector<std::string> all = peers_->exchange(std::move(out).take());
    for (std::uint32_t process = 0; process < all.size(); ++process) {
      StateReader in(all[process]);
      bool asked = false;
      in(asked);
      stopped_ = stopped_ || asked;
      while (!in.at_end() && (own || process != peers_->process())) {
        std::uint32_t number = 0;
        in(number);
        read(*workers_.at(number), in);
      }
    }
  }
  void exchange_told() {
    const bool own = !records();  // without passes
    tell_all(
        told_,
        [&](Worker& worker, StateWriter& out) {
          out(due_.time_of(worker.number), worker.replica->schedulers().load());
          worker.told.write(/*steps=*/own, out);
          if (own) worker.told.clear();
        },
        [&](Worker& worker, StateReader& in) {
          double due = 0;
          in(due, worker.load);
          worker.told.read(/*steps=*/!own, in);
          due_.set(worker.number, due);
          if (!mine(worker.number)) told_.push_back(&worker);
        },
        own);
  }
  std::vector<ReplicaFigures> figures() {
    std::vector<ReplicaFigures> figures(workers_.size());
    for (const Worker* worker : own_) figures[worker->number] = figures_of(*worker->replica);
    tell_all(
        own_, [&](const Worker& worker, StateWriter& out) { out(figures[worker.number]); },
        [&](const Worker& worker, StateReader& in) { in(figures[worker.number]); });
    return figures;
  }
  void record_unfinished() {
    for (const auto& worker : workers_) worker->told.clear();
    for (Worker* worker : own_) {
      // What is prefilled elsewhere is the decode server's, too.
      if (links_ && worker->number < servers_.size) continue;
      worker->told.begin(0, /*round=*/false, 0);
      for (const Req* req : worker->replica->schedulers().unfinished())
        worker->told.on_finished(record_of(*req, RequestState::kUnfinished, 0, worker->number), nullptr);
    }
    tell_all(
        own_, [](const Worker& worker, StateWriter& out) { worker.told.write(/*steps=*/false, out); },
        [](Worker& worker, StateReader& in) { worker.told.read(/*steps=*/false, in); });
    struct Unfinished final : RunListener {
      explicit Unfinished(RunRecorder& recorder) : recorder(recorder) {}
      void on_inter_token(double, std::uint32_t) override {}
      void on_step(const StepRecord&, double, bool, double) override {}
      void on_finished(const RequestRecord& record, const char*) override { recorder.on_finished(record); }
      RunRecorder& recorder;
    } unfinished(recorder_);
    for (const auto& worker : workers_)
      if (!worker->told.turns().empty()) worker->told.tell(0, unfinished);
  }

  // What a resumed run goes on with. REQUIRES: not between warm-up and run; one replica.
  auto state() { return std::tie(load_, *workers_.front()->replica, recorder_, early_turns_); }

  void save() {
    checkpoints_->save([this](StateWriter& out) { std::apply(out, state()); });
  }

  // Whether the run goes on from a checkpoint.
  bool resume() {
    if (checkpoints_ == nullptr || checkpoints_->resumed().empty()) return false;
    StateReader in(checkpoints_->resumed());
    std::apply(in, state());
    checkpoints_->read_rest(in);
    return true;
  }

  // As SGLang's serving benchmark warms a server up, at once but within the places of the run.
  void warm_up() {
    const Workload before = warm_up_workload(offer_, workload_);
    LoadConfig at_once;
    at_once.max_concurrency = offer_.max_concurrency;
    const WorkloadView at_once_only(before);
    LoadGenerator load(at_once, at_once_only);
    recorder_.begin_warm_up();
    std::uint64_t early = 0;
    serve(load, early);
    if (stopped_) return;
    for (const auto& worker : workers_)
      if (offer_.flush_cache) worker->replica->flush_cache();
    recorder_.end_warm_up(figures());
    for (const auto& worker : workers_) worker->replica->restart_clock();
    servers_.restart_clock();
    if (!links_) return;
    decoders_->restart_clock();
    links_->restart_clock();
  }

  const LoadConfig& offer_;
  const StreamedWorkload& workload_;
  RunObserver& observer_;
  Checkpoints* const checkpoints_;
  LoadGenerator load_;
  RequestSource* source_;  // that is served now
  std::vector<std::unique_ptr<Worker>> workers_;
  const Group servers_;
  std::optional<Group> decoders_;  // where prefill and decode are split, as are the links between them
  std::optional<KvLinks> links_;
  // Of each request that is split, until its answer's end.
  struct Split {
    std::uint32_t prefill = 0, decode = 0;
  };
  std::unordered_map<std::uint64_t, Split> split_;
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
  std::vector<std::uint64_t> in_flight_;
  DueTimes due_;
  RunRecorder recorder_;
  Peers* const peers_;
  const bool ahead_;
  bool asked_ = false;              // to stop, in this process of several
  std::optional<Elastic> elastic_;  // where replicas die, come and go
  Flights flights_;                 // then
  double last_event_ = 0;
  std::uint64_t early_turns_ = 0;
  bool stopped_ = false;
};

}  // namespace

proto::RunReport run_workload(const Fleet& fleet, const LoadConfig& load, const StreamedWorkload& workload,
                              RunObserver& observer, Checkpoints* checkpoints) {
  return Run(fleet, load, workload, observer, checkpoints).run();
}

proto::RunReport run_workload(const SchedulerConfig& config, const LoadConfig& load,
                              const StreamedWorkload& workload, Executor& executor, RunObserver& observer,
                              Checkpoints* checkpoints) {
  return run_workload(Fleet{.servers = {{&config, &executor}}, .decode = {}, .link = {}}, load, workload,
                      observer, checkpoints);
}

}  // namespace tpsim::scheduler
