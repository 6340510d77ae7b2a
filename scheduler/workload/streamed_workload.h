// A workload that need not be in memory: its requests are read one after another, as often as they are
// wanted.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/workload/workload.h"

namespace tpsim::scheduler {

// What is known of a workload before its requests are read.
struct WorkloadOutline {
  std::string name, format;        // as in Workload
  std::vector<std::string> notes;  // as in Workload
  std::uint64_t requests = 0;
  std::uint64_t turns = 0;            // of them, those that reply to an answer
  bool conversations = false;         // some request has a session
  bool images = false;                // some request has images,
  bool unsized_images = false;        // some image has no size
  std::uint64_t shortest_prompt = 0;  // tokens
  double first_arrival = 0;           // seconds
  double last_arrival = 0;            // of all requests
  double last_start = 0;              // of those that reply to nothing
  // Positions of the first request without accept_lens, and of the one with the longest step.
  std::optional<std::uint64_t> without_accept_lens;
  std::uint64_t longest_accepting = 0;
  std::uint32_t longest_accept_len = 0;
  // By position: whether another turn of the request's session comes later. Empty: no session has a second.
  std::vector<bool> followed;
};

// One reading of a workload: the next request in order of arrival; null after the last. Throws UserError
// where a file no longer holds what it did.
using RequestReader = std::function<std::shared_ptr<const WorkloadRequest>()>;

class StreamedWorkload {
 public:
  virtual ~StreamedWorkload() = default;
  const WorkloadOutline& outline() const { return outline_; }
  // A reading from the beginning. The workload must outlive it. May be called by several threads at once.
  RequestReader read() const { return read_(); }

 protected:
  StreamedWorkload() = default;
  StreamedWorkload(WorkloadOutline outline, std::function<RequestReader()> read)
      : outline_(std::move(outline)), read_(std::move(read)) {}
  // The outline of what `read` reads, which it does once.
  StreamedWorkload(std::string name, std::string format, std::vector<std::string> notes,
                   std::function<RequestReader()> read);

  WorkloadOutline outline_;
  std::function<RequestReader()> read_;
};

// Looks at requests in order and makes their outline. Memory: a bit for each request and four bytes for each
// session, where there are sessions.
class OutlineBuilder {
 public:
  // `prompt_length`: tokens; the request may not have all of its prompt yet.
  void add(const WorkloadRequest& request, std::uint64_t prompt_length);
  // Without name, format and notes. REQUIRES: add() is not called afterwards.
  WorkloadOutline finish();

 private:
  WorkloadOutline outline_;
  std::vector<std::uint32_t> last_of_session_;  // position + 1, by session
};

class WorkloadInMemory : public StreamedWorkload {
 public:
  explicit WorkloadInMemory(Workload workload)
      : WorkloadInMemory(std::make_shared<const Workload>(std::move(workload))) {}
  explicit WorkloadInMemory(const std::shared_ptr<const Workload>& workload);
};

// The same of a workload that must outlive it.
class WorkloadView : public WorkloadInMemory {
 public:
  explicit WorkloadView(const Workload& workload)
      : WorkloadInMemory(std::shared_ptr<const Workload>(std::shared_ptr<void>(), &workload)) {}
};

// Of all requests: differs where a priced run of them may. Reads all of the workload.
std::uint64_t hash_of(const StreamedWorkload& workload);

// All of `streamed`, but for the names of its namespaces.
Workload in_memory(const StreamedWorkload& streamed);

}  // namespace tpsim::scheduler
