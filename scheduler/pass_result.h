// What one pass produced, request by request.
#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/req.h"

namespace tpsim::scheduler {

struct RequestTokens {
  const Req* req;       // with its new tokens: req->output_len counts them
  std::uint32_t count;  // of them
};

// Requests in it stay valid while it is handed on.
struct PassResult {
  double time = 0;                    // when clients see it; seconds
  bool wants_tokens = false;          // whether `tokens` are collected
  std::vector<RequestTokens> tokens;  // a request that goes on with its prompt has none
  std::vector<const Req*> kv_ready;   // those whose prompt is done: their first tokens came
  std::vector<const Req*> finished;   // completed by this pass, or cancelled before it

  void clear() {
    tokens.clear();
    kv_ready.clear();
    finished.clear();
  }
};

}  // namespace tpsim::scheduler
