// tpsim's own format: one JSON object in each line, in order of time.
//
//   arrival_time    seconds
//   prompt          runs [[first id, length], …] or token ids [17, 4, …]; or
//   prompt_ids      token ids; or
//   prompt_len      a length: ids that nothing else in the trace has
//   max_new_tokens  tokens to generate; may be left out where `output` is given
//   output          the ids that will be generated, as `prompt`; optional
//   ignore_eos      optional, true: false says that `output` may be shorter than max_new_tokens, because the
//                   end of sequence came, which the server does not know beforehand
//   priority        optional; without one a request comes last where priorities are scheduled
//   extra_key       cache namespace, text; optional
//   model           of those that a fleet serves, text; optional
//   session_id      conversation, text or number; optional
//   think_time      seconds from the end of the answer before it in its conversation to this turn; optional
//   accept_lens     speculative decoding: tokens kept of its first step, its second …, as of the last in
//                   those after; optional
//   images, image_ids, image_positions  (images.h); optional. The tokens of an image itself are the
//                   model's matter and are not in the prompt
//   version         of the format; optional, 1
//
// The writer is in trace_writer.cc.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "proto/versions.h"
#include "scheduler/workload/images.h"
#include "scheduler/workload/json_record.h"
#include "scheduler/workload/trace_formats.h"

namespace tpsim::scheduler {
namespace {

enum Key {
  kArrivalTime,
  kPrompt,
  kPromptIds,
  kPromptLen,
  kMaxNewTokens,
  kOutput,
  kIgnoreEos,
  kPriority,
  kExtraKey,
  kModel,
  kSessionId,
  kThinkTime,
  kAcceptLens,
  kImages,
  kImageIds,
  kImagePositions,
  kVersion
};
constexpr std::array<std::string_view, 17> kKeys = {
    "arrival_time", "prompt",   "prompt_ids", "prompt_len",      "max_new_tokens", "output",
    "ignore_eos",   "priority", "extra_key",  "model",           "session_id",     "think_time",
    "accept_lens",  "images",   "image_ids",  "image_positions", "version"};

constexpr std::uint64_t kMaxAcceptLen = 256;  // --speculative-num-draft-tokens

// Text, or a number as text, or "" where the field is absent or null.
std::string label(const JsonRecord& record, Key key, const Place& place) {
  const JsonField& field = record.field(key);
  switch (field.kind) {
    case JsonKind::kAbsent:
    case JsonKind::kNull:
      return "";
    case JsonKind::kString:
      return field.text;
    case JsonKind::kUnsigned:
      return fmt::format("{}", field.integer);
    default:
      place.fail("{} is neither text nor a whole number; one of them is needed", kKeys[key]);
  }
}

std::optional<std::int32_t> priority(const JsonRecord& record, const Place& place) {
  const JsonField& field = record.field(kPriority);
  if (field.kind == JsonKind::kAbsent || field.kind == JsonKind::kNull) return std::nullopt;
  const bool numeric = field.kind == JsonKind::kUnsigned || field.kind == JsonKind::kNegative;
  if (!numeric || std::abs(field.number) > std::numeric_limits<std::int32_t>::max()) {
    place.fail("priority is not a whole number of 32 bits; one from -2147483647 to 2147483647 is needed");
  }
  return static_cast<std::int32_t>(field.number);
}

class Tpsim : public TraceFormat {
 public:
  explicit Tpsim(JsonRecords& records) : records_(records), record_(kKeys) {}

  bool next(TraceRecord& out) override {
    std::string_view text;
    if (!records_.next(text, out.place)) return false;
    const Place& place = out.place;
    record_.parse(text, place);
    if (!record_.unknown_key().empty()) {
      place.fail("{} is not a field of this format; there are {}", in_quotes(record_.unknown_key()),
                 fmt::join(kKeys, ", "));
    }
    if (record_.has(kVersion) && record_.count(kVersion, 0, kMaxRequestTokens) != kRequestVersion) {
      place.fail("version {} of the format is not known; this program reads version {}",
                 record_.field(kVersion).number, kRequestVersion);
    }
    WorkloadRequest& request = out.request;
    request.arrival_time = record_.number(kArrivalTime);
    request.priority = priority(record_, place);
    out.extra_key = label(record_, kExtraKey, place);
    out.model = label(record_, kModel, place);
    out.session = label(record_, kSessionId, place);
    if (record_.has(kThinkTime)) {
      request.think_time = record_.number(kThinkTime);
      if (out.session.empty()) place.fail("think_time is given and session_id is not; give both or neither");
    }
    if (record_.has(kOutput)) {
      request.output = record_.tokens(kOutput, kGeneratedTokenBase);
      if (request.output.empty()) place.fail("output is empty; leave it out or give max_new_tokens ids");
    }
    if (record_.has(kMaxNewTokens) || request.output.empty()) {
      request.max_new_tokens = static_cast<std::uint32_t>(record_.count(kMaxNewTokens, 1, kMaxRequestTokens));
    } else {
      request.max_new_tokens = static_cast<std::uint32_t>(request.output.size());
    }
    if (record_.has(kIgnoreEos)) request.sampling.ignore_eos = record_.boolean(kIgnoreEos);
    if (record_.has(kAcceptLens)) {
      const kvcache::TokenSequence lens = record_.tokens(kAcceptLens, kMaxAcceptLen + 1);
      for (const kvcache::TokenRun& run : lens.runs()) {
        for (std::uint32_t i = 0; i < run.length; ++i)
          request.accept_lens.push_back(static_cast<std::uint32_t>(run.first + i));
      }
      if (std::find(request.accept_lens.begin(), request.accept_lens.end(), 0U) != request.accept_lens.end())
        place.fail("accept_lens names 0 tokens; a step keeps at least one");
    }
    const std::uint64_t output = request.output.size();
    const bool may_stop = !request.sampling.ignore_eos && output < request.max_new_tokens;
    if (output != 0 && output != request.max_new_tokens && !may_stop) {
      place.fail("output has {} tokens and max_new_tokens is {}; make them equal{}", output,
                 request.max_new_tokens,
                 output < request.max_new_tokens ? ", or set ignore_eos to false if it ended early" : "");
    }
    request.images = read_images(record_, {kImages, kImageIds, kImagePositions}, place, unnamed_images_);
    const int prompts = record_.has(kPrompt) + record_.has(kPromptIds) + record_.has(kPromptLen);
    if (prompts != 1) {
      place.fail("the prompt is {}; give one of prompt, prompt_ids, prompt_len",
                 prompts == 0 ? "missing" : "given more than once");
    }
    if (record_.has(kPromptLen)) {
      out.prompt_length = static_cast<std::uint32_t>(record_.count(kPromptLen, 1, kMaxRequestTokens));
      return true;
    }
    request.prompt = record_.tokens(record_.has(kPrompt) ? kPrompt : kPromptIds, kGeneratedTokenBase);
    if (request.prompt.empty()) place.fail("the prompt is empty; at least one token is needed");
    return true;
  }

 private:
  JsonRecords& records_;
  JsonRecord record_;
  std::uint64_t unnamed_images_ = kUnnamedImages;
};

}  // namespace

std::unique_ptr<TraceFormat> open_tpsim(JsonRecords& records, const ReadOptions&) {
  return std::make_unique<Tpsim>(records);
}

}  // namespace tpsim::scheduler
