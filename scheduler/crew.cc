#include "scheduler/crew.h"

#include <utility>

namespace tpsim::scheduler {

Crew::Crew(std::uint32_t size) : begin_(size), end_(size), thrown_(size) {
  for (std::uint32_t i = 1; i < size; ++i) {
    threads_.emplace_back([this, i] {
      while (true) {
        begin_.arrive_and_wait();
        if (work_ == nullptr) return;
        attempt(i);
        end_.arrive_and_wait();
      }
    });
  }
}

Crew::~Crew() {
  work_ = nullptr;
  begin_.arrive_and_wait();
  for (std::thread& thread : threads_) thread.join();
}

void Crew::run(const std::function<void(std::uint32_t)>& work) {
  work_ = &work;
  begin_.arrive_and_wait();
  attempt(0);
  end_.arrive_and_wait();
  for (std::exception_ptr& thrown : thrown_)
    if (thrown) std::rethrow_exception(std::exchange(thrown, nullptr));
}

void Crew::attempt(std::uint32_t number) {
  try {
    (*work_)(number);
  } catch (...) {
    thrown_[number] = std::current_exception();
  }
}

}  // namespace tpsim::scheduler
