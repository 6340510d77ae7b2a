#include "rank/parallel/worker_link.h"

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proto/base/error.h"
#include "proto/base/stop_flag.h"
#include "proto/report.pb.h"
#include "proto/versions.h"
#include "rank/parallel/batch_wire.h"
#include "rank/parallel/deployment_executor.h"
#include "rank/parallel/idle_backoff.h"

namespace tpsim::rank {
namespace {

// A pause of this process itself (a stopped job, a suspended machine) must not look like silence of others:
// one look at the clock counts at most this much.
constexpr double kLongestTick = 0.1;
// How often to ask whether a silent process still exists, in seconds of its silence.
constexpr double kDeathCheck = 0.05;
// Once a signal has asked to stop, silence of so many seconds is a loss: the end cannot wait.
constexpr double kLongestFarewell = 0.8;

class Worker {
 public:
  Worker(const ProcessGroup& group, const std::function<WorkerRun(std::uint32_t)>& make_run)
      : group_(group), make_run_(make_run) {}

  int run() {
    while (!exit_status_) {
      receive();
      try {
        handle_message();
      } catch (const std::exception& error) {
        failed_ = true;
        const std::string_view sentence = error.what();
        send(kErrorTag, {sentence.data(), sentence.size()});
      }
    }
    send(kGoodbyeTag, {});
    return *exit_status_;
  }

 private:
  // One message, waiting without spinning.
  void receive() {
    IdleBackoff backoff(setup_.synchronous != 0);
    int arrived = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    while (true) {
      MPI_Improbe(0, kMessageTag, group_.comm, &arrived, &message, &status);
      if (arrived != 0) break;
      backoff.wait();
    }
    int size = 0;
    MPI_Get_count(&status, MPI_CHAR, &size);
    message_.resize(static_cast<std::size_t>(size));
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Imrecv(message_.data(), size, MPI_CHAR, &message, &request);
    wait(request);
  }

  void send(int tag, std::span<const char> bytes) {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_CHAR, 0, tag, group_.comm, &request);
    wait(request);
  }

  void wait(MPI_Request& request) const {
    IdleBackoff backoff(setup_.synchronous != 0);
    int done = 0;
    while (true) {
      MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      if (done != 0) return;
      backoff.wait();
    }
  }

  // After a failure only the shutdown is of interest.
  void handle_message() {
    AnswerHead head;
    answer_.assign(sizeof head, 0);
    MessageReader reader(message_);
    while (reader.next()) {
      if (reader.kind() == FrameKind::kShutdown) {
        exit_status_ = reader.exit_status();
        return;
      }
      if (failed_) continue;
      switch (reader.kind()) {
        case FrameKind::kSetup:
          begin_run(reader.setup());
          break;
        case FrameKind::kOutcome:
          run_->ranks->outcome(reader.outcome().arrival);
          break;
        default:
          reader.read(batch_);
          if (head.num_batches++ == 0) head.first_sequence_number = batch_.sequence_number();
          carry_out_batch();
      }
    }
    if (failed_) return;
    head.run_index = setup_.run_index;
    std::memcpy(answer_.data(), &head, sizeof head);
    send(kAnswerTag, answer_);
  }

  void begin_run(const RunSetup& setup) {
    setup_ = setup;
    run_.reset();  // before the next one takes its memory
    run_.emplace(make_run_(setup.run_index));
    if (run_->configuration_hash != setup.configuration_hash) {
      throw_user_error(
          "the resolved configuration is not process 0's: start the same tpsim with the same files on every "
          "host");
    }
  }

  void carry_out_batch() {
    run_->ranks->forward(batch_, setup_.synchronous != 0, answer_);
    if (!batch_.end_of_run()) return;
    proto::RunReport report;
    for (proto::RankReport& rank : run_->ranks->reports()) *report.add_ranks() = std::move(rank);
    std::string bytes;
    report.SerializeToString(&bytes);
    send(kReportTag, bytes);
  }

  const ProcessGroup& group_;
  const std::function<WorkerRun(std::uint32_t)>& make_run_;
  std::optional<WorkerRun> run_;
  RunSetup setup_;
  std::optional<int> exit_status_;
  bool failed_ = false;
  std::vector<char> message_;
  std::vector<char> answer_;
  proto::ForwardBatch batch_;
};

}  // namespace

proto::ForwardBatch end_of_run(std::uint64_t sequence_number) {
  proto::ForwardBatch last;
  last.set_version(kForwardBatchVersion);
  last.set_sequence_number(sequence_number);
  last.set_forward_mode(proto::IDLE);
  last.set_end_of_run(true);
  return last;
}

WorkerLink::WorkerLink(MpiSession& session, const ProcessGroup& group, const MpiOptions& options)
    : session_(session),
      group_(group),
      options_(options),
      slots_(std::max<std::uint32_t>(options.window, 1) + 1),
      answered_(group.num_processes, 0),
      silence_(group.num_processes, 0),
      reports_(group.num_processes) {
  for (Slot& s : slots_) s.sends.assign(group.num_processes - 1, MPI_REQUEST_NULL);
}

WorkerLink::~WorkerLink() { shutdown(2); }

std::uint32_t WorkerLink::begin_run(std::uint64_t configuration_hash, OnAnswer on_answer) {
  on_answer_ = std::move(on_answer);
  // What an abandoned run had not sent is never sent.
  message().clear();
  current_run_ = next_run_index_++;
  RunSetup setup;
  setup.run_index = current_run_;
  setup.synchronous = options_.synchronous ? 1 : 0;
  setup.configuration_hash = configuration_hash;
  message().add(setup);
  send();
  return current_run_;
}

void WorkerLink::end_run() { on_answer_ = nullptr; }

bool WorkerLink::message_full() const {
  const MessageWriter& writer = slot(filling_).writer;
  return writer.num_batches() >= options_.batches_per_message ||
         writer.bytes().size() >= options_.bytes_per_message;
}

void WorkerLink::start_sends() {
  Slot& current = slot(filling_);
  const std::span<const char> bytes = current.writer.bytes();
  for (std::uint32_t process = 1; process < group_.num_processes; ++process) {
    MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_CHAR, static_cast<int>(process), kMessageTag,
              group_.comm, &current.sends[process - 1]);
  }
  ++filling_;
}

void WorkerLink::send() {
  start_sends();
  poll();
  // The slot that comes next must be free: sent, and answered by everybody.
  Slot& next = slot(filling_);
  if (filling_ >= slots_.size()) {
    const std::uint64_t before = filling_ - slots_.size() + 1;
    wait_until([&] { return answered_by_all() >= before && sends_done(next); });
  }
  next.writer.clear();
}

void WorkerLink::poll() {
  while (receive_one()) {
  }
}

void WorkerLink::wait_for_answers() {
  wait_until([&] { return answered_by_all() >= filling_; });
}

std::vector<std::string> WorkerLink::collect_reports() {
  wait_until([&] {
    return std::none_of(reports_.begin() + 1, reports_.end(), [](const auto& r) { return r.empty(); });
  });
  return std::exchange(reports_, std::vector<std::string>(group_.num_processes));
}

void WorkerLink::finish_run(const proto::ForwardBatch& last, std::vector<proto::RankReport>& reports) {
  message().add(last);
  send();
  wait_for_answers();
  const std::vector<std::string> collected = collect_reports();
  for (std::uint32_t process = 1; process < collected.size(); ++process) {
    proto::RunReport report;
    if (!report.ParseFromString(collected[process]) ||
        report.ranks_size() != static_cast<int>(group_.ranks_per_process())) {
      throw_user_error("{} sent a report that cannot be read: start the same tpsim on every host",
                       group_.name_of(process));
    }
    for (proto::RankReport& rank : *report.mutable_ranks()) reports.push_back(std::move(rank));
  }
  end_run();
}

void WorkerLink::check_alive() {
  std::string dead;
  for (std::uint32_t process = 1; process < group_.num_processes; ++process) {
    if (group_.is_dead(process)) dead += (dead.empty() ? "" : ", ") + group_.name_of(process);
  }
  if (!dead.empty()) lose(fmt::format("{} has died", dead));
}

void WorkerLink::lose(const std::string& how) {
  session_.mark_lost();
  throw RankLost(how + "; the run cannot go on without it");
}

void WorkerLink::shutdown(int exit_status) noexcept {
  if (std::exchange(shut_down_, true)) return;
  on_answer_ = nullptr;
  if (session_.lost()) return;
  try {
    message().clear();
    message().add_shutdown(exit_status);
    start_sends();
    wait_until([&] {
      return answered_by_all() >= filling_ &&
             std::all_of(slots_.begin(), slots_.end(), [&](Slot& s) { return sends_done(s); });
    });
  } catch (const std::exception&) {
    session_.mark_lost();
  }
}

bool WorkerLink::sends_done(Slot& of) {
  int done = 0;
  MPI_Testall(static_cast<int>(of.sends.size()), of.sends.data(), &done, MPI_STATUSES_IGNORE);
  return done != 0;
}

std::uint64_t WorkerLink::answered_by_all() const {
  return *std::min_element(answered_.begin() + 1, answered_.end());
}

// Takes one message of a worker, if there is one.
bool WorkerLink::receive_one() {
  int arrived = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, group_.comm, &arrived, &message, &status);
  if (arrived == 0) return false;
  int size = 0;
  MPI_Get_count(&status, MPI_CHAR, &size);
  received_.resize(static_cast<std::size_t>(size));
  MPI_Mrecv(received_.data(), size, MPI_CHAR, &message, MPI_STATUS_IGNORE);

  const auto process = static_cast<std::uint32_t>(status.MPI_SOURCE);
  silence_[process] = 0;
  switch (status.MPI_TAG) {
    case kReportTag:
      reports_[process].assign(received_.begin(), received_.end());
      break;
    case kGoodbyeTag:  // comes from a worker in any state; it owes nothing any more
      answered_[process] = filling_;
      break;
    case kErrorTag:
      if (!shut_down_) {
        throw_user_error("{}: {}", group_.name_of(process),
                         std::string_view(received_.data(), received_.size()));
      }
      break;
    default: {
      const std::uint64_t number = answered_[process]++;
      AnswerHead head;
      std::memcpy(&head, received_.data(), sizeof head);
      // Late answers of a run that was given up are only counted.
      if (on_answer_ && head.run_index == current_run_) {
        on_answer_(process, number, head, std::span<const char>(received_).subspan(sizeof head));
      }
    }
  }
  return true;
}

template <typename Done>
void WorkerLink::wait_until(Done done) {
  IdleBackoff backoff(options_.synchronous);
  double last = now();
  while (true) {
    const bool received = receive_one();
    if (done()) return;
    if (received) {
      backoff.reset();
      continue;
    }
    backoff.wait();
    const double time = now();
    wait_more(std::min(time - last, kLongestTick));
    last = time;
  }
}

// Counts `seconds` of silence; throws where a process was silent for too long, or is dead.
void WorkerLink::wait_more(double seconds) {
  const double timeout = StopFlag::requested() ? std::min(kLongestFarewell, options_.answer_timeout_seconds)
                                               : options_.answer_timeout_seconds;
  std::string silent;
  std::string dead;
  for (std::uint32_t process = 1; process < group_.num_processes; ++process) {
    if (answered_[process] >= filling_) {
      silence_[process] = 0;
      continue;
    }
    const double before = silence_[process];
    silence_[process] += seconds;
    // A look at the process table now and then.
    if (std::floor(before / kDeathCheck) != std::floor(silence_[process] / kDeathCheck) &&
        group_.is_dead(process)) {
      dead += (dead.empty() ? "" : ", ") + group_.name_of(process);
    }
    if (silence_[process] >= timeout) {
      silent += (silent.empty() ? "" : ", ") + group_.name_of(process);
    }
  }
  if (dead.empty() && silent.empty()) return;
  if (!dead.empty()) lose(fmt::format("{} has died", dead));
  lose(fmt::format("{} has not answered for {:g} s: the process is stopped or hangs", silent, timeout));
}

int run_worker(const ProcessGroup& group, const std::function<WorkerRun(std::uint32_t)>& make_run) {
  return Worker(group, make_run).run();
}

}  // namespace tpsim::rank
