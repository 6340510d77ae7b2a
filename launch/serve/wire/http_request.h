// A request as it came over HTTP, and a whole answer to one.
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

// "Not Found"; empty for a status that nobody sends.
std::string_view reason_phrase(unsigned status);
// "BAD_REQUEST", as Python's http.HTTPStatus names it; empty as above.
std::string_view status_name(unsigned status);

}  // namespace tpsim::launch
