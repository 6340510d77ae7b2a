// What is due at passes to come: a list for each of kSlots passes in a row, those of later rounds among them.
// Adding and taking are a step each; what is further away is looked at once a round.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tpsim::scheduler {

// Something that is due for a member of SteadyDecode.
struct Due {
  std::int64_t pass;
  std::uint64_t order;  // of the member
  std::uint32_t member;
};

class DueWheel {
 public:
  std::size_t size() const { return size_; }
  // REQUIRES: due.pass >= 0, and was not taken.
  void add(const Due& due) {
    slot(due.pass).push_back(due);
    ++size_;
  }
  // Moves what is due at `pass` behind what `out` has, in the order in which it was added.
  void take(std::int64_t pass, std::vector<Due>& out) {
    std::vector<Due>& dues = slot(pass);
    if (dues.empty()) return;
    std::size_t kept = 0;
    for (const Due& due : dues) {
      if (due.pass == pass) {
        out.push_back(due);
      } else {
        dues[kept++] = due;
      }
    }
    size_ -= dues.size() - kept;
    dues.resize(kept);
  }
  template <typename Predicate>
  void erase_if(const Predicate& predicate) {
    for (std::vector<Due>& dues : slots_) size_ -= std::erase_if(dues, predicate);
  }
  void clear() {
    for (std::vector<Due>& dues : slots_) dues.clear();
    size_ = 0;
  }

 private:
  static constexpr std::size_t kSlots = 256;
  std::vector<Due>& slot(std::int64_t pass) { return slots_[static_cast<std::size_t>(pass) % kSlots]; }

  std::array<std::vector<Due>, kSlots> slots_;
  std::size_t size_ = 0;
};

}  // namespace tpsim::scheduler
