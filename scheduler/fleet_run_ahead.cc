#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "proto/base/archive.h"
#include "scheduler/fleet_run.h"
#include "scheduler/req.h"
#include "scheduler/told.h"

namespace tpsim::scheduler {

void FleetRun::serve_ahead(RequestSource& source) {
  // What is told of the requests that are routed, or of the seconds that are served, at a time is held, and
  // who wants the run to stop waits for it. Of requests alone there is less to hold, and processes wait for
  // each other less often.
  const bool little = !tells_steps_ && servers_.router->never_looks();
  const std::size_t most = little ? 4096 : 1024;
  const double longest = little ? std::max(4.0, 2000.0 / static_cast<double>(workers_.size())) : 4;
  constexpr std::size_t kWorthIt = 16;  // of fewer, threads would wait for each other most of the time
  std::optional<RequestSource::Sent> next;
  while (!stopped_) {
    routed_.clear();
    while (routed_.size() < most && (next || source.next_time() != RequestSource::kNever)) {
      if (!next) next = source.pop();
      const bool ahead = !routed_.empty() || next_due() < next->time;  // of the replicas
      if (ahead && servers_.router->looks(*next->request, next->time, servers_.in_flight())) break;
      if (!routed_.empty() && next->time > routed_.front().sent.time + longest) break;
      const std::uint32_t worker = servers_.choose(*next);
      in_flight_.add(worker, next->request->session);
      if (!mine(worker)) next->request.reset();
      workers_[worker]->routed.push_back(routed_.size());
      routed_.push_back({worker, *std::exchange(next, std::nullopt)});
    }
    double until = next ? next->time : source.next_time();
    if (routed_.empty() && std::min(until, next_due()) == RequestSource::kNever) break;
    routed_until_ = until != RequestSource::kNever ? until : routed_.empty() ? 0 : routed_.back().sent.time;
    const bool worth_it = routed_.size() >= kWorthIt || until == RequestSource::kNever;
    if (until == RequestSource::kNever)
      until = (routed_.empty() ? next_due() : routed_.back().sent.time) + longest;
    // One thread that has nothing to tell does without turns as long as it looks at few replicas in vain.
    const bool alone = !tells_steps_ && (worth_it || workers_.size() <= kWorthIt);
    if (peers_ != nullptr || alone || (crew_ && worth_it)) {
      run_side_by_side(until, worth_it);
    } else {
      run_in_turn(until);
    }
    for (const Routed& request : routed_) workers_[request.worker]->routed.clear();
  }
  routed_until_.reset();
}

void FleetRun::run_in_turn(double until) {
  for (const Routed& request : routed_) {
    while (!stopped_ && due_.time() < request.sent.time) advance_first();
    if (stopped_) return;
    replica(request.worker).submit(request.sent);
    look_again(request.worker);
  }
  while (!stopped_ && due_.time() < until) advance_first();
}

void FleetRun::run_side_by_side(double until, bool by_threads) {
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
  if (records() && !tells_steps_) show_progress(until);
}

template <typename Write, typename Read>
void FleetRun::tell_all(const std::vector<Worker*>& workers, const Write& write, const Read& read, bool own,
                        bool to_first) {
  if (peers_ == nullptr) return;
  StateWriter out;
  double due = RequestSource::kNever;
  for (const Worker* worker : own_) due = std::min(due, due_.time_of(worker->number));
  out(asked_, due);
  for (Worker* worker : workers) {
    out(worker->number);
    write(*worker, out);
  }
  const std::vector<std::string> all = peers_->exchange(std::move(out).take());
  others_due_ = RequestSource::kNever;
  for (std::uint32_t process = 0; process < all.size(); ++process) {
    StateReader in(all[process]);
    bool asked = false;
    in(asked, due);
    stopped_ = stopped_ || asked;
    if (process != peers_->process()) others_due_ = std::min(others_due_, due);
    if (to_first && !records()) continue;
    while (!in.at_end() && (own || process != peers_->process())) {
      std::uint32_t number = 0;
      in(number);
      read(*workers_.at(number), in);
    }
  }
}

void FleetRun::share_due() {
  tell_all(
      own_, [this](const Worker& worker, StateWriter& out) { out(due_.time_of(worker.number)); },
      [this](const Worker& worker, StateReader& in) {
        double due = 0;
        in(due);
        due_.set(worker.number, due);
      },
      /*own=*/false, /*to_first=*/only_first_looks());
}

void FleetRun::exchange_told() {
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
      own, /*to_first=*/only_first_looks());
}

std::vector<ReplicaFigures> FleetRun::figures() {
  std::vector<ReplicaFigures> figures(workers_.size());
  for (const Worker* worker : own_) figures[worker->number] = figures_of(*worker->replica);
  tell_all(
      own_, [&](const Worker& worker, StateWriter& out) { out(figures[worker.number]); },
      [&](const Worker& worker, StateReader& in) { in(figures[worker.number]); },
      /*own=*/false, /*to_first=*/true);
  return figures;
}

void FleetRun::share_counts() {
  std::uint64_t gaps = recorder_.gaps();
  if (peers_ != nullptr) {
    StateWriter out;
    out(gaps);
    gaps = 0;
    for (const std::string& each : peers_->exchange(std::move(out).take())) {
      StateReader in(each);
      std::uint64_t of_process = 0;
      in(of_process);
      gaps += of_process;
    }
  }
  recorder_.put_samples_together(gaps);
  WeightedSamples others;
  tell_all(
      own_,
      [this](const Worker& worker, StateWriter& out) {
        const bool last = &worker == own_.back();  // with the samples of all of this process
        out(recorder_.passes(worker.number), last);
        if (worker.tally != nullptr) worker.tally->write(out);
        if (last) out(recorder_.samples());
      },
      [&](const Worker& worker, StateReader& in) {
        bool last = false;
        in(recorder_.passes(worker.number), last);
        if (worker.tally != nullptr) worker.tally->read(in);
        if (!last) return;
        in(others);
        recorder_.samples().merge(others);
      },
      /*own=*/false, /*to_first=*/true);
}

void FleetRun::record_unfinished() {
  for (const auto& worker : workers_) worker->told.clear();
  for (Worker* worker : own_) {
    // What is prefilled elsewhere is the decode server's, too.
    if (pairs_ && worker->number < servers_.size) continue;
    worker->told.begin(0, /*round=*/false, 0);
    for (const Req* req : worker->replica->schedulers().unfinished())
      worker->told.on_finished(record_of(*req, RequestState::kUnfinished, 0, worker->number), nullptr);
  }
  tell_all(
      own_, [](const Worker& worker, StateWriter& out) { worker.told.write(/*steps=*/false, out); },
      [](Worker& worker, StateReader& in) { worker.told.read(/*steps=*/false, in); });
  struct Unfinished final : RunListener {
    explicit Unfinished(RunRecorder& recorder) : recorder(recorder) {}
    void on_step(const StepRecord&, bool, double) override {}
    void on_finished(const RequestRecord& record, const char*) override { recorder.on_finished(record); }
    RunRecorder& recorder;
  } unfinished(recorder_);
  for (const auto& worker : workers_)
    if (!worker->told.turns().empty()) worker->told.tell(0, unfinished);
}

}  // namespace tpsim::scheduler
