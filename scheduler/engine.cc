#include "scheduler/engine.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "proto/base/stop_flag.h"
#include "proto/report.pb.h"
#include "scheduler/config.h"
#include "scheduler/disaggregation/kv_link.h"
#include "scheduler/load.h"
#include "scheduler/metrics.h"
#include "scheduler/records.h"
#include "scheduler/replica.h"
#include "scheduler/req.h"
#include "scheduler/router/router.h"

namespace tpsim::scheduler {
namespace {

// `time`: when its client saw its end.
RequestRecord record_of(const Req& req, RequestState state, double time) {
  RequestRecord record;
  record.id = req.id;
  record.state = state;
  record.session = req.source->session;
  record.input_tokens = req.input_len;
  record.output_tokens = req.output_len;
  record.cached_tokens = req.cached_tokens;
  record.cached_host = req.cached_host;
  record.cached_storage = req.cached_storage;
  record.retractions = req.retractions;
  record.images = static_cast<std::uint32_t>(req.source->images.size());
  for (const ImageInput& image : req.source->images) record.image_tokens += image.tokens;
  record.arrival_time = req.arrival_time;
  record.first_scheduled_time = req.first_scheduled_time;
  record.first_token_time = req.first_token_time;  // as its client saw it
  record.finish_time = time;
  record.interruptions = req.interruptions;
  record.output_ids = req.output_ids;
  record.prompt_logits = req.prompt_logits;
  return record;
}

std::uint32_t size_of(const Fleet& fleet) {
  return static_cast<std::uint32_t>(fleet.servers.size() + fleet.decode.size());
}

void write_speculation(const SpeculationConfig& config, const std::vector<std::uint64_t>& accepted,
                       proto::RunReport& report) {
  proto::Speculation& out = *report.mutable_speculation();
  out.set_num_steps(config.num_steps);
  out.set_eagle_topk(config.topk);
  out.set_num_draft_tokens(config.num_draft_tokens);
  double steps = 0, tokens = 0;
  for (std::size_t i = 0; i < accepted.size(); ++i) {
    steps += static_cast<double>(accepted[i]);
    tokens += static_cast<double>(accepted[i] * (i + 1));
  }
  if (steps == 0) return;
  report.set_accept_length(tokens / steps);
  for (const std::uint64_t count : accepted)
    report.mutable_speculation()->add_accept_length_fraction(static_cast<double>(count) / steps);
}

// Adds what another replica of the same configuration did to `report`: the pools and the host's seconds of
// all.
void add_replica(const proto::RunReport& replica, proto::RunReport& report) {
  report.set_kv_pool_tokens(report.kv_pool_tokens() + replica.kv_pool_tokens());
  report.set_swa_pool_tokens(report.swa_pool_tokens() + replica.swa_pool_tokens());
  report.set_state_pool_slots(report.state_pool_slots() + replica.state_pool_slots());
  report.set_peak_states(report.peak_states() + replica.peak_states());
  report.set_state_hits(report.state_hits() + replica.state_hits());
  report.set_state_missed_tokens(report.state_missed_tokens() + replica.state_missed_tokens());
  report.set_evicted_states(report.evicted_states() + replica.evicted_states());
  report.set_host_pool_tokens(report.host_pool_tokens() + replica.host_pool_tokens());
  report.set_host_loads(report.host_loads() + replica.host_loads());
  report.set_host_loaded_tokens(report.host_loaded_tokens() + replica.host_loaded_tokens());
  report.set_host_written_tokens(report.host_written_tokens() + replica.host_written_tokens());
  report.set_host_cpu_seconds(report.host_cpu_seconds() + replica.host_cpu_seconds());
  if (!replica.has_host_seconds()) return;
  proto::HostSeconds& sum = *report.mutable_host_seconds();
  const google::protobuf::Reflection& fields = *sum.GetReflection();
  for (int i = 0; i < sum.GetDescriptor()->field_count(); ++i) {
    const google::protobuf::FieldDescriptor* field = sum.GetDescriptor()->field(i);
    fields.SetDouble(&sum, field,
                     fields.GetDouble(sum, field) + fields.GetDouble(replica.host_seconds(), field));
  }
}

// What a run leaves behind: the scheduler's part of its report, and the records of its requests and steps,
// which go to an observer as they come.
class RunRecorder {
 public:
  // All references must outlive it.
  RunRecorder(const Fleet& fleet, const LoadConfig& load, const Offered& offered, RunObserver& observer)
      : speculation_(fleet.servers.front().config->speculation),
        offered_(offered),
        observer_(observer),
        metrics_(load.goodput, fleet.servers.front().config->pipeline.staged(), size_of(fleet)),
        overload_(offered.rate, offered.last_arrival),
        first_token_seconds_(size_of(fleet) > 1 ? load.router.first_token_seconds : 0),
        of_replicas_(size_of(fleet) > 1 ? size_of(fleet) : 0) {
    for (std::uint32_t i = 0; !fleet.decode.empty() && i < of_replicas_.size(); ++i)
      of_replicas_[i].set_role(i < fleet.servers.size() ? "prefill" : "decode");
  }

  // What happens between the two is a warm-up, of which nothing is kept; nor of what schedulers counted.
  void begin_warm_up() { warming_up_ = true; }
  void end_warm_up(std::uint32_t replica, const DataParallelGroup& schedulers) {
    warming_up_ = false;
    warmup_retractions_ += schedulers.retractions();
    warmup_evicted_tokens_ += schedulers.evicted_tokens();
    if (of_replicas_.empty()) return;
    of_replicas_[replica].set_retractions(schedulers.retractions());
    of_replicas_[replica].set_evicted_tokens(schedulers.evicted_tokens());
  }
  bool warming_up() const { return warming_up_; }

  // As ReplicaEvents has them.
  void on_inter_token(double gap, std::uint32_t count) {
    if (!warming_up_) metrics_.on_inter_token(gap, count);
  }
  void on_step(const StepRecord& record, double gpu_seconds) {
    if (warming_up_) return;
    metrics_.on_step(record, gpu_seconds);
    if (!of_replicas_.empty()) {
      proto::ReplicaReport& replica = of_replicas_[record.replica];
      replica.set_steps(replica.steps() + 1);
      replica.set_busy_seconds(replica.busy_seconds() + gpu_seconds);
      replica.set_peak_kv_usage(std::max(replica.peak_kv_usage(), record.pools[kvcache::kKvPool].usage()));
    }
    observer_.on_step(record);
  }
  // `prefiller`: which prefilled it, where that was another one.
  void on_finished(const Req& req, RequestState state, double time, std::uint32_t replica,
                   std::optional<std::uint32_t> prefiller) {
    if (warming_up_) return;
    RequestRecord record = record_of(req, state, time);
    record.replica = replica;
    record.prefill_replica = prefiller;
    if (record.first_token_time > 0)
      record.first_token_time = std::min(record.first_token_time + first_token_seconds_, time);
    metrics_.on_request(record);
    if (!of_replicas_.empty()) {
      proto::ReplicaReport& of_replica = of_replicas_[replica];
      proto::ReplicaReport& of_prefiller = of_replicas_[prefiller.value_or(replica)];
      of_replica.set_requests(of_replica.requests() + 1);
      if (prefiller) of_prefiller.set_requests(of_prefiller.requests() + 1);
      if (state == RequestState::kCompleted) {
        of_prefiller.set_input_tokens(of_prefiller.input_tokens() + record.input_tokens);
        of_replica.set_output_tokens(of_replica.output_tokens() + record.output_tokens);
        of_prefiller.set_cached_tokens(of_prefiller.cached_tokens() + record.cached_tokens);
      }
    }
    if (state != RequestState::kUnfinished) overload_.on_request(record);
    observer_.on_request(record);
  }

  // At `time`, of `total` requests.
  Progress progress(double time, std::uint64_t total) const {
    return {time, metrics_.finished(), total, metrics_.steps()};
  }
  // Of all that was recorded. `stopped_early`: requests that `replicas` still have are recorded as
  // unfinished. Nothing may be recorded afterwards. REQUIRES: at least one replica.
  proto::RunReport report(const std::vector<const Replica*>& replicas, bool stopped_early) {
    proto::RunReport report;
    report.set_stopped_early(stopped_early);
    std::vector<std::uint64_t> accepted;
    double end = 0;
    for (std::uint32_t i = 0; i < replicas.size(); ++i) {
      const DataParallelGroup& schedulers = replicas[i]->schedulers();
      // What is prefilled elsewhere is the decode server's, too.
      if (stopped_early && (of_replicas_.empty() || of_replicas_[i].role() != "prefill"))
        for (const Req* req : schedulers.unfinished())
          on_finished(*req, RequestState::kUnfinished, 0, i, std::nullopt);
      report.set_retractions(report.retractions() + schedulers.retractions());
      report.set_evicted_tokens(report.evicted_tokens() + schedulers.evicted_tokens());
      proto::RunReport of_replica;
      replicas[i]->write_report(of_replica);
      if (i == 0) {
        report.MergeFrom(of_replica);
      } else {
        add_replica(of_replica, report);
      }
      end = std::max(end, replicas[i]->now());
      if (!of_replicas_.empty()) {
        of_replicas_[i].set_replica(i);
        of_replicas_[i].set_kv_pool_tokens(of_replica.kv_pool_tokens());
        of_replicas_[i].set_swa_pool_tokens(of_replica.swa_pool_tokens());
        of_replicas_[i].set_retractions(schedulers.retractions() - of_replicas_[i].retractions());
        of_replicas_[i].set_evicted_tokens(schedulers.evicted_tokens() - of_replicas_[i].evicted_tokens());
      }
      const std::vector<std::uint64_t> histogram = schedulers.accept_histogram();
      accepted.resize(std::max(accepted.size(), histogram.size()));
      for (std::size_t k = 0; k < histogram.size(); ++k) accepted[k] += histogram[k];
    }
    report.set_retractions(report.retractions() - warmup_retractions_);
    report.set_evicted_tokens(report.evicted_tokens() - warmup_evicted_tokens_);
    for (proto::ReplicaReport& replica : of_replicas_) *report.add_replicas() = std::move(replica);
    if (speculation_.enabled()) write_speculation(speculation_, accepted, report);
    metrics_.write(end, report);
    if (!stopped_early) overload_.write(offered_, report);
    return report;
  }

  auto state() { return std::tie(metrics_, overload_, warmup_retractions_, warmup_evicted_tokens_); }

 private:
  const SpeculationConfig& speculation_;
  const Offered& offered_;
  RunObserver& observer_;
  RunMetrics metrics_;
  OverloadWatch overload_;
  const double first_token_seconds_;
  std::uint64_t warmup_retractions_ = 0;
  std::uint64_t warmup_evicted_tokens_ = 0;
  std::vector<proto::ReplicaReport> of_replicas_;  // where there are several
  bool warming_up_ = false;
};

// When each replica has something to do, and which is the first: the winner of a knockout, the lower number
// where two are equal. A change costs the logarithm of their number.
class DueTimes {
 public:
  // REQUIRES: replicas > 0.
  explicit DueTimes(std::size_t replicas)
      : leaves_(std::bit_ceil(replicas)), times_(leaves_, RequestSource::kNever), winners_(2 * leaves_) {
    for (std::uint32_t i = 0; i < leaves_; ++i) winners_[leaves_ + i] = i;
    for (std::size_t i = leaves_; i-- > 1;) winners_[i] = winners_[2 * i];
  }
  void set(std::uint32_t replica, double time) {
    times_[replica] = time;
    for (std::size_t i = (leaves_ + replica) / 2; i > 0; i /= 2) {
      const std::uint32_t left = winners_[2 * i], right = winners_[2 * i + 1];
      winners_[i] = times_[right] < times_[left] ? right : left;
    }
  }
  std::uint32_t first() const { return winners_[1]; }
  double time() const { return times_[first()]; }

 private:
  const std::size_t leaves_;
  std::vector<double> times_;
  std::vector<std::uint32_t> winners_;  // of each match, the final at 1; the replicas behind
};

// Replicas, one source, the virtual clock: whichever comes first happens first.
class Run {
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
        in_flight_(size_of(fleet)),
        due_(size_of(fleet)),
        recorder_(fleet, load, load_.offered(), observer) {
    for (const std::vector<FleetServer>* servers : {&fleet.servers, &fleet.decode})
      for (const FleetServer& server : *servers)
        workers_.push_back(std::make_unique<Worker>(
            *this, static_cast<std::uint32_t>(workers_.size()), *server.config,
            server.front_end ? *server.front_end : load.front_end, *server.executor));
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
      stopped_ = true;  // whoever made the executor knows why
    }
    const StopFlag::Writing results;  // a long run has millions of samples to sort
    std::vector<const Replica*> replicas;
    for (const auto& worker : workers_) replicas.push_back(&worker->replica);
    proto::RunReport report = recorder_.report(replicas, stopped_);
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
      return run.workers_[first + replica]->replica.schedulers().load();
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
        : run(run), number(number), replica(config, front_end, executor, *this) {}

    bool more_to_come() const override { return run.source_->next_time() != RequestSource::kNever; }
    void on_inter_token(double gap, std::uint32_t count) override {
      run.recorder_.on_inter_token(gap, count);
    }
    void on_step(const StepRecord& step, double gpu_seconds, bool computed) override {
      StepRecord record = step;
      record.replica = number;
      run.on_step(record, gpu_seconds, computed, replica.now());
    }
    void on_finished(const Req& req, RequestState state, const char* because, double time) override {
      run.on_finished(req, state, because, time, number);
    }
    void on_kv_message(const KvMessage& message) override { run.on_kv_message(message); }

    Run& run;
    const std::uint32_t number;
    Replica replica;
  };

  void on_step(const StepRecord& record, double gpu_seconds, bool computed, double now) {
    recorder_.on_step(record, gpu_seconds);
    // Priced steps take microseconds; computed ones are long enough to look up after each.
    constexpr std::uint64_t kProgressEvery = 512;
    if (record.sequence_number % kProgressEvery != 0 && !computed) return;
    if (!observer_.on_progress(recorder_.progress(now, load_.size()))) stopped_ = true;
  }

  void on_finished(const Req& req, RequestState state, const char* because, double time,
                   std::uint32_t worker) {
    if (because != nullptr) {
      spdlog::debug("request {} of {} + {} tokens is refused: {}", req.id, req.input_len,
                    req.source->max_new_tokens, because);
    }
    std::optional<std::uint32_t> prefiller;
    if (const auto split = split_.find(req.id); split != split_.end()) {
      if (worker == split->second.prefill) {
        // Its clients wait for the decode server.
        if (state != RequestState::kRejected) return;
        const std::uint32_t decoder = split->second.decode;
        replica(decoder).prefill_refused(req.id, time);
        look_again(decoder);
        return;
      }
      prefiller = split->second.prefill;
      --in_flight_[*prefiller];
      split_.erase(split);
    } else if (links_ && worker < servers_.size) {
      return;  // noticed later than the answer's end
    }
    source_->on_finished(req.id, time);
    --in_flight_[worker];
    recorder_.on_finished(req, state, time, worker, prefiller);
  }

  Replica& replica(std::uint32_t worker) { return workers_[worker]->replica; }
  void look_again(std::uint32_t worker) { due_.set(worker, replica(worker).next_event_time()); }

  // Prefill and decode servers get a request at the same time, as from SGLang's router, and find each other.
  void send(const RequestSource::Sent& sent) {
    const std::uint32_t worker = servers_.choose(sent);
    ++in_flight_[worker];
    if (!links_) {
      replica(worker).submit(sent);
      look_again(worker);
      return;
    }
    const std::uint32_t decoder = decoders_->choose(sent);
    ++in_flight_[decoder];
    split_[sent.id] = {worker, decoder};
    for (const std::uint32_t side : {worker, decoder}) {
      if (const char* because = replica(side).side().refusal(*sent.request)) {
        on_finished(unserved(sent), RequestState::kRejected, because, sent.time, decoder);
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
    if (message.kind == KvMessage::Kind::kChunk) return;
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
    for (std::uint32_t i = 0; i < workers_.size(); ++i) due_.set(i, workers_[i]->replica.next_event_time());
    while (!stopped_ && std::min(source.next_time(), due_.time()) != RequestSource::kNever) {
      if (source.next_time() <= due_.time()) {
        const RequestSource::Sent sent = source.pop();
        early += sent.early ? 1 : 0;
        send(sent);
      } else {
        const std::uint32_t worker = due_.first();
        replica(worker).advance();
        look_again(worker);
      }
      if (checkpoints != nullptr && checkpoints->due()) save();
    }
    // Who stopped it may want to go on later.
    if (stopped_ && checkpoints != nullptr) save();
  }

  // What a resumed run goes on with. REQUIRES: not between warm-up and run; one replica.
  auto state() { return std::tie(load_, workers_.front()->replica, recorder_, early_turns_); }

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
    constexpr std::uint32_t kMostTokens = 32;
    const auto shortened = [](WorkloadRequest request, std::uint32_t tokens) {
      request.session = 0;
      request.max_new_tokens = std::min(request.max_new_tokens, tokens);
      // An answer may end earlier by itself.
      if (request.output.size() > request.max_new_tokens) request.output.truncate(request.max_new_tokens);
      return request;
    };
    Workload before;
    const auto next = workload_.read();
    for (const std::uint32_t tokens : offer_.prompts_before) {
      const std::shared_ptr<const WorkloadRequest> request = next();
      if (request == nullptr) break;
      before.requests.push_back(shortened(*request, 1));
      if (before.requests.back().prompt.size() > tokens) before.requests.back().prompt.truncate(tokens);
    }
    before.requests.insert(before.requests.end(), offer_.warmup_requests,
                           shortened(*workload_.read()(), kMostTokens));
    LoadConfig at_once;
    at_once.max_concurrency = offer_.max_concurrency;
    const WorkloadView at_once_only(before);
    LoadGenerator load(at_once, at_once_only);
    recorder_.begin_warm_up();
    std::uint64_t early = 0;
    serve(load, early);
    if (stopped_) return;
    for (const auto& worker : workers_) {
      if (offer_.flush_cache) worker->replica.flush_cache();
      recorder_.end_warm_up(worker->number, worker->replica.schedulers());
      worker->replica.restart_clock();
    }
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
  std::vector<std::uint64_t> in_flight_;
  DueTimes due_;
  RunRecorder recorder_;
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
