// Lengths of a chat dataset such as ShareGPT: a JSON array of objects, or one object in each line, with
//
//   prompt_len or input_len   prompt tokens, or `prompt`: the token ids
//   output_len                generated tokens, or `output`: the token ids
//
// All requests arrive at 0: offer them with --request-rate or --max-concurrency. Text is refused: how many
// tokens it has depends on a tokenizer, and a guess would be an invented workload.
#include <array>
#include <memory>

#include "scheduler/workload/json_record.h"
#include "scheduler/workload/trace_formats.h"

namespace tpsim::scheduler {

namespace {

enum { kPromptLen, kInputLen, kPrompt, kOutputLen, kOutput, kConversations, kConversation };
constexpr std::array<std::string_view, 7> kKeys = {"prompt_len", "input_len",     "prompt",      "output_len",
                                                   "output",     "conversations", "conversation"};

class ShareGpt : public TraceFormat {
 public:
  explicit ShareGpt(JsonRecords& records) : records_(records), record_(kKeys) {}

  bool next(TraceRecord& out) override {
    std::string_view text;
    if (!records_.next(text, out.place)) return false;
    const Place& place = out.place;
    record_.parse(text, place);
    const bool has_ids = record_.has(kPrompt) && record_.field(kPrompt).kind != JsonKind::kString;
    const int lengths = record_.has(kPromptLen) + record_.has(kInputLen) + has_ids;
    if (lengths > 1)
      place.fail("the prompt is given more than once; give one of prompt_len, input_len, prompt");
    if (lengths == 0) {
      for (const int key : {kConversations, kConversation}) {
        const JsonKind kind = record_.field(key).kind;
        if (record_.has(key) && kind != JsonKind::kOther && kind != JsonKind::kString)
          place.fail("{} is {}; give prompt_len and output_len, whole numbers of tokens", kKeys[key],
                     record_.found(key));
      }
      if (record_.has(kConversations) || record_.has(kConversation) || record_.has(kPrompt)) {
        place.fail(
            "the prompt is given as text, whose length in tokens is not known; count prompt and answer with "
            "your model's tokenizer and give {{\"prompt_len\": …, \"output_len\": …}}");
      }
      place.fail("the prompt is missing; give prompt_len, or prompt as an array of token ids");
    }
    WorkloadRequest& request = out.request;
    if (has_ids) {
      request.prompt = record_.tokens(kPrompt, kGeneratedTokenBase);
      if (request.prompt.empty()) place.fail("prompt is empty; at least one token is needed");
    }
    const bool has_output_ids = record_.has(kOutput) && record_.field(kOutput).kind != JsonKind::kString;
    if (has_output_ids) {
      request.output = record_.tokens(kOutput, kGeneratedTokenBase);
      if (request.output.empty()) place.fail("output is empty; at least one token is generated");
      request.max_new_tokens = static_cast<std::uint32_t>(request.output.size());
      if (record_.has(kOutputLen) &&
          record_.count(kOutputLen, 1, kMaxRequestTokens) != request.max_new_tokens) {
        place.fail("output has {} tokens and output_len is {}; make them equal or leave one out",
                   request.max_new_tokens, record_.field(kOutputLen).number);
      }
    } else {
      request.max_new_tokens = static_cast<std::uint32_t>(record_.count(kOutputLen, 1, kMaxRequestTokens));
    }
    if (!has_ids) {
      const int length = record_.has(kPromptLen) ? kPromptLen : kInputLen;
      out.prompt_length = static_cast<std::uint32_t>(record_.count(length, 1, kMaxRequestTokens));
    }
    return true;
  }

 private:
  JsonRecords& records_;
  JsonRecord record_;
};

}  // namespace

std::unique_ptr<TraceFormat> open_sharegpt(JsonRecords& records) {
  return std::make_unique<ShareGpt>(records);
}

}  // namespace tpsim::scheduler
