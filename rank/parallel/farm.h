// Farms of processes, and the messages between them: a tag and bytes, waited for without spinning. Main
// thread only.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "rank/parallel/mpi_session.h"

namespace tpsim::rank {

// The bytes of a task are its number; of a result the number, then what the task returned.
enum class FarmTag : int {
  kReady = 1,  // to process 0: a thread, or a group, is free; empty
  kResult,     // to process 0: a result; what worked on it is free again
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

  explicit FarmPost(const ProcessGroup& group) : group_(group) {}

  const ProcessGroup& group() const { return group_; }
  // Whatever has come, of any process; nothing in a group of one.
  std::optional<Message> receive() const;
  // Returns when the message is on its way.
  void send(std::uint32_t process, FarmTag tag, const std::string& bytes) const;

 protected:
  const ProcessGroup group_;
};

// What TaskFarm and GroupFarm have in common: the messages, and the end. Process 0 hands out the tasks.
class Farm : public FarmPost {
 public:
  Farm(const Farm&) = delete;
  Farm& operator=(const Farm&) = delete;

  // The sentence of a lost process, if there was one.
  const std::optional<std::string>& loss() const { return loss_; }
  // Process 0, last of all: the others end with this status, and stop what they are doing. Where one does not
  // answer, the session is marked as lost.
  void shutdown(int exit_status) noexcept;

 protected:
  Farm(MpiSession& session, const ProcessGroup& group) : FarmPost(group), session_(session) {}
  // On process 0: shutdown(2), where shutdown() was not called.
  ~Farm();

  // Says so in loss() where a process of `owing` (tasks by process) is dead; looks every 50 ms at most.
  // `what`: "process {} has died …", of the process and its tasks.
  void look_for_dead(const std::vector<std::uint32_t>& owing, const char* what);

  MpiSession& session_;
  std::optional<std::string> loss_;

 private:
  bool shut_down_ = false;
  double next_look_ = 0;
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
