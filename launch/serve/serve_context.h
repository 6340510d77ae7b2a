// What all calls of a server share.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kvcache/token_runs.h"
#include "launch/serve/gate.h"
#include "launch/serve/live/live_fleet.h"
#include "launch/serve/live_statistics.h"
#include "launch/serve/protocol/answer_format.h"
#include "launch/serve/protocol/generate_call.h"
#include "launch/serve/wire/http_message.h"
#include "launch/tokenizer/chat_template.h"
#include "launch/tokenizer/tokenizer.h"
#include "scheduler/router/worker_health.h"

namespace tpsim::launch {

// Answers that nobody computed: ids of real words of the vocabulary, in an order that nobody means anything
// by.
class InventedAnswers {
 public:
  // `vocab_size` of the model: ids are below it.
  InventedAnswers(const Tokenizer& tokenizer, std::uint32_t vocab_size);

  // `count` ids, the same for the same `seed`; the answers of two seeds soon differ. The ids of neighbours
  // follow each other, so that there are fewer runs than tokens.
  kvcache::TokenSequence tokens(std::uint64_t seed, std::uint32_t count) const;
  // What an id of them adds to a text.
  std::string_view text(std::uint32_t id) const;

 private:
  std::vector<std::uint32_t> ids_;  // ascending
  std::unordered_map<std::uint32_t, std::string> texts_;
};

// What clients were answered, and how late. Any thread. `route` and `method` are views of constants.
class ServeCounts {
 public:
  void add(std::string_view route, std::string_view method, unsigned status) {
    const std::lock_guard lock(mutex_);
    ++responses_[{route, method, status}];
  }
  // A call has begun, or is over, that takes a while.
  void begin(std::string_view route, std::string_view method) {
    const std::lock_guard lock(mutex_);
    ++active_[{route, method}];
  }
  void end(std::string_view route, std::string_view method) {
    const std::lock_guard lock(mutex_);
    --active_[{route, method}];
  }
  // What was due at `due` has just left: the socket has it.
  void note_due(std::chrono::steady_clock::time_point due) {
    const double late = std::chrono::duration<double>(std::chrono::steady_clock::now() - due).count();
    const std::lock_guard lock(mutex_);
    lateness_.observe(late);
  }
  void copy_to(LiveStatistics& live) const {
    const std::lock_guard lock(mutex_);
    live.http_responses = responses_;
    live.http_active = active_;
    live.lateness = lateness_;
  }

 private:
  mutable std::mutex mutex_;
  HttpResponses responses_;
  HttpActive active_;
  LiveHistogram lateness_{kLatenessEdges};
};

// The requests that are open under the names that clients know them by (SGLang's rid). Any thread.
class RequestNames {
 public:
  // Makes `name` stand for a request that is not submitted yet. False: it stands for another one.
  bool reserve(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return ids_.emplace(name, kNotSubmitted).second;
  }
  // Submitted, as the replica's number `id`.
  void set(const std::string& name, std::uint64_t id) {
    const std::lock_guard lock(mutex_);
    ids_.insert_or_assign(name, id);
  }
  void erase(const std::string& name) {
    const std::lock_guard lock(mutex_);
    ids_.erase(name);
  }
  bool contains(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    return ids_.contains(name);
  }
  // The numbers of all whose names begin with `prefix`; of all, if it is empty.
  std::vector<std::uint64_t> starting_with(std::string_view prefix) const {
    const std::lock_guard lock(mutex_);
    std::vector<std::uint64_t> ids;
    for (auto at = ids_.lower_bound(prefix); at != ids_.end() && at->first.starts_with(prefix); ++at) {
      if (at->second != kNotSubmitted) ids.push_back(at->second);
    }
    return ids;
  }

 private:
  static constexpr std::uint64_t kNotSubmitted = ~std::uint64_t{0};

  mutable std::mutex mutex_;
  std::map<std::string, std::uint64_t, std::less<>> ids_;
};

// A model, and how it is spoken to.
struct ServedModel {
  std::string name;
  std::uint16_t number = 0;  // WorkloadRequest::model
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat;
  InventedAnswers invented;
  FormatOptions format;
  std::vector<std::uint32_t> eos_ids = {};  // that end a computed answer
  std::uint32_t vocab_size = 0;
  std::uint32_t context_length = 0;  // tokens
  HttpHeaders answer_headers = {};   // of every answer that has tokens
};

struct ServeContext {
  LiveFleet& fleet;
  std::vector<ServedModel> models;  // at least one
  // A router with --enable-igw: a call is for the model that it names. Else all are for the first.
  bool by_name = false;
  ParseLimits parse_limits;
  bool computes = false;  // --executor numeric
  std::uint32_t stream_interval = 1;
  std::uint32_t default_output_tokens = 256;
  std::optional<std::uint32_t> max_output_tokens = {};
  std::uint64_t max_open_requests = 65536;
  scheduler::RetryConfig retry = {};  // of the router before all
  std::shared_ptr<Gate> gate = {};    // of the router before all; null: everything is let through

  // Null: nobody serves it.
  const ServedModel* find_model(const std::optional<std::string>& name) const {
    if (!by_name) return &models.front();
    const auto found = std::ranges::find(models, name, &ServedModel::name);
    return found == models.end() ? nullptr : &*found;
  }

  RequestNames names = {};
  ServeCounts counts = {};
  std::atomic<std::uint64_t> answers = 0;        // seeds of invented ones
  std::atomic<std::uint64_t> merged_deltas = 0;  // see LiveStatistics
  std::atomic<std::uint64_t> invalid_requests = 0;
  std::atomic<std::uint64_t> open_streams = 0;
  std::atomic<bool> draining = false;
};

}  // namespace tpsim::launch
