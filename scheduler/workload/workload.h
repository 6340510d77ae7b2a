// A workload: the requests that a run serves, in order of arrival.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kvcache/token_runs.h"

namespace tpsim::scheduler {

// Token ids above this are invented by the simulator for generated tokens; readers stay below.
inline constexpr kvcache::TokenId kGeneratedTokenBase = kvcache::TokenId{1} << 48;

// Tokens of one prompt, and tokens that one request generates, at most.
inline constexpr std::uint64_t kMaxRequestTokens = (std::uint64_t{1} << 31) - 1;

// SGLang's sampling parameters; as they are, greedy. Only numeric execution samples.
struct SamplingParams {
  double temperature = 0;   // 0: greedy
  std::uint32_t top_k = 0;  // 0: all
  double top_p = 1;
  std::uint64_t seed = 0;
  bool ignore_eos = true;  // generate max_new_tokens whatever comes, as benchmarks do
  friend bool operator==(const SamplingParams&, const SamplingParams&) = default;
};

// The most that is read of images, wherever a request has them from: beyond it a number is a slip of the pen.
inline constexpr std::uint32_t kMostPixels = 65536;  // of a side
inline constexpr std::uint32_t kMostImages = 1000;   // of a request

// An image of a prompt.
struct ImageInput {
  std::uint32_t width = 0, height = 0;  // pixels; 0: not known
  std::uint64_t content = 0;            // equal for equal images
  std::uint32_t position = 0;           // prompt tokens in front of it
  std::uint32_t tokens = 0;  // of the prompt that stand for it; 0: none yet (scheduler/workload/images.h)
  friend bool operator==(const ImageInput&, const ImageInput&) = default;
};

struct WorkloadRequest {
  double arrival_time = 0;               // seconds since the first request; not decreasing
  kvcache::TokenSequence prompt;         // at least one token
  std::uint32_t max_new_tokens = 0;      // at least one
  std::optional<std::int32_t> priority;  // none is not 0 where priorities decide the order
  std::uint32_t extra_key = 0;           // index into Workload::extra_keys; 0 = none
  std::uint32_t session = 0;             // conversation number from 1; 0 = none
  // Seconds from the end of the answer before it in its session to the sending of this turn, where the trace
  // names them. Without meaning on a first turn.
  std::optional<double> think_time = {};
  // The ids that will be generated, where the workload knows them: a later turn's prompt can then contain the
  // very ids of this answer, and find them in the cache. max_new_tokens of them, or, unless
  // sampling.ignore_eos, fewer: the last one then is the end of sequence. Empty: the scheduler invents ids
  // (from kGeneratedTokenBase), which no prompt contains.
  // Numeric execution generates real ids and does not look here.
  kvcache::TokenSequence output;
  // Speculative decoding, modeled: the tokens that it keeps of its first step, its second … ; of those after,
  // as of the last. Empty: nothing is said.
  std::vector<std::uint32_t> accept_lens = {};
  SamplingParams sampling;
  std::vector<ImageInput> images = {};  // in the order of their positions
  bool images_in_prompt = false;        // the prompt's length counts their tokens already
  // Position in WorkloadOutline::models, from 1; 0: whatever is served. Of fleets alone, which have no
  // checkpoints.
  std::uint16_t model = 0;
  // Seconds that its images take in front of the scheduler, and of the scheduler itself when it comes.
  double image_prepare_seconds = 0, image_receive_seconds = 0;
  friend bool operator==(const WorkloadRequest&, const WorkloadRequest&) = default;

  auto state() {
    return std::tie(arrival_time, prompt, max_new_tokens, priority, extra_key, session, think_time, output,
                    accept_lens, sampling, images, images_in_prompt, image_prepare_seconds,
                    image_receive_seconds);
  }
};

struct Workload {
  std::string name;                       // file name or dataset name, for reports
  std::string format;                     // "mooncake", "azure", "burstgpt", "sharegpt", "tpsim", "random"
  std::vector<WorkloadRequest> requests;  // sorted by arrival_time
  std::vector<std::string> extra_keys = {""};  // namespaces
  std::vector<std::string> notes;              // what a reader left out, one sentence each, for the user
  std::vector<std::string> models = {};        // that requests name
  bool lengths_only = false;                   // nothing is known of what prompts hold but how much it is
};

// Puts requests in order of arrival (equal times keep their order), moves the first arrival to 0 and numbers
// sessions, namespaces and models by first appearance.
void sort_by_arrival(Workload& workload);

// Moves the first request to 0, and all others with it.
void start_at_zero(Workload& workload);

// What is known of a workload before its requests are read.
struct WorkloadOutline {
  std::string name, format;        // as in Workload
  std::vector<std::string> notes;  // as in Workload
  std::uint64_t requests = 0;
  std::uint64_t turns = 0;            // of them, those that reply to an answer
  bool conversations = false;         // some request has a session
  std::vector<std::string> models;    // as in Workload
  bool unnamed_models = false;        // some request names none
  bool images = false;                // some request has images,
  bool unsized_images = false;        // some image has no size
  bool lengths_only = false;          // as in Workload
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

// A workload that need not be in memory: its requests are read one after another, as often as they are
// wanted.
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
