// One server of a pair that splits prefill from decode (SGLang's --disaggregation-mode), and the link that KV
// takes from one to the other.
#pragma once

#include <cstdint>

namespace tpsim::scheduler {

// SGLang's DisaggregationMode.
enum class DisaggregationMode : std::uint8_t { kNull, kPrefill, kDecode };

// What a server's scheduler has to be told. Seconds are those that its thread spends, beside what a pass
// costs it; each has a part for every token of the prompt, whose ids SGLang copies as lists.
struct DisaggregationConfig {
  DisaggregationMode mode = DisaggregationMode::kNull;
  // Decode: SGLang's --num-reserved-decode-tokens, kept free for each request that decodes or is on its way.
  std::uint32_t num_reserved_decode_tokens = 512;
  // Decode: rows of requests beyond those that may run, for requests on their way (pre_alloc_size).
  std::uint32_t extra_rows = 0;
  double preallocate_seconds = 0;  // decode: handshake, pages, and the list of pages to the prefill server
  double preallocate_token_seconds = 0;
  double prebuilt_seconds = 0;  // decode: a request whose KV is there becomes part of the batch
  double prebuilt_token_seconds = 0;
  double send_seconds = 0;  // prefill: of each prompt that is done, until its transfer is queued
  double send_token_seconds = 0;
  double offload_token_seconds = 0;  // decode: KV of a retracted request to the host …
  double load_token_seconds = 0;     // … and the same back
};

// A link between servers. KV goes in chunks: each is prepared and posted, a run of contiguous pages a piece
// for each of `buffers`, and then takes its turn on the wire.
struct KvLinkConfig {
  double chunk_seconds = 0;      // of each chunk, until it is on the wire, and until its end is seen
  double run_seconds = 0;        // and of each run of contiguous pages, all buffers together
  double token_seconds = 0;      // on the wire, of one token, over all GPUs of a rank at once
  double page_list_seconds = 0;  // from the decode server's pages to the prefill server that knows them
  double notice_seconds = 0;     // from the end of the last chunk to the decode server's scheduler
  bool token_runs = false;       // every token is a run: the servers cut heads differently
};

}  // namespace tpsim::scheduler
