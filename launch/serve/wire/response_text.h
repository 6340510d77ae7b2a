// Answers as bytes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "launch/serve/wire/http_request.h"

namespace tpsim::launch {

// How a connection goes on after an answer.
struct AnswerFraming {
  bool keep_alive = true;
  bool http_1_0 = false;   // no chunks: a stream ends with the connection
  bool head_only = false;  // the answer to HEAD
};

// The whole answer, or its head. `date`: of the Date header.
std::string response_text(const HttpResponse& response, const AnswerFraming& framing, std::string_view date);
// The head of a stream.
std::string stream_head(std::string_view content_type, const HttpHeaders& headers,
                        const AnswerFraming& framing, std::string_view date);
// One piece of a stream, in a chunk of its own; and what ends it.
void append_chunk(std::string_view piece, std::string& out);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";
// Now, as HTTP writes it.
std::string http_date();

}  // namespace tpsim::launch
