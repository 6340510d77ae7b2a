#include "rank/parallel/mpi_executor.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "proto/base/error.h"
#include "proto/versions.h"

namespace tpsim::rank {

MpiExecutor::MpiExecutor(WorkerLink& link, LocalRanks ranks, std::uint64_t configuration_hash)
    : link_(link), ranks_(std::move(ranks)), expected_(link.options().window + 2) {
  if (!link.options().synchronous && !ranks_.identical_shards()) {
    throw std::invalid_argument("MpiExecutor: a streamed run needs one model for all ranks");
  }
  for (auto& times : expected_) times.reserve(link.options().batches_per_message);
  link_.begin_run(configuration_hash,
                  [this](std::uint32_t process, std::uint64_t message, const AnswerHead& head,
                         std::span<const char> payload) { on_answer(process, message, head, payload); });
  expected_[link_.message_number() % expected_.size()].clear();
}

MpiExecutor::~MpiExecutor() { link_.end_run(); }

scheduler::StepOutcome MpiExecutor::forward(const proto::ForwardBatch& batch) {
  return link_.options().synchronous ? forward_synchronous(batch) : forward_streamed(batch);
}

scheduler::StepOutcome MpiExecutor::forward_streamed(const proto::ForwardBatch& batch) {
  ranks_.price(batch);
  const StepTimes slowest = ranks_.slowest_of_deployment();
  ranks_.account(slowest.arrival);
  expected_[link_.message_number() % expected_.size()].push_back(slowest.step_time());
  link_.message().add(batch);
  if (link_.message_full()) {
    link_.send();
    expected_[link_.message_number() % expected_.size()].clear();
  }
  scheduler::StepOutcome outcome = slowest.outcome();
  outcome.stages = ranks_.stages();
  return outcome;
}

scheduler::StepOutcome MpiExecutor::forward_synchronous(const proto::ForwardBatch& batch) {
  slowest_ = StepTimes{};
  link_.message().add(batch);
  link_.send();  // the others work while this process does
  slowest_.take_slowest(ranks_.price(batch));
  link_.wait_for_answers();
  ranks_.account(slowest_.arrival);
  // With the next message the others learn how long they had to wait.
  link_.message().add(Outcome{batch.sequence_number(), slowest_.arrival});
  return slowest_.outcome();
}

void MpiExecutor::on_answer(std::uint32_t process, std::uint64_t message, const AnswerHead& head,
                            std::span<const char> payload) {
  if (!link_.options().synchronous) {
    compare(process, head, expected_[message % expected_.size()], payload);
    return;
  }
  for (std::size_t at = 0; at + sizeof(StepTimes) <= payload.size(); at += sizeof(StepTimes)) {
    StepTimes times;
    std::memcpy(&times, payload.data() + at, sizeof times);
    slowest_.take_slowest(times);
  }
}

void MpiExecutor::compare(std::uint32_t process, const AnswerHead& head, const std::vector<double>& expected,
                          std::span<const char> payload) const {
  if (payload.size() == expected.size() * sizeof(double) &&
      std::memcmp(payload.data(), expected.data(), payload.size()) == 0) {
    return;
  }
  for (std::size_t i = 0; i < expected.size() && (i + 1) * sizeof(double) <= payload.size(); ++i) {
    double answer = 0;
    std::memcpy(&answer, payload.data() + i * sizeof answer, sizeof answer);
    if (std::bit_cast<std::uint64_t>(answer) == std::bit_cast<std::uint64_t>(expected[i])) continue;
    throw_user_error(
        "{} prices batch {} at {} s, process 0 at {} s: start the same tpsim with the same hardware profile "
        "and model on every host",
        link_.group().name_of(process), head.first_sequence_number + i, answer, expected[i]);
  }
  throw_user_error(
      "{} priced {} batches from batch {} on, process 0 priced {}: start the same tpsim on every host",
      link_.group().name_of(process), head.num_batches, head.first_sequence_number, expected.size());
}

std::vector<proto::RankReport> MpiExecutor::finish() {
  const proto::ForwardBatch last = end_of_run(ranks_.next_sequence_number());
  ranks_.price(last);
  std::vector<proto::RankReport> reports = ranks_.reports();
  link_.finish_run(last, reports);
  return reports;
}

}  // namespace tpsim::rank
