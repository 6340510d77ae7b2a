#include "scheduler/run_recorder.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "scheduler/data_parallel_group.h"

namespace tpsim::scheduler {
namespace {

// Groups of samples that are kept. Of a fleet twice as many, of which those that differ are half at the most:
// who has more knows that all together have.
constexpr std::size_t kMostGaps = WeightedSamples::kMostGroups;

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
  report.set_retractions(report.retractions() + replica.retractions());
  report.set_evicted_tokens(report.evicted_tokens() + replica.evicted_tokens());
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

}  // namespace

RequestRecord record_of(const Req& req, RequestState state, double time, std::uint32_t replica) {
  RequestRecord record;
  record.id = req.id;
  record.state = state;
  record.model = req.source->model;
  record.replica = replica;
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

ReplicaFigures figures_of(const Replica& replica) {
  ReplicaFigures figures;
  replica.write_report(figures.report);
  const DataParallelGroup& schedulers = replica.schedulers();
  figures.report.set_retractions(schedulers.retractions());
  figures.report.set_evicted_tokens(schedulers.evicted_tokens());
  figures.now = replica.now();
  figures.accepted = schedulers.accept_histogram();
  return figures;
}

RunRecorder::RunRecorder(const Fleet& fleet, const LoadConfig& load, const Offered& offered,
                         RunObserver& observer)
    : speculation_(fleet.servers.front().config->speculation),
      offered_(offered),
      observer_(observer),
      metrics_(load.goodput, fleet.size()),
      passes_(fleet.size(), PassMetrics(fleet.servers.front().config->pipeline.staged())),
      itl_(fleet.threads, WeightedSamples(kMostGaps * (fleet.size() > 1 ? 2 : 1))),
      overload_(offered.rate, offered.last_arrival),
      first_token_seconds_(fleet.size() > 1 ? load.router.first_token_seconds : 0),
      of_replicas_(fleet.size() > 1 ? fleet.size() : 0) {
  for (std::uint32_t i = 0; !fleet.decode.empty() && i < of_replicas_.size(); ++i)
    of_replicas_[i].set_role(i < fleet.servers.size() ? "prefill" : "decode");
}

void RunRecorder::end_warm_up(const std::vector<ReplicaFigures>& replicas) {
  warming_up_ = false;
  for (std::size_t i = 0; i < replicas.size(); ++i) {
    const proto::RunReport& counted = replicas[i].report;
    warmup_retractions_ += counted.retractions();
    warmup_evicted_tokens_ += counted.evicted_tokens();
    if (of_replicas_.empty()) continue;
    of_replicas_[i].set_retractions(counted.retractions());
    of_replicas_[i].set_evicted_tokens(counted.evicted_tokens());
  }
}

Progress RunRecorder::progress(double time, std::uint64_t total) const {
  std::uint64_t steps = 0;
  for (const PassMetrics& passes : passes_) steps += passes.steps();
  return {time, metrics_.finished(), total, steps};
}

std::uint64_t RunRecorder::gaps() const {
  std::uint64_t gaps = 0;
  for (const PassMetrics& passes : passes_) gaps += passes.gaps();
  return gaps;
}

void RunRecorder::put_samples_together(std::uint64_t gaps) {
  if (of_replicas_.empty()) return;  // the order of one replica stays
  for (WeightedSamples& samples : itl_) samples.settle(gaps > kMostGaps);
  for (std::size_t i = 1; i < itl_.size(); ++i) samples().merge(itl_[i]);
}

void RunRecorder::on_finished(const RequestRecord& of_server) {
  if (warming_up_) return;
  RequestRecord record = of_server;
  if (record.first_token_time > 0)
    record.first_token_time = std::min(record.first_token_time + first_token_seconds_, record.finish_time);
  metrics_.on_request(record);
  if (!of_replicas_.empty()) {
    proto::ReplicaReport& of_replica = of_replicas_[record.replica];
    proto::ReplicaReport& of_prefiller = of_replicas_[record.prefill_replica.value_or(record.replica)];
    if (record.state != RequestState::kFailed || of_replica.role().empty())
      of_replica.set_requests(of_replica.requests() + 1);
    if (record.prefill_replica) of_prefiller.set_requests(of_prefiller.requests() + 1);
    if (record.state == RequestState::kCompleted) {
      of_prefiller.set_input_tokens(of_prefiller.input_tokens() + record.input_tokens);
      of_replica.set_output_tokens(of_replica.output_tokens() + record.output_tokens);
      of_prefiller.set_cached_tokens(of_prefiller.cached_tokens() + record.cached_tokens);
    }
  }
  if (record.state != RequestState::kUnfinished) overload_.on_request(record);
  observer_.on_request(record);
}

void RunRecorder::count_accepted(const std::vector<std::uint64_t>& histogram) {
  accepted_.resize(std::max(accepted_.size(), histogram.size()));
  for (std::size_t k = 0; k < histogram.size(); ++k) accepted_[k] += histogram[k];
}

void RunRecorder::retire(std::uint32_t number, const Replica& replica) {
  ReplicaFigures figures = figures_of(replica);
  proto::RunReport& report = figures.report;
  // Of the one that follows.
  report.clear_kv_pool_tokens();
  report.clear_swa_pool_tokens();
  report.clear_state_pool_slots();
  report.clear_peak_states();
  report.clear_host_pool_tokens();
  if (!retired_) retired_.emplace();
  add_replica(report, *retired_);
  // What is taken off at the end: less than nothing, which wraps around and back.
  proto::ReplicaReport& of_replica = of_replicas_.at(number);
  of_replica.set_retractions(of_replica.retractions() - report.retractions());
  of_replica.set_evicted_tokens(of_replica.evicted_tokens() - report.evicted_tokens());
  count_accepted(figures.accepted);
}

proto::RunReport RunRecorder::report(const std::vector<ReplicaFigures>& replicas, bool stopped_early) {
  proto::RunReport report;
  double end = 0;
  for (std::uint32_t i = 0; i < replicas.size(); ++i) {
    const proto::RunReport& counted = replicas[i].report;
    if (i == 0) {
      report.MergeFrom(counted);
    } else {
      add_replica(counted, report);
    }
    end = std::max(end, replicas[i].now);
    if (!of_replicas_.empty()) {
      passes_[i].write(of_replicas_[i]);
      of_replicas_[i].set_replica(i);
      of_replicas_[i].set_kv_pool_tokens(counted.kv_pool_tokens());
      of_replicas_[i].set_swa_pool_tokens(counted.swa_pool_tokens());
      of_replicas_[i].set_retractions(counted.retractions() - of_replicas_[i].retractions());
      of_replicas_[i].set_evicted_tokens(counted.evicted_tokens() - of_replicas_[i].evicted_tokens());
    }
    count_accepted(replicas[i].accepted);
  }
  report.set_stopped_early(stopped_early);
  if (retired_) add_replica(*retired_, report);
  report.set_retractions(report.retractions() - warmup_retractions_);
  report.set_evicted_tokens(report.evicted_tokens() - warmup_evicted_tokens_);
  for (proto::ReplicaReport& replica : of_replicas_) *report.add_replicas() = std::move(replica);
  if (speculation_.enabled()) write_speculation(speculation_, accepted_, report);
  for (std::size_t i = 1; i < passes_.size(); ++i) passes_.front().add(passes_[i]);
  metrics_.write(end, passes_.front(), samples(), report);
  if (!stopped_early) overload_.write(offered_, report);
  return report;
}

}  // namespace tpsim::scheduler
