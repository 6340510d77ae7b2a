// Lengths of a chat dataset such as ShareGPT: a JSON array of objects, or one object in each line, with
//
//   prompt_len or input_len   prompt tokens, or `prompt`: the token ids
//   output_len                generated tokens, or `output`: the token ids
//
// or texts: `prompt` and `output`, or the first two turns of `conversations` (`value`, or `content`), as
// SGLang's benchmark takes them (benchmark/datasets/sharegpt.py); those of fewer turns are left out, and a
// note says so; an empty text counts as a token. Their tokens are ReadOptions::count_tokens, else four for
// three words, the rule of thumb of OpenAI's help pages, and one for each character beyond ASCII, of which no
// spaces make words.
// ReadOptions::draw gives them in the order of the benchmark's sample, and counts those alone that it takes.
//
// All requests arrive at 0: offer them with --request-rate or --max-concurrency.
#include <algorithm>
#include <array>
#include <cctype>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "scheduler/workload/benchmark_random.h"
#include "scheduler/workload/json_record.h"
#include "scheduler/workload/trace_formats.h"

namespace tpsim::scheduler {

namespace {

enum { kPromptLen, kInputLen, kPrompt, kOutputLen, kOutput, kConversations, kConversation };
constexpr std::array<std::string_view, 7> kKeys = {"prompt_len", "input_len",     "prompt",      "output_len",
                                                   "output",     "conversations", "conversation"};

std::uint64_t count_words(std::string_view text) {
  std::uint64_t words = 0, others = 0;
  bool inside = false;
  for (const char character : text) {
    const auto byte = static_cast<unsigned char>(character);
    const bool ascii = byte < 0x80 && std::isspace(byte) == 0;
    if (byte >= 0xC0) ++others;  // a character of several bytes begins
    if (ascii && !inside) ++words;
    inside = ascii;
  }
  return (words * 4 + 1) / 3 + others;
}

// Prompt and answer as texts.
using Texts = std::pair<std::string, std::string>;

class ShareGpt : public TraceFormat {
 public:
  ShareGpt(JsonRecords& records, const ReadOptions& options)
      : records_(records), record_(kKeys), count_tokens_(options.count_tokens), seed_(options.draw) {}

  bool next(TraceRecord& out) override {
    if (!seed_) {
      Held held;
      if (!read(held)) return false;
      count(held);
      out = std::move(held.record);
      return true;
    }
    if (held_.empty()) {
      for (Held held; read(held); held = {}) held_.push_back(std::move(held));
      PythonRandom(*seed_).shuffle(held_);
    }
    while (tried_ < held_.size()) {
      Held& held = held_[tried_++];
      count(held);
      const TraceRecord& record = held.record;
      if (std::max<std::uint64_t>(record.prompt_length, record.request.prompt.size()) < 2 ||
          record.request.max_new_tokens < 2)
        continue;
      drawn_ = true;
      out = std::move(held.record);
      return true;
    }
    if (!drawn_ && !held_.empty())
      throw_user_error("{}: no request has two prompt tokens and two output tokens",
                       held_.front().record.place.name);
    return false;
  }

  std::vector<std::string> notes() const override {
    std::vector<std::string> out;
    if (texts_ && !count_tokens_)
      out.emplace_back(
          "prompts and answers are texts: 4 tokens are counted for 3 words, for the model has no tokenizer "
          "here "
          "(--model-path DIR with tokenizer.json or tokenizer.model counts them)");
    if (left_out_ > 0)
      out.push_back(fmt::format("{} conversations of fewer than two turns are left out", left_out_));
    return out;
  }

 private:
  struct Held {
    TraceRecord record;
    std::optional<Texts> texts;  // not counted yet
  };

  // False at the end.
  bool read(Held& held) {
    std::string_view text;
    do {
      if (!records_.next(text, held.record.place)) return false;
      record_.parse(text, held.record.place);
    } while (!take(text, held));
    return true;
  }

  // False: left out.
  bool take(std::string_view text, Held& held) {
    TraceRecord& out = held.record;
    const Place& place = out.place;
    const bool has_ids = record_.has(kPrompt) && record_.field(kPrompt).kind != JsonKind::kString;
    const int lengths = record_.has(kPromptLen) + record_.has(kInputLen) + has_ids;
    if (lengths > 1)
      place.fail("the prompt is given more than once; give one of prompt_len, input_len, prompt");
    if (lengths == 0) {
      held.texts = texts_of(text, place);
      if (!held.texts) ++left_out_;
      return held.texts.has_value();
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

  void count(Held& held) {
    if (!held.texts) return;
    texts_ = true;
    held.record.prompt_length = tokens_of(held.texts->first, held.record.place);
    held.record.request.max_new_tokens = tokens_of(held.texts->second, held.record.place);
  }

  std::uint32_t tokens_of(const std::string& text, const Place& place) const {
    const std::uint64_t tokens = count_tokens_ ? count_tokens_(text) : count_words(text);
    if (tokens > kMaxRequestTokens)
      place.fail("a text has {} tokens; {} are the most", tokens, kMaxRequestTokens);
    return static_cast<std::uint32_t>(std::max<std::uint64_t>(tokens, 1));
  }

  // None: fewer than two turns.
  std::optional<Texts> texts_of(std::string_view text, const Place& place) const {
    const nlohmann::json record = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    for (const int key : {kConversations, kConversation}) {
      if (!record_.has(key)) continue;
      const nlohmann::json& turns = record[std::string(kKeys[key])];
      if (!turns.is_array())
        place.fail("{} is {}; give prompt_len and output_len, or an array of turns", kKeys[key],
                   record_.found(key));
      if (turns.size() < 2) return std::nullopt;
      return Texts{turn(turns[0], kKeys[key], place), turn(turns[1], kKeys[key], place)};
    }
    if (!record_.has(kPrompt))
      place.fail("the prompt is missing; give prompt_len, or prompt as an array of token ids or a text");
    if (record_.field(kOutput).kind != JsonKind::kString)
      place.fail("the prompt is a text and output is {}; give both as texts, or prompt_len and output_len",
                 record_.found(kOutput));
    return Texts{record_.field(kPrompt).text, record_.field(kOutput).text};
  }

  static std::string turn(const nlohmann::json& turn, std::string_view key, const Place& place) {
    for (const char* name : {"value", "content"}) {
      if (turn.is_object() && turn.contains(name) && turn[name].is_string()) return turn[name];
    }
    place.fail("a turn of {} has no text; {{\"from\": …, \"value\": \"…\"}} is needed", key);
  }

  JsonRecords& records_;
  JsonRecord record_;
  std::function<std::uint64_t(std::string_view)> count_tokens_;
  const std::optional<std::uint32_t> seed_;
  bool texts_ = false;
  std::uint64_t left_out_ = 0;
  std::vector<Held> held_;  // of a draw, in its order
  std::size_t tried_ = 0;   // of them
  bool drawn_ = false;      // one of them
};

}  // namespace

std::unique_ptr<TraceFormat> open_sharegpt(JsonRecords& records, const ReadOptions& options) {
  return std::make_unique<ShareGpt>(records, options);
}

}  // namespace tpsim::scheduler
