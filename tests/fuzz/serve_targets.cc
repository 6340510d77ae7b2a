// What clients send to `tpsim serve`, and what it would answer to them.
#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "launch/serve/pipelines/generation_call.h"
#include "launch/serve/pipelines/media.h"
#include "launch/serve/protocol/answer_format.h"
#include "launch/serve/protocol/generate_call.h"
#include "launch/serve/protocol/json_fields.h"
#include "launch/serve/wire/connection.h"
#include "tests/fuzz/fuzz_targets.h"

namespace tpsim::fuzz {
namespace {

using launch::Answer;
using launch::AnswerFormat;
using launch::GenerateCall;
using nlohmann::json;

void check(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

void check_json(std::string_view text, const char* what) { check(json::accept(text), what); }

// Each event is JSON, and the last says so.
void check_stream(std::string_view text) {
  bool done = false;
  while (!text.empty()) {
    const std::size_t end = text.find("\n\n");
    check(text.starts_with("data: ") && end != std::string_view::npos, "a stream is made of events");
    const std::string_view event = text.substr(6, end - 6);
    check(!done, "nothing comes behind the end");
    if (event == "[DONE]")
      done = true;
    else
      check_json(event, "an event is JSON");
    text.remove_prefix(end + 2);
  }
  check(done, "a stream has an end");
}

std::unique_ptr<AnswerFormat> format_of(const GenerateCall& call, const launch::FormatOptions& options) {
  switch (call.api) {
    case GenerateCall::Api::kGenerate:
      return launch::make_native_format(call, options);
    case GenerateCall::Api::kCompletions:
      return launch::make_completion_format(call, options, 1700000000);
    case GenerateCall::Api::kChat:
      break;
  }
  return launch::make_chat_format(call, options, 1700000000);
}

// Answers that say what was asked, so that every string of a client comes back.
std::vector<Answer> answers_of(const GenerateCall& call) {
  std::vector<Answer> answers(call.prompts.size() * call.n);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    answers[i].index = static_cast<std::uint32_t>(i);
    answers[i].id = call.rids.empty() ? "id" : call.rids.front();
    launch::append_escaped(call.prompts[i / call.n].text, answers[i].text);
    answers[i].add_id(7);
    answers[i].completion_tokens = 1;
  }
  return answers;
}

void answer(const GenerateCall& call) {
  const launch::FormatOptions options;
  const std::unique_ptr<AnswerFormat> format = format_of(call, options);
  std::vector<Answer> answers = answers_of(call);
  std::string stream;
  for (Answer& one : answers) format->event(one, stream);
  for (Answer& one : answers) {
    one.finish = launch::FinishReason{.kind = launch::FinishReason::Kind::kStop,
                                      .matched = launch::json_string(one.id)};
    format->event(one, stream);
  }
  format->closing(answers, stream);
  check_stream(stream);
  check_json(format_of(call, options)->whole(answers), "an answer is JSON");
}

void call(std::string_view bytes, GenerateCall (*parse)(std::string_view, const launch::ParseLimits&)) {
  try {
    const GenerateCall parsed = parse(bytes, {.max_prompts = 64});
    check(!parsed.prompts.empty() && parsed.n > 0, "there is something to answer");
    check(parsed.prompts.size() * parsed.n <= 64, "no more than allowed");
    check(parsed.sampling.size() == 1 || parsed.sampling.size() == parsed.prompts.size(),
          "each prompt has parameters");
    for (const launch::SamplingFields& sampling : parsed.sampling) {
      check(sampling.temperature >= 0 && sampling.top_p > 0 && sampling.top_p <= 1, "parameters are sane");
      for (const std::string& stop : sampling.stop) check(!stop.empty(), "a stop string is not empty");
    }
    answer(parsed);
  } catch (const launch::Refusal& refusal) {
    check(refusal.status == 400, "a wrong body is 400");
    for (const launch::ErrorStyle style : {launch::ErrorStyle::kPlain, launch::ErrorStyle::kOpenAi})
      check_json(launch::error_body(style, refusal.status, refusal.type, refusal.what()), "an error is JSON");
  }
}

void generate(std::string_view bytes) { call(bytes, launch::parse_generate); }
void completion(std::string_view bytes) { call(bytes, launch::parse_completion); }
void chat(std::string_view bytes) { call(bytes, launch::parse_chat); }

void abort_request(std::string_view bytes) {
  try {
    (void)launch::parse_abort(bytes);
  } catch (const launch::Refusal& refusal) {
    check(refusal.status == 400, "a wrong body is 400");
  }
}

void generation(std::string_view type, std::string_view bytes) {
  using Kind = launch::GenerationCall::Kind;
  launch::HttpRequest request;
  request.content_type = type;
  request.body = bytes;
  for (const Kind kind : {Kind::kImage, Kind::kEdit, Kind::kVideo}) {
    try {
      const launch::GenerationCall call = launch::read_generation(kind, request, {});
      check_json(launch::json_string(call.prompt), "a prompt is text");
      check(kind == Kind::kVideo ? call.sampling.frames > 0U && call.fps > 0 : !call.sampling.frames,
            "only videos have frames");
    } catch (const launch::Refusal& refusal) {
      check(refusal.status == 400 || refusal.status == 422, "a wrong body is the client's");
    }
  }
}
void image(std::string_view bytes) {
  generation("application/json", bytes);
  launch::picture_size(bytes);
}
void form(std::string_view bytes) { generation("multipart/form-data; boundary=b", bytes); }

void text(std::string_view bytes) {
  const std::string written = launch::json_string(bytes);
  check_json(written, "any bytes become JSON");
  // Cut anywhere, whole characters stay what they are.
  try {
    const json read = json::parse(written);
    check(launch::json_string(read.get<std::string>()) == written, "JSON text reads back");
  } catch (const json::exception&) {
    check(false, "JSON text can be read");
  }
}

const launch::WireConfig kLimits = {.max_body_bytes = 512, .max_head_bytes = 1024};

struct Requests {
  std::vector<std::string> whole;  // each as text
  // A head is too long: some more bytes are let through where they come together.
  bool long_head = false;
};

// The requests in `bytes` that come in pieces. (That a piece of one more is wrong may be seen sooner or
// later: Beast looks for the end of a head first where it has seen a part of it.)
Requests requests_in(std::string_view bytes, std::size_t piece) {
  Requests all;
  launch::RequestReader reader(kLimits);
  std::string pending;
  while (true) {
    const launch::RequestReader::State state = reader.read(pending);
    if (state == launch::RequestReader::State::kWrong) {
      check(reader.status() >= 400 && reader.status() < 500 && !reader.sentence().empty(),
            "what is wrong has a status and a sentence");
      all.long_head = reader.status() == 431;
      return all;
    }
    if (state == launch::RequestReader::State::kDone) {
      const auto [request, framing] = reader.take();
      check(request.body.size() <= kLimits.max_body_bytes, "a body has its limit");
      check(request.path.find('?') == std::string::npos, "a path has no query");
      std::string& text = all.whole.emplace_back();
      for (const std::string& part : {request.method, request.path, request.query, request.authorization,
                                      request.content_type, request.accept, request.body})
        text += launch::json_string(part);
      text += framing.keep_alive ? 'k' : '-';
      text += framing.http_1_0 ? '0' : '1';
      text += framing.head_only ? 'h' : '-';
      (void)request.parameter("timeout");
      continue;
    }
    if (bytes.empty()) return all;
    pending.append(bytes.substr(0, piece));
    bytes.remove_prefix(std::min(piece, bytes.size()));
  }
}

// The first byte says in how large pieces the rest comes; what is read does not depend on it.
void http(std::string_view bytes) {
  if (bytes.empty()) return;
  const std::size_t piece = static_cast<unsigned char>(bytes.front()) + std::size_t{1};
  bytes.remove_prefix(1);
  Requests pieces = requests_in(bytes, piece);
  Requests together = requests_in(bytes, std::max<std::size_t>(bytes.size(), 1));
  if (pieces.long_head || together.long_head) {
    const std::size_t both = std::min(pieces.whole.size(), together.whole.size());
    pieces.whole.resize(both);
    together.whole.resize(both);
  }
  check(pieces.whole == together.whole, "requests are the same however their bytes come");
}

constexpr std::array<FuzzTarget, 8> kTargets = {{{"serve_generate", generate},
                                                 {"serve_completion", completion},
                                                 {"serve_chat", chat},
                                                 {"serve_abort", abort_request},
                                                 {"serve_text", text},
                                                 {"serve_image", image},
                                                 {"serve_form", form},
                                                 {"serve_http", http}}};

}  // namespace

std::span<const FuzzTarget> serve_targets() { return kTargets; }

}  // namespace tpsim::fuzz
