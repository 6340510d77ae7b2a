#include "rank/parallel/numeric_executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "proto/base/stop_flag.h"
#include "rank/parallel/deployment_executor.h"
#include "rank/parallel/idle_backoff.h"

namespace tpsim::rank {

NumericExecutor::NumericExecutor(WorkerLink* link, std::uint64_t configuration_hash,
                                 const std::function<std::unique_ptr<NumericRanks>()>& make_ranks)
    : link_(link) {
  if (link_ != nullptr) link_->begin_run(configuration_hash, nullptr);
  ranks_ = make_ranks();
}

NumericExecutor::~NumericExecutor() {
  if (link_ != nullptr) link_->end_run();
}

scheduler::StepOutcome NumericExecutor::forward(const proto::ForwardBatch& batch) {
  if (link_ == nullptr) return ranks_->compute(batch);
  try {
    link_->message().add(batch);
    link_->send();  // may learn of an error of one of the others when the rest have the batch already
    return ranks_->compute(batch);
  } catch (const RankLost&) {
    throw;
  } catch (const Stopped&) {
    link_->give_up(/*exit_status=*/3);
    given_up_ = true;
    throw;
  } catch (...) {  // the others wait in a collective that never comes
    link_->give_up(/*exit_status=*/2);
    throw;
  }
}

std::vector<proto::RankReport> NumericExecutor::finish() {
  const proto::ForwardBatch last = end_of_run(ranks_->next_sequence_number());
  ranks_->compute(last);
  std::vector<proto::RankReport> reports = ranks_->reports();
  if (link_ != nullptr && !given_up_) link_->finish_run(last, reports);
  return reports;
}

namespace {

// MPI counts elements in int; larger exchanges go in pieces.
constexpr std::uint64_t kMostAtOnce = 1U << 26;  // elements of a part

}  // namespace

MpiCollectives::MpiCollectives(const ProcessGroup& group)
    : group_(group),
      send_counts_(group.num_processes),
      send_offsets_(group.num_processes),
      receive_counts_(group.num_processes),
      receive_offsets_(group.num_processes) {
  MPI_Comm_dup(group.comm, &comm_);
}

// Freeing a communicator is collective, and after the loss of a process nobody can wait for the others: the
// end of MPI frees it.
MpiCollectives::~MpiCollectives() = default;

void MpiCollectives::look_around() const {
  StopFlag::throw_if_requested();
  for (std::uint32_t process = 0; process < group_.num_processes; ++process) {
    if (process != group_.process && group_.is_dead(process))
      throw RankLost(fmt::format("{} has died; the run cannot go on without it", group_.name_of(process)));
  }
  if (while_waiting_) while_waiting_();
}

void MpiCollectives::wait(MPI_Request& request) {
  IdleBackoff backoff(/*synchronous=*/true);
  constexpr double kLookEvery = 0.05;  // seconds
  double next_look = 0;
  for (std::uint32_t round = 0;; ++round) {
    int done = 0;
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (done != 0) return;
    backoff.wait();
    if (round % 256 != 255) continue;  // a look at the clock now and then
    const double time = now();
    if (next_look == 0) next_look = time + kLookEvery;
    if (time < next_look) continue;
    next_look = time + kLookEvery;
    look_around();
  }
}

void MpiCollectives::all_reduce(std::span<const float* const> parts, std::uint64_t count, float* out) {
  if (count > kMostAtOnce) {
    std::vector<const float*> rest(parts.begin(), parts.end());
    for (std::uint64_t at = 0; at < count; at += kMostAtOnce) {
      all_reduce(rest, std::min(kMostAtOnce, count - at), out + at);
      for (const float*& part : rest) part += kMostAtOnce;
    }
    return;
  }
  const std::uint32_t ranks = num_ranks();
  const std::uint64_t mine = slice_begin(count, group_.process);
  const std::uint64_t length = slice_begin(count, group_.process + 1) - mine;
  // To each process its slice of every rank here, one rank after the other.
  sent_.resize(count * ranks);
  received_.resize(length * group_.tp_size);
  std::uint64_t at = 0;
  for (std::uint32_t process = 0; process < group_.num_processes; ++process) {
    const std::uint64_t begin = slice_begin(count, process);
    const std::uint64_t size = slice_begin(count, process + 1) - begin;
    send_offsets_[process] = static_cast<int>(at);
    send_counts_[process] = static_cast<int>(size * ranks);
    receive_offsets_[process] = static_cast<int>(length * ranks * process);
    receive_counts_[process] = static_cast<int>(length * ranks);
    for (const float* const part : parts) {
      std::memcpy(sent_.data() + at, part + begin, size * sizeof(float));
      at += size;
    }
  }
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ialltoallv(sent_.data(), send_counts_.data(), send_offsets_.data(), MPI_FLOAT, received_.data(),
                 receive_counts_.data(), receive_offsets_.data(), MPI_FLOAT, comm_, &request);
  wait(request);
  views_.clear();
  for (std::uint32_t rank = 0; rank < group_.tp_size; ++rank)
    views_.push_back(received_.data() + rank * length);
  sum_in_rank_order(views_, length, sent_.data());
  for (std::uint32_t process = 0; process < group_.num_processes; ++process) {
    receive_offsets_[process] = static_cast<int>(slice_begin(count, process));
    receive_counts_[process] =
        static_cast<int>(slice_begin(count, process + 1) - slice_begin(count, process));
  }
  MPI_Iallgatherv(sent_.data(), static_cast<int>(length), MPI_FLOAT, out, receive_counts_.data(),
                  receive_offsets_.data(), MPI_FLOAT, comm_, &request);
  wait(request);
  bytes_sent_ += ring_bytes(group_.tp_size, count, /*reduce=*/true);
}

void MpiCollectives::all_gather(std::span<const float* const> parts, std::uint32_t rows,
                                std::uint32_t columns, float* out) {
  const std::uint64_t part = std::uint64_t{rows} * columns;
  const std::size_t width = std::size_t{group_.tp_size} * columns;
  if (part * group_.tp_size > kMostAtOnce * 8)
    throw std::logic_error("MpiCollectives: all_gather of too much");
  sent_.resize(part * num_ranks());
  for (std::size_t r = 0; r < parts.size(); ++r)
    std::memcpy(sent_.data() + r * part, parts[r], part * sizeof(float));
  received_.resize(part * group_.tp_size);
  MPI_Request request = MPI_REQUEST_NULL;
  const int size = static_cast<int>(sent_.size());
  MPI_Iallgather(sent_.data(), size, MPI_FLOAT, received_.data(), size, MPI_FLOAT, comm_, &request);
  wait(request);
  for (std::size_t rank = 0; rank < group_.tp_size; ++rank) {
    for (std::size_t row = 0; row < rows; ++row)
      std::memcpy(out + row * width + rank * columns, received_.data() + rank * part + row * columns,
                  columns * sizeof(float));
  }
  bytes_sent_ += ring_bytes(group_.tp_size, std::uint64_t{rows} * width, /*reduce=*/false);
}

void MpiCollectives::exchange(const void* from, void* to, MPI_Datatype type) {
  std::exclusive_scan(send_counts_.begin(), send_counts_.end(), send_offsets_.begin(), 0);
  std::exclusive_scan(receive_counts_.begin(), receive_counts_.end(), receive_offsets_.begin(), 0);
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ialltoallv(from, send_counts_.data(), send_offsets_.data(), type, to, receive_counts_.data(),
                 receive_offsets_.data(), type, comm_, &request);
  wait(request);
}

// Sizes first, then what they are of.
void MpiCollectives::all_to_all(const Messages& sent, Messages& received) {
  const std::uint32_t ranks = num_ranks();
  const std::uint32_t processes = group_.num_processes;
  std::vector<std::uint64_t> sizes, theirs(std::size_t{ranks} * ranks * processes);
  sent_.clear();
  std::vector<std::uint64_t> to_process(processes), from_process(processes);
  for (std::uint32_t process = 0; process < processes; ++process) {
    for (std::uint32_t i = 0; i < ranks; ++i) {
      for (std::uint32_t r = 0; r < ranks; ++r) {
        const std::vector<float>& message = sent[i][process * ranks + r];
        sizes.push_back(message.size());
        to_process[process] += message.size();
        sent_.insert(sent_.end(), message.begin(), message.end());
      }
    }
  }
  send_counts_.assign(processes, static_cast<int>(ranks * ranks));
  receive_counts_ = send_counts_;
  exchange(sizes.data(), theirs.data(), MPI_UINT64_T);
  for (std::size_t i = 0; i < theirs.size(); ++i) from_process[i / (std::size_t{ranks} * ranks)] += theirs[i];
  const std::uint64_t all = std::accumulate(from_process.begin(), from_process.end(), std::uint64_t{0});
  if (std::max<std::uint64_t>(sent_.size(), all) > kMostAtOnce * 8)
    throw std::logic_error("MpiCollectives: all_to_all of too much");
  for (std::uint32_t process = 0; process < processes; ++process) {
    send_counts_[process] = static_cast<int>(to_process[process]);
    receive_counts_[process] = static_cast<int>(from_process[process]);
  }
  received_.resize(all);
  exchange(sent_.data(), received_.data(), MPI_FLOAT);
  received.assign(ranks, std::vector<std::vector<float>>(group_.tp_size));
  const float* at = received_.data();
  const std::uint64_t* size = theirs.data();
  for (std::uint32_t process = 0; process < processes; ++process) {
    for (std::uint32_t from = 0; from < ranks; ++from) {
      for (std::uint32_t to = 0; to < ranks; ++to, at += *size++)
        received[to][process * ranks + from].assign(at, at + *size);
    }
  }
  bytes_sent_ += exchanged_bytes(sent, first_rank());
}

}  // namespace tpsim::rank
