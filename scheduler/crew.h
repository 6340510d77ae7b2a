// Threads that do the same work side by side, again and again, each its share of it.
#pragma once

#include <barrier>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

namespace tpsim::scheduler {

class Crew {
 public:
  // `size` with the thread that calls run(). REQUIRES: size > 0.
  explicit Crew(std::uint32_t size);
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  std::uint32_t size() const { return static_cast<std::uint32_t>(thrown_.size()); }
  // Calls `work` with 0 … size() - 1, each on a thread of its own, the same one in every call, and returns
  // when all have ended. What they throw is thrown here, that of the lowest number.
  void run(const std::function<void(std::uint32_t)>& work);

 private:
  void attempt(std::uint32_t number);

  const std::function<void(std::uint32_t)>* work_ = nullptr;  // null: there is no more
  std::barrier<> begin_, end_;
  std::vector<std::exception_ptr> thrown_;
  std::vector<std::thread> threads_;
};

}  // namespace tpsim::scheduler
