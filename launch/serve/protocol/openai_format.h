// What the two protocols of OpenAI's have in common.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "launch/serve/protocol/answer_format.h"

namespace tpsim::launch {

class OpenAiFormat : public AnswerFormat {
 public:
  OpenAiFormat(const GenerateCall& call, const FormatOptions& options, std::int64_t created);

  bool begins_at_once() const override { return false; }
  bool sends_deltas() const override { return stream_; }
  void failed(unsigned status, std::string_view type, std::string_view message, std::string& out) override;

 protected:
  const FormatOptions& options() const { return options_; }
  std::uint32_t n() const { return n_; }
  bool include_usage() const { return include_usage_; }
  bool continuous_usage() const { return continuous_usage_; }
  // {"id":…,"object":…,"created":…,"model":…,"choices":[
  std::string head(const Answer& first, std::string_view object) const;
  // What of its text was not sent, without quotes; marks it as sent.
  static std::string_view delta(Answer& answer);
  // "finish_reason":…,"matched_stop":…
  static std::string finish_fields(const Answer& answer);
  // Whether the end of `answer` is an error; then appends its event and what closes the stream.
  bool ends_in_error(const Answer& answer, std::string& out);
  bool failed_already() const { return failed_; }

 private:
  const FormatOptions& options_;
  const std::string model_;
  const std::uint32_t n_;
  const bool stream_;
  const bool include_usage_;
  const bool continuous_usage_;
  const std::int64_t created_;
  bool failed_ = false;
};

}  // namespace tpsim::launch
