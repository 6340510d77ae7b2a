#include "launch/serve/wire/drain.h"

#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <thread>

namespace tpsim::launch {

void allow_descriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

bool Drain::go_on() {
  if (!signal_.asked()) return true;
  const auto now = std::chrono::steady_clock::now();
  if (!draining_) {
    draining_ = true;
    began_ = now;
    server_.drain();
    spdlog::warn("a signal came: no new calls are taken, {} that have begun are answered{}",
                 server_.exchanges(), server_.exchanges() > 0 ? "; a second signal ends at once" : "");
  }
  if (server_.exchanges() == 0) return false;
  return !timeout_ || std::chrono::duration<double>(now - began_).count() < *timeout_;
}

void Drain::last_words() const {
  constexpr std::chrono::milliseconds kMoment{500};
  constexpr std::chrono::milliseconds kLook{5};
  const auto end = std::chrono::steady_clock::now() + kMoment;
  while (server_.exchanges() > 0 && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(kLook);
}

}  // namespace tpsim::launch
