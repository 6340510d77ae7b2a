#include "rank/parallel/farm.h"

#include <fmt/format.h>
#include <mpi.h>

#include <utility>

#include "proto/base/stop_flag.h"
#include "rank/parallel/idle_backoff.h"

namespace tpsim::rank {
namespace {

// A worker notices the shutdown between two steps or looks, unless it is still reading a large trace.
constexpr double kGoodbyeSeconds = 10;
constexpr double kGoodbyeSecondsAfterSignal = 1;
constexpr double kDeathCheckSeconds = 0.05;

}  // namespace

std::optional<FarmPost::Message> FarmPost::receive() const {
  if (group_.num_processes == 1) return std::nullopt;
  int arrived = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, group_.comm, &arrived, &message, &status);
  if (arrived == 0) return std::nullopt;
  int size = 0;
  MPI_Get_count(&status, MPI_CHAR, &size);
  Message received{static_cast<std::uint32_t>(status.MPI_SOURCE), FarmTag{status.MPI_TAG}, {}};
  received.bytes.resize(static_cast<std::size_t>(size));
  MPI_Mrecv(received.bytes.data(), size, MPI_CHAR, &message, MPI_STATUS_IGNORE);
  return received;
}

void FarmPost::send(std::uint32_t process, FarmTag tag, const std::string& bytes) const {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_CHAR, static_cast<int>(process),
            static_cast<int>(tag), group_.comm, &request);
  IdleBackoff backoff(false);
  for (int sent = 0; sent == 0;) {
    MPI_Test(&request, &sent, MPI_STATUS_IGNORE);
    if (sent == 0) backoff.wait();
  }
}

void Farm::look_for_dead(const std::vector<std::uint32_t>& owing, const char* what) {
  if (now() < next_look_) return;
  next_look_ = now() + kDeathCheckSeconds;
  for (std::uint32_t process = 1; process < group_.num_processes; ++process) {
    if (owing[process] == 0 || !group_.is_dead(process)) continue;
    session_.mark_lost();
    loss_ = fmt::format(fmt::runtime(what), process, owing[process]);
    return;
  }
}

void Farm::shutdown(int exit_status) noexcept {
  if (std::exchange(shut_down_, true) || session_.lost()) return;
  for (std::uint32_t process = 1; process < group_.num_processes; ++process)
    send(process, FarmTag::kShutdown, bytes_of(exit_status));
  std::uint32_t goodbyes = 0;
  IdleBackoff backoff(false);
  const double latest = now() + (StopFlag::requested() ? kGoodbyeSecondsAfterSignal : kGoodbyeSeconds);
  while (goodbyes + 1 < group_.num_processes) {
    if (const std::optional<Message> message = receive()) {
      if (message->tag == FarmTag::kGoodbye) ++goodbyes;
      continue;
    }
    if (now() > latest) return session_.mark_lost(exit_status);
    backoff.wait();
  }
}

Farm::~Farm() {
  if (group_.process == 0) shutdown(2);
}

}  // namespace tpsim::rank
