// One reading of a trace file, request by request: finds out the format, checks what every format has in
// common, numbers sessions and namespaces.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "proto/base/hash.h"
#include "scheduler/workload/json_record.h"
#include "scheduler/workload/trace_formats.h"
#include "scheduler/workload/trace_input.h"

namespace tpsim::scheduler {

// Numbers for the names of conversations, in order of first appearance.
//
// A name is known by a hash of 128 bits and not kept: a conversation costs some 60 bytes however long its
// name is. That two of a billion names had the same hash has a probability of 1e-21.
class LabelNumbers {
 public:
  // From 1. REQUIRES: `label` was not forgotten.
  std::uint32_t of(std::string_view label) {
    const auto [known, is_new] = numbers_.try_emplace(hash_of(label), last_ + 1);
    if (is_new) ++last_;
    return known->second;
  }
  // `label` will not come again: its memory is free. Its number is not given a second time.
  void forget(std::string_view label) { numbers_.erase(hash_of(label)); }

  std::size_t size() const { return numbers_.size(); }  // labels that are known

 private:
  using Hash = std::array<std::uint64_t, 2>;
  struct FirstHalf {
    std::size_t operator()(const Hash& hash) const { return hash[0]; }
  };

  static Hash hash_of(std::string_view label) {
    ByteHash plain, shifted;
    plain.add(label);
    shifted.add("-");
    shifted.add(label);
    return {plain.value(), shifted.value()};
  }

  std::unordered_map<Hash, std::uint32_t, FirstHalf> numbers_;
  std::uint32_t last_ = 0;
};

class TraceStream {
 public:
  // `source`: the bytes of the file as they are, perhaps compressed. Throws UserError.
  TraceStream(std::unique_ptr<ByteSource> source, const std::string& name, const ReadOptions& options);

  // The next request, with its session and namespace numbered and checked against those before it; its
  // arrival time counts from the zero of the file. `record` is overwritten. False after the last, or after
  // ReadOptions::num_prompts. Throws UserError "FILE:LINE: …".
  bool next(TraceRecord& record);
  // No later request is of this session (TraceRecord::session).
  void end_session(std::string_view session) { sessions_.forget(session); }

  const std::string& name() const { return input_.name(); }
  std::string_view format() const { return format_name_; }
  const std::vector<std::string>& extra_keys() const { return extra_keys_; }
  const std::vector<std::string>& models() const { return models_; }  // that were named so far
  std::vector<std::string> notes() const { return format_->notes(); }

  std::uint64_t requests() const { return requests_; }  // read so far
  bool lengths_only() const { return !contents_; }      // of those none says what its prompt holds
  double last_arrival() const { return last_arrival_; }
  // The first id of prompts that are known by their length: above all that the trace names. REQUIRES: next()
  // returned false. Throws UserError where there was no request, or where ids leave no room for such prompts.
  kvcache::TokenId first_unique_id() const;

  // Throws UserError for a name that is no format's.
  static void check_format_name(const std::string& format);
  // Throws UserError where a trace lasts longer than kMaxSeconds.
  static void check_span(const std::string& name, double seconds);

 private:
  static constexpr double kMaxSeconds = 1e10;  // 300 years

  void check(const TraceRecord& record);

  TraceInput input_;
  JsonRecords records_;
  std::string_view format_name_;
  std::unique_ptr<TraceFormat> format_;
  std::uint64_t limit_;
  bool sort_;
  std::uint64_t requests_ = 0;
  bool contents_ = false;
  double last_arrival_ = -std::numeric_limits<double>::infinity();
  kvcache::TokenId id_end_ = 0;      // one above the highest id that the trace names
  std::uint64_t unique_tokens_ = 0;  // of prompts known by their length
  LabelNumbers sessions_;
  std::unordered_map<std::string, std::uint32_t> namespaces_;  // looked up only: order does not matter
  std::vector<std::string> extra_keys_ = {""};
  std::vector<std::string> models_;  // a few
};

}  // namespace tpsim::scheduler
