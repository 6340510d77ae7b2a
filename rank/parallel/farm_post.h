// Messages between the processes of a farm: a tag and bytes, waited for without spinning. Main thread only.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

#include "rank/parallel/mpi_session.h"

namespace tpsim::rank {

// The bytes of a task are its number; of a result the number, then what the task returned.
enum class FarmTag : int {
  kReady = 1,  // to process 0: a thread, or a group, is free; empty
  kResult,     // to process 0: a result; who worked on it is free again
  kError,      // to process 0: a sentence
  kLoss,       // to process 0: a sentence
  kGoodbye,    // to process 0: the answer to kShutdown; empty
  kTask,       // from process 0
  kShutdown,   // from process 0: the exit status
};

class FarmPost {
 public:
  struct Message {
    std::uint32_t process = 0;  // that sent it
    FarmTag tag = FarmTag::kReady;
    std::string bytes;
  };

  explicit FarmPost(const ProcessGroup& group) : comm_(group.comm), processes_(group.num_processes) {}

  // Whatever has come, of any process; nothing in a group of one.
  std::optional<Message> receive() const;
  // Returns when the message is on its way.
  void send(std::uint32_t process, FarmTag tag, const std::string& bytes) const;
  // Process 0, last of all: the others are told to end with this status, and answer. Where one does not,
  // `session` is marked as lost.
  void shut_down(int exit_status, MpiSession& session) const;

 private:
  MPI_Comm comm_;
  std::uint32_t processes_;
};

// Numbers, and structs of them, as bytes and back; zeros where there are too few.
template <typename Number>
std::string bytes_of(Number number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

template <typename Number>
Number number_in(const std::string& bytes) {
  Number number{};
  if (bytes.size() >= sizeof number) std::memcpy(&number, bytes.data(), sizeof number);
  return number;
}

}  // namespace tpsim::rank
