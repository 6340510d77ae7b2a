#include "rank/parallel/farm_post.h"

#include <mpi.h>

#include "rank/parallel/idle_backoff.h"

namespace tpsim::rank {

std::optional<FarmPost::Message> FarmPost::receive() const {
  if (alone_) return std::nullopt;
  int arrived = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &arrived, &message, &status);
  if (arrived == 0) return std::nullopt;
  int size = 0;
  MPI_Get_count(&status, MPI_CHAR, &size);
  Message received{static_cast<std::uint32_t>(status.MPI_SOURCE), status.MPI_TAG, {}};
  received.bytes.resize(static_cast<std::size_t>(size));
  MPI_Mrecv(received.bytes.data(), size, MPI_CHAR, &message, MPI_STATUS_IGNORE);
  return received;
}

void FarmPost::send(std::uint32_t process, int tag, const std::string& bytes) const {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_CHAR, static_cast<int>(process), tag, comm_,
            &request);
  IdleBackoff backoff(false);
  for (int sent = 0; sent == 0;) {
    MPI_Test(&request, &sent, MPI_STATUS_IGNORE);
    if (sent == 0) backoff.wait();
  }
}

}  // namespace tpsim::rank
