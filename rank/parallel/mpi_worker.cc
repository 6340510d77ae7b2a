#include "rank/parallel/mpi_worker.h"

#include <mpi.h>

#include <array>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proto/base/error.h"
#include "proto/report.pb.h"
#include "rank/parallel/batch_wire.h"
#include "rank/parallel/idle_backoff.h"
#include "rank/parallel/worker_link.h"

namespace tpsim::rank {

namespace {

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

int run_worker(const ProcessGroup& group, const std::function<WorkerRun(std::uint32_t)>& make_run) {
  return Worker(group, make_run).run();
}

}  // namespace tpsim::rank
