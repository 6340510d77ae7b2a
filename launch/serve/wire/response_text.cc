#include "launch/serve/wire/response_text.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <iterator>

namespace tpsim::launch {
namespace {

struct Status {
  unsigned code;
  std::string_view phrase;
  std::string_view name;
};

constexpr std::array<Status, 15> kStatuses = {{
    {200, "OK", "OK"},
    {204, "No Content", "NO_CONTENT"},
    {400, "Bad Request", "BAD_REQUEST"},
    {401, "Unauthorized", "UNAUTHORIZED"},
    {403, "Forbidden", "FORBIDDEN"},
    {404, "Not Found", "NOT_FOUND"},
    {405, "Method Not Allowed", "METHOD_NOT_ALLOWED"},
    {408, "Request Timeout", "REQUEST_TIMEOUT"},
    {413, "Request Entity Too Large", "REQUEST_ENTITY_TOO_LARGE"},
    {415, "Unsupported Media Type", "UNSUPPORTED_MEDIA_TYPE"},
    {429, "Too Many Requests", "TOO_MANY_REQUESTS"},
    {431, "Request Header Fields Too Large", "REQUEST_HEADER_FIELDS_TOO_LARGE"},
    {500, "Internal Server Error", "INTERNAL_SERVER_ERROR"},
    {501, "Not Implemented", "NOT_IMPLEMENTED"},
    {503, "Service Unavailable", "SERVICE_UNAVAILABLE"},
}};

std::string head(unsigned status, const AnswerFraming& framing, std::string_view date) {
  std::string text =
      fmt::format("HTTP/1.1 {} {}\r\ndate: {}\r\nserver: tpsim\r\n", status, reason_phrase(status), date);
  if (!framing.keep_alive) text += "connection: close\r\n";
  if (framing.keep_alive && framing.http_1_0) text += "connection: keep-alive\r\n";
  return text;
}

}  // namespace

std::string_view HttpRequest::parameter(std::string_view key) const {
  for (std::string_view rest = query; !rest.empty();) {
    const std::string_view pair = rest.substr(0, rest.find('&'));
    if (pair.size() > key.size() && pair.starts_with(key) && pair[key.size()] == '=')
      return pair.substr(key.size() + 1);
    rest.remove_prefix(std::min(pair.size() + 1, rest.size()));
  }
  return {};
}

std::string_view reason_phrase(unsigned status) {
  for (const Status& known : kStatuses) {
    if (known.code == status) return known.phrase;
  }
  return {};
}

std::string_view status_name(unsigned status) {
  for (const Status& known : kStatuses) {
    if (known.code == status) return known.name;
  }
  return {};
}

std::string response_text(const HttpResponse& response, const AnswerFraming& framing, std::string_view date) {
  std::string text = head(response.status, framing, date);
  for (const auto& [name, value] : response.headers) text += fmt::format("{}: {}\r\n", name, value);
  if (!response.body.empty()) text += fmt::format("content-type: {}\r\n", response.content_type);
  text += fmt::format("content-length: {}\r\n\r\n", response.body.size());
  if (!framing.head_only) text += response.body;
  return text;
}

std::string stream_head(std::string_view content_type, const HttpHeaders& headers,
                        const AnswerFraming& framing, std::string_view date) {
  std::string text = head(200, framing, date);
  for (const auto& [name, value] : headers) text += fmt::format("{}: {}\r\n", name, value);
  text += fmt::format("content-type: {}\r\n", content_type);
  if (!framing.http_1_0) text += "transfer-encoding: chunked\r\n";
  return text += "\r\n";
}

void append_chunk(std::string_view piece, std::string& out) {
  fmt::format_to(std::back_inserter(out), "{:x}\r\n", piece.size());
  out.append(piece);
  out.append("\r\n");
}

std::string http_date() {
  const std::time_t now = std::time(nullptr);
  return fmt::format("{:%a, %d %b %Y %H:%M:%S GMT}", fmt::gmtime(now));
}

}  // namespace tpsim::launch
