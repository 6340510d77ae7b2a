#include "scheduler/engine.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "proto/base/archive.h"
#include "proto/base/stop_flag.h"
#include "proto/report.pb.h"
#include "scheduler/config.h"
#include "scheduler/fleet.h"
#include "scheduler/fleet_run.h"
#include "scheduler/load.h"
#include "scheduler/records.h"
#include "scheduler/req.h"
#include "scheduler/warm_up.h"

namespace tpsim::scheduler {

FleetRun::FleetRun(const Fleet& fleet, const LoadConfig& load, const StreamedWorkload& workload,
                   RunObserver& observer, Checkpoints* checkpoints)
    : offer_(load),
      workload_(workload),
      observer_(observer),
      peers_(fleet.peers),
      checkpoints_(checkpoints),
      load_(load, workload),
      source_(&load_),
      servers_(*this, load.router, 0, static_cast<std::uint32_t>(fleet.servers.size())),
      in_flight_(fleet.size(), load.router.counts_sessions() || load.decode_router.counts_sessions()),
      due_(fleet.size()),
      recorder_(fleet, load, load_.offered(), observer),
      tells_steps_(peers_ != nullptr ? peers_->tells_steps : observer.wants_steps()),
      ahead_((fleet.threads > 1 || peers_ != nullptr || !tells_steps_) && fleet.servers.size() > 1 &&
             fleet.decode.empty() && comes_by_itself(load, workload.outline())) {
  if (records() && observer.wants_steps() && !tells_steps_)
    throw std::logic_error("the observer wants passes that no process tells");
  for (const std::vector<FleetServer>* servers : {&fleet.servers, &fleet.decode})
    for (const FleetServer& server : *servers)
      workers_.push_back(
          std::make_unique<Worker>(*this, static_cast<std::uint32_t>(workers_.size()), *server.config,
                                   server.front_end ? *server.front_end : load.front_end, server.executor));
  for (const auto& worker : workers_) worker->tally = observer.tally_of(worker->number);
  if (load.elastic.enabled()) {
    std::vector<ReplicaStart> starts;
    for (const std::vector<FleetServer>* servers : {&fleet.servers, &fleet.decode})
      for (const FleetServer& server : *servers) starts.push_back(server.start);
    elastic_.emplace(load.elastic, starts);
    if (load.elastic.admission.capacity > 0) admission_.emplace(load.elastic.admission);
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
  pairs_.emplace(fleet.link, fleet.servers, fleet.decode);
}

proto::RunReport FleetRun::run() {
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
  share_counts();
  proto::RunReport report = recorder_.report(figures(), stopped);
  if (elastic_) elastic_->write(last_event_, report);
  if (load_.turns() > 0) {
    report.set_session_mode(offer_.session_mode == SessionMode::kClosed ? "closed" : "timestamps");
    report.set_turns(load_.turns());
    report.set_early_turns(early_turns_);
  }
  return report;
}

void FleetRun::on_step(const StepRecord& record, bool computed, double now) {
  if (!records()) return;
  recorder_.on_step(record);
  // Priced steps take microseconds; computed ones are long enough to look up after each. A look asks each
  // replica.
  const std::uint64_t every = std::max<std::uint64_t>(64, workers_.size());
  if (record.sequence_number % every == 0 || computed) show_progress(now);
}

void FleetRun::show_progress(double now) {
  if (!observer_.on_progress(recorder_.progress(now, load_.size()))) (peers_ ? asked_ : stopped_) = true;
}

void FleetRun::on_finished(const RequestRecord& of_server, const char* because) {
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
    in_flight_.remove(*record.prefill_replica, record.session);
    split_.erase(split);
  } else if (pairs_ && worker < servers_.size) {
    return;  // noticed later than the answer's end
  }
  source_->on_finished(record.id, record.finish_time);
  in_flight_.remove(worker, record.session);
  if (elastic()) record.arrival_time = flights_.at(record.id).first.time;
  if (records()) recorder_.on_finished(record);
  if (!elastic()) return;
  land(record.id, record.finish_time);
  const auto tell = [&](std::uint32_t of) {
    if (record.state == RequestState::kCompleted) {
      elastic_->on_success(of, record.finish_time);
      elastic_->on_answer(of, record.finish_time, offer_.goodput.needed_by(record));
    }
    if (!busy(of)) elastic_->on_idle(of, record.finish_time);
  };
  tell(worker);
  if (record.prefill_replica) tell(*record.prefill_replica);
}

void FleetRun::send(const RequestSource::Sent& sent) {
  if (elastic()) {
    admit(flights_.add(sent), sent.time);
    return;
  }
  if (elastic_) elastic_->look_for_available(0);
  hand_over(sent, servers_.choose(sent));
}

void FleetRun::hand_over(const RequestSource::Sent& sent, std::uint32_t worker) {
  std::optional<std::uint32_t> decodes;
  if (pairs_) decodes = decoders_->choose(sent);
  if (workers_.size() > 1 && !recorder_.warming_up())
    observer_.on_routed({sent.id, sent.time, worker, decodes, in_flight_.requests()});
  in_flight_.add(worker, sent.request->session);
  if (!decodes) {
    replica(worker).submit(sent);
    look_again(worker);
    return;
  }
  const std::uint32_t decoder = *decodes;
  in_flight_.add(decoder, sent.request->session);
  split_[sent.id] = {worker, decoder};
  for (const std::uint32_t side : {worker, decoder}) {
    if (const char* because = replica(side).side().refusal(*sent.request)) {
      if (!std::exchange(said_refusal_, true))
        spdlog::warn(
            "request {} of {} prompt tokens is refused by {} server {}, whose KV pool has {} tokens: {}; "
            "give those "
            "servers more by --max-total-tokens or --mem-fraction-static (others like it are counted alone)",
            sent.id, sent.request->prompt.size(), side == worker ? "prefill" : "decode", side,
            workers_[side]->config.max_total_num_tokens, because);
      on_finished(record_of(unserved(sent), RequestState::kRejected, sent.time, decoder), because);
      return;
    }
  }
  for (const std::uint32_t side : {worker, decoder}) {
    replica(side).submit(sent);
    look_again(side);
  }
}

void FleetRun::on_kv_message(const KvMessage& message) {
  const Split& split = split_.at(message.req->id);
  const double done = pairs_->hand_on(message, split, replica(split.prefill), replica(split.decode));
  look_again(split.told(message));
  if (message.kind == KvMessage::Kind::kPages || recorder_.warming_up()) return;
  observer_.on_kv_sent({message.req->id, split.prefill, split.decode, message.time, done, message.tokens,
                        message.kind == KvMessage::Kind::kLast, message.req->arrival_time,
                        message.req->first_scheduled_time});
}

void FleetRun::serve(RequestSource& source, std::uint64_t& early) {
  source_ = &source;
  Checkpoints* const checkpoints = recorder_.warming_up() ? nullptr : checkpoints_;
  for (const Worker* worker : own_) look_again(worker->number);
  share_due();
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
      Flights::Flight& flight = flights_.pop();
      if (flight.admitted)
        attempt(flight, next);
      else
        refuse(flight, next);
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

bool FleetRun::resume() {
  if (checkpoints_ == nullptr || checkpoints_->resumed().empty()) return false;
  StateReader in(checkpoints_->resumed());
  std::apply(in, state());
  checkpoints_->read_rest(in);
  return true;
}

void FleetRun::warm_up() {
  const Workload before = warm_up_workload(offer_, workload_);
  LoadConfig at_once;
  at_once.max_concurrency = offer_.max_concurrency;
  const WorkloadView at_once_only(before);
  LoadGenerator load(at_once, at_once_only);
  recorder_.begin_warm_up();
  std::uint64_t early = 0;
  serve(load, early);
  if (stopped_) return;
  for (Worker* worker : own_)
    if (offer_.flush_cache) worker->replica->flush_cache();
  recorder_.end_warm_up(figures());
  for (Worker* worker : own_) worker->replica->restart_clock();
  servers_.restart_clock();
  if (!pairs_) return;
  decoders_->restart_clock();
  pairs_->restart_clock();
}

proto::RunReport run_workload(const Fleet& fleet, const LoadConfig& load, const StreamedWorkload& workload,
                              RunObserver& observer, Checkpoints* checkpoints) {
  return FleetRun(fleet, load, workload, observer, checkpoints).run();
}

proto::RunReport run_workload(const SchedulerConfig& config, const LoadConfig& load,
                              const StreamedWorkload& workload, Executor& executor, RunObserver& observer,
                              Checkpoints* checkpoints) {
  return run_workload(Fleet{.servers = {{&config, &executor}}, .decode = {}, .link = {}}, load, workload,
                      observer, checkpoints);
}

}  // namespace tpsim::scheduler
