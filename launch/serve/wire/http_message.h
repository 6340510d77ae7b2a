// A request as it came over HTTP, and answers as bytes.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tpsim::launch {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;  // names in lower case

struct HttpRequest {
  std::string method;                               // "GET"
  std::string path;                                 // of the target, as it was sent: "/v1/models"
  std::string query;                                // after its "?"; empty: none
  std::string authorization, content_type, accept;  // headers; empty: not sent
  std::string routing_key;                          // X-SMG-Routing-Key, likewise
  std::string body;
  std::chrono::steady_clock::time_point arrived;  // when its first bytes were there
  // The value of `key` in the query; empty: not there. Percent signs stay as they are.
  std::string_view parameter(std::string_view key) const;
};

struct HttpResponse {
  unsigned status = 200;
  std::string body;
  std::string content_type = "application/json";
  HttpHeaders headers = {};  // besides
};

// "BAD_REQUEST", as Python's http.HTTPStatus names it.
std::string status_name(unsigned status);

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
