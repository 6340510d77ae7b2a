// What a scheduler has beside its waiting queue and running batch where prefill and decode are split: the
// queues of SGLang's disaggregation/prefill.py and decode.py, and what the other side is to be told.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace tpsim::scheduler {

struct Req;

// Of a request, on the side that has it. Times in seconds of the run's clock.
struct KvTransfer {
  // Prefill: when the decode server's pages are known, then when all its KV is there. Decode: when it is
  // here.
  double time = std::numeric_limits<double>::infinity();
  std::uint32_t sent_tokens = 0;      // SGLang's start_send_idx
  std::uint32_t computed_tokens = 0;  // by the chunks whose passes are known to be launched: its tmp_end_idx
  // Decode: what the prefill server found cached, and when it began.
  std::uint32_t cached_tokens = 0, cached_host = 0, cached_storage = 0;
  double first_scheduled_time = 0;
};

// What one side tells the other.
struct KvMessage {
  enum class Kind : std::uint8_t {
    kPages,  // decode: pages for all of the prompt are there, of which `tokens` are to be sent
    kChunk,  // prefill: more KV is computed
    kLast    // and this is all
  };
  Kind kind = Kind::kPages;
  const Req* req = nullptr;
  double time = 0;                     // seconds; when the thread has said it
  std::uint32_t tokens = 0, runs = 0;  // of a chunk; the last may have none
};

struct DisaggregationQueues {
  // Prefill.
  std::vector<Req*> bootstrap;  // wait for the decode server's pages
  std::vector<Req*> inflight;   // their KV is on its way, until its end is noticed
  // Decode.
  std::vector<Req*> prealloc;   // wait for pages; first come, first served
  std::vector<Req*> transfer;   // have pages, wait for their KV
  std::vector<Req*> retracted;  // their KV is in the host's memory
  std::vector<Req*> prebuilt;   // entered the batch in this pass; their first tokens are to be sent

  std::vector<KvMessage> messages;  // since they were taken last
  double thread_seconds = 0;        // of the scheduler's thread, since they were taken last
};

}  // namespace tpsim::scheduler
