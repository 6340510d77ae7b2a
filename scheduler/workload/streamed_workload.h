// A workload that need not be in memory: its requests are read one after another, as often as they are
// wanted.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
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

// One reading of a workload.
class RequestReader {
 public:
  virtual ~RequestReader() = default;
  // The next request in order of arrival; null behind the last. It may refer to the StreamedWorkload, which
  // must outlive it. Throws UserError where a file no longer holds what it did.
  virtual std::shared_ptr<const WorkloadRequest> next() = 0;
};

class StreamedWorkload {
 public:
  virtual ~StreamedWorkload() = default;
  virtual const WorkloadOutline& outline() const = 0;
  // A reading from the beginning. May be called by several threads at once.
  virtual std::unique_ptr<RequestReader> read() const = 0;
};

// Looks at requests in order and makes their outline. Memory: a bit for each request and four bytes for each
// session, where there are sessions.
class OutlineBuilder {
 public:
  void add(const WorkloadRequest& request);
  // The same, where only the length of the prompt is known yet.
  void add(const WorkloadRequest& request, std::uint64_t prompt_length);
  // Without name, format and notes. REQUIRES: add() is not called afterwards.
  WorkloadOutline finish();

 private:
  WorkloadOutline outline_;
  std::vector<std::uint32_t> last_of_session_;  // position + 1, by session
};

// `workload`, which is in memory and must outlive the result.
class WorkloadView : public StreamedWorkload {
 public:
  explicit WorkloadView(const Workload& workload);
  const WorkloadOutline& outline() const override { return outline_; }
  std::unique_ptr<RequestReader> read() const override;

 private:
  const Workload& workload_;
  WorkloadOutline outline_;
};

// The same with the workload in it.
class WorkloadInMemory : public StreamedWorkload {
 public:
  explicit WorkloadInMemory(Workload workload) : workload_(std::move(workload)), view_(workload_) {}
  WorkloadInMemory(const WorkloadInMemory&) = delete;
  WorkloadInMemory& operator=(const WorkloadInMemory&) = delete;
  const WorkloadOutline& outline() const override { return view_.outline(); }
  std::unique_ptr<RequestReader> read() const override { return view_.read(); }

 private:
  const Workload workload_;
  const WorkloadView view_;
};

// Of all requests: differs where a priced run of them may. Reads all of the workload.
std::uint64_t hash_of(const StreamedWorkload& workload);

// All of `streamed`, but for the names of its namespaces.
Workload in_memory(const StreamedWorkload& streamed);

}  // namespace tpsim::scheduler
