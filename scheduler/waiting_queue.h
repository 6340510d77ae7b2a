// The requests that wait, in the order in which admission looks at them. Who is admitted mostly stands at the
// front: leaving there costs nothing, however many wait behind.
#pragma once

#include <cstddef>
#include <span>
#include <tuple>
#include <vector>

#include "scheduler/req.h"

namespace tpsim::scheduler {

class WaitingQueue {
 public:
  using iterator = std::vector<Req*>::iterator;
  using const_iterator = std::vector<Req*>::const_iterator;

  bool empty() const { return size() == 0; }
  std::size_t size() const { return reqs_.size() - static_cast<std::size_t>(head_); }
  iterator begin() { return reqs_.begin() + head_; }
  iterator end() { return reqs_.end(); }
  const_iterator begin() const { return reqs_.begin() + head_; }
  const_iterator end() const { return reqs_.end(); }
  // For policies, which change the order.
  std::span<Req*> all() { return {begin(), end()}; }

  void push_back(Req* req) {
    if (reqs_.size() == reqs_.capacity() && 2 * static_cast<std::size_t>(head_) > reqs_.size()) {
      reqs_.erase(reqs_.begin(), begin());
      head_ = 0;
    }
    reqs_.push_back(req);
  }
  // Takes out the first `count` requests for which leaves(req) holds, or as many as there are.
  template <typename Leaves>
  void remove(std::size_t count, const Leaves& leaves) {
    iterator behind = begin();  // the last one that leaves
    for (iterator at = begin(); at != end() && count > 0; ++at) {
      if (!leaves(*at)) continue;
      behind = at + 1;
      --count;
    }
    // Those between stay, in their order.
    iterator kept = behind;
    for (iterator at = behind; at != begin();) {
      if (!leaves(*--at)) *--kept = *at;
    }
    head_ = kept - reqs_.begin();
  }

  auto state() { return std::tie(reqs_, head_); }

 private:
  std::vector<Req*> reqs_;  // from head_ on
  std::ptrdiff_t head_ = 0;
};

}  // namespace tpsim::scheduler
