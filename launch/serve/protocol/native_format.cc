// What /generate answers: TokenizerManager._handle_batch_output of SGLang 0.5.12.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "launch/serve/protocol/answer_format.h"
#include "launch/serve/protocol/json_fields.h"

namespace tpsim::launch {
namespace {

class NativeFormat final : public AnswerFormat {
 public:
  NativeFormat(const GenerateCall& call, const FormatOptions& options)
      : options_(options), single_(call.single), stream_(call.stream) {}

  bool begins_at_once() const override { return true; }
  bool sends_deltas() const override { return incremental(); }

  void event(Answer& answer, std::string& out) override {
    out += "data: ";
    write(answer, out);
    out += "\n\n";
    answer.begun = true;
  }

  void closing(std::span<Answer>, std::string& out) override { out += "data: [DONE]\n\n"; }

  std::string whole(std::span<Answer> answers) override {
    std::string out;
    if (!single_) out += '[';
    for (Answer& answer : answers) {
      if (&answer != answers.data()) out += ',';
      write(answer, out);
    }
    if (!single_) out += ']';
    return out;
  }

  void failed(unsigned, std::string_view, std::string_view message, std::string& out) override {
    fmt::format_to(std::back_inserter(out), "data: {{\"error\":{{\"message\":{}}}}}\n\ndata: [DONE]\n\n",
                   json_string(message));
  }

 private:
  bool incremental() const { return options_.incremental_streaming_output && stream_; }

  void write(Answer& answer, std::string& out) const {
    std::string_view text = answer.text, ids = answer.ids;
    if (incremental()) {
      text.remove_prefix(std::min(answer.text_sent, text.size()));
      ids.remove_prefix(std::min(answer.ids_sent, ids.size()));
      if (ids.starts_with(',')) ids.remove_prefix(1);
    }
    answer.text_sent = answer.text.size();
    answer.ids_sent = answer.ids.size();
    out += '{';
    if (!options_.skip_tokenizer) {
      out += R"("text":")";
      out += text;
      out += R"(",)";
    }
    out += R"("output_ids":[)";
    out += ids;
    out += R"(],"meta_info":{)";
    const auto to = std::back_inserter(out);
    fmt::format_to(to, R"("id":{},"finish_reason":{},"prompt_tokens":{},"weight_version":{},)",
                   json_string(answer.id), answer.finish ? answer.finish->json() : "null",
                   answer.prompt_tokens, json_string(options_.weight_version));
    fmt::format_to(to,
                   R"("num_retractions":{},"reasoning_tokens":0,"completion_tokens":{},"cached_tokens":{},)",
                   answer.retractions, answer.completion_tokens, answer.cached_tokens);
    if (answer.cached_tokens > 0)
      fmt::format_to(to, R"("cached_tokens_details":{{"device":{},"host":{}{}}},"dp_rank":null)",
                     answer.cached_tokens - answer.cached_host - answer.cached_storage, answer.cached_host,
                     answer.cached_storage > 0 ? fmt::format(R"(,"storage":{})", answer.cached_storage) : "");
    else
      out += R"("cached_tokens_details":null,"dp_rank":null)";
    if (answer.finish) fmt::format_to(to, R"(,"e2e_latency":{})", answer.e2e_latency);
    if (!answer.begun && answer.first_sent_time > 0)
      fmt::format_to(to, R"(,"response_sent_to_client_ts":{:.6f})", answer.first_sent_time);
    if (!options_.tokenizer_note.empty())
      fmt::format_to(to, R"(,"tpsim_tokenizer":{})", json_string(options_.tokenizer_note));
    out += '}';
    if (!single_ && stream_) fmt::format_to(to, R"(,"index":{})", answer.index);
    out += '}';
  }

  const FormatOptions& options_;
  const bool single_;
  const bool stream_;
};

}  // namespace

std::unique_ptr<AnswerFormat> make_native_format(const GenerateCall& call, const FormatOptions& options) {
  return std::make_unique<NativeFormat>(call, options);
}

}  // namespace tpsim::launch
