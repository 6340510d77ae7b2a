// Messages between the processes of a farm: a tag and bytes, waited for without spinning. Main thread only.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

#include "rank/parallel/mpi_session.h"

namespace tpsim::rank {

class FarmPost {
 public:
  struct Message {
    std::uint32_t process = 0;  // that sent it
    int tag = 0;
    std::string bytes;
  };

  explicit FarmPost(const ProcessGroup& group) : comm_(group.comm), alone_(group.num_processes == 1) {}

  // Whatever has come, of any process; nothing in a group of one.
  std::optional<Message> receive() const;
  // Returns when the message is on its way.
  void send(std::uint32_t process, int tag, const std::string& bytes) const;

 private:
  MPI_Comm comm_;
  bool alone_;
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
