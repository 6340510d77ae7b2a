// Puts together the Workload that a format reader reads, and checks what every format has in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "scheduler/workload/trace_input.h"
#include "scheduler/workload/trace_reader.h"
#include "scheduler/workload/workload.h"

namespace tpsim::scheduler {

class WorkloadBuilder {
 public:
  WorkloadBuilder(std::string name, std::string format, const ReadOptions& options);

  // The options' num_prompts are read: the format reader stops.
  bool full() const { return workload_.requests.size() == limit_; }

  // Appends a request. Its arrival_time may count from any zero; finish() moves the first request to 0.
  // Throws UserError for a request that arrives before the one before it (unless options.sort).
  // REQUIRES: lengths are within kMaxRequestTokens and ids below kGeneratedTokenBase.
  void add(const Place& place, WorkloadRequest&& request);

  // The same for a request of whose prompt only the length is known: finish() gives it ids that nothing else
  // in the trace has.
  void add_unique(const Place& place, WorkloadRequest&& request, std::uint32_t prompt_length);

  // Number of a conversation or cache namespace, in order of first appearance. "" is 0: none.
  std::uint32_t session(std::string_view id);
  std::uint32_t extra_key(std::string_view key);

  void add_note(std::string note) { workload_.notes.push_back(std::move(note)); }

  // REQUIRES: nothing is called afterwards. Throws UserError where no request was added.
  Workload finish();

 private:
  std::size_t limit_;
  bool sort_;
  kvcache::TokenId id_end_ = 0;  // one above the highest id that the trace names
  struct UniquePrompt {
    std::size_t request;
    std::uint32_t length;
  };
  std::vector<UniquePrompt> unique_;
  std::uint64_t unique_tokens_ = 0;
  double last_arrival_ = -std::numeric_limits<double>::infinity();
  std::unordered_map<std::string, std::uint32_t> sessions_;  // looked up only: order does not matter
  std::unordered_map<std::string, std::uint32_t> extra_keys_;
  Workload workload_;
};

// Puts requests in order of arrival (equal times keep their order), moves the first arrival to 0 and numbers
// sessions and namespaces by first appearance.
void sort_by_arrival(Workload& workload);

}  // namespace tpsim::scheduler
