// Mooncake's trace release (FAST'25): one JSON object in each line, in order of time.
//
//   timestamp      milliseconds
//   input_length   prompt tokens
//   output_length  generated tokens
//   hash_ids       one per block of 512 prompt tokens, the last block may be partial; equal ids at the
//                  beginning of two prompts mean equal tokens there
//
// Block h stands for the token ids [512 h, 512 h + 512), so consecutive blocks are one run.
#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "kvcache/token_runs.h"
#include "scheduler/workload/json_record.h"
#include "scheduler/workload/trace_formats.h"

namespace tpsim::scheduler {

namespace {

constexpr std::uint64_t kBlock = 512;
constexpr std::uint64_t kMaxBlockId = kGeneratedTokenBase / kBlock - 1;

enum { kTimestamp, kInputLength, kOutputLength, kHashIds };
constexpr std::array<std::string_view, 4> kKeys = {"timestamp", "input_length", "output_length", "hash_ids"};

class Mooncake : public TraceFormat {
 public:
  explicit Mooncake(JsonRecords& records) : records_(records), record_(kKeys) {}

  bool next(TraceRecord& out) override {
    std::string_view text;
    if (!records_.next(text, out.place)) return false;
    const Place& place = out.place;
    record_.parse(text, place);
    WorkloadRequest& request = out.request;
    const double timestamp = record_.number(kTimestamp);
    if (first_timestamp_ < 0) first_timestamp_ = timestamp;
    request.arrival_time = (timestamp - first_timestamp_) / 1000;
    const std::uint64_t input_length = record_.count(kInputLength, 1, kMaxRequestTokens);
    request.max_new_tokens = static_cast<std::uint32_t>(record_.count(kOutputLength, 1, kMaxRequestTokens));
    const JsonField& hash_ids = record_.field(kHashIds);
    if (hash_ids.kind != JsonKind::kUnsigneds) {
      place.fail(
          "hash_ids is missing or not an array of whole numbers from 0 up; one id for each block of {} "
          "prompt tokens is needed",
          kBlock);
    }
    const std::uint64_t blocks = (input_length + kBlock - 1) / kBlock;
    if (hash_ids.values.size() != blocks) {
      place.fail("{} hash_ids for an input_length of {}; {} are needed, one for each block of {} tokens",
                 hash_ids.values.size(), input_length, blocks, kBlock);
    }
    std::uint64_t left = input_length;
    const std::vector<std::uint64_t>& ids = hash_ids.values;
    runs_.clear();
    for (std::size_t i = 0; i < ids.size();) {
      const std::size_t first = i;
      do {
        if (ids[i] > kMaxBlockId) place.fail("hash_ids has {}; ids are at most {}", ids[i], kMaxBlockId);
        ++i;
      } while (i < ids.size() && ids[i] == ids[i - 1] + 1);
      const std::uint64_t length = std::min(left, (i - first) * kBlock);
      runs_.push_back({ids[first] * kBlock, static_cast<std::uint32_t>(length)});
      left -= length;
    }
    request.prompt = kvcache::TokenSequence(runs_);
    return true;
  }

 private:
  JsonRecords& records_;
  JsonRecord record_;
  std::vector<kvcache::TokenRun> runs_;  // of the prompt that is read
  double first_timestamp_ = -1;
};

}  // namespace

std::unique_ptr<TraceFormat> open_mooncake(JsonRecords& records, const ReadOptions&) {
  return std::make_unique<Mooncake>(records);
}

}  // namespace tpsim::scheduler
